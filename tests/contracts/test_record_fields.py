"""Where a record comes from, what is said of it, and how it is chosen by that."""

from itertools import product
from typing import Any

import pytest

from everkept.core.commits import plan_undo
from everkept.core.fallback_answers import CONTEXT_CHARACTERS
from everkept.core.ports import RecordStore, RecordTally
from everkept.core.records import Delete, Record, RecordFilter, Restore, Update, Weights
from everkept.language.words import parse_query
from records import DAY_ONE, batch, entity, link_ref, record_ref

DAY = 86_400_000_000


def memory(record_id: str, **more: Any) -> Record:
    """A memory of whom nothing is said; its id is its text."""
    fields = {"id": record_id, "kind": "memory", "text": record_id, "created_at": DAY_ONE, "updated_at": DAY_ONE}
    return Record(**(fields | more))


FULL = memory(
    "full",
    type="semantic",
    name="Größe",
    name_key="key",
    variant="project",
    scope="project",
    session="s1",
    position=3,
    author="Zoë",
    importance=0.7,
    occurred_at=DAY_ONE - DAY,
    tags=("b", "a", "日本"),
    facets={"pinned": True},
)
OTHER = {
    "type": None,
    "name": "other",
    "name_key": None,
    "variant": "",
    "text": "another text",
    "facets": {},
    "scope": "session",
    "session": None,
    "position": 0,
    "author": None,
    "importance": None,
    "occurred_at": None,
    "tags": ("c",),
}


async def ids(store: RecordStore, where: RecordFilter, **more: Any) -> list[str]:
    return [record.id for record in await store.scan(where, **more)]


async def found(store: RecordStore, text: str, where: RecordFilter | None = None) -> set[str]:
    words = parse_query(text).build_any_query()
    assert words is not None
    matches = await store.match(words, where or RecordFilter(), Weights(), 100)
    return {match.id for match in matches}


@pytest.mark.smoke
async def test_a_record_comes_back_with_all_that_is_said_of_it(store: RecordStore) -> None:
    await store.commit(batch(FULL))
    assert await store.get(["full"]) == [FULL]


async def test_a_tag_counts_once_and_keeps_its_place(store: RecordStore) -> None:
    await store.commit(batch(memory("a", tags=("x", "b", "x", "a", "b"))))
    [record] = await store.get(["a"])
    assert record.tags == ("x", "b", "a")
    await store.commit(batch(Update("a", {"tags": ["a", "a", "z"]}, 1)))
    [record] = await store.get(["a"])
    assert record.tags == ("a", "z")


@pytest.mark.parametrize("name", OTHER)
async def test_an_update_of_any_field_is_logged_and_can_be_undone(store: RecordStore, name: str) -> None:
    await store.commit(batch(FULL))
    change = await store.commit(batch(Update("full", {name: OTHER[name]}, 1)))
    [record] = await store.get(["full"])
    assert getattr(record, name) == OTHER[name]
    assert [edit.before for edit in change.edits] == [{name: getattr(FULL, name)}]
    [logged] = await store.read_changes(after=1)
    assert logged == change
    assert [edit for _, edit in await store.read_history([FULL.ref], after=1)] == [*change.edits]
    await store.commit(batch(*await plan_undo(store, change)))
    [record] = await store.get(["full"])
    assert getattr(record, name) == getattr(FULL, name)


async def test_all_fields_at_once_can_be_undone_and_redone(store: RecordStore) -> None:
    await store.commit(batch(FULL))
    change = await store.commit(batch(Update("full", OTHER, 1)))
    undoing = await store.commit(batch(*await plan_undo(store, change)))
    [record] = await store.get(["full"])
    assert record == Record(**{name: getattr(FULL, name) for name in FULL.__slots__} | {"version": 3})
    await store.commit(batch(*await plan_undo(store, undoing)))
    [record] = await store.get(["full"])
    assert {name: getattr(record, name) for name in OTHER} == OTHER


