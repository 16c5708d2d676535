"""Things made what they are in another store: whole copies, and parts brought up to date."""

import asyncio

import pytest

from everkept.core.answers import StorePage
from everkept.core.commits import plan_undo
from everkept.core.ports import AccessCount, Library, RecordStore, RecordVector
from everkept.core.records import Change, Delete, Edit, RecordFilter, Restore, Update
from everkept.errors import Conflict
from everkept.values import replace
from records import DAY_ONE, MILLISECOND, batch, entity, link, link_ref, memory, note, record_ref
from store_copies import ALL, MODELS, axis, copy_all, everything, found, vectors_of

LATER = DAY_ONE + MILLISECOND


@pytest.fixture
async def copy(library: Library, store: RecordStore) -> RecordStore:
    """Another store of the same engine."""
    await library.create("copy", "")
    _, copy = await library.open("copy")
    return copy


async def fill(store: RecordStore) -> None:
    """Something of all that a store can hold, and traces of what it held."""
    traits = {"session": "s1", "scope": "session", "author": "Ada", "tags": ("x", "y")}
    await store.commit(
        batch(
            entity("Ada", facets={"pinned": True, "of": [1, {"a": None}]}, variant="v"),
            entity("Bob", text="red"),
            note("Ada", "red blue", position=1, occurred_at=DAY_ONE - 5, **traits),
            note("Ada", "parser", position=2, importance=0.25, **traits),
            memory("Größe", session="s2", position=1, created_at=LATER),
            link("Ada", "knows", "Bob", facets={"since": 1990}),
            link("Bob", "knows", "Ada"),
            link("Bob", "likes", "Bob"),
            client="editor",
        )
    )
    await store.put_vectors("one", [RecordVector("red blue", 1, axis(0)), RecordVector("Bob", 1, axis(1))])
    await store.put_vectors("two", [RecordVector("parser", 1, axis(2)), RecordVector("Größe", 1, axis(3))])
    await store.commit(batch(Update("Bob", {"tags": ("x",), "scope": "user"}, 1), at=LATER))
    renaming = await store.commit(batch(Update("Ada", {"name": "Ada L.", "name_key": "l"}, 1)))
    await store.commit(batch(*await plan_undo(store, renaming), undoes=renaming.seq, tool="undo"))
    await store.commit(batch(Delete(record_ref("parser"))))
    await store.commit(batch(Delete(link_ref("Bob knows Ada")), at=LATER))
    await store.commit(batch(entity("Eve"), note("Eve", "blue"), link("Eve", "knows", "Ada")))
    await store.commit(batch(Delete(record_ref("Eve"))))
    await store.commit(batch(Restore(record_ref("Eve"))))
    await store.commit(batch(memory("red", id="derived"), derived=True))
    await store.commit(batch(Delete(record_ref("derived")), derived=True))
    await store.commit(batch(memory("secret"), entity("Kim"), link("Kim", "is", "Bob")))
    await store.purge([record_ref("secret"), link_ref("Kim is Bob")])
    await store.note_accesses({"Ada": 3, "parser": 1}, LATER)


@pytest.mark.parametrize("page", [1, 2, 5, ALL])
async def test_a_copy_answers_everything_as_the_original_does(store: RecordStore, copy: RecordStore, page: int) -> None:
    await fill(store)
    await copy_all(store, copy, page)
    assert await everything(copy) == await everything(store)
    assert await copy.find_faults() == []


@pytest.mark.smoke
async def test_a_copy_may_be_made_again_and_again(store: RecordStore, copy: RecordStore) -> None:
    await fill(store)
    await copy_all(store, copy, 3)
    once = await everything(copy)
    await copy_all(store, copy, 2)
    await copy_all(store, copy)
    assert await everything(copy) == once


