"""One commit: read what its steps are about, plan, and write all of it in one transaction."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from everkept.core.driving import driven
from everkept.core.records import Batch, Change
from everkept.engines.planning import Plan, ages_of, plan
from everkept.engines.postgres.changing.turns import Place, State, check_open, written
from everkept.engines.postgres.changing.viewing import StoredView
from everkept.engines.postgres.changing.wording import new_words
from everkept.engines.postgres.changing.writing import (
    changed_columns,
    insert,
    link_columns,
    log,
    record_columns,
    update,
)
from everkept.engines.postgres.connecting.database import Cursor
from everkept.engines.postgres.records.log import change_numbered
from everkept.engines.postgres.records.statistics import Growth
from everkept.engines.postgres.searching.meaning import forget_vectors
from everkept.engines.wording import Shift
from everkept.errors import Conflict


class Committed(NamedTuple):
    """A change, and what became of the store by it."""

    change: Change
    grown: Growth


def commit(cursor: Cursor, place: Place, batch: Batch) -> Committed:
    """Raises Conflict where the batch does not fit what is stored; the caller rolls back."""
    view = StoredView(cursor, place)
    state, same = view.take_turn(batch)
    if same is not None:
        return Committed(change_numbered(cursor, place.number, same), Growth(0, 0))
    check_open(place, state)
    if batch.revision not in (None, state.seq):
        raise Conflict("Something else was stored meanwhile.", revision=batch.revision)
    made = driven(plan(batch, view))
    seq = state.seq + 1 if made.edits else 0
    change = Change(seq, batch.at, batch.tool, batch.client, batch.undoes, made.edits)
    if made.edits:
        _write(cursor, place, view, state, made, change, batch.key)
    return Committed(change, Growth(state.ages, state.ages + len(made.fresh)))


def _write(
    cursor: Cursor,
    place: Place,
    view: StoredView,
    state: State,
    made: Plan,
    change: Change,
    key: str | None,
) -> None:
    store = place.number
    fresh, fresh_links = ages_of(made.fresh, state.ages)
    shift = Shift(made.before, made.records, {**view.ages, **fresh}, view.known)
    words = new_words(cursor, store, shift)
    with written(cursor, place, seq=change.seq, ages=state.ages + len(made.fresh)):
        update(cursor, "records", store, _altered(made, words))
        new = [made.records[record_id] for record_id in fresh]
        insert(
            cursor,
            "records",
            store,
            [{**record_columns(r), "age": fresh[r.id], "words": words.get(r.id)} for r in new],
        )
        _write_links(cursor, store, made, fresh_links)
        if made.retold:
            forget_vectors(cursor, store, sorted(made.retold))
        log(cursor, store, [change], key)


def _altered(made: Plan, words: Mapping[str, str | None]) -> dict[str, dict[str, Any]]:
    """The columns that are others now, of all records that were there."""
    altered = {
        record_id: changed_columns(record_columns(old), record_columns(made.records[record_id]))
        for record_id, old in made.before.items()
    }
    for record_id, said in words.items():
        if record_id in altered or record_id not in made.records:
            altered.setdefault(record_id, {})["words"] = said
    for record_id in made.retold & altered.keys():
        altered[record_id]["embedded"] = None
    return altered


def _write_links(cursor: Cursor, store: int, made: Plan, fresh: Mapping[str, int]) -> None:
    altered = {
        link_id: {name: link_columns(link)[name] for name in ("deleted_at", "says")}
        for link_id, link in made.links.items()
        if link_id not in fresh
    }
    update(cursor, "links", store, altered)
    new = [{**link_columns(made.links[link_id]), "age": age} for link_id, age in fresh.items()]
    insert(cursor, "links", store, new)