async def test_an_update_to_what_is_there_already_leaves_no_change(store: RecordStore) -> None:
    await store.commit(batch(FULL))
    values = {name: getattr(FULL, name) for name in OTHER}
    assert (await store.commit(batch(Update("full", values, 1)))).edits == ()
    assert [record.version for record in await store.get(["full"])] == [1]


async def library_of_memories(store: RecordStore) -> None:
    await store.commit(
        batch(
            memory("p1", scope="project", session="s1", position=4, tags=("x", "y"), importance=0.9),
            memory("p2", scope="project", type="semantic", tags=("y",), importance=0.5),
            memory("s1", scope="session", session="s1", type="episodic", author="Ada"),
            memory("s2", scope="session", session="s2", tags=("z",), created_at=DAY_ONE + DAY),
            memory("old", occurred_at=DAY_ONE - DAY, author="Grace", importance=0.0),
            memory("new", created_at=DAY_ONE + 2 * DAY, occurred_at=DAY_ONE + DAY, author="Ada"),
            entity("Ada", type="semantic"),
        )
    )


EVERY = ["p1", "p2", "s1", "s2", "old", "new", "Ada"]
WHERES = [
    (RecordFilter(), EVERY),
    (RecordFilter(types=("semantic",)), ["p2", "Ada"]),
    (RecordFilter(types=("semantic", "episodic")), ["p2", "s1", "Ada"]),
    (RecordFilter(kinds=("memory",), types=("semantic",)), ["p2"]),
    (RecordFilter(scopes=("project",)), ["p1", "p2"]),
    (RecordFilter(scopes=("project", "session")), ["p1", "p2", "s1", "s2"]),
    (RecordFilter(scopes=("",)), ["old", "new", "Ada"]),
    (RecordFilter(kinds=("memory",), scopes=("user",)), []),
    (RecordFilter(sessions=("s1",)), ["p1", "s1"]),
    (RecordFilter(sessions=("s1", "s2"), scopes=("session",)), ["s1", "s2"]),
    (RecordFilter(sessions=()), []),
    (RecordFilter(places=(("s1", 4), ("s2", 4), ("s1", 3))), ["p1"]),
    (RecordFilter(places=()), []),
    (RecordFilter(visible_to="s1"), ["p1", "p2", "s1", "old", "new", "Ada"]),
    (RecordFilter(visible_to="s3", scopes=("session", "project")), ["p1", "p2"]),
    (RecordFilter(tags=("x",)), ["p1"]),
    (RecordFilter(tags=("y", "z", "nobody's")), ["p1", "p2", "s2"]),
    (RecordFilter(tags=("nobody's",)), []),
    (RecordFilter(min_importance=0.5), ["p1", "p2"]),
    (RecordFilter(min_importance=0.0), EVERY),
    (RecordFilter(after=DAY_ONE), ["p1", "p2", "s1", "s2", "new", "Ada"]),
    (RecordFilter(after=DAY_ONE + 1), ["s2", "new"]),
    (RecordFilter(before=DAY_ONE), ["p1", "p2", "s1", "old", "Ada"]),
    (RecordFilter(after=DAY_ONE + DAY, before=DAY_ONE + DAY), ["s2", "new"]),
    (RecordFilter(before=DAY_ONE - DAY - 1), []),
    (RecordFilter(created_before=DAY_ONE), ["p1", "p2", "s1", "old", "Ada"]),
    (RecordFilter(created_before=DAY_ONE + DAY), ["p1", "p2", "s1", "s2", "old", "Ada"]),
    (RecordFilter(touched_after=DAY_ONE), []),
    (RecordFilter(touched_after=DAY_ONE - 1), EVERY),
]


@pytest.mark.parametrize(("where", "expected"), WHERES, ids=repr)
async def test_records_are_chosen_by_what_is_said_of_them(
    store: RecordStore, where: RecordFilter, expected: list[str]
) -> None:
    await library_of_memories(store)
    assert await ids(store, where) == expected
    assert await ids(store, where, order="newest") == expected[::-1]
    assert await ids(store, where, order="newest", limit=1) == expected[::-1][:1]
    assert await found(store, "p1 p2 s1 s2 old new ada", where) == set(expected)
    contained = await store.match_text("", where, 100)
    assert {match.id for match in contained} == set(expected)
    assert await store.count_records(where) == len(expected)


