"""What the log says: changes by their number, and the edits of things."""

from collections.abc import Sequence

from recollect.core.records import Change, Edit, Ref
from recollect.engines.postgres.connecting.database import Cursor
from recollect.engines.postgres.records.asking import ask, most
from recollect.engines.postgres.records.rows import Row, edit_from, given, kept_all

_HEADS = "SELECT seq, at, tool, client, undoes FROM changes WHERE store = %s AND "
_EDITS = (
    "SELECT seq, operation, subject, item, before FROM edits "
    "WHERE store = %s AND seq = ANY(%s::bigint[]) ORDER BY seq, position"
)


def change_numbered(cursor: Cursor, store: int, seq: int) -> Change:
    heads = ask(cursor, f"{_HEADS} seq = %s", store, seq).fetchall()
    return _with_edits(cursor, store, heads)[0]


def changes(
    cursor: Cursor, store: int, after: int, limit: int, *, newest_first: bool
) -> list[Change]:
    order = "DESC" if newest_first else "ASC"
    heads = ask(
        cursor, f"{_HEADS} seq > %s ORDER BY seq {order} LIMIT %s", store, after, most(limit)
    ).fetchall()
    return _with_edits(cursor, store, heads)


def history(cursor: Cursor, store: int, refs: Sequence[Ref], after: int) -> list[tuple[int, Edit]]:
    if not refs:
        return []
    rows = ask(
        cursor,
        "SELECT seq, operation, subject, item, before FROM edits WHERE store = %s "
        "AND item = ANY(%s::text[]) AND seq > %s ORDER BY seq, position",
        store,
        kept_all([ref.id for ref in refs]),
        after,
    )
    wanted = set(refs)
    edits = [(seq, edit_from(tuple(edit))) for seq, *edit in rows]
    return [(seq, edit) for seq, edit in edits if Ref(edit.subject, edit.id or "") in wanted]


def _with_edits(cursor: Cursor, store: int, heads: Sequence[Row]) -> list[Change]:
    if not heads:
        return []
    numbers = [head[0] for head in heads]
    edits: dict[int, list[Edit]] = {number: [] for number in numbers}
    for seq, *edit in ask(cursor, _EDITS, store, numbers):
        edits[seq].append(edit_from(tuple(edit)))
    return [
        Change(seq, at, given(tool), given(client), undoes, tuple(edits[seq]))
        for seq, at, tool, client, undoes in heads
    ]
