"""A batch with a key, committed again because nobody knew how it went: it happens once."""

import asyncio

import pytest

from everkept.core.commits import plan_undo
from everkept.core.ports import Library, RecordStore
from everkept.core.records import Batch, Delete, RecordFilter, Restore, Update
from everkept.errors import Conflict
from everkept.values import replace
from records import DAY_ONE, batch, entity, link, link_ref, note, record_ref

ADA = batch(entity("Ada"), key="first", client="editor")


async def state(store: RecordStore) -> tuple[object, ...]:
    return (
        await store.scan(RecordFilter(deleted=None)),
        await store.scan_links(deleted=None),
        await store.read_changes(limit=1_000),
        await store.get_revision(),
    )


@pytest.mark.smoke
async def test_the_same_batch_again_gives_its_change_and_does_nothing(store: RecordStore) -> None:
    first = await store.commit(ADA)
    before = await state(store)
    assert await store.commit(ADA) == first
    assert await store.commit(ADA) == first
    assert await state(store) == before
    assert first.seq == 1
    assert await store.read_changes() == [first]


async def test_every_kind_of_step_happens_once(store: RecordStore) -> None:
    await store.commit(batch(entity("Ada"), entity("Bob"), entity("Eve"), note("Ada", "old")))
    await store.commit(batch(link("Ada", "knows", "Bob"), Delete(record_ref("Eve"))))
    everything = batch(
        entity("Kim"),
        link("Ada", "likes", "Kim"),
        Update("Ada", {"text": "new"}, 1),
        Update("Ada", {"text": "newer"}, 2),
        Delete(record_ref("old")),
        Delete(link_ref("Ada knows Bob")),
        Restore(record_ref("Eve")),
        key="everything",
    )
    first = await store.commit(everything)
    before = await state(store)
    again = await store.commit(everything)
    assert again == first
    assert [edit.operation for edit in again.edits] == [
        "insert", "insert", "update", "update", "delete", "delete", "restore"
    ]  # fmt: skip
    assert again.edits[3].before == {"text": "new"}
    assert await state(store) == before


async def test_commits_in_between_do_not_make_it_happen_again(store: RecordStore) -> None:
    first = await store.commit(ADA)
    await store.commit(batch(entity("Bob"), key="second"))
    await store.commit(batch(Update("Ada", {"text": "by hand"}, 1)))
    await store.commit(batch(Delete(record_ref("Bob"))))
    before = await state(store)
    assert await store.commit(ADA) == first
    assert await state(store) == before


async def test_a_revision_that_has_passed_is_no_conflict_for_what_is_done(store: RecordStore) -> None:
    planned = batch(entity("Ada"), key="first", revision=0)
    first = await store.commit(planned)
    await store.commit(batch(entity("Bob")))
    assert await store.commit(planned) == first


async def test_it_happens_once_whoever_commits_it_again(library: Library, store: RecordStore) -> None:
    first = await store.commit(ADA)
    _, other = await library.open("project")
    assert await other.commit(ADA) == first
    assert await other.read_changes() == [first]


@pytest.mark.smoke
async def test_it_happens_once_where_several_commit_it_at_the_same_time(library: Library, store: RecordStore) -> None:
    _, other = await library.open("project")
    found = await asyncio.gather(*(each.commit(ADA) for each in (store, other) * 4))
    assert len(set(map(repr, found))) == 1
    assert await store.read_changes() == found[:1]


async def test_a_key_is_known_to_its_own_store_alone(library: Library, store: RecordStore) -> None:
    await store.commit(ADA)
    user = await library.open_user_store()
    change = await user.commit(ADA)
    assert change.seq == 1
    assert [record.id for record in await user.get(["Ada"])] == ["Ada"]


async def test_the_same_steps_under_another_key_are_another_commit(store: RecordStore) -> None:
    said = batch(Update("Ada", {}, 1, DAY_ONE + 5), key="one")
    await store.commit(batch(entity("Ada")))
    first = await store.commit(said)
    with pytest.raises(Conflict):
        await store.commit(replace(said, key="two"))
    second = await store.commit(batch(Update("Ada", {}, 2, DAY_ONE + 5), key="two"))
    assert second.seq == first.seq + 1
    assert [record.version for record in await store.get(["Ada"])] == [3]