async def test_a_change_or_a_deletion_is_a_touch(store: RecordStore) -> None:
    await store.commit(batch(memory("a"), memory("b"), memory("c")))
    await store.commit(batch(Update("a", {"text": "new"}, 1), at=DAY_ONE + 5))
    await store.commit(batch(Delete(record_ref("b")), at=DAY_ONE + 7))
    assert await ids(store, RecordFilter(touched_after=DAY_ONE + 4, deleted=None)) == ["a", "b"]
    assert await ids(store, RecordFilter(touched_after=DAY_ONE + 5, deleted=None)) == ["b"]
    assert await ids(store, RecordFilter(touched_after=DAY_ONE + 4)) == ["a"]
    assert await ids(store, RecordFilter(touched_after=DAY_ONE + 7, deleted=None)) == []


async def test_tags_are_found_as_they_are_now(store: RecordStore) -> None:
    await store.commit(batch(memory("a", tags=("old",)), memory("b", tags=("old",))))
    await store.commit(batch(Update("a", {"tags": ("new",)}, 1), Delete(record_ref("b"))))
    assert await ids(store, RecordFilter(tags=("old",))) == []
    assert await ids(store, RecordFilter(tags=("old",), deleted=True)) == ["b"]
    assert await ids(store, RecordFilter(tags=("new",))) == ["a"]
    await store.commit(batch(Restore(record_ref("b")), Update("a", {"tags": ()}, 2)))
    assert await ids(store, RecordFilter(tags=("old", "new"))) == ["b"]


@pytest.mark.smoke
async def test_a_tally_counts_by_traits_the_living_and_the_deleted(store: RecordStore) -> None:
    assert await store.tally(["memory"]) == []
    await store.commit(
        batch(
            *(memory(f"m{n}", scope="project", type="semantic") for n in range(3)),
            memory("typeless", scope="project"),
            memory("session's", scope="session", type="semantic"),
            entity("Ada"),
        )
    )
    await store.commit(batch(Delete(record_ref("m0"))))
    assert set(await store.tally(["memory"])) == {
        RecordTally("memory", "project", "semantic", is_deleted=False, count=2),
        RecordTally("memory", "project", "semantic", is_deleted=True, count=1),
        RecordTally("memory", "project", None, is_deleted=False, count=1),
        RecordTally("memory", "session", "semantic", is_deleted=False, count=1),
    }
    assert len(await store.tally(["memory", "entity"])) == 5
    assert await store.tally([]) == []


async def test_the_scopes_are_those_of_live_records_of_a_kind_by_name(store: RecordStore) -> None:
    assert await store.list_scopes("memory") == []
    scopes = ["/home/é", "/home/b", "", "/home/a", "/home/a", "/home/日本"]
    await store.commit(batch(*(memory(f"m{n}", scope=scope) for n, scope in enumerate(scopes))))
    await store.commit(batch(entity("Ada", scope="/elsewhere")))
    assert await store.list_scopes("memory") == ["", "/home/a", "/home/b", "/home/é", "/home/日本"]
    await store.commit(batch(Delete(record_ref("m1")), Delete(record_ref("m3"))))
    assert await store.list_scopes("memory") == ["", "/home/a", "/home/é", "/home/日本"]


async def test_the_authors_are_those_of_live_records_by_name(store: RecordStore) -> None:
    assert await store.list_authors() == []
    names = ["Zoë", "ada", None, "Ada", "Ada", "", "日本", "Émile"]
    await store.commit(batch(*(memory(f"m{n}", author=name) for n, name in enumerate(names))))
    assert await store.list_authors() == ["Ada", "Zoë", "ada", "Émile", "日本"]
    await store.commit(batch(Delete(record_ref("m0")), Update("m3", {"author": None}, 1)))
    assert await store.list_authors() == ["Ada", "ada", "Émile", "日本"]


