import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everkept.core.commits import find_undone, plan_undo
from everkept.core.records import Batch, Change, Delete, Record, RecordFilter, Restore, Step, Update
from everkept.engines.memory.store import MemoryStore
from everkept.errors import Refused
from everkept.values import replace
from records import DAY_ONE, batch, entity, link, link_ref, note, record_ref


@pytest.fixture
async def store() -> MemoryStore:
    """Ada with two notes, who knows Grace."""
    store = MemoryStore()
    await store.commit(
        batch(
            entity("Ada", text="first"),
            entity("Grace"),
            note("Ada", "one"),
            note("Ada", "two"),
            link("Ada", "knows", "Grace"),
        )
    )
    return store


async def undo(store: MemoryStore, change: Change) -> Change:
    steps = await plan_undo(store, change)
    return await store.commit(Batch(steps, DAY_ONE, "undo", undoes=change.seq))


async def live(store: MemoryStore) -> list[Any]:
    """What can be seen, without the bookkeeping."""
    records = [replace(r, version=0, updated_at=0) for r in await store.scan(RecordFilter())]
    return [records, await store.find_links(["Ada", "Grace"])]


CHANGES: dict[str, tuple[Step | Record, ...]] = {
    "an insert": (entity("Zoe"),),
    "a child": (note("Ada", "three"),),
    "a family": (entity("Zoe"), note("Zoe", "three")),
    "a rename": (Update("Ada", {"name": "Lovelace", "name_key": "lovelace"}, 1),),
    "two updates of one thing": (
        Update("Ada", {"text": "second", "type": "person"}, 1),
        Update("Ada", {"text": "third"}, 2),
    ),
    "an update there and back": (Update("Ada", {"text": "second"}, 1), Update("Ada", {"text": "first"}, 2)),
    "names that change places": (
        Update("Ada", {"name_key": "between"}, 1),
        Update("Grace", {"name_key": "ada"}, 1),
        Update("Ada", {"name_key": "grace"}, 2),
    ),
    "a deletion with all it takes": (Delete(record_ref("Ada")),),
    "a deleted link": (Delete(link_ref("Ada knows Grace")),),
    "an update and a deletion": (Update("Ada", {"text": "second"}, 1), Delete(record_ref("Ada"))),
    "an insert and its update": (entity("Zoe"), Update("Zoe", {"text": "new"}, 1)),
    "an insert and its deletion": (entity("Zoe"), Delete(record_ref("Zoe"))),
}


@pytest.mark.parametrize("steps", CHANGES.values(), ids=CHANGES)
async def test_an_undo_gives_the_state_before_and_its_own_undo_the_state_after(
    store: MemoryStore, steps: tuple[Step | Record, ...]
) -> None:
    before = await live(store)
    change = await store.commit(batch(*steps))
    after = await live(store)
    undoing = await undo(store, change)
    assert await live(store) == before
    redoing = await undo(store, undoing)
    assert await live(store) == after
    await undo(store, redoing)
    assert await live(store) == before


LATER: dict[str, tuple[Step | Record, Step | Record]] = {
    "it was amended again": (Update("Ada", {"text": "second"}, 1), Update("Ada", {"text": "third"}, 2)),
    "it was deleted": (Update("Ada", {"text": "second"}, 1), Delete(record_ref("Ada"))),
    "it was amended after its insert": (entity("Zoe"), Update("Zoe", {"text": "new"}, 1)),
    "it has got a child": (entity("Zoe"), note("Zoe", "three")),
    "it was brought back": (Delete(record_ref("one")), Restore(record_ref("one"))),
    "it was deleted already": (entity("Zoe"), Delete(record_ref("Zoe"))),
}


@pytest.mark.parametrize("steps", LATER.values(), ids=LATER)
async def test_an_undo_is_refused_when_since_then(
    store: MemoryStore, steps: tuple[Step | Record, Step | Record]
) -> None:
    first = await store.commit(batch(steps[0]))
    second = await store.commit(batch(steps[1]))
    before = await live(store)
    with pytest.raises(Refused) as caught:
        await plan_undo(store, first)
    assert caught.value.facts["change"] == first.seq
    assert await live(store) == before
    await undo(store, second)
    await undo(store, first)


async def test_an_insert_that_is_linked_by_now_is_not_undone(store: MemoryStore) -> None:
    first = await store.commit(batch(entity("Zoe")))
    await store.commit(batch(link("Grace", "knows", "Zoe")))
    with pytest.raises(Refused) as caught:
        await plan_undo(store, first)
    assert caught.value.facts["later"] == ["Grace knows Zoe"]


async def test_a_later_change_of_something_else_is_no_obstacle(store: MemoryStore) -> None:
    first = await store.commit(batch(Update("Ada", {"text": "second"}, 1)))
    await store.commit(batch(Update("Ada", {"type": "person"}, 2)))
    with pytest.raises(Refused):
        # The type is part of how Ada stood right after the first change.
        await plan_undo(store, first)
    second = await store.commit(batch(Update("Grace", {"text": "second"}, 1)))
    await store.commit(batch(note("Grace", "three")))
    await undo(store, second)
    assert [record.text for record in await store.get(["Grace"])] == [""]


