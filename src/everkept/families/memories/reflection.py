"""Reflection on a session: read its memories, plan summaries and patterns, and store them."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, cast
from uuid import uuid4

from everkept.core.commits import ChangeWriter, Planned
from everkept.core.ports import RecordStore, VectorIndexer
from everkept.core.records import Insert, Record, RecordFilter, RecordLink, Restore, Step, Update
from everkept.families.memories.consolidation import (
    DERIVED_FACET,
    PATTERN_TAG,
    REFLECTED_AT_FACET,
    MemoryPattern,
    MemorySummary,
    ReflectionInput,
    ReflectionPlan,
    ReflectStrategy,
    build_plan,
    get_session,
    get_sources,
    is_derived,
    to_user_scope,
)
from everkept.families.memories.likeness import VectorSource
from everkept.families.memories.memory_identity import build_variant, compute_text_key
from everkept.families.memories.memory_record import drop_automatic
from everkept.families.memories.model import AUTOMATIC, DERIVED_FROM, MEMORY
from everkept.tools.tool import ToolWarning
from everkept.values import Value, replace

MAX_SESSION_MEMORIES = 2_000  # the newest; the work grows with the square of their number
MAX_OTHER_MEMORIES = 1_000  # the newest of other sessions, in which themes are searched
MAX_PATTERNS = 1_000  # earlier ones
VECTOR_SECONDS = 2.0  # time for computing missing vectors


class ConsolidatedMemory(Value):
    id: str
    content: str
    type: str
    derived_from: list[str]
    scope: str


class DetectedPattern(Value):
    """Recurring theme. `memory_id` is the procedural memory that stores it."""

    pattern: str
    frequency: int
    suggested_scope: str
    memory_id: str


class ReflectionStats(Value):
    memories_analyzed: int
    consolidated_into: int
    patterns_found: int


class ReflectionResult(Value):
    consolidated_memories: list[ConsolidatedMemory]
    patterns_detected: list[DetectedPattern]
    session_stats: ReflectionStats
    warnings: list[ToolWarning] | None = None


async def reflect_session(
    stores: Sequence[RecordStore],
    session: str,
    *,
    strategy: ReflectStrategy,
    dry_run: bool,
    indexing: VectorIndexer,
    writer: ChangeWriter,
    time_limit: float | None = VECTOR_SECONDS,
    user: RecordStore | None = None,
) -> ReflectionResult:
    """Consolidate the session's memories in each store. With `dry_run`, write nothing.

    Everything derived in the store `user` has scope user.

    Each store gets one change. Memories consolidated before are skipped, so a second call changes nothing more. If two
    calls run at the same time, only one of them consolidates each memory. Missing vectors are computed here as far as
    the time allows.
    """
    meaning = VectorSource(indexing, time_limit)
    answers: list[ReflectionResult] = []

    async def planned(store: RecordStore, at: int) -> Planned[ReflectionResult]:
        remembered = await _read_input(store, session, strategy, meaning)
        plan_of_store = await asyncio.to_thread(build_plan, remembered, strategy)
        if store is user:
            plan_of_store = to_user_scope(plan_of_store)
        present = await _read_stored(store, plan_of_store)
        return _build_steps(plan_of_store, present, session, at), _build_result(plan_of_store, present)

    for store in stores:
        if dry_run:
            _, answer = await planned(store, writer.clock())
        else:
            answer = await writer.commit(store, planned)
        answers.append(answer)
    return _merge_results(answers, meaning.warnings)


async def _read_input(
    store: RecordStore, session: str, strategy: ReflectStrategy, meaning: VectorSource
) -> ReflectionInput:
    where = RecordFilter(kinds=(MEMORY,))
    own = await store.scan(replace(where, sessions=(session,)), order="newest", limit=MAX_SESSION_MEMORIES)
    others: list[Record] = []
    patterns: list[Record] = []
    if strategy != "summarize" and own:
        newest = await store.scan(where, order="newest", limit=MAX_OTHER_MEMORIES)
        others = [r for r in newest if get_session(r) not in (None, session)]
        patterns = await _read_earlier_patterns(store)
    # Oldest first, because the background job starts with the newest.
    compared = [record for record in (*reversed(own), *others) if not is_derived(record)]
    vectors = await meaning.get_vectors(store, compared)
    return ReflectionInput(
        session, own, others, patterns, vectors, await meaning.find_background() if vectors else None
    )


async def _read_earlier_patterns(store: RecordStore) -> list[Record]:
    """Return earlier patterns, including forgotten ones, but not those that an undo removed."""
    where = RecordFilter(kinds=(MEMORY,), types=("procedural",), tags=(PATTERN_TAG,), deleted=None)
    found = [
        record
        for record in await store.scan(where, order="newest", limit=MAX_PATTERNS)
        if record.facets.get(DERIVED_FACET) == "pattern"
    ]
    undone = await _find_undone(store, [record for record in found if record.deleted_at is not None])
    return [record for record in found if record.id not in undone]


async def _find_undone(store: RecordStore, deleted: Sequence[Record]) -> set[str]:
    if not deleted:
        return set()
    deletions = {
        edit.id: seq
        for seq, edit in await store.read_history([record.ref for record in deleted])
        if edit.operation == "delete" and edit.id
    }
    undoing = {
        change.seq
        for seq in set(deletions.values())
        for change in await store.read_changes(after=seq - 1, limit=1)
        if change.undoes is not None
    }
    return {record_id for record_id, seq in deletions.items() if seq in undoing}


class _StoredMemories(Value):
    """Records in the store that match the plan."""

    by_text: Mapping[tuple[str | None, str], Record]
    taken_back: Mapping[str, Record]  # deleted records that have the ids of planned ones
    links: frozenset[tuple[str, str]]

    def find_text(self, text: str, scope: str) -> Record | None:
        return self.by_text.get((compute_text_key(text), build_variant(scope, None)))


async def _read_stored(store: RecordStore, planned: ReflectionPlan) -> _StoredMemories:
    new = [*planned.summaries, *(p for p in planned.patterns if p.known is None)]
    if not new and not any(pattern.has_new_members for pattern in planned.patterns):
        return _StoredMemories({}, {}, frozenset())
    keys = tuple({compute_text_key(item.text) for item in new})
    same = await store.scan(RecordFilter(kinds=(MEMORY,), name_keys=keys)) if keys else []
    there = await store.get([item.id for item in new], include_deleted=True)
    heads = {record.id for record in same} | {p.id for p in planned.patterns if p.known}
    links = await store.find_links(sorted(heads), direction="out") if heads else []
    return _StoredMemories(
        {(record.name_key, record.variant): record for record in same},
        {record.id: record for record in there if record.deleted_at is not None},
        frozenset((x.source, x.target) for x in links if x.verb == DERIVED_FROM),
    )


def _build_steps(planned: ReflectionPlan, present: _StoredMemories, session: str, at: int) -> list[Step]:
    steps: list[Step] = []
    for summary in planned.summaries:
        steps += _build_summary_steps(summary, present, session, at)
    for pattern in planned.patterns:
        if pattern.has_new_members:
            steps += _build_pattern_steps(pattern, present, session, at)
    return steps


def _build_summary_steps(summary: MemorySummary, present: _StoredMemories, session: str, at: int) -> list[Step]:
    same = present.find_text(summary.text, summary.scope)
    head = same.id if same else summary.id
    record = _build_record(summary, "semantic", {DERIVED_FACET: "summary"}, session, at)
    steps = [] if same else _build_store_steps(record, present)
    steps += _build_links(head, summary.members, present, at)
    return [
        *steps,
        *(
            Update(member.id, {"facets": {**member.facets, "consolidated": True}}, member.version)
            for member in summary.members
            if member.id != head
        ),
    ]


def _build_pattern_steps(pattern: MemoryPattern, present: _StoredMemories, session: str, at: int) -> list[Step]:
    known = pattern.known or present.find_text(pattern.text, pattern.scope)
    if known is None:
        record = _build_record(pattern, "procedural", _build_pattern_facets(pattern, at), session, at)
        return [*_build_store_steps(record, present), *_build_links(pattern.id, pattern.members, present, at)]
    facets = known.facets if _is_automatic(pattern) else drop_automatic(known.facets)
    values: dict[str, Any] = {"facets": {**facets, **_build_pattern_facets(pattern, at, known)}}
    if PATTERN_TAG not in known.tags:
        values["tags"] = (*known.tags, PATTERN_TAG)
    return [Update(known.id, values, known.version), *_build_links(known.id, pattern.members, present, at)]


def _build_store_steps(record: Record, present: _StoredMemories) -> list[Step]:
    """Return steps that store the record. If an undo deleted the same memory before, restore it."""
    deleted = present.taken_back.get(record.id)
    return [Insert(record)] if deleted is None else [Restore(deleted.ref)]


def _build_links(head: str, members: Sequence[Record], present: _StoredMemories, at: int) -> list[Step]:
    return [
        Insert(RecordLink(str(uuid4()), head, DERIVED_FROM, member.id, at))
        for member in members
        if member.id != head and (head, member.id) not in present.links
    ]


def _build_pattern_facets(pattern: MemoryPattern, at: int, known: Record | None = None) -> dict[str, Any]:
    sources = {member.id for member in pattern.members}
    metadata = {"frequency": pattern.frequency, "suggested_scope": pattern.suggested_scope}
    if known is not None:
        sources |= get_sources(known)
        metadata = {**cast(Mapping[str, Any], known.facets.get("metadata") or {}), **metadata}
    return {DERIVED_FACET: "pattern", DERIVED_FROM: sorted(sources), REFLECTED_AT_FACET: at, "metadata": metadata}


def _is_automatic(made: MemorySummary | MemoryPattern) -> bool:
    return all(member.facets.get(AUTOMATIC) for member in made.members)


def _build_record(
    made: MemorySummary | MemoryPattern, memory_type: str, facets: Mapping[str, Any], session: str, at: int
) -> Record:
    # A memory derived only from automatic ones is automatic too, so that it fades like them.
    if _is_automatic(made):
        facets = {**facets, AUTOMATIC: True}
    return Record(
        id=made.id,
        kind=MEMORY,
        text=made.text,
        type=memory_type,
        scope=made.scope,
        session=session,
        name_key=compute_text_key(made.text),
        variant=build_variant(made.scope, session),
        importance=made.importance,
        tags=made.tags,
        occurred_at=made.occurred_at,
        facets=facets,
        created_at=at,
        updated_at=at,
    )


def _build_result(planned: ReflectionPlan, present: _StoredMemories) -> ReflectionResult:
    return ReflectionResult(
        [_build_consolidated(summary, present) for summary in planned.summaries],
        [_build_detected(pattern, present) for pattern in planned.patterns],
        ReflectionStats(planned.analyzed, len(planned.summaries), len(planned.patterns)),
    )


def _merge_results(answers: Sequence[ReflectionResult], warnings: list[ToolWarning]) -> ReflectionResult:
    stats = [answer.session_stats for answer in answers]
    return ReflectionResult(
        [made for answer in answers for made in answer.consolidated_memories],
        [found for answer in answers for found in answer.patterns_detected],
        ReflectionStats(
            sum(one.memories_analyzed for one in stats),
            sum(one.consolidated_into for one in stats),
            sum(one.patterns_found for one in stats),
        ),
        warnings or None,
    )


def _build_consolidated(summary: MemorySummary, present: _StoredMemories) -> ConsolidatedMemory:
    same = present.find_text(summary.text, summary.scope)
    head = same.id if same else summary.id
    return ConsolidatedMemory(
        id=head,
        content=summary.text,
        type=(same.type or "") if same else "semantic",
        derived_from=[member.id for member in summary.members if member.id != head],
        scope=summary.scope,
    )


def _build_detected(pattern: MemoryPattern, present: _StoredMemories) -> DetectedPattern:
    same = pattern.known or present.find_text(pattern.text, pattern.scope)
    return DetectedPattern(
        pattern=pattern.text,
        frequency=pattern.frequency,
        suggested_scope=pattern.suggested_scope,
        memory_id=same.id if same else pattern.id,
    )