async def test_a_frequency_is_the_share_of_live_records_with_the_word(store: RecordStore) -> None:
    assert await store.measure_words(["parser"]) == {"parser": 0.0}
    await store.commit(
        batch(
            memory("a", text="the parser parses parsers"),
            memory("b", text="a tea kettle", name="parser"),
            memory("c", text="kettles of tea"),
            memory("d", text="parsing"),
        )
    )
    await store.commit(batch(Delete(record_ref("d"))))
    answered = await store.measure_words(["parser", "kettle", "nothing", "tea"])
    assert answered == pytest.approx({"parser": 2 / 3, "kettle": 2 / 3, "nothing": 0, "tea": 2 / 3})
    await store.commit(batch(Update("c", {"text": "coffee"}, 1)))
    assert await store.measure_words(["tea"]) == pytest.approx({"tea": 1 / 3})
    assert await store.measure_words([]) == {}


def turn(place: int, text: str, **more: Any) -> Record:
    fields = {"session": "s", "position": place, "kind": "turn", "text": text}
    return memory(f"turn {place}", **(fields | more))


async def conversation(store: RecordStore) -> None:
    await store.commit(batch(turn(1, "where is the kettle"), turn(2, "in the kitchen"), turn(4, "thanks")))


@pytest.mark.smoke
async def test_a_turn_is_found_by_the_words_around_it(store: RecordStore) -> None:
    await conversation(store)
    assert await found(store, "kettle") == {"turn 1", "turn 2"}
    assert await found(store, "thanks") == {"turn 4"}
    matches = await store.match(
        parse_query("kettle").build_any_query(),  # pyright: ignore[reportArgumentType]
        RecordFilter(),
        Weights(),
        10,
    )
    assert [match.id for match in matches] == ["turn 1", "turn 2"]


async def test_a_turn_between_two_others_is_heard_by_both(store: RecordStore) -> None:
    await conversation(store)
    await store.commit(batch(turn(3, "beside the window")))
    assert await found(store, "window") == {"turn 2", "turn 3", "turn 4"}
    assert await found(store, "thanks") == {"turn 3", "turn 4"}


@pytest.mark.parametrize(
    "more",
    [{"session": "t"}, {"kind": "memory"}, {"session": None}, {"position": None}],
    ids=["another session", "another kind", "no session", "no place"],
)
async def test_only_the_same_kind_in_the_same_session_is_beside_a_turn(
    store: RecordStore, more: dict[str, Any]
) -> None:
    await conversation(store)
    await store.commit(batch(turn(3, "beside the window", **more)))
    assert await found(store, "window") == {"turn 3"}
    assert await found(store, "thanks") == {"turn 4"}


@pytest.mark.parametrize(
    "values", [{"text": "nothing"}, {"session": "t"}, {"position": 9}, {"session": None}], ids=repr
)
async def test_a_turn_that_changes_or_leaves_is_not_heard_any_more(store: RecordStore, values: dict[str, Any]) -> None:
    await conversation(store)
    await store.commit(batch(Update("turn 1", values, 1)))
    assert "turn 2" not in await found(store, "kettle")
    await store.commit(batch(*await plan_undo(store, (await store.read_changes(after=1))[0])))
    assert await found(store, "kettle") == {"turn 1", "turn 2"}


SCOPES = ["session", "project", ""]


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("beside", SCOPES)
async def test_a_record_is_found_by_no_text_that_fewer_may_see(store: RecordStore, scope: str, beside: str) -> None:
    first, second = turn(1, "the codename", scope=scope), turn(2, "is bluefin", scope=beside)
    await store.commit(batch(first, second))
    assert await found(store, "bluefin") == heard(scope, beside)