async def test_batches_without_a_key_are_never_the_same(store: RecordStore) -> None:
    await store.commit(batch(entity("Ada")))
    with pytest.raises(Conflict):
        await store.commit(batch(entity("Ada")))


@pytest.mark.parametrize("key", [" ", "Key", "key", "ключ 😀", "x" * 300])
async def test_a_key_may_be_any_text(store: RecordStore, key: str) -> None:
    await store.commit(batch(entity("other"), key="KEY"))
    first = await store.commit(batch(entity("Ada"), key=key))
    assert first.seq == 2
    assert await store.commit(batch(entity("Ada"), key=key)) == first


async def test_what_changes_nothing_changes_nothing_again(store: RecordStore) -> None:
    await store.commit(batch(entity("Ada", text="as it is")))
    idle = batch(Update("Ada", {"text": "as it is"}, 1), key="idle")
    nothing: Batch = batch(key="nothing")
    before = await state(store)
    for same in (idle, nothing, idle, nothing):
        change = await store.commit(same)
        assert (change.seq, change.edits) == (0, ())
    assert await state(store) == before


async def test_a_conflict_leaves_the_key_unused(store: RecordStore) -> None:
    early = batch(note("Ada", "said"), key="said")
    with pytest.raises(Conflict):
        await store.commit(early)
    assert await store.get_revision() == 0
    await store.commit(batch(entity("Ada")))
    change = await store.commit(early)
    assert change.seq == 2
    assert await store.commit(early) == change
    assert [record.id for record in await store.get(["said"])] == ["said"]


async def test_what_was_purged_does_not_come_back(store: RecordStore) -> None:
    both = batch(entity("Ada"), entity("Bob"), link("Ada", "knows", "Bob"), key="both")
    await store.commit(both)
    await store.purge([record_ref("Ada")])
    before = await state(store)
    again = await store.commit(both)
    assert again.seq == 1
    assert [edit.id for edit in again.edits] == ["Bob"]
    assert await state(store) == before
    await store.purge([record_ref("Bob")])
    assert (await store.commit(both)).edits == ()
    assert await store.scan(RecordFilter(deleted=None)) == []


async def test_what_was_redacted_does_not_come_back(store: RecordStore) -> None:
    await store.commit(batch(entity("Ada", text="secret")))
    told = batch(Update("Ada", {"text": "open"}, 1), key="told")
    await store.commit(told)
    await store.redact([record_ref("Ada")], lambda _, values: {**values, "text": "gone"})
    again = await store.commit(told)
    assert [edit.before for edit in again.edits] == [{"text": "gone"}]
    assert [record.text for record in await store.get(["Ada"])] == ["gone"]


async def test_what_was_undone_stays_undone(store: RecordStore) -> None:
    first = await store.commit(ADA)
    undoing = batch(*await plan_undo(store, first), key="undo", undoes=first.seq)
    second = await store.commit(undoing)
    assert await store.commit(ADA) == first
    assert await store.get(["Ada"]) == []
    assert await store.commit(undoing) == second
    redoing = batch(*await plan_undo(store, second), key="redo", undoes=second.seq)
    third = await store.commit(redoing)
    assert await store.commit(undoing) == second
    assert await store.commit(redoing) == third
    assert [record.id for record in await store.get(["Ada"])] == ["Ada"]
    assert await store.get_revision() == 3


async def test_what_is_derived_or_copied_happens_once_too(store: RecordStore) -> None:
    await store.commit(batch(entity("Ada", text="old")))
    derived = batch(Update("Ada", {"text": "new"}, 1), key="derived", derived=True)
    copied = batch(note("Ada", "copied"), key="copied", copied=True, at=DAY_ONE + 9)
    changes = [await store.commit(derived), await store.commit(copied)]
    assert [await store.commit(derived), await store.commit(copied)] == changes
    assert [edit.before for edit in changes[0].edits] == [{}]
    assert [record.updated_at for record in await store.get(["Ada"])] == [DAY_ONE]
