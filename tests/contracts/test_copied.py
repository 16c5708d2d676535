"""What is copied from elsewhere, which memories nobody asked for, and whose a folder is."""

import pytest

from everkept.core.ports import Library, RecordStore
from everkept.core.records import RecordFilter, Update
from records import DAY_ONE, MILLISECOND, batch, entity, note

LATER = DAY_ONE + MILLISECOND


async def test_what_a_copy_belongs_to_has_not_changed_by_it(store: RecordStore) -> None:
    await store.commit(batch(entity("Ada")))
    await store.commit(batch(note("Ada", "copied"), at=LATER, copied=True))
    assert [r.updated_at for r in await store.get(["Ada"])] == [DAY_ONE]
    await store.commit(batch(note("Ada", "said"), at=LATER))
    assert [r.updated_at for r in await store.get(["Ada"])] == [LATER]


async def test_a_copy_is_in_the_log_like_anything_else(store: RecordStore) -> None:
    await store.commit(batch(entity("Ada"), at=LATER, copied=True))
    [change] = await store.read_changes()
    assert (change.at, [edit.id for edit in change.edits]) == (LATER, ["Ada"])


async def test_memories_that_nobody_asked_for_are_told_apart(store: RecordStore) -> None:
    await store.commit(batch(entity("asked"), entity("automatic", facets={"automatic": True, "pinned": True})))
    assert [r.id for r in await store.scan(RecordFilter(automatic=True))] == ["automatic"]
    assert await store.count_records(RecordFilter(automatic=True)) == 1
    assert await store.count_records(RecordFilter()) == 2


async def test_a_project_knows_its_folders(library: Library) -> None:
    project = await library.create("shop", "")
    await library.link_workspace("/b", project)
    await library.link_workspace("/a", project)
    assert await library.list_workspaces(project) == ["/a", "/b"]
    assert await library.list_workspaces(await library.create("other", "")) == []


@pytest.mark.smoke
async def test_a_change_that_was_made_elsewhere_keeps_its_moment(store: RecordStore) -> None:
    await store.commit(batch(entity("Ada")))
    there = DAY_ONE + 5
    await store.commit(batch(Update("Ada", {"text": "new"}, 1, there), at=LATER, copied=True))
    [changed] = await store.get(["Ada"])
    assert (changed.text, changed.updated_at, changed.version) == ("new", there, 2)
    await store.commit(batch(Update("Ada", {}, 2, there + 1), at=LATER, copied=True))
    assert [r.updated_at for r in await store.get(["Ada"])] == [there + 1]