async def test_a_change_of_scope_lets_in_or_out_what_is_said_beside(store: RecordStore) -> None:
    await store.commit(batch(turn(1, "the codename"), turn(2, "is bluefin")))
    scopes = {"turn 1": "", "turn 2": ""}
    for name, scope in (*product(scopes, SCOPES), *product(reversed(scopes), SCOPES)):
        [record] = await store.get([name])
        await store.commit(batch(Update(name, {"scope": scope}, record.version)))
        scopes[name] = scope
        assert await found(store, "bluefin") == heard(*scopes.values())


def heard(scope: str, beside: str) -> set[str]:
    """Who is found by what stands beside the first turn."""
    return {"turn 2"} if beside == "session" != scope else {"turn 1", "turn 2"}


async def test_a_deleted_turn_is_heard_again_when_it_is_restored(store: RecordStore) -> None:
    await conversation(store)
    await store.commit(batch(Delete(record_ref("turn 1"))))
    assert await found(store, "kettle") == set()
    await store.commit(batch(Restore(record_ref("turn 1"))))
    assert await found(store, "kettle") == {"turn 1", "turn 2"}


async def test_a_purged_turn_is_not_heard_any_more(store: RecordStore) -> None:
    await conversation(store)
    await store.purge([record_ref("turn 1"), link_ref("none")])
    assert await found(store, "kettle") == set()
    assert await found(store, "kitchen") == {"turn 2"}
    assert await store.find_faults() == []


async def test_a_turn_below_a_parent_is_found_by_its_name_and_by_its_neighbours(store: RecordStore) -> None:
    await store.commit(batch(entity("Ada"), turn(1, "where", parent="Ada"), turn(2, "kitchen", parent="Ada")))
    assert await found(store, "kitchen") == {"turn 1", "turn 2"}
    await store.commit(batch(Update("Ada", {"name": "Lovelace"}, 1)))
    assert await found(store, "lovelace") == {"Ada", "turn 1", "turn 2"}
    assert await found(store, "kitchen") == {"turn 1", "turn 2"}


async def test_a_whole_conversation_in_one_batch_knows_its_neighbours(store: RecordStore) -> None:
    words = ["zero", "one", "two", "three", "four"]
    await store.commit(batch(*(turn(n, word) for n, word in enumerate(words))))
    for n, word in enumerate(words):
        beside = {f"turn {m}" for m in (n - 1, n, n + 1) if 0 <= m < len(words)}
        assert await found(store, word) == beside


@pytest.mark.parametrize("order", ["age", "newest"])
async def test_records_of_several_kinds_come_in_one_order_page_by_page(store: RecordStore, order: Any) -> None:
    kinds = ("turn", "code", "turn", "symbol", "code", "turn", "code", "turn")
    records = [Record(f"r{number}", kind, DAY_ONE, DAY_ONE, text=f"text {number}") for number, kind in enumerate(kinds)]
    await store.commit(batch(*records))
    expected = [record for record in records if record.kind != "symbol"]
    if order == "newest":
        expected.reverse()
    where = RecordFilter(kinds=("turn", "code", "turn"))
    for size in (1, 2, 3, 100):
        found: list[Record] = []
        while page := await store.scan(where, order=order, after=found[-1].id if found else None, limit=size):
            assert len(page) <= size
            found += page
        assert found == expected
    assert await store.scan(where, order=order, limit=0) == []


async def test_of_a_long_text_beside_it_a_record_hears_the_part_that_is_near(store: RecordStore) -> None:
    filling = "filling " * CONTEXT_CHARACTERS
    turns = [
        Record(f"t{place}", "turn", DAY_ONE, DAY_ONE, text=text, session="s", position=place)
        for place, text in enumerate((f"faraway {filling} nearby", "between them", f"following {filling} distant"))
    ]
    await store.commit(batch(*turns))
    for word, heard_by_between in (("nearby", True), ("following", True), ("faraway", False), ("distant", False)):
        words = parse_query(word).build_any_query()
        assert words is not None
        found = await store.match(words, RecordFilter(), Weights(), 10)
        assert ("t1" in {match.id for match in found}) is heard_by_between
        assert len(found) == 1 + heard_by_between
