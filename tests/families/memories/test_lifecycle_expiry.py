from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assistant import Assistant
from everkept.core.commits import plan_undo
from everkept.core.ports import AccessCount, Library, RecordStore
from everkept.core.records import Record, RecordFilter
from everkept.families.memories.lifecycle import (
    BATCH_MEMORIES,
    FADED_REASON,
    FADING_TOOL,
    MIN_AGE_MICROSECONDS,
    compute_strength,
    fade_memories,
)
from everkept.families.memories.model import MEMORY_PROFILE
from everkept.values import replace
from memory_shelf import memory
from records import DAY_ONE, batch

DAY = 86_400_000_000
AUTOMATIC = {"automatic": True, "source": {"tool": "hook PostToolUse"}}
TYPES = st.sampled_from(sorted(MEMORY_PROFILE.half_lives))
IMPORTANCE = st.floats(0, 1)
AGES = st.integers(0, 400 * DAY)
USES = st.integers(0, 50)


def automatic(text: str, **more: Any) -> Record:
    """Of an importance and a type that fade in days."""
    facets = AUTOMATIC | more.pop("facets", {})
    return memory(text, **({"type": "episodic", "importance": 0.3, "facets": facets} | more))


@pytest.fixture
async def store(library: Library) -> RecordStore:
    await library.create("shop", "")
    return (await library.open("shop"))[1]


async def forgotten(store: RecordStore) -> set[str]:
    return {record.id for record in await store.scan(RecordFilter(deleted=True))}


def after(days: float) -> int:
    return DAY_ONE + int(days * DAY)


@given(kind=TYPES, importance=IMPORTANCE, uses=USES)
def test_it_halves_with_each_half_life_that_uses_make_longer(kind: str, importance: float, uses: int) -> None:
    record = memory("x", type=kind, importance=importance)
    access = AccessCount(uses, DAY_ONE) if uses else None
    half_life = MEMORY_PROFILE.half_lives[kind] * (1 + 0.2 * uses)
    assert compute_strength(record, access, DAY_ONE) == importance
    assert compute_strength(record, access, after(half_life)) == pytest.approx(importance / 2, rel=1e-6)
    assert compute_strength(record, access, after(3 * half_life)) == pytest.approx(importance / 8, rel=1e-6)


@given(kind=TYPES, importance=IMPORTANCE, age=AGES, more=AGES, uses=USES, last=AGES)
def test_time_weakens_and_use_strengthens(
    kind: str, importance: float, age: int, more: int, uses: int, last: int
) -> None:
    record = memory("x", type=kind, importance=importance)
    now = DAY_ONE + age
    used_at = min(now, DAY_ONE + last)
    access = AccessCount(uses, used_at) if uses else None
    found = compute_strength(record, access, now)
    assert 0 <= found <= importance
    assert compute_strength(record, access, now + more) <= found
    assert compute_strength(record, AccessCount(uses + 1, now), now) >= found
    assert compute_strength(record, AccessCount(uses + 1, used_at), now) >= found
    assert compute_strength(replace(record, importance=1.0), access, now) >= found


@given(importance=IMPORTANCE, age=AGES, kind=st.sampled_from(["episodic", "insight", None]))
def test_what_is_pinned_or_has_no_half_life_never_fades(importance: float, age: int, kind: str | None) -> None:
    pinned = {"pinned": True} if kind == "episodic" else {}
    record = memory("x", type=kind, importance=importance, facets=pinned)
    assert compute_strength(record, None, DAY_ONE + age) == importance


def test_a_clock_that_goes_back_strengthens_nothing() -> None:
    assert compute_strength(memory("x"), None, DAY_ONE - DAY) == 0.5


def test_changing_it_counts_as_use() -> None:
    record = memory("x", type="episodic", updated_at=after(10))
    assert compute_strength(record, None, after(10)) == 0.5


async def test_what_hooks_stored_and_nobody_used_is_forgotten(store: RecordStore) -> None:
    await store.commit(batch(automatic("a failure"), automatic("a how-to", type="procedural")))
    assert await fade_memories(store, lambda: after(13)) == 0
    assert await fade_memories(store, lambda: after(15), "hook") == 1
    [record] = await store.get(["a failure"], include_deleted=True)
    assert record.deleted_at == after(15)
    assert record.facets["forgotten_reason"] == FADED_REASON
    assert record.text == "a failure"
    assert [r.id for r in await store.scan(RecordFilter())] == ["a how-to"]
    assert await fade_memories(store, lambda: after(100)) == 0
    assert await fade_memories(store, lambda: after(200)) == 1


async def test_nothing_that_somebody_asked_for_is_ever_forgotten(store: RecordStore) -> None:
    kept = [
        memory("asked for", importance=0.0, type="working"),
        automatic("pinned", importance=0.0, facets={"pinned": True}),
        memory("from a tool", type="working", facets={"source": {"tool": "store_memory"}}),
        replace(automatic("an entity"), kind="entity"),
    ]
    await store.commit(batch(*kept))
    assert await fade_memories(store, lambda: after(10_000)) == 0
    assert await forgotten(store) == set()


NOTICED: Mapping[str, Any] = {
    "content": "Edited a.py",
    "type": "episodic",
    "scope": "project",
    "importance": 0.3,
    "source": {"tool": "hook:PostToolUse"},
}