async def test_all_at_once_is_as_good_as_page_by_page(store: RecordStore, copy: RecordStore) -> None:
    await fill(store)
    records = await store.scan(RecordFilter(deleted=None))
    await copy.replicate(
        StorePage(
            records=records,
            links=await store.scan_links(deleted=None),
            changes=await store.read_changes(limit=ALL),
            accesses=await store.get_accesses([record.id for record in records]),
            vectors=await vectors_of(store, records),
        )
    )
    assert await everything(copy) == await everything(store)


async def test_life_goes_on_in_a_copy_as_in_the_original(store: RecordStore, copy: RecordStore) -> None:
    await fill(store)
    await copy_all(store, copy, 4)
    for each in (store, copy):
        deletion = next(c for c in await each.read_changes() if c.edits[-1].id == "parser")
        await each.commit(batch(*await plan_undo(each, deletion), undoes=deletion.seq))
        await each.commit(batch(Update("Bob", {"text": "blue parser"}, 2), entity("Zoë")))
        await each.put_vectors("one", [RecordVector("Bob", 3, axis(4))])
        await each.commit(batch(Restore(link_ref("Eve knows Ada")), Delete(record_ref("Bob"))))
    assert await store.get_revision() == await copy.get_revision()
    assert await everything(copy) == await everything(store)


async def test_it_is_no_change_of_its_own(store: RecordStore) -> None:
    await store.commit(batch(entity("Ada")))
    await store.replicate(StorePage(records=[entity("Bob"), entity("Ada", text="new", version=2)]))
    assert await store.get_revision() == 1
    assert len(await store.read_changes()) == 1
    assert await store.read_history([record_ref("Bob")]) == []


async def test_the_stamp_is_another_one_afterwards(store: RecordStore) -> None:
    await fill(store)
    [ada] = await store.get(["Ada"])
    stamps = [await store.get_stamp()]
    for stock in (
        StorePage(records=[replace(ada, facets={})]),
        StorePage(records=[entity("Una")]),
        StorePage(links=[link("Una", "knows", "Ada")]),
        StorePage(gone=[link_ref("Una knows Ada")]),
        StorePage(vectors={"one": [RecordVector("Ada", ada.version, axis(5))]}),
        StorePage(log_from=3),
    ):
        await store.replicate(stock)
        stamps.append(await store.get_stamp())
    assert len(set(stamps)) == len(stamps)


async def test_what_others_hold_in_their_hands_sees_it_too(library: Library, store: RecordStore) -> None:
    await store.commit(batch(entity("Ada", text="red")))
    _, other = await library.open("project")
    assert await found(other, "red") == {("Ada", None)}
    await store.replicate(StorePage(records=[entity("Ada", text="blue", version=2), entity("Bob")]))
    assert await found(other, "red") == set()
    assert await found(other, "blue") == {("Ada", None)}
    assert [r.id for r in await other.scan(RecordFilter())] == ["Ada", "Bob"]


async def test_what_is_new_is_younger_and_what_is_known_keeps_its_age(store: RecordStore) -> None:
    await store.commit(batch(entity("Ada"), entity("Bob")))
    old = entity("Una", created_at=1, updated_at=1)
    await store.replicate(StorePage(records=[old, entity("Bob", text="new", version=2), entity("Ida")]))
    assert [r.id for r in await store.scan(RecordFilter())] == ["Ada", "Bob", "Una", "Ida"]
    assert [r.id for r in await store.scan(RecordFilter(), order="newest", after="Una")] == ["Bob", "Ada"]
    assert [(r.created_at, r.updated_at) for r in await store.get(["Una"])] == [(1, 1)]


