import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from assistant import PromptIndexing
from everkept.core.commits import ChangeWriter, plan_undo
from everkept.core.ports import Embedder, Library, RecordStore, RecordVector, VectorIndexer
from everkept.core.records import Change, Delete, Record, RecordFilter, Update
from everkept.embedders.onnx import OnnxEmbedder
from everkept.engines.sqlite.library import SqliteLibrary
from everkept.errors import ModelUnavailable
from everkept.families.memories.consolidation import ReflectStrategy
from everkept.families.memories.memory_identity import build_variant, compute_text_key
from everkept.families.memories.reflection import ReflectionResult, reflect_session
from hash_embedder import HashingEmbedder
from records import DAY_ONE, batch, memory

AUTH = (
    "The refresh token was checked against the wrong key.",
    "Refresh token rotation is on: each refresh token is used once.",
    "Wrote a test for the expired refresh token.",
)
LATER = DAY_ONE + 2  # than the first reflection
LUNCH = "Lunch is at noon."
LUNCHES = (LUNCH, "Noon is when lunch is.", "Lunch at noon as always.")
LOGIN = (  # no word in common
    "Users cannot sign in.",
    "The login page shows an error.",
    "Authentication fails for everybody.",
)
PUSHING = ("Run the tests before pushing.", "Tests run before pushing!", "Before pushing: run tests")


def event(text: str, session: str = "one", **more: Any) -> Record:
    fields = {
        "type": "episodic",
        "scope": "session",
        "session": session,
        "name_key": compute_text_key(text),
        "variant": build_variant(str(more.get("scope", "session")), session),
    }
    return memory(text, **(fields | more))


@pytest.fixture
async def store(library: Library) -> RecordStore:
    await library.create("shop", "")
    _, store = await library.open("shop")
    return store


async def reflected(
    store: RecordStore,
    session: str = "one",
    *,
    embedder: Embedder | None = None,
    fault: ModelUnavailable | None = None,
    **more: Any,
) -> ReflectionResult:
    """In one store, by words where no embedder is given."""
    return await reflected_in([store], session, PromptIndexing(embedder, fault), **more)


async def reflected_in(
    stores: Sequence[RecordStore],
    session: str = "one",
    indexing: VectorIndexer | None = None,
    *,
    strategy: ReflectStrategy = "full",
    dry_run: bool = False,
    time_limit: float | None = None,
    at: int = DAY_ONE + 1,
) -> ReflectionResult:
    return await reflect_session(
        stores,
        session,
        strategy=strategy,
        dry_run=dry_run,
        indexing=indexing or PromptIndexing(None),
        writer=ChangeWriter(lambda: at, "reflect_and_consolidate", "test"),
        time_limit=time_limit,
    )


class StuckEmbedder(HashingEmbedder):
    """Never done."""

    def __init__(self, name: str = "hashing") -> None:
        self.name = name

    async def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        await asyncio.Event().wait()
        raise AssertionError


class BrokenEmbedder(HashingEmbedder):
    def __init__(self, error: Exception) -> None:
        self._error = error

    async def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        raise self._error


class FixedEmbedder(HashingEmbedder):
    """A direction of its own for each of these texts, and one for all others."""

    name = "fixed"

    def __init__(self, directions: Mapping[str, int]) -> None:
        self._directions = directions

    async def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        rows = [self._directions.get(text, self.dimensions - 1) for text in texts]
        return np.eye(self.dimensions, dtype=np.float32)[rows]


async def remember(store: RecordStore, *records: Record | str) -> None:
    made = [event(record) if isinstance(record, str) else record for record in records]
    await store.commit(batch(*made))


async def remember_pushing(store: RecordStore, **more: Any) -> None:
    """A theme of three sessions, of which the last is called one."""
    for text, session in zip(PUSHING, ("three", "two", "one"), strict=True):
        await remember(store, event(text, session, **more))


async def last_change(store: RecordStore) -> Change:
    return (await store.read_changes(limit=1, newest_first=True))[0]


async def undo(store: RecordStore, change: Change) -> None:
    steps = await plan_undo(store, change)
    await store.commit(batch(*steps, undoes=change.seq))


async def test_a_topic_is_kept_as_one_memory_with_links_to_its_sources(store: RecordStore) -> None:
    await remember(store, *AUTH, LUNCH)
    answer = await reflected(store)
    (made,) = answer.consolidated_memories
    assert (made.type, made.scope) == ("semantic", "project")
    assert sorted(made.derived_from) == sorted(AUTH)
    assert answer.session_stats.memories_analyzed == 4
    assert answer.session_stats.consolidated_into == 1
    (kept,) = await store.get([made.id])
    assert (kept.kind, kept.text, kept.type) == ("memory", made.content, "semantic")
    assert (kept.scope, kept.session) == ("project", "one")
    assert (kept.name_key, kept.variant) == (compute_text_key(made.content), "project")
    links = await store.find_links([made.id], direction="out")
    assert {(link.verb, link.target) for link in links} == {("derived_from", t) for t in AUTH}


