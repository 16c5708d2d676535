"""What the log says: changes by their number, and the edits of things."""

from collections import defaultdict
from typing import Any

from everkept.core.questions import (
    ReadChanges,
    ReadHistory,
)
from everkept.core.records import Change, Edit, Ref
from everkept.engines.postgres.connecting.database import Cursor
from everkept.engines.postgres.records.asking import ask, ask_last, most
from everkept.engines.postgres.records.rows import edit_from, given, kept_all

_HEADS = "SELECT seq, at, tool, client, undoes FROM changes WHERE store = %s AND "
_EDITS = (
    "SELECT e.seq, e.operation, e.subject, e.item, e.before FROM edits e "
    "WHERE e.store = %s AND e.seq IN ({0}) ORDER BY e.seq, e.position"
)
# Edits are numbered from 0.
_SMALL = (
    "NOT EXISTS (SELECT FROM edits x WHERE x.store = changes.store AND x.seq = changes.seq "
    "AND x.position = %s) AND seq IN (SELECT seq FROM changes WHERE store = %s AND {0})"
)


def change_numbered(cursor: Cursor, store: int, seq: int) -> Change:
    return _with_edits(cursor, store, "seq = %s", seq)[0]


def changes(cursor: Cursor, store: int, question: ReadChanges) -> list[Change]:
    order = "DESC" if question.newest_first else "ASC"
    page = f"seq > %s ORDER BY seq {order} LIMIT %s"
    if question.most_edits is None:
        return _with_edits(cursor, store, page, question.after, most(question.limit))
    small = f"{_SMALL.format(page)} ORDER BY seq {order}"
    return _with_edits(
        cursor, store, small, question.most_edits, store, question.after, most(question.limit)
    )


def history(cursor: Cursor, store: int, question: ReadHistory) -> list[tuple[int, Edit]]:
    if not question.refs:
        return []
    rows = ask_last(
        cursor,
        "SELECT seq, operation, subject, item, before FROM edits WHERE store = %s "
        "AND item = ANY(%s::text[]) AND seq > %s ORDER BY seq, position",
        store,
        kept_all([ref.id for ref in question.refs]),
        question.after,
    )
    wanted = set(question.refs)
    edits = [(seq, edit_from(tuple(edit))) for seq, *edit in rows]
    return [(seq, edit) for seq, edit in edits if Ref(edit.subject, edit.id or "") in wanted]


def _with_edits(cursor: Cursor, store: int, which: str, *values: Any) -> list[Change]:
    heads = ask(cursor, f"{_HEADS} {which}", store, *values)
    numbers = f"SELECT seq FROM changes WHERE store = %s AND {which}"
    rows = ask_last(cursor, _EDITS.format(numbers), store, store, *values)
    edits: dict[int, list[Edit]] = defaultdict(list)
    for seq, *edit in rows:
        edits[seq].append(edit_from(tuple(edit)))
    return [
        Change(seq, at, given(tool), given(client), undoes, tuple(edits[seq]))
        for seq, at, tool, client, undoes in heads
    ]