async def test_every_field_is_as_it_was_elsewhere(store: RecordStore) -> None:
    told = note(
        "Ada",
        "told",
        name="Name",
        name_key="name",
        variant="v",
        type="t",
        scope="session",
        session="s",
        position=7,
        author="Zoë",
        importance=0.75,
        occurred_at=DAY_ONE - 9,
        tags=("b", "a"),
        facets={"deep": [{"x": None}]},
        deleted_at=LATER,
        version=41,
    )
    knows = link("Ada", "knows", "Ada", facets={"n": 1}, deleted_at=LATER, created_at=5)
    await store.replicate(StorePage(records=[entity("Ada", version=9), told], links=[knows]))
    assert await store.get(["told"], include_deleted=True) == [told]
    assert await store.get_links([knows.id], include_deleted=True) == [knows]
    assert [r.version for r in await store.get(["Ada"])] == [9]


async def test_children_may_come_before_what_they_belong_to(store: RecordStore) -> None:
    below = note("told", "beneath red")
    await store.replicate(StorePage(records=[below, note("Ada", "told"), entity("Ada")]))
    assert [r.parent for r in await store.get(["Ada", "told", below.id])] == [None, "Ada", "told"]
    assert await found(store, "ada red") == set()
    assert await found(store, "ada told") == {("told", "Ada")}
    assert await store.find_faults() == []


async def test_names_may_be_traded(store: RecordStore) -> None:
    await store.commit(batch(entity("Ada"), entity("Bob"), entity("Eve"), note("Ada", "red")))
    ada, bob, eve = await store.get(["Ada", "Bob", "Eve"])
    traded = [
        replace(ada, name="Bob", name_key="bob", version=2),
        replace(bob, name="Eve", name_key="eve", version=2),
        replace(eve, name="Ada", name_key="ada", version=2),
    ]
    await store.replicate(StorePage(records=traded))
    assert await store.get(["Ada", "Bob", "Eve"]) == traded
    assert [r.id for r in await store.scan(RecordFilter(), order="name")] == ["Eve", "Ada", "Bob"]
    assert await found(store, "bob red") == {("red", "Ada")}
    with pytest.raises(Conflict):
        await store.commit(batch(entity("ada")))


async def test_a_name_may_pass_to_another_when_its_holder_goes(store: RecordStore) -> None:
    await store.commit(batch(entity("Ada"), entity("Bob"), entity("Eve")))
    [ada] = await store.get(["Ada"])
    await store.replicate(
        StorePage(
            records=[entity("Ada", id="new Ada"), replace(ada, deleted_at=LATER), entity("Bob", id="new Bob")],
            gone=[record_ref("Bob")],
        )
    )
    assert [r.id for r in await store.scan(RecordFilter())] == ["Eve", "new Ada", "new Bob"]


async def test_what_links_say_may_be_traded(store: RecordStore) -> None:
    await store.commit(batch(entity("Ada"), entity("Bob")))
    await store.commit(batch(link("Ada", "knows", "Bob", id="1"), link("Ada", "is", "Bob", id="2")))
    traded = [link("Ada", "is", "Bob", id="1"), link("Ada", "knows", "Bob", id="2")]
    await store.replicate(StorePage(links=traded))
    assert await store.find_links(["Ada"]) == traded
    await store.replicate(StorePage(links=[replace(traded[0], deleted_at=LATER), link("Ada", "is", "Bob", id="3")]))
    assert [x.id for x in await store.find_links(["Ada"])] == ["2", "3"]


async def test_what_was_purged_elsewhere_leaves_no_trace(store: RecordStore) -> None:
    await fill(store)
    gone = [record_ref("Ada"), link_ref("Bob likes Bob"), record_ref("nobody"), link_ref("none")]
    before = len(await store.read_changes())
    await store.replicate(StorePage(gone=gone))
    assert await store.get(["Ada", "red blue", "parser"], include_deleted=True) == []
    assert await store.scan_links(deleted=None) == []
    changes = await store.read_changes()
    assert len(changes) == before
    named = {edit.id for change in changes for edit in change.edits}
    assert named == {"Bob", "Größe", "Eve", "blue", "derived", "Kim"}
    assert await store.get_accesses(["Ada", "parser"]) == {}
    assert await store.get_vectors("one", ["red blue"]) == {}
    assert await found(store, "parser") == set()
    assert await store.find_faults() == []


