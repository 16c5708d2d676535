"""One commit: read what its steps are about, plan, and write all of it in one transaction."""

from uuid import uuid4

from everkept.core.records import Batch, Change, Link, Record
from everkept.engines.planning import Plan, ages_of, plan
from everkept.engines.surreal.connecting.failures import DiskFailed
from everkept.engines.surreal.records.meaning import forget_vectors, waiting
from everkept.engines.surreal.records.reading import with_edits
from everkept.engines.surreal.records.rows import (
    change_to,
    changed_fields,
    edits_to,
    kept,
    link_to,
    record_to,
    thing,
)
from everkept.engines.surreal.records.tables import State, Tables, Writing
from everkept.engines.surreal.records.viewing import SAME, StoredView
from everkept.engines.surreal.records.wording import rewrite_words
from everkept.engines.wording import Shift
from everkept.errors import Conflict, EverkeptError, StoreAway, Unavailable
from everkept.values import replace


async def commit(tables: Tables, batch: Batch) -> Change:
    """Raises Conflict where the batch does not fit, StoreAway where its outcome stays unknown."""
    keyed = batch if batch.key is not None else replace(batch, key=uuid4().hex)
    try:
        return await tables.in_turn(lambda: _attempt(tables, keyed))
    except DiskFailed as error:
        return await _looked_up(tables, keyed.key or "", error)


async def _looked_up(tables: Tables, key: str, failed: DiskFailed) -> Change:
    """The change, if it was made all the same."""
    try:
        same = await tables.ask(SAME.replace("$", "$keys"), keys=[kept(key)])
        changes = await with_edits(tables, same)
    except (EverkeptError, RuntimeError) as error:
        raise StoreAway(
            f"{failed.message} Whether it was stored is unknown.",
            hint="Look for it before you store it again.",
        ) from error
    if not changes:
        raise Unavailable(f"{failed.message} Nothing of it was stored.", hint="Try again.")
    return changes[0]


async def _attempt(tables: Tables, batch: Batch) -> Change:
    """Raises Contended where another came in between."""
    view = StoredView(tables)
    state, same = await view.read_ahead(batch)
    if same:
        return (await with_edits(tables, same))[0]
    tables.check_open(state)
    if batch.revision not in (None, state.seq):
        raise Conflict("Something else was stored meanwhile.", revision=batch.revision)
    made = await plan(batch, view)
    seq = state.seq + 1 if made.edits else 0
    change = Change(seq, batch.at, batch.tool, batch.client, batch.undoes, made.edits)
    if made.edits:
        await _write(tables, view, state, made, change, batch.key)
    return change


async def _write(
    tables: Tables, view: StoredView, state: State, made: Plan, change: Change, key: str | None
) -> None:
    writing = Writing()
    ages = ages_of(made.fresh, state.ages)
    _write_records(writing, made, ages.records)
    _write_links(writing, made, ages.links)
    forget_vectors(writing, state, made.retold)
    shift = Shift(made.before, made.records, {**view.ages, **ages.records})
    await rewrite_words(tables, shift, writing)
    log(writing, change, key)
    after = {"seq": change.seq, "turn": state.turn + 1, "ages": state.ages + len(made.fresh)}
    await tables.write(state, writing, after)


def log(writing: Writing, change: Change, key: str | None = None) -> None:
    writing.insert("change", [change_to(change, key)])
    writing.insert("edit", edits_to(change))


def _write_records(writing: Writing, made: Plan, ages: dict[str, int]) -> None:
    new = [made.records[record_id] for record_id in ages]
    writing.insert("record", [fresh_row(record, ages[record.id]) for record in new])
    altered = {
        record_id: changed_fields(old, made.records[record_id])
        for record_id, old in made.before.items()
    }
    for record_id in made.retold & altered.keys():
        altered[record_id]["embedded"] = waiting(made.records[record_id].text)
    writing.merge([(thing("record", i), fields) for i, fields in altered.items() if fields])


def _write_links(writing: Writing, made: Plan, ages: dict[str, int]) -> None:
    new = [made.links[link_id] for link_id in ages]
    writing.insert("link", [fresh_link(x, ages[x.id]) for x in new], relation="RELATION")
    writing.merge(
        [
            (thing("link", link.id), {"deleted_at": link.deleted_at})
            for link in made.links.values()
            if link.id not in ages
        ]
    )


def fresh_row(record: Record, age: int) -> dict[str, object]:
    return {**record_to(record), "age": age, "embedded": waiting(record.text)}


def fresh_link(link: Link, age: int) -> dict[str, object]:
    return {**link_to(link), "age": age}
