"""Vectors, what is near them, and how often records were given out."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from everkept.core.ports import AccessCount, Library, RecordStore, RecordVector
from everkept.core.records import Delete, Match, Record, RecordFilter, Restore, Update
from records import DAY_ONE, batch, entity, note, record_ref

MODEL = "test-model"
CLOSE = 1e-3  # an engine may keep vectors in half the precision


def direction(degrees: float) -> NDArray[np.float32]:
    """A unit vector in the plane; the cosine between two of them is that of their angle."""
    radians = np.radians(degrees)
    vector = np.zeros(64, np.float32)
    vector[:2] = np.cos(radians), np.sin(radians)
    return vector


def memory(record_id: str, **more: Any) -> Record:
    fields = {"id": record_id, "kind": "memory", "text": record_id}
    return Record(**(fields | {"created_at": DAY_ONE, "updated_at": DAY_ONE} | more))


async def embed(store: RecordStore, angles: dict[str, float], model: str = MODEL) -> int:
    """Gives the records vectors in these directions, in the version they have."""
    records = await store.get(list(angles), include_deleted=True)
    return await store.put_vectors(model, [RecordVector(r.id, r.version, direction(angles[r.id])) for r in records])


async def compass(store: RecordStore) -> None:
    """Five memories, each at an angle of its own, and one without a vector."""
    await store.commit(
        batch(
            memory("east", scope="project", tags=("x",)),
            memory("northeast", scope="session", session="s1"),
            memory("north", scope="session", session="s2", importance=0.9),
            memory("west", tags=("x", "y"), created_at=DAY_ONE + 5),
            entity("south", text="south"),
            memory("nowhere"),
        )
    )
    await embed(store, {"east": 0, "northeast": 45, "north": 90, "west": 180, "south": 270})


async def near(
    store: RecordStore, degrees: float, where: RecordFilter | None = None, limit: int = 10, **more: Any
) -> list[str]:
    matches = await store.find_near(
        more.pop("model", MODEL), direction(degrees), where or RecordFilter(), limit, **more
    )
    return [match.id for match in matches]


async def waiting(store: RecordStore, kinds: Sequence[str] = ("memory",), limit: int = 10) -> list[str]:
    return [record.id for record in await store.find_unembedded(MODEL, kinds, limit)]


async def test_what_has_a_text_and_no_vector_waits_newest_first(store: RecordStore) -> None:
    assert await waiting(store) == []
    await store.commit(batch(memory("a"), memory("b"), entity("Ada", text="e"), memory("c")))
    await store.commit(batch(memory("silent", text=""), memory("gone")))
    await store.commit(batch(Delete(record_ref("gone"))))
    assert await waiting(store) == ["c", "b", "a"]
    assert await waiting(store, limit=2) == ["c", "b"]
    assert await waiting(store, limit=0) == []
    assert await waiting(store, ("entity", "memory", "entity")) == ["c", "Ada", "b", "a"]
    assert await waiting(store, ()) == []
    assert await embed(store, {"a": 0, "c": 10}) == 2
    assert await waiting(store) == ["b"]
    assert await store.count_vectors(MODEL, ["memory"]) == (2, 1)
    assert await store.count_vectors(MODEL, ["memory", "entity"]) == (2, 2)
    assert await store.count_vectors(MODEL, []) == (0, 0)


async def test_those_who_wait_come_whole(store: RecordStore) -> None:
    record = memory("a", tags=("x",), session="s", importance=0.5, facets={"n": 1})
    await store.commit(batch(entity("Ada"), record, note("Ada", "child")))
    assert await store.find_unembedded(MODEL, ["memory"], 5) == [record]
    [child] = await store.find_unembedded(MODEL, ["observation"], 5)
    assert child.parent == "Ada"


@pytest.mark.smoke
async def test_a_vector_is_for_the_version_it_was_made_of(store: RecordStore) -> None:
    await store.commit(batch(memory("a"), memory("b"), memory("c")))
    await store.commit(batch(Update("a", {"text": "new"}, 1), Delete(record_ref("b"))))
    vector = direction(0)
    late = [RecordVector(record_id, 1, vector) for record_id in ("a", "b", "c", "nobody")]
    assert await store.put_vectors(MODEL, late) == 1
    assert await waiting(store) == ["a"]
    assert await near(store, 0, RecordFilter(deleted=None)) == ["c"]
    assert await store.put_vectors(MODEL, []) == 0


@pytest.mark.parametrize(("name", "value"), [("text", "other"), ("name", "other")])
async def test_a_record_whose_words_change_waits_again(store: RecordStore, name: str, value: str) -> None:
    await compass(store)
    await store.commit(batch(Update("east", {name: value}, 1)))
    assert await waiting(store) == ["nowhere", "east"]
    assert await near(store, 0) == ["northeast", "north", "south", "west"]
    assert await store.get_vectors(MODEL, ["east"]) == {}
    assert await embed(store, {"east": 170}) == 1
    assert await near(store, 180, limit=2) == ["west", "east"]


async def test_another_change_leaves_the_vector(store: RecordStore) -> None:
    await compass(store)
    await store.commit(batch(Update("east", {"tags": ("z",), "importance": 1.0}, 1)))
    assert await waiting(store) == ["nowhere"]
    assert (await near(store, 0))[0] == "east"


async def test_a_deleted_record_has_its_vector_again_when_it_is_restored(store: RecordStore) -> None:
    await compass(store)
    await store.commit(batch(Delete(record_ref("east"))))
    assert await near(store, 0, limit=1) == ["northeast"]
    assert await near(store, 0, RecordFilter(deleted=True)) == ["east"]
    assert await store.count_vectors(MODEL, ["memory"]) == (3, 1)
    await store.commit(batch(Restore(record_ref("east"))))
    assert await near(store, 0, limit=1) == ["east"]
    assert await waiting(store) == ["nowhere"]


async def test_storing_vectors_is_no_change(store: RecordStore) -> None:
    await store.commit(batch(memory("a")))
    before = (await store.scan(RecordFilter()), await store.read_changes(), await store.get_revision())
    await embed(store, {"a": 0})
    assert (await store.scan(RecordFilter()), await store.read_changes(), await store.get_revision()) == before


async def test_vectors_come_back_as_they_were_given(store: RecordStore) -> None:
    await compass(store)
    found = await store.get_vectors(MODEL, ["north", "nowhere", "nobody", "east"])
    assert found.keys() == {"north", "east"}
    assert found["north"].dtype == np.float32
    assert np.allclose(found["north"], direction(90), atol=CLOSE)
    assert await store.get_vectors("another", ["north"]) == {}
    assert await store.get_vectors(MODEL, []) == {}


@pytest.mark.smoke
async def test_the_nearest_come_first_with_their_cosines(store: RecordStore) -> None:
    await compass(store)
    matches = await store.find_near(MODEL, direction(10), RecordFilter(), 3)
    assert [match.id for match in matches] == ["east", "northeast", "north"]
    expected = [np.cos(np.radians(degrees)) for degrees in (10, 35, 80)]
    assert [match.score for match in matches] == pytest.approx(expected, abs=CLOSE)
    assert await near(store, 10, limit=0) == []


async def test_a_match_names_its_parent(store: RecordStore) -> None:
    await store.commit(batch(entity("Ada"), note("Ada", "child")))
    await embed(store, {"child": 0})
    [match] = await store.find_near(MODEL, direction(0), RecordFilter(), 5)
    assert (match.id, match.parent) == ("child", "Ada")


async def test_a_store_without_vectors_has_nothing_near(store: RecordStore) -> None:
    await store.commit(batch(memory("a")))
    assert await near(store, 0) == []
    assert await near(store, 0, also=["a"]) == []


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (RecordFilter(), "east northeast north south west"),
        (RecordFilter(kinds=("memory",)), "east northeast north west"),
        (RecordFilter(visible_to="s1"), "east northeast south west"),
        (RecordFilter(scopes=("session",)), "northeast north"),
        (RecordFilter(sessions=("s2",)), "north"),
        (RecordFilter(tags=("x",)), "east west"),
        (RecordFilter(tags=("nobody's",)), ""),
        (RecordFilter(ids=("west", "nowhere", "nobody")), "west"),
        (RecordFilter(ids=()), ""),
        (RecordFilter(min_importance=0.5), "north"),
        (RecordFilter(after=DAY_ONE + 1), "west"),
        (RecordFilter(created_before=DAY_ONE), "east northeast north south"),
    ],
    ids=repr,
)
async def test_only_what_is_meant_is_near(store: RecordStore, where: RecordFilter, expected: str) -> None:
    await compass(store)
    assert await near(store, 5, where) == expected.split()
    assert await near(store, 5, where, limit=1) == expected.split()[:1]


async def test_others_that_are_asked_for_are_scored_however_far_they_are(store: RecordStore) -> None:
    await compass(store)
    also = ["west", "nowhere", "nobody", "east"]
    matches = await store.find_near(MODEL, direction(0), RecordFilter(), 1, also=also)
    assert [match.id for match in matches] == ["east", "west"]
    assert [match.score for match in matches] == pytest.approx([1.0, -1.0], abs=CLOSE)
    narrow = RecordFilter(tags=("y",))
    assert await near(store, 0, narrow, also=["northeast"]) == ["northeast", "west"]


async def test_another_model_has_vectors_of_its_own(store: RecordStore) -> None:
    await compass(store)
    assert await near(store, 0, model="another") == []
    assert await store.count_vectors("another", ["memory"]) == (0, 5)
    assert await near(store, 0, limit=1) == ["east"]
    await embed(store, {"east": 90, "west": 0}, model="another")
    assert await near(store, 0, model="another") == ["west", "east"]
    assert await near(store, 0, model="another", also=["north"]) == ["west", "east"]
    assert await near(store, 0, also=["east"]) == ["northeast", "north", "south"]
    assert (await store.get_vectors("another", ["north", "east"])).keys() == {"east"}
    assert await waiting(store) == ["nowhere", "west", "east"]
    await embed(store, {"east": 0})
    assert await near(store, 0, model="another") == ["west"]
    assert await near(store, 0, limit=1) == ["east"]


async def test_another_model_may_have_other_dimensions(store: RecordStore) -> None:
    await compass(store)
    records = await store.get(["east", "west"])
    short = {"east": np.eye(20, dtype=np.float32)[0], "west": np.eye(20, dtype=np.float32)[1]}
    assert await store.put_vectors("short", [RecordVector(r.id, r.version, short[r.id]) for r in records]) == 2
    found = await store.find_near("short", short["west"], RecordFilter(), 10)
    assert [match.id for match in found] == ["west", "east"]
    assert [match.score for match in found] == pytest.approx([1, 0], abs=CLOSE)
    assert (await store.get_vectors("short", ["west"]))["west"].shape == (20,)
    assert await near(store, 0) == ["northeast", "north", "south"]
    assert await store.count_vectors("short", ["memory"]) == (2, 3)
    await embed(store, {"east": 0, "west": 180})
    assert await near(store, 0) == ["east", "northeast", "north", "south", "west"]


async def test_a_vector_may_be_replaced(store: RecordStore) -> None:
    await compass(store)
    assert await near(store, 0, limit=1) == ["east"]
    assert await embed(store, {"east": 200}) == 1
    assert await near(store, 180, limit=2) == ["west", "east"]
    assert await store.count_vectors(MODEL, ["memory"]) == (4, 1)


async def test_a_purged_record_is_near_nothing(store: RecordStore) -> None:
    await compass(store)
    assert await near(store, 270, limit=1) == ["south"]
    await store.note_accesses({"nowhere": 1, "south": 1}, DAY_ONE)
    await store.purge([record_ref("nowhere"), record_ref("south")])
    assert await near(store, 270, limit=1) == ["west"]
    await store.commit(batch(memory("later"), memory("latest")))
    assert await near(store, 270, limit=1) == ["west"]
    assert await waiting(store) == ["latest", "later"]
    assert await store.get_accesses(["nowhere", "south", "later", "latest"]) == {}
    await embed(store, {"later": 270})
    assert await near(store, 270, limit=1) == ["later"]
    assert await store.find_faults() == []


async def test_many_that_do_not_fit_leave_room_for_those_that_do(store: RecordStore) -> None:
    await store.commit(batch(*(memory(f"m{n}", importance=n / 500, session=str(n % 2)) for n in range(500))))
    await embed(store, {f"m{n}": n / 10 for n in range(500)})
    best = await near(store, 0, RecordFilter(min_importance=0.99), limit=3)
    assert best == ["m495", "m496", "m497"]
    assert await near(store, 0, RecordFilter(min_importance=0.99, sessions=("1",)), limit=9) == ["m495", "m497", "m499"]
    assert len(await near(store, 0, RecordFilter(sessions=("0",)), limit=400)) == 250


@pytest.mark.smoke
async def test_accesses_are_added_up_and_are_no_change(store: RecordStore) -> None:
    await store.commit(batch(memory("a"), memory("b"), memory("c")))
    revision = await store.get_revision()
    await store.note_accesses({"a": 2, "b": 1, "nobody": 4}, DAY_ONE + 5)
    await store.note_accesses({"a": 3}, DAY_ONE + 1)
    await store.note_accesses({}, DAY_ONE + 9)
    assert await store.get_accesses(["a", "b", "c", "nobody"]) == {
        "a": AccessCount(5, DAY_ONE + 5),
        "b": AccessCount(1, DAY_ONE + 5),
    }
    assert await store.get_accesses([]) == {}
    assert await store.get_revision() == revision


async def test_what_was_given_out_most_comes_first(store: RecordStore) -> None:
    await store.commit(batch(*(memory(name) for name in "abcdef")))
    assert await store.list_most_accessed(5) == {}
    await store.note_accesses({"a": 2, "b": 7, "c": 2, "d": 2}, DAY_ONE + 5)
    await store.note_accesses({"e": 9}, DAY_ONE)
    await store.note_accesses({"c": 0}, DAY_ONE + 8)
    await store.commit(batch(Delete(record_ref("e"))))
    assert list((await store.list_most_accessed(9)).items()) == [
        ("b", AccessCount(7, DAY_ONE + 5)),
        ("c", AccessCount(2, DAY_ONE + 8)),
        ("a", AccessCount(2, DAY_ONE + 5)),
        ("d", AccessCount(2, DAY_ONE + 5)),
    ]
    assert list(await store.list_most_accessed(2)) == ["b", "c"]


async def test_accesses_outlive_a_new_text(store: RecordStore) -> None:
    await store.commit(batch(memory("a")))
    await store.note_accesses({"a": 1}, DAY_ONE)
    await store.commit(batch(Update("a", {"text": "new"}, 1)))
    assert await store.get_accesses(["a"]) == {"a": AccessCount(1, DAY_ONE)}


async def test_the_size_is_told_in_bytes(store: RecordStore) -> None:
    await store.commit(batch(memory("a", text="word " * 10_000)))
    assert await store.measure_size() in {0, *range(50_000, 1_000_000)}


@pytest.mark.smoke
async def test_the_user_has_a_store_of_their_own(library: Library, store: RecordStore) -> None:
    user = await library.open_user_store()
    assert await user.scan(RecordFilter(deleted=None)) == []
    await user.commit(batch(memory("mine")))
    await embed(user, {"mine": 0})
    await store.commit(batch(memory("the project's")))
    again = await library.open_user_store()
    assert [record.id for record in await again.scan(RecordFilter())] == ["mine"]
    assert [record.id for record in await store.scan(RecordFilter())] == ["the project's"]
    assert await near(again, 0) == ["mine"]
    assert await near(store, 0) == []
    assert [project.name for project in await library.list_projects()] == ["project"]
    assert await again.find_faults() == []


async def test_matches_of_equal_score_come_in_the_order_of_arrival(store: RecordStore) -> None:
    await store.commit(batch(*(memory(f"m{n}") for n in range(5))))
    await embed(store, {f"m{n}": 30.0 for n in range(5)})
    matches: list[Match] = await store.find_near(MODEL, direction(0), RecordFilter(), 3)
    assert [match.id for match in matches] == ["m0", "m1", "m2"]