async def test_sources_stay_and_are_marked(store: RecordStore) -> None:
    await remember(store, *AUTH, LUNCH)
    await reflected(store)
    marks = {r.id: r.facets.get("consolidated") for r in await store.get([*AUTH, LUNCH])}
    assert marks == {**dict.fromkeys(AUTH, True), LUNCH: None}


async def test_reflecting_is_one_change_of_the_tool(store: RecordStore) -> None:
    await remember(store, *AUTH)
    before = await store.get_revision()
    await reflected(store)
    assert await store.get_revision() == before + 1
    change = await last_change(store)
    assert (change.tool, change.client) == ("reflect_and_consolidate", "test")


async def test_a_dry_run_shows_the_same_and_writes_nothing(store: RecordStore) -> None:
    await remember(store, *AUTH)
    await remember_pushing(store)
    before = await store.get_revision()
    shown = await reflected(store, dry_run=True)
    assert await store.get_revision() == before
    assert shown.consolidated_memories
    assert shown.patterns_detected
    assert await reflected(store) == shown


async def test_a_second_time_changes_nothing_more(store: RecordStore) -> None:
    await remember(store, *AUTH)
    await remember_pushing(store)
    first = await reflected(store)
    before = await store.get_revision()
    second = await reflected(store)
    assert await store.get_revision() == before
    assert second.consolidated_memories == []
    assert second.patterns_detected == first.patterns_detected


async def test_what_comes_later_is_consolidated_by_itself(store: RecordStore) -> None:
    await remember(store, *AUTH)
    (first,) = (await reflected(store)).consolidated_memories
    redis = ("Redis cache was cold.", "Warmed the Redis cache.", "The Redis cache is warm.")
    await remember(store, *(event(text, created_at=LATER) for text in redis))
    (second,) = (await reflected(store)).consolidated_memories
    assert sorted(second.derived_from) == sorted(redis)
    assert second.id != first.id


async def test_an_undo_restores_everything_and_it_can_be_done_again(store: RecordStore) -> None:
    await remember(store, *AUTH)
    await remember_pushing(store)
    texts = {record.id: (record.text, record.facets) for record in await store.scan(RecordFilter())}
    first = await reflected(store)
    await undo(store, await last_change(store))
    found = {record.id: (record.text, record.facets) for record in await store.scan(RecordFilter())}
    assert found == texts
    assert (await store.count_live())["link"] == 0
    assert await reflected(store) == first
    assert len(await store.find_links([first.consolidated_memories[0].id])) == len(AUTH)


async def test_a_theme_of_several_sessions_is_kept_as_a_procedure(store: RecordStore) -> None:
    await remember_pushing(store)
    (pattern,) = (await reflected(store)).patterns_detected
    assert pattern.frequency == 3
    assert pattern.suggested_scope == "user"
    (kept,) = await store.get([pattern.memory_id])
    assert (kept.text, kept.type, kept.scope) == (pattern.pattern, "procedural", "project")
    assert kept.tags == ("pattern",)
    assert kept.facets["metadata"] == {"frequency": 3, "suggested_scope": "user"}
    assert len(await store.find_links([kept.id], direction="out")) == 3


async def test_a_pattern_grows_with_the_sessions_that_repeat_it(store: RecordStore) -> None:
    await remember_pushing(store)
    (first,) = (await reflected(store)).patterns_detected
    await remember(store, event("Run tests before pushing, again", "four", created_at=LATER))
    (grown,) = (await reflected(store, "four")).patterns_detected
    assert (grown.memory_id, grown.frequency) == (first.memory_id, 4)
    (kept,) = await store.get([first.memory_id])
    assert kept.facets["metadata"]["frequency"] == 4
    assert len(await store.find_links([kept.id], direction="out")) == 4
    assert len(await store.scan(RecordFilter(types=("procedural",)))) == 1


async def test_a_pattern_is_automatic_until_somebody_says_it_too(store: RecordStore) -> None:
    await remember_pushing(store, facets={"automatic": True})
    (first,) = (await reflected(store)).patterns_detected
    assert (await store.get([first.memory_id]))[0].facets["automatic"] is True
    await remember(store, event("Run tests before pushing, again", "four", created_at=LATER))
    await reflected(store, "four")
    assert "automatic" not in (await store.get([first.memory_id]))[0].facets


async def test_a_pattern_that_was_forgotten_does_not_come_back(store: RecordStore) -> None:
    await remember_pushing(store)
    (pattern,) = (await reflected(store)).patterns_detected
    await store.commit(batch(Delete((await store.get([pattern.memory_id]))[0].ref)))
    await remember(store, event("Run tests before pushing, again", "four"))
    before = await store.get_revision()
    assert (await reflected(store, "four")).patterns_detected == []
    assert await store.get_revision() == before