async def faded(assistant: Assistant) -> int:
    assistant.clock.pass_days(100)
    stores = (await assistant.project_store(), await assistant.library.open_user_store())
    return sum([await fade_memories(store, assistant.clock) for store in stores])


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("update_memory", {"content": "Never edit a.py by hand"}),
        ("update_memory", {"importance": 0.9}),
        ("update_memory", {"tags": ["keep"]}),
        ("update_memory", {"metadata": {"seen": True}}),
        ("update_memory", {"related_entities": {"add": [{"name": "A", "type": "x", "relationship": "about"}]}}),
        ("tag_memory", {"add": ["keep"]}),
        ("promote_memory", {"target_scope": "user"}),
    ],
)
async def test_what_somebody_changes_or_promotes_is_theirs_and_stays(
    assistant: Assistant, tool: str, arguments: dict[str, Any]
) -> None:
    noticed = (await assistant("store_memory", **NOTICED))["memory_id"]
    await assistant(tool, memory_id=noticed, **arguments)
    assert await faded(assistant) == 0


async def test_what_a_session_had_and_somebody_gave_to_the_project_stays(assistant: Assistant) -> None:
    noticed = await assistant("store_memory", **NOTICED | {"scope": "session"})
    await assistant("promote_memory", memory_id=noticed["memory_id"], target_scope="project")
    assert await faded(assistant) == 0


@pytest.mark.parametrize("scope", ["project", "user"])
async def test_what_is_merged_by_a_promotion_stays(assistant: Assistant, scope: str) -> None:
    await assistant("store_memory", **NOTICED | {"scope": scope})
    noticed = await assistant("store_memory", **NOTICED | {"scope": "session"})
    merged = await assistant("promote_memory", memory_id=noticed["memory_id"], target_scope=scope)
    assert merged["merged"] is True
    assert await faded(assistant) == 0


async def test_what_somebody_says_too_stays(assistant: Assistant) -> None:
    noticed = await assistant("store_memory", **NOTICED)
    said = {name: value for name, value in NOTICED.items() if name != "source"}
    assert (await assistant("store_memory", **said))["memory_id"] == noticed["memory_id"]
    assert await faded(assistant) == 0


async def test_what_hooks_store_again_or_nobody_changes_is_as_automatic_as_before(assistant: Assistant) -> None:
    noticed = (await assistant("store_memory", **NOTICED))["memory_id"]
    await assistant("store_memory", **NOTICED, tags=["failure"])
    await assistant("update_memory", memory_id=noticed, importance=0.3)
    assert await faded(assistant) == 1


async def test_an_undo_makes_it_automatic_again(assistant: Assistant) -> None:
    noticed = (await assistant("store_memory", **NOTICED))["memory_id"]
    await assistant("update_memory", memory_id=noticed, importance=0.9)
    store = await assistant.project_store()
    [change] = await store.read_changes(limit=1, newest_first=True)
    await store.commit(batch(*await plan_undo(store, change), undoes=change.seq))
    assert await faded(assistant) == 1


async def test_what_was_recalled_again_stays(store: RecordStore) -> None:
    await store.commit(batch(*(automatic(name) for name in ("never", "once", "twice"))))
    await store.note_accesses({"once": 1, "twice": 2}, DAY_ONE)
    assert await fade_memories(store, lambda: after(60)) == 2
    assert await forgotten(store) == {"never", "once"}


async def test_one_use_starts_the_time_anew(store: RecordStore) -> None:
    texts = {"an event": 0.3, "an event that matters": 1.0, "a fact": 0.3}
    kinds = {"a fact": "semantic"}
    await store.commit(
        batch(*(automatic(text, importance=weight, type=kinds.get(text, "episodic")) for text, weight in texts.items()))
    )
    await store.note_accesses(dict.fromkeys(texts, 1), after(58))
    assert await fade_memories(store, lambda: after(58 + 14)) == 0
    assert await fade_memories(store, lambda: after(58 + 15)) == 2
    # Of a fact more is left by then: a half-life of a week, and a fifth for the use.
    assert await fade_memories(store, lambda: after(58 + 41)) == 0
    assert await fade_memories(store, lambda: after(58 + 42)) == 1


async def test_fading_can_be_undone(store: RecordStore) -> None:
    texts = ["one", "two"]
    await store.commit(batch(*map(automatic, texts)))
    before = await store.get(texts)
    assert await fade_memories(store, lambda: after(30), "hook") == 2
    [change] = await store.read_changes(limit=1, newest_first=True)
    assert (change.tool, change.client) == (FADING_TOOL, "hook")
    await store.commit(batch(*await plan_undo(store, change), undoes=change.seq))
    found = await store.get(texts)
    assert [(r.facets, r.deleted_at) for r in found] == [(r.facets, None) for r in before]


async def test_many_are_forgotten_in_batches_between_those_that_stay(store: RecordStore) -> None:
    texts = [f"memory {number}" for number in range(BATCH_MEMORIES * 2 + 10)]
    kept = set(texts[::7])
    facets = {"pinned": True}
    for text in texts:
        facets_of = facets if text in kept else {}
        await store.commit(batch(automatic(text, facets=facets_of)))
    seen = await store.get_revision()
    assert await fade_memories(store, lambda: after(30)) == len(texts) - len(kept)
    assert await forgotten(store) == set(texts) - kept
    changes = await store.read_changes(after=seen)
    assert len(changes) == 3
    assert all(len({edit.id for edit in change.edits}) <= BATCH_MEMORIES for change in changes)


async def test_nothing_is_committed_where_nothing_faded(store: RecordStore) -> None:
    await store.commit(batch(automatic("fresh")))
    before = await store.get_revision()
    await fade_memories(store, lambda: DAY_ONE + MIN_AGE_MICROSECONDS)
    assert await store.get_revision() == before