async def test_a_text_that_changed_is_found_by_its_own_words(store: RecordStore) -> None:
    await fill(store)
    [told] = await store.get(["red blue"])
    await store.replicate(StorePage(records=[replace(told, text="Größe", version=told.version + 1)]))
    assert ("red blue", "Ada") in await found(store, "größe")
    assert ("red blue", "Ada") not in await found(store, "blue")


async def test_those_who_hear_of_it_are_found_by_it_too(store: RecordStore) -> None:
    said = [memory(f"turn {n}", session="s", position=n) for n in (1, 2, 3)]
    await store.commit(batch(entity("Ada"), note("Ada", "told"), *said))
    await store.replicate(
        StorePage(records=[entity("parser", id="Ada", version=2), replace(said[1], text="blue", version=2)])
    )
    assert await found(store, "parser") == {("Ada", None), ("told", "Ada")}
    assert {i for i, _ in await found(store, "blue")} == {"turn 1", "turn 2", "turn 3"}
    await store.replicate(StorePage(records=[replace(said[1], text="blue", version=3, deleted_at=9)]))
    assert await found(store, "blue") == set()


async def test_a_vector_goes_with_the_words_it_was_made_of(store: RecordStore) -> None:
    await store.commit(batch(memory("a"), memory("b"), memory("c")))
    items = [RecordVector(i, 1, axis(n)) for n, i in enumerate("abc")]
    await store.put_vectors("one", items)
    await store.replicate(
        StorePage(
            records=[
                memory("new", id="a", version=2),
                memory("b", version=2, importance=0.9),
                memory("new too", id="c", version=2),
            ],
            vectors={"one": [RecordVector("c", 2, axis(7))]},
        )
    )
    kept = await store.get_vectors("one", ["a", "b", "c"])
    assert {i: list(vector) for i, vector in kept.items()} == {"b": list(axis(1)), "c": list(axis(7))}
    assert [r.id for r in await store.find_unembedded("one", ("memory",), 9)] == ["a"]


async def test_vectors_of_what_is_not_there_are_left_out(store: RecordStore) -> None:
    await store.commit(batch(memory("a"), memory("b"), memory("c")))
    await store.commit(batch(Delete(record_ref("b"))))
    await store.put_vectors("one", [RecordVector("c", 1, axis(0))])
    await store.replicate(
        StorePage(
            vectors={
                "one": [RecordVector("a", 2, axis(1)), RecordVector("b", 1, axis(2))],
                "two": [RecordVector("nobody", 1, axis(3)), RecordVector("c", 1, axis(4))],
            }
        )
    )
    kept = [sorted(await store.get_vectors(model, ["a", "b", "c", "nobody"])) for model in MODELS]
    assert kept == [["b"], ["c"]]
    await store.commit(batch(Restore(record_ref("b"))))
    assert [m.id for m in await store.find_near("one", axis(2), RecordFilter(), 9)] == ["b"]


async def test_what_is_known_of_its_use_is_as_elsewhere(store: RecordStore) -> None:
    await store.commit(batch(entity("Ada"), entity("Bob")))
    await store.note_accesses({"Ada": 5, "Bob": 1}, LATER)
    there = {"Ada": AccessCount(2, DAY_ONE), "nobody": AccessCount(1, DAY_ONE)}
    for _ in range(2):
        await store.replicate(StorePage(accesses=there))
    known = await store.get_accesses(["Ada", "Bob", "nobody"])
    assert known == {"Ada": AccessCount(2, DAY_ONE), "Bob": AccessCount(1, LATER)}


def change(seq: int, *ids: str) -> Change:
    edits = tuple(Edit("insert", "record", record_id) for record_id in ids)
    return Change(seq, DAY_ONE, "elsewhere", "client", None, edits)


