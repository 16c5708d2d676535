"""The column `words` in step with the records."""

from collections.abc import Iterable, Sequence

from everkept.core.driving import driven
from everkept.engines.postgres.changing.belongings import aged_record
from everkept.engines.postgres.connecting.database import Cursor
from everkept.engines.postgres.records.asking import ask
from everkept.engines.postgres.records.rows import RECORD_COLUMNS, kept, kept_all
from everkept.engines.postgres.records.schema import PREFIX
from everkept.engines.postgres.searching.words import lexemes
from everkept.engines.wording import Aged, Place, Shift, reach
from everkept.values import Value

_RECORDS = f"SELECT r.age, {RECORD_COLUMNS} FROM records r "
_CHILDREN = f"{_RECORDS} WHERE r.store = %s AND r.parent = ANY(%s::text[]) AND r.deleted_at IS NULL"
_BY_ID = f"{_RECORDS} WHERE r.store = %s AND r.id = ANY(%s::text[])"
_AT_PLACES = (
    f"{_RECORDS} JOIN unnest(%s::text[], %s::bigint[]) AS p(session, position) "
    f"ON left(r.session, {PREFIX}) = left(p.session, {PREFIX}) AND r.session = p.session "
    "AND r.position = p.position WHERE r.store = %s AND r.deleted_at IS NULL"
)


def new_words(cursor: Cursor, store: int, shift: Shift) -> dict[str, str | None]:
    """What the column is to hold of each record that is found by other words now.

    Those that are deleted are found by none, and those that are gone are left out.
    """
    found, lost = driven(reach(shift, _Stored(cursor, store)))
    deleted = [record_id for record_id in lost if shift.now(record_id) is not None]
    words = {record.id: lexemes(store, record, context) for record, context in found}
    return {**dict.fromkeys(deleted), **words}


class _Stored(Value):
    """The surroundings of whatever changes in a store."""

    cursor: Cursor
    store: int

    async def children(self, record_ids: Sequence[str]) -> Iterable[Aged]:
        return map(aged_record, ask(self.cursor, _CHILDREN, self.store, kept_all(record_ids)))

    async def standing_at(self, places: Sequence[Place]) -> Iterable[Aged]:
        sessions, positions = [kept(session) for session, _ in places], [at for _, at in places]
        return map(aged_record, ask(self.cursor, _AT_PLACES, sessions, positions, self.store))

    async def records(self, record_ids: Sequence[str]) -> Iterable[Aged]:
        return map(aged_record, ask(self.cursor, _BY_ID, self.store, kept_all(record_ids)))
