"""Walks along links, and what links to a record."""

from itertools import islice

from everkept.core.driving import driven
from everkept.core.fallback_answers import hop_by_hop
from everkept.core.questions import CountSources, FindLinks, WalkLinks
from everkept.core.records import Link
from everkept.core.walking import Sources
from everkept.engines.sqlite import queries
from everkept.engines.sqlite.filters import conditions
from everkept.engines.sqlite.rows import LINK_COLUMNS, link_from, listed
from everkept.engines.sqlite.sql import Connection

# CROSS JOIN: the links lead, whatever else is asked of what they come from.
_MET = (
    "SELECT l.target, l.source, l.key FROM links l CROSS JOIN records r ON r.key = l.source "
    "WHERE l.deleted_at IS NULL AND l.target IN (SELECT value FROM json_each(?)) AND {wanted} "
    "ORDER BY l.created_at, l.key"
)


def walk(db: Connection, question: WalkLinks) -> list[list[Link]]:
    """Read every hop from one state of the file."""

    async def ask(found: FindLinks) -> list[Link]:
        return queries.links(db, found)

    return driven(hop_by_hop(ask, question.ids, question.hops))


def sources_of(db: Connection, question: CountSources) -> Sources:
    """Of the links the keys are read, and of those that are told the rest."""
    targets: dict[int, str] = dict(
        db.execute(
            "SELECT key, id FROM records WHERE id IN (SELECT value FROM json_each(?))",
            (listed(question.ids),),
        )
    )
    wanted = conditions(question.where)
    met = db.execute(_MET.format(wanted=wanted.sql), (listed(targets), *wanted.bindings)).fetchall()
    about: dict[int, set[int]] = {}
    for target, source, _ in met:
        about.setdefault(target, set()).add(source)
    newest = set(islice(dict.fromkeys(source for _, source, _ in reversed(met)), question.limit))
    found = db.execute(
        f"SELECT {LINK_COLUMNS} FROM links l WHERE l.key IN (SELECT value FROM json_each(?)) "
        "ORDER BY l.created_at, l.key",
        (listed(key for _, source, key in met if source in newest),),
    )
    counts = {targets[target]: len(sources) for target, sources in about.items()}
    return Sources(counts, [link_from(row) for row in found])
