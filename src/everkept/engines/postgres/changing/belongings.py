"""What hangs on records: all below them, and the links at any of these."""

from collections.abc import Iterable

from everkept.core.records import Link, Record, Ref
from everkept.engines.postgres.connecting.cursor import Cursor
from everkept.engines.postgres.connecting.wire import Answer
from everkept.engines.postgres.records.asking import ask
from everkept.engines.postgres.records.rows import (
    LINK_COLUMNS,
    RECORD_COLUMNS,
    Row,
    kept_all,
    link_from,
    record_from,
)
from everkept.values import Value

RECORDS = f"SELECT r.age, {RECORD_COLUMNS} FROM records r WHERE r.store = %s AND "
LINKS = f"SELECT l.age, {LINK_COLUMNS} FROM links l WHERE l.store = %s AND "
# UNION, not UNION ALL: what would belong to itself is met once.
_FAMILY = (
    "WITH RECURSIVE family(id) AS (SELECT r.id FROM records r "
    "WHERE r.store = %s AND r.id = ANY(%s::text[]) UNION "
    "SELECT r.id FROM family f JOIN records r ON r.store = %s AND r.parent = f.id) "
)
_MEMBERS = f"{_FAMILY} {RECORDS} r.id IN (SELECT id FROM family) ORDER BY r.age"
# A look into the index for each side: with OR, all links would be read.
_AT_FAMILY = (
    f"{_FAMILY} {LINKS} l.source IN (SELECT id FROM family) UNION "
    f"{LINKS} l.target IN (SELECT id FROM family)"
)


class Belongings(Value):
    """By id, deleted ones too."""

    records: dict[str, Record]
    ages: dict[str, int]
    links: dict[str, Link]

    def __bool__(self) -> bool:
        return bool(self.records or self.links)


def members(cursor: Cursor, store: int, ids: list[str]) -> Answer:
    """Rows of these records and of all below them, the oldest first."""
    return ask(cursor, _MEMBERS, store, ids, store, store)


def links_at_members(cursor: Cursor, store: int, ids: list[str]) -> Answer:
    return ask(cursor, _AT_FAMILY, store, ids, store, store, store)


def belongings(cursor: Cursor, store: int, refs: Iterable[Ref]) -> Belongings:
    """These things, and what goes with them."""
    wanted = list(refs)
    records, links = (
        kept_all([ref.id for ref in wanted if ref.subject == subject])
        for subject in ("record", "link")
    )
    family = members(cursor, store, records)
    ends = links_at_members(cursor, store, records)
    named = ask(cursor, f"{LINKS} l.id = ANY(%s::text[])", store, links)
    aged = [aged_record(row) for row in family.fetchall()]
    found = [aged_link(row)[1] for row in (*ends.fetchall(), *named.fetchall())]
    return Belongings(
        {record.id: record for _, record in aged},
        {record.id: age for age, record in aged},
        {link.id: link for link in found},
    )


def aged_record(row: Row) -> tuple[int, Record]:
    age, *columns = row
    return age, record_from(tuple(columns))


def aged_link(row: Row) -> tuple[int, Link]:
    age, *columns = row
    return age, link_from(tuple(columns))
