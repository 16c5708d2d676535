"""What may stand for the same as nothing else: names of live records, and live links."""

from collections.abc import Collection, Iterable

from everkept.core.records import Link, Record
from everkept.engines.planning import name_of
from everkept.engines.surreal.records.rows import edge_to, kept, link_from, record_from
from everkept.engines.surreal.records.tables import Tables
from everkept.errors import Conflict

_NAMED = (
    "SELECT * FROM record WITH INDEX record_name_key "
    "WHERE name_key IN $names AND deleted_at IS NONE"
)
_JOINED = "SELECT * FROM link WITH INDEX link_edge WHERE edge IN $edges AND deleted_at IS NONE"


async def check_unique(
    tables: Tables,
    records: Iterable[Record],
    links: Iterable[Link],
    gone: Collection[str] = (),
    gone_links: Collection[str] = (),
) -> None:
    """Raises Conflict where one of these would stand for the same as another.

    All that change are among them; those that are `gone` are in nobody's way.
    """
    named = {record.id: record for record in records}
    live = [r for r in named.values() if r.deleted_at is None and r.name_key is not None]
    if live:
        names = sorted({kept(r.name_key or "") for r in live})
        found = map(record_from, await tables.ask(_NAMED, names=names))
        others = [r for r in found if r.id not in named and r.id not in gone]
        keys = [name_of(r) for r in (*live, *others)]
        if len(set(keys)) < len(keys):
            raise Conflict("Two records would stand for the same.")
    joined = {link.id: link for link in links}
    edges = [edge_to(x) for x in joined.values() if x.deleted_at is None]
    if edges:
        rows = map(link_from, await tables.ask(_JOINED, edges=sorted(set(edges))))
        edges += [edge_to(x) for x in rows if x.id not in joined and x.id not in gone_links]
        if len(set(edges)) < len(edges):
            raise Conflict("Two links would say the same.")