async def test_a_pattern_without_its_tag_is_known_to_its_session(store: RecordStore) -> None:
    await remember_pushing(store)
    (first,) = (await reflected(store)).patterns_detected
    await store.commit(batch(Update(first.memory_id, {"tags": ("habit",)}, 1)))
    before = await store.get_revision()
    assert (await reflected(store)).patterns_detected == [first]
    assert await store.get_revision() == before


async def test_a_pattern_without_its_tag_is_not_stored_twice_and_gets_it_back(store: RecordStore) -> None:
    await remember_pushing(store, scope="project")
    (first,) = (await reflected(store)).patterns_detected
    await store.commit(batch(Update(first.memory_id, {"tags": ("habit",)}, 1)))
    assert (await reflected(store, "two")).patterns_detected == [first]
    (kept,) = await store.get([first.memory_id])
    assert kept.tags == ("habit", "pattern")
    before = await store.get_revision()
    assert (await reflected(store, "two")).patterns_detected == [first]
    assert await store.get_revision() == before


async def test_only_the_asked_session_is_consolidated(store: RecordStore) -> None:
    await remember(store, *(event(text, "two") for text in AUTH))
    answer = await reflected(store, "one")
    assert answer.consolidated_memories == []
    assert answer.session_stats.memories_analyzed == 0


async def test_a_summary_that_is_there_already_is_not_stored_twice(store: RecordStore) -> None:
    same = "The cache is flushed on deploy."
    again = event("On deploy the cache is flushed!", created_at=DAY_ONE + 1)
    await remember(store, event(same, scope="project"), again)
    (made,) = (await reflected(store)).consolidated_memories
    assert made.id == same
    assert made.derived_from == [again.id]
    records = {record.id: record for record in await store.scan(RecordFilter(deleted=None))}
    assert set(records) == {same, again.id}
    assert "consolidated" not in records[same].facets
    before = await store.get_revision()
    await reflected(store)
    assert await store.get_revision() == before


async def test_what_waits_for_its_vector_is_compared_by_meaning_at_once(store: RecordStore) -> None:
    await remember(store, *LOGIN, LUNCH)
    assert (await reflected(store, dry_run=True)).consolidated_memories == []
    answer = await reflected(store, embedder=OnnxEmbedder())
    (made,) = answer.consolidated_memories
    assert sorted(made.derived_from) == sorted(LOGIN)
    assert answer.warnings is None


async def test_vectors_that_were_made_on_the_spot_are_kept(store: RecordStore) -> None:
    await remember(store, *AUTH)
    await reflected(store, embedder=HashingEmbedder(), dry_run=True)
    assert set(await store.get_vectors("hashing", AUTH)) == set(AUTH)


async def test_a_model_that_takes_too_long_is_not_waited_for(store: RecordStore) -> None:
    await remember(store, *AUTH, LUNCH)
    answer = await reflected(store, embedder=StuckEmbedder(), time_limit=0.01)
    (made,) = answer.consolidated_memories
    assert sorted(made.derived_from) == sorted(AUTH)
    assert answer.warnings is not None
    (warned,) = answer.warnings
    assert warned.code == "embeddings_pending"
    assert "4 memories" in warned.message


async def test_what_a_slow_model_has_done_in_time_counts(store: RecordStore) -> None:
    await remember(store, *AUTH, LUNCH)
    rows = await HashingEmbedder().embed(AUTH)
    items = [RecordVector(text, 1, row) for text, row in zip(AUTH, rows, strict=True)]
    await store.put_vectors("hashing", items)
    (warned,) = (await reflected(store, embedder=StuckEmbedder(), time_limit=0.0)).warnings or []
    assert "1 memory" in warned.message


@pytest.mark.parametrize("is_known", [False, True])
async def test_a_broken_model_is_said_and_words_are_enough(store: RecordStore, is_known: bool) -> None:
    await remember(store, *AUTH)
    fault = ModelUnavailable("model.onnx", "is missing")
    embedder = BrokenEmbedder(AssertionError("is not asked") if is_known else fault)
    answer = await reflected(store, embedder=embedder, fault=fault if is_known else None)
    assert len(answer.consolidated_memories) == 1
    (warned,) = answer.warnings or []
    assert warned.code == "embedding_failed"
    assert "model.onnx" in warned.message


async def test_a_text_that_the_model_fails_at_counts_by_words(store: RecordStore) -> None:
    await remember(store, *AUTH)
    answer = await reflected(store, embedder=BrokenEmbedder(ValueError("too odd")))
    assert len(answer.consolidated_memories) == 1
    assert [warned.code for warned in answer.warnings or []] == ["embeddings_pending"]


