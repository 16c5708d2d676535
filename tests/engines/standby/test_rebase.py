import asyncio
from contextlib import suppress
from copy import deepcopy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everkept.core.records import Batch, Delete, Insert, Record, RecordFilter, RecordLink, Restore, Step, Update
from everkept.engines.memory.store import MemoryStore
from everkept.engines.standby.rebase import RebasedBatch, rebase_batch, rename_items
from everkept.errors import Conflict
from everkept.values import replace
from examples import examples
from records import DAY_ONE, batch, entity, link, link_ref, note, record_ref


@pytest.fixture
async def store() -> MemoryStore:
    """What is there by now: two entities, a note and a link."""
    store = MemoryStore()
    await store.commit(batch(entity("Ada"), entity("Bob"), note("Ada", "counts")))
    await store.commit(batch(link("Ada", "knows", "Bob")))
    return store


async def committed(store: MemoryStore, *steps: Step | Record | RecordLink) -> Batch:
    """The steps as they went in."""
    fitting = await rebase_batch(batch(*steps), store)
    assert fitting is not None
    await store.commit(fitting.batch)
    return fitting.batch


async def test_a_batch_that_fits_stays_as_it_is_but_for_its_guard(store: MemoryStore) -> None:
    wanted = batch(entity("Cleo"), link("Cleo", "knows", "Ada"), revision=1, undoes=2, key="k")
    assert await rebase_batch(wanted, store) == RebasedBatch(replace(wanted, revision=None), {})


async def test_the_last_writer_wins_with_what_it_set_alone(store: MemoryStore) -> None:
    await store.commit(batch(Update("Ada", {"text": "theirs", "type": "person"}, 1)))
    await committed(store, Update("Ada", {"text": "ours"}, 1))
    [ada] = await store.get(["Ada"])
    assert (ada.text, ada.type) == ("ours", "person")
    [change] = await store.read_changes(newest_first=True, limit=1)
    assert change.edits[0].before == {"text": "theirs"}


async def test_two_updates_of_one_record_keep_their_order(store: MemoryStore) -> None:
    await store.commit(batch(Update("Ada", {"text": "theirs"}, 1)))
    await committed(store, Update("Ada", {"text": "first"}, 1), Update("Ada", {"text": "last"}, 2))
    [ada] = await store.get(["Ada"])
    assert (ada.text, ada.version) == ("last", 4)


async def test_what_is_so_already_is_left_out(store: MemoryStore) -> None:
    await store.commit(batch(entity("gone"), Delete(record_ref("gone"))))
    fitting = await committed(
        store,
        Delete(record_ref("gone")),
        Delete(record_ref("never there")),
        Delete(link_ref("never there")),
        Restore(record_ref("Bob")),
        Restore(link_ref("Ada knows Bob")),
        entity("Ada"),
        link("Ada", "knows", "Bob"),
    )
    assert fitting.steps == ()


async def test_a_record_whose_name_is_taken_keeps_its_id_beside_the_other(store: MemoryStore) -> None:
    await committed(store, entity("Ada", id="0123456789", text="another"), note("0123456789", "hers"))
    [mine] = await store.get(["0123456789"])
    assert (mine.name, mine.name_key, mine.variant) == ("Ada", "ada", "~01234567")


async def test_short_ids_that_begin_alike_are_told_apart(store: MemoryStore) -> None:
    await committed(store, entity("Ada", id="same-beginning-1", text="another"))
    await committed(store, entity("Ada", id="same-beginning-2", text="a third"))
    found = await store.scan(RecordFilter(name_keys=("ada",)))
    assert {each.variant for each in found} == {"", "~same-beg", "~same-beginning-2"}


async def test_a_new_name_that_is_taken_is_taken_beside_the_other(store: MemoryStore) -> None:
    await committed(store, Update("Bob", {"name": "Ada", "name_key": "ada"}, 1))
    [bob] = await store.get(["Bob"])
    assert (bob.name_key, bob.variant) == ("ada", "~Bob")