async def test_the_log_is_continued_after_the_last_number(store: RecordStore) -> None:
    log = [change(3, "Ada"), change(7, "Bob")]
    await store.replicate(StorePage(records=[entity("Ada"), entity("Bob")], changes=log))
    assert await store.read_changes() == log
    assert await store.get_revision() == 7
    assert (await store.commit(batch(Delete(record_ref("Bob")), revision=7))).seq == 8
    assert [seq for seq, _ in await store.read_history([record_ref("Bob")])] == [7, 8]


async def test_what_the_log_has_from_a_number_on_goes(store: RecordStore) -> None:
    for name in ("Ada", "Bob", "Eve", "Kim"):
        await store.commit(batch(entity(name)))
    there = change(3, "Una")
    await store.replicate(
        StorePage(records=[entity("Una")], gone=[record_ref("Eve"), record_ref("Kim")], changes=[there], log_from=3)
    )
    assert [c.seq for c in await store.read_changes()] == [1, 2, 3]
    assert await store.read_changes(after=2) == [there]
    assert await store.get_revision() == 3
    assert (await store.commit(batch(entity("Kim")))).seq == 4
    await store.replicate(StorePage(log_from=1))
    assert (await store.read_changes(), await store.get_revision()) == ([], 0)
    assert (await store.commit(batch(entity("Ida")))).seq == 1


async def test_what_the_log_has_under_a_number_is_replaced(store: RecordStore) -> None:
    await store.commit(batch(entity("Ada"), entity("Bob")))
    await store.commit(batch(entity("Eve")))
    await store.replicate(StorePage(changes=[change(1, "Bob")]))
    assert [[e.id for e in c.edits] for c in await store.read_changes()] == [["Bob"], ["Eve"]]
    assert await store.read_history([record_ref("Ada")]) == []


async def test_the_key_of_a_change_that_went_is_free(store: RecordStore) -> None:
    await store.commit(batch(entity("Ada")))
    kept_here = batch(entity("Bob"), key="key")
    await store.commit(kept_here)
    await store.replicate(StorePage(gone=[record_ref("Bob")], log_from=2))
    assert (await store.commit(kept_here)).seq == 2
    assert [r.id for r in await store.get(["Bob"])] == ["Bob"]


@pytest.mark.parametrize(
    "stock",
    [
        StorePage(records=[entity("Una"), entity("other", name_key="bob")]),
        StorePage(records=[entity("Una"), entity("other", name_key="una")]),
        StorePage(links=[link("Ada", "knows", "Bob", id="another")], log_from=1),
        StorePage(records=[note("nobody", "told")], gone=[record_ref("Bob")]),
        StorePage(records=[entity("Una")], links=[link("Una", "knows", "nobody")]),
        StorePage(links=[link("Ada", "knows", "Eve")], gone=[record_ref("Eve")]),
    ],
    ids=["name of another", "name twice", "link twice", "child of nobody", "link to nobody", "link to what goes"],
)
async def test_what_cannot_stand_together_is_refused_and_changes_nothing(store: RecordStore, stock: StorePage) -> None:
    await fill(store)
    before, stamp = await everything(store), await store.get_stamp()
    with pytest.raises(Conflict):
        await store.replicate(stock)
    assert await everything(store) == before
    assert await store.get_stamp() == stamp


async def test_it_happens_at_once(store: RecordStore) -> None:
    """Between a commit and another there is either all of it or nothing."""
    trade = [entity(n, name_key=f"{n} {k}") for k in "ab" for n in ("Ada", "Bob")]
    await store.replicate(StorePage(records=trade[:2]))
    tasks = [store.replicate(StorePage(records=trade[start : start + 2])) for start in (0, 2) * 4]
    others = [store.commit(batch(entity(f"entity {number}"))) for number in range(8)]
    await asyncio.gather(*tasks, *others)
    keys = [(r.name_key or "")[-1] for r in await store.get(["Ada", "Bob"])]
    assert keys in (["a", "a"], ["b", "b"])
    assert await store.get_revision() == len(others)
