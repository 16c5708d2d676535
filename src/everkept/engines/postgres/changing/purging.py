"""Removing for good: things, what hangs on them, and all that the log and the indexes say."""

from collections.abc import Sequence

from everkept.core.records import Change, Ref
from everkept.engines.postgres.changing.belongings import Belongings, belongings
from everkept.engines.postgres.changing.cleansing import Losses, Removed
from everkept.engines.postgres.changing.turns import Place, taken, written
from everkept.engines.postgres.changing.wording import new_words
from everkept.engines.postgres.changing.writing import log, update
from everkept.engines.postgres.connecting.database import Cursor
from everkept.engines.postgres.records.asking import ask
from everkept.engines.postgres.records.rows import kept_all
from everkept.engines.postgres.searching.meaning import forget_vectors
from everkept.engines.wording import Shift


def purge(cursor: Cursor, place: Place, refs: Sequence[Ref], at: int) -> Removed:
    """A change of its own, unless there is nothing to remove."""
    state, store = taken(cursor, place), place.number
    doomed = belongings(cursor, store, refs)
    losses = Losses()
    if doomed:
        # The words around a purged text quote it as their context.
        words = new_words(cursor, store, Shift(doomed.records, {}, dict(doomed.ages)))
        with written(cursor, place, seq=state.seq + 1, ages=state.ages):
            erase(cursor, store, doomed, losses)
            update(cursor, "records", store, {i: {"words": said} for i, said in words.items()})
            log(cursor, store, [Change(state.seq + 1, at, "purge", "", None, ())])
    return Removed(len(doomed.records), len(doomed.links), losses.tables)


def erase(cursor: Cursor, store: int, doomed: Belongings, losses: Losses) -> None:
    """All but the words of others."""
    records, links = kept_all(list(doomed.records)), kept_all(list(doomed.links))
    if records:
        losses.rewritten("records")  # the words around them too
        losses.deleted("vectors", forget_vectors(cursor, store, list(doomed.records)))
    for table, column, ids, more in (
        ("edits", "item", records, " AND subject = 'record'"),
        ("edits", "item", links, " AND subject = 'link'"),
        ("links", "id", links, ""),
        ("accesses", "record", records, ""),
        ("records", "id", records, ""),
    ):
        if ids:
            condition = f"store = %s AND {column} = ANY(%s::text[]){more}"
            gone = ask(cursor, f"DELETE FROM {table} WHERE {condition}", store, ids)
            losses.deleted(table, gone)