async def test_a_restored_record_stands_beside_who_has_its_name_by_now(store: MemoryStore) -> None:
    await store.commit(batch(Delete(record_ref("Ada"))))
    await store.commit(batch(entity("Ada", id="other", updated_at=DAY_ONE + 1)))
    await committed(store, Restore(record_ref("Ada")))
    ada, other = await store.get(["Ada", "other"])
    assert (ada.variant, other.variant, other.updated_at) == ("~Ada", "", DAY_ONE + 1)


async def test_a_restored_record_stands_beside_one_of_its_own_batch(store: MemoryStore) -> None:
    await store.commit(batch(Delete(record_ref("Ada"))))
    await committed(store, entity("Ada", id="other"), Restore(record_ref("Ada")))
    found = await store.get(["Ada", "other"])
    assert [each.variant for each in found] == ["~Ada", ""]


async def test_what_a_batch_does_with_a_link_that_exists_is_done_to_the_existing_one(store: MemoryStore) -> None:
    double = link("Ada", "knows", "Bob", id="double")
    fitting = await committed(store, double, Restore(double.ref), Delete(double.ref), entity("Cleo"))
    assert fitting.steps == (Delete(link_ref("Ada knows Bob")), Insert(entity("Cleo")))


async def test_a_link_that_a_batch_has_twice_is_stored_once(store: MemoryStore) -> None:
    fitting = await committed(store, link("Bob", "knows", "Ada"), link("Bob", "knows", "Ada", id="double"))
    assert fitting.steps == (Insert(link("Bob", "knows", "Ada")),)


async def test_what_the_store_has_with_the_same_content_is_not_stored_again(store: MemoryStore) -> None:
    await store.commit(batch(replace(note("Ada", "counts", id="note"), name_key="counts")))
    again = batch(
        entity("Ada", id="new Ada"),
        replace(note("new Ada", "counts", id="new note"), name_key="counts"),
        note("new Ada", "reads"),
        link("new Ada", "knows", "Bob", id="new link"),
    )
    fitting = await rebase_batch(again, store)
    assert fitting is not None
    assert fitting.batch.steps == (Insert(note("Ada", "reads")),)
    assert fitting.merged == {"new Ada": "Ada", "new note": "note", "new link": "Ada knows Bob"}


async def test_later_batches_name_the_items_with_which_earlier_ones_were_merged() -> None:
    later = batch(
        note("new", "reads"),
        link("new", "knows", "new"),
        Update("new", {"type": "person"}, 1),
        Restore(record_ref("new")),
        Delete(record_ref("new")),
    )
    assert rename_items(later, {"new": "Ada"}).steps == (
        Insert(note("Ada", "reads")),
        Insert(replace(link("new", "knows", "new"), source="Ada", target="Ada")),
        Update("Ada", {"type": "person"}, 1),
        Restore(record_ref("Ada")),
        Delete(record_ref("Ada")),
    )


async def test_an_undo_deletes_nothing_that_its_change_did_not_create() -> None:
    undo = batch(Delete(record_ref("reads")), Delete(record_ref("new")), undoes=2)
    assert rename_items(undo, {"new": "Ada"}).steps == (Delete(record_ref("reads")),)


async def test_a_deleted_record_takes_with_it_what_the_batch_names_later(store: MemoryStore) -> None:
    fitting = await committed(store, Delete(record_ref("Ada")), Delete(record_ref("counts")), entity("Ada", id="new"))
    assert [type(step) for step in fitting.steps] == [Delete, Insert]


@pytest.mark.parametrize(
    "step",
    [
        Insert(note("Cleo", "an orphan")),
        Insert(link("Ada", "knows", "Cleo")),
        Insert(link("Cleo", "knows", "Ada")),
        Update("Cleo", {"text": "news"}, 1),
        Update("never there", {"text": "news"}, 1),
        Restore(record_ref("of Cleo")),
        Restore(link_ref("Cleo knows Bob")),
        Restore(record_ref("never there")),
    ],
)
async def test_what_builds_on_something_gone_cannot_be_made_to_fit(store: MemoryStore, step: Step) -> None:
    await store.commit(batch(entity("Cleo"), note("Cleo", "of Cleo"), link("Cleo", "knows", "Bob")))
    await store.commit(batch(Delete(record_ref("Cleo"))))
    assert await rebase_batch(batch(step), store) is None


