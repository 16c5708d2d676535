"""Walks along links, and what links to a record."""

from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING

from everkept.core.driving import driven
from everkept.core.records import Link, Where
from everkept.core.walking import Hops, Sources, hop_by_hop
from everkept.engines.sqlite import queries
from everkept.engines.sqlite.filters import conditions
from everkept.engines.sqlite.rows import LINK_COLUMNS, link_from, listed
from everkept.engines.sqlite.sql import Connection

if TYPE_CHECKING:  # a hook loads only what it uses
    from everkept.core.walking import Direction

# CROSS JOIN: the links lead, whatever else is asked of what they come from.
_MET = (
    "SELECT l.target, l.source, l.key FROM links l CROSS JOIN records r ON r.key = l.source "
    "WHERE l.deleted_at IS NULL AND l.target IN (SELECT value FROM json_each(?)) AND {wanted} "
    "ORDER BY l.created_at, l.key"
)


def walk(db: Connection, ids: Sequence[str], hops: Hops) -> list[list[Link]]:
    """Every hop of it is read from one state of the file."""

    async def links_at(
        ids: Sequence[str], *, direction: "Direction", sources: Sequence[str], limit: int | None
    ) -> list[Link]:
        return queries.links(db, ids, direction, sources, limit)

    return driven(hop_by_hop(links_at, ids, hops))


def sources_of(db: Connection, ids: Sequence[str], where: Where, limit: int) -> Sources:
    """Of the links the keys are read, and of those that are told the rest."""
    targets: dict[int, str] = dict(
        db.execute(
            "SELECT key, id FROM records WHERE id IN (SELECT value FROM json_each(?))",
            (listed(ids),),
        )
    )
    wanted = conditions(where)
    met = db.execute(_MET.format(wanted=wanted.sql), (listed(targets), *wanted.bindings)).fetchall()
    about: dict[int, set[int]] = {}
    for target, source, _ in met:
        about.setdefault(target, set()).add(source)
    newest = set(islice(dict.fromkeys(source for _, source, _ in reversed(met)), limit))
    found = db.execute(
        f"SELECT {LINK_COLUMNS} FROM links l WHERE l.key IN (SELECT value FROM json_each(?)) "
        "ORDER BY l.created_at, l.key",
        (listed(key for _, source, key in met if source in newest),),
    )
    counts = {targets[target]: len(sources) for target, sources in about.items()}
    return Sources(counts, [link_from(row) for row in found])