async def test_vectors_that_come_later_change_nothing_that_words_have_consolidated(store: RecordStore) -> None:
    await remember(store, *AUTH, *LOGIN)
    await remember_pushing(store)
    await remember(store, event("Never push with failing checks", "five"))
    by_words = await reflected(store)
    assert len(by_words.consolidated_memories) == 1
    before = await store.get_revision()
    by_meaning = await reflected(store, embedder=OnnxEmbedder(), at=LATER)
    assert await store.get_revision() == before
    assert by_meaning.consolidated_memories == []
    assert by_meaning.patterns_detected == by_words.patterns_detected


async def test_words_change_nothing_that_meaning_has_consolidated(store: RecordStore) -> None:
    alike = ("Blue kettle, blue mug", "Blue kettle, blue door", "Blue kettle, blue car")
    embedder = FixedEmbedder({text: number for number, text in enumerate(alike)})
    await remember(store, *AUTH, *alike)
    by_meaning = await reflected(store, embedder=embedder)
    assert len(by_meaning.consolidated_memories) == 1
    before = await store.get_revision()
    assert (await reflected(store, at=LATER)).consolidated_memories == []
    assert await store.get_revision() == before


async def test_where_nothing_was_consolidated_vectors_that_come_later_count(store: RecordStore) -> None:
    await remember(store, *LOGIN)
    stuck = await reflected(store, embedder=StuckEmbedder(OnnxEmbedder.name), time_limit=0.0)
    assert stuck.consolidated_memories == []
    assert stuck.warnings is not None
    (made,) = (await reflected(store, embedder=OnnxEmbedder(), at=LATER)).consolidated_memories
    assert sorted(made.derived_from) == sorted(LOGIN)


async def test_what_is_left_over_is_taken_up_when_something_new_joins_it(store: RecordStore) -> None:
    redis = ("Redis cache was cold.", "Warmed the Redis cache.", "The Redis cache is warm.")
    await remember(store, *AUTH, *redis[:2])
    await reflected(store)
    assert (await reflected(store, at=LATER)).consolidated_memories == []
    await remember(store, event(redis[2], created_at=LATER))
    (made,) = (await reflected(store, at=LATER + 1)).consolidated_memories
    assert sorted(made.derived_from) == sorted(redis)


async def test_the_users_memories_are_consolidated_where_they_live(library: Library, store: RecordStore) -> None:
    user = await library.open_user_store()
    await remember(store, *AUTH)
    await remember_pushing(user, scope="user")
    await remember(user, *(event(text, scope="user") for text in LUNCHES))
    before = [await place.get_revision() for place in (store, user)]
    answer = await reflected_in([store, user])
    assert [made.scope for made in answer.consolidated_memories] == ["project", "user"]
    assert answer.session_stats.memories_analyzed == 3 + 4
    assert answer.session_stats.consolidated_into == 2
    assert [await place.get_revision() for place in (store, user)] == [n + 1 for n in before]
    kept = await user.get([made.id for made in answer.consolidated_memories])
    assert [(record.scope, record.session) for record in kept] == [("user", "one")]
    (pattern,) = answer.patterns_detected
    (found,) = await user.get([pattern.memory_id])
    assert (found.scope, found.variant, pattern.suggested_scope) == ("user", "user", "user")
    again = await reflected_in([store, user])
    assert again.consolidated_memories == []
    assert again.patterns_detected == answer.patterns_detected
    assert [await place.get_revision() for place in (store, user)] == [n + 1 for n in before]


async def test_two_at_once_consolidate_each_memory_once(store: RecordStore) -> None:
    await remember(store, *AUTH)
    await remember_pushing(store)
    await asyncio.gather(*(reflected(store) for _ in range(4)))
    await check_consolidated_once([store])


async def test_two_processes_on_one_folder_consolidate_each_memory_once(tmp_path: Path) -> None:
    libraries = [SqliteLibrary(tmp_path) for _ in range(3)]
    await libraries[0].create("shop", "")
    stores: list[RecordStore] = [(await library.open("shop"))[1] for library in libraries]
    await remember(stores[0], *AUTH)
    await remember_pushing(stores[0])
    await asyncio.gather(*(reflected(store) for store in stores * 2))
    await check_consolidated_once(stores)
    for library in libraries:
        await library.close()


async def check_consolidated_once(stores: Sequence[RecordStore]) -> None:
    for store in stores:
        derived = [r for r in await store.scan(RecordFilter(kinds=("memory",))) if "derived" in r.facets]
        assert sorted(record.type or "" for record in derived) == ["procedural", "semantic"]
        links = await store.find_links([record.id for record in derived], direction="out")
        assert len({(link.source, link.target) for link in links}) == len(links) == 6
        changes = await store.read_changes(limit=100)
        written = [change for change in changes if change.tool == "reflect_and_consolidate"]
        assert len(written) == 1