def histories(*owners: str) -> st.SearchStrategy[list[list[Step]]]:
    """Proposals of batches: the last of the owners makes new things, among those of the others."""
    ids = st.sampled_from([f"{owner}{number}" for owner in owners for number in range(4)])
    own = st.sampled_from([f"{owners[-1]}{number}" for number in range(4)])
    names = st.sampled_from(["a", "b"])
    kinds = st.sampled_from(["entity", "observation"])
    parents = st.none() | ids
    records = st.builds(
        lambda i, name, parent, kind: entity(name, id=i, parent=parent, kind=kind), *(own, names, parents, kinds)
    )
    links = st.builds(lambda i, a, b: link(a, "knows", b, id=f"{i}-"), own, ids, ids)
    refs = st.builds(record_ref, ids) | st.builds(link_ref, ids.map(lambda i: f"{i}-"))
    values = st.fixed_dictionaries({}, optional={"name_key": names, "text": names})
    steps = st.one_of(
        st.builds(Insert, records | links),
        st.builds(Update, ids, values, st.just(0)),
        st.builds(Delete, refs),
        st.builds(Restore, refs),
    )
    return st.lists(st.lists(steps, min_size=1, max_size=5), max_size=6)


async def lived(store: MemoryStore, history: list[list[Step]]) -> list[Batch]:
    """What of the proposals fits is committed, step for step with the versions of the moment."""
    batches: list[Batch] = []
    for proposal in history:
        fitting: list[Step] = []
        for step in proposal:
            trial = deepcopy(store)
            await trial.commit(batch(*fitting))
            if isinstance(step, Update):
                [*records] = await trial.get([step.id])
                step = replace(step, version=records[0].version if records else 0)
            with suppress(Conflict):
                await trial.commit(batch(step))
                fitting.append(step)
        batches.append(batch(*fitting))
        await store.commit(batches[-1])
    return batches


async def builds_on_something_gone(planned: Batch, store: MemoryStore) -> bool:
    needed: set[str] = set()
    made: set[str] = set()
    for step in planned.steps:
        match step:
            case Insert(Record() as record):
                needed |= {record.parent} - {None} - made
                made.add(record.id)
            case Insert(RecordLink() as new):
                needed |= {new.source, new.target} - made
            case Update():
                needed |= {step.id} - made
            case Restore(ref):
                things = [
                    *await store.get([ref.id], include_deleted=True),
                    *await store.get_links([ref.id], include_deleted=True),
                ]
                if not things:
                    return True
                for thing in things:
                    ends = {thing.parent} if isinstance(thing, Record) else {thing.source, thing.target}
                    needed |= ends - {None} - made
                made.add(ref.id)
            case Delete():
                pass
    return len(await store.get([*needed])) < len(needed)


@settings(max_examples=examples(300), deadline=None)
@given(histories("r"), histories("r", "ours"), histories("r", "theirs"))
def test_two_that_went_their_own_ways_come_together(
    common: list[list[Step]], ours: list[list[Step]], theirs: list[list[Step]]
) -> None:
    async def run() -> None:
        store, other = MemoryStore(), MemoryStore()
        await lived(store, common)
        await lived(other, common)
        waiting = await lived(other, ours)
        await lived(store, theirs)
        merged: dict[str, str] = {}
        for proposed in waiting:
            planned = rename_items(proposed, merged)
            fitting = await rebase_batch(planned, store)
            if fitting is None:
                assert await builds_on_something_gone(planned, store)
                continue
            await store.commit(fitting.batch)
            merged |= fitting.merged
            inserted = [
                merged.get(step.item.id, step.item.id)
                for step in planned.steps
                if isinstance(step, Insert) and isinstance(step.item, Record)
            ]
            found = await store.get(inserted, include_deleted=True)
            assert {each.id for each in found} == {*inserted}
        assert await store.find_faults() == []

    asyncio.run(run())