async def test_a_change_that_was_undone_and_redone_can_be_undone_again(store: MemoryStore) -> None:
    first = await store.commit(batch(Update("Ada", {"text": "second"}, 1)))
    await undo(store, await undo(store, first))
    await undo(store, first)
    assert [record.text for record in await store.get(["Ada"])] == ["first"]


async def test_a_purge_cannot_be_undone(store: MemoryStore) -> None:
    change = await store.commit(batch(entity("Zoe")))
    await store.purge([record_ref("Zoe")])
    purging = (await store.read_changes(newest_first=True))[0]
    for gone in (change, purging, (await store.read_changes(after=change.seq - 1))[0]):
        with pytest.raises(Refused):
            await plan_undo(store, gone)


class Asked(MemoryStore):
    """Counts the questions."""

    def __init__(self) -> None:
        super().__init__()
        self.questions = 0

    def __getattribute__(self, name: str) -> Any:
        if name in {"get", "get_links", "scan", "links", "history"}:
            self.questions += 1
        return super().__getattribute__(name)


async def test_an_undo_asks_as_little_for_a_large_change_as_for_a_small_one() -> None:
    asked = []
    for size in (2, 40):
        store = Asked()
        names = [str(number) for number in range(size)]
        notes = [note(name, f"note {name}") for name in names]
        links = [link(name, "knows", "0") for name in names]
        change = await store.commit(batch(*map(entity, names), *notes, *links))
        store.questions = 0
        assert len(await plan_undo(store, change)) == 3 * size
        asked.append(store.questions)
    assert asked[0] == asked[1] < 10


def change(seq: int, undoes: int | None = None) -> Change:
    return Change(seq, 0, "test", "", undoes, ())


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([], set()),
        ([change(1), change(2)], set()),
        ([change(1), change(2, undoes=1)], {1}),
        ([change(1), change(2, undoes=1), change(3, undoes=2)], {2}),
        ([change(1), change(2, undoes=1), change(3, undoes=2), change(4, undoes=3)], {1, 3}),
        ([change(1), change(2, undoes=1), change(3, undoes=2), change(4, undoes=1)], {1, 2}),
    ],
)
def test_an_undo_that_was_itself_undone_does_not_count(changes: list[Change], expected: set[int]) -> None:
    assert find_undone(changes) == expected
    assert find_undone(changes[::-1]) == expected


texts = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=6)


@given(texts)
def test_undoing_every_change_from_the_newest_on_gives_the_beginning(texts: list[str]) -> None:
    async def run() -> None:
        store = MemoryStore()
        await store.commit(batch(entity("Ada", text="first")))
        made = await commit_each(store, texts)
        for change in reversed(made):
            await undo(store, change)
        assert [record.text for record in await store.get(["Ada"])] == ["first"]

    asyncio.run(run())


@given(texts, st.integers(0, 5))
def test_an_undo_is_refused_exactly_when_the_text_is_another_by_now(texts: list[str], which: int) -> None:
    async def run() -> None:
        store = MemoryStore()
        await store.commit(batch(entity("Ada", text="first")))
        made = await commit_each(store, texts)
        if not made:
            return
        change = made[which % len(made)]
        now = (await store.get(["Ada"]))[0].text
        await expect(lambda: plan_undo(store, change), refused=await text_after(store, change) != now)

    asyncio.run(run())


async def commit_each(store: MemoryStore, texts: list[str]) -> list[Change]:
    made: list[Change] = []
    for text in texts:
        [record] = await store.get(["Ada"])
        made.append(await store.commit(batch(Update("Ada", {"text": text}, record.version))))
    return [change for change in made if change.edits]


async def text_after(store: MemoryStore, change: Change) -> str:
    later = await store.read_history([record_ref("Ada")], after=change.seq)
    current = (await store.get(["Ada"]))[0].text
    return (later[0][1].before or {})["text"] if later else current


async def expect(plan: Callable[[], Any], *, refused: bool) -> None:
    if refused:
        with pytest.raises(Refused):
            await plan()
    else:
        assert await plan()


async def test_books_that_went_on_stay_as_they_are(store: MemoryStore) -> None:
    session = Record("s1", "session", DAY_ONE, DAY_ONE, text="begun")
    stored = await store.commit(batch(entity("Zoe"), session))
    await store.commit(batch(Update("s1", {"text": "ended"}, 1)))
    with pytest.raises(Refused):
        await plan_undo(store, stored)
    steps = await plan_undo(store, stored, {"session"})
    await store.commit(Batch(steps, DAY_ONE, "undo", undoes=stored.seq))
    assert [record.text for record in await store.get(["Zoe", "s1"])] == ["ended"]


async def test_books_that_nobody_touched_go_with_the_change(store: MemoryStore) -> None:
    session = Record("s1", "session", DAY_ONE, DAY_ONE)
    stored = await store.commit(batch(entity("Zoe"), session))
    steps = await plan_undo(store, stored, {"session"})
    await store.commit(Batch(steps, DAY_ONE, "undo", undoes=stored.seq))
    assert await store.get(["Zoe", "s1"]) == []
