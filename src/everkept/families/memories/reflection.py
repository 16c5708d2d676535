"""Reflecting on a session: reads its memories, plans what they come to, and keeps that."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, cast
from uuid import uuid4

from everkept.core.commits import Planned, Writer
from everkept.core.ports import Indexing, RecordStore
from everkept.core.records import Insert, Link, Record, Restore, Step, Update, Where
from everkept.families.memories.consolidation import (
    DERIVED,
    PATTERN_TAG,
    REFLECTED_AT,
    Pattern,
    Plan,
    ReflectStrategy,
    Remembered,
    Summary,
    is_derived,
    of_user,
    plan,
    session_of,
    sources_of,
)
from everkept.families.memories.likeness import Meaning
from everkept.families.memories.memory_identity import place_of, text_key
from everkept.families.memories.memory_record import not_automatic
from everkept.families.memories.model import AUTOMATIC, DERIVED_FROM, MEMORY
from everkept.tools.tool import Warned
from everkept.values import Value, replace

MOST_OWN = 2_000  # memories of the session, the newest: the work grows with their square
MOST_OTHERS = 1_000  # newest memories of other sessions that a theme is looked for in
MOST_PATTERNS = 1_000  # earlier ones
TIME_LIMIT = 2.0  # seconds for vectors that are still missing


class ConsolidatedMemory(Value):
    id: str
    content: str
    type: str
    derived_from: list[str]
    scope: str


class DetectedPattern(Value):
    """`memory_id` is the procedural memory that keeps it."""

    pattern: str
    frequency: int
    suggested_scope: str
    memory_id: str


class SessionStats(Value):
    memories_analyzed: int
    consolidated_into: int
    patterns_found: int


class Reflected(Value):
    consolidated_memories: list[ConsolidatedMemory]
    patterns_detected: list[DetectedPattern]
    session_stats: SessionStats
    warnings: list[Warned] | None = None


async def reflect(
    stores: Sequence[RecordStore],
    session: str,
    *,
    strategy: ReflectStrategy,
    dry_run: bool,
    indexing: Indexing,
    writer: Writer,
    time_limit: float | None = TIME_LIMIT,
    user: RecordStore | None = None,
) -> Reflected:
    """What the session's memories come to in each store; with `dry_run` nothing is written.

    In that of the `user` everything that is made is the user's.

    One change in each. What was consolidated before is left alone, so a second time changes
    nothing more, and of two at once each memory is consolidated by one. Memories that wait for
    their vectors get them here, as far as the time allows.
    """
    meaning = Meaning(indexing, time_limit)
    answers: list[Reflected] = []

    async def planned(store: RecordStore, at: int) -> Planned[Reflected]:
        remembered = await _remembered(store, session, strategy, meaning)
        plan_of_store = await asyncio.to_thread(plan, remembered, strategy)
        if store is user:
            plan_of_store = of_user(plan_of_store)
        present = await _present(store, plan_of_store)
        return _steps(plan_of_store, present, session, at), _answer(plan_of_store, present)

    for store in stores:
        if dry_run:
            _, answer = await planned(store, writer.clock())
        else:
            answer = await writer.commit(store, planned)
        answers.append(answer)
    return _together(answers, meaning.warnings)


async def _remembered(
    store: RecordStore, session: str, strategy: ReflectStrategy, meaning: Meaning
) -> Remembered:
    where = Where(kinds=(MEMORY,))
    own = await store.scan(replace(where, sessions=(session,)), order="newest", limit=MOST_OWN)
    others: list[Record] = []
    patterns: list[Record] = []
    if strategy != "summarize" and own:
        newest = await store.scan(where, order="newest", limit=MOST_OTHERS)
        others = [r for r in newest if session_of(r) not in (None, session)]
        patterns = await _earlier_patterns(store)
    # The oldest first: the background begins with the newest.
    compared = [record for record in (*reversed(own), *others) if not is_derived(record)]
    return Remembered(session, own, others, patterns, await meaning.of(store, compared))


async def _earlier_patterns(store: RecordStore) -> list[Record]:
    """With those that were forgotten, but not those that an undo took back."""
    where = Where(kinds=(MEMORY,), types=("procedural",), tags=(PATTERN_TAG,), deleted=None)
    found = [
        record
        for record in await store.scan(where, order="newest", limit=MOST_PATTERNS)
        if record.facets.get(DERIVED) == "pattern"
    ]
    undone = await _undone(store, [record for record in found if record.deleted_at is not None])
    return [record for record in found if record.id not in undone]


async def _undone(store: RecordStore, deleted: Sequence[Record]) -> set[str]:
    if not deleted:
        return set()
    deletions = {
        edit.id: seq
        for seq, edit in await store.history([record.ref for record in deleted])
        if edit.operation == "delete" and edit.id
    }
    undoing = {
        change.seq
        for seq in set(deletions.values())
        for change in await store.changes(after=seq - 1, limit=1)
        if change.undoes is not None
    }
    return {record_id for record_id, seq in deletions.items() if seq in undoing}


class _Present(Value):
    """What is there already of what is planned."""

    by_text: Mapping[tuple[str | None, str], Record]
    taken_back: Mapping[str, Record]  # deleted ones with the ids of new ones
    links: frozenset[tuple[str, str]]

    def of(self, text: str, scope: str) -> Record | None:
        return self.by_text.get((text_key(text), place_of(scope, None)))


async def _present(store: RecordStore, planned: Plan) -> _Present:
    new = [*planned.summaries, *(p for p in planned.patterns if p.known is None)]
    if not new and not any(pattern.is_news for pattern in planned.patterns):
        return _Present({}, {}, frozenset())
    keys = tuple({text_key(item.text) for item in new})
    same = await store.scan(Where(kinds=(MEMORY,), name_keys=keys)) if keys else []
    there = await store.get([item.id for item in new], include_deleted=True)
    heads = {record.id for record in same} | {p.id for p in planned.patterns if p.known}
    links = await store.links(sorted(heads), direction="out") if heads else []
    return _Present(
        {(record.name_key, record.variant): record for record in same},
        {record.id: record for record in there if record.deleted_at is not None},
        frozenset((x.source, x.target) for x in links if x.verb == DERIVED_FROM),
    )


def _steps(planned: Plan, present: _Present, session: str, at: int) -> list[Step]:
    steps: list[Step] = []
    for summary in planned.summaries:
        steps += _summary_steps(summary, present, session, at)
    for pattern in planned.patterns:
        if pattern.is_news:
            steps += _pattern_steps(pattern, present, session, at)
    return steps


def _summary_steps(summary: Summary, present: _Present, session: str, at: int) -> list[Step]:
    same = present.of(summary.text, summary.scope)
    head = same.id if same else summary.id
    steps = [] if same else _kept(_summary_record(summary, session, at), present)
    steps += _links(head, summary.members, present, at)
    return [
        *steps,
        *(
            Update(member.id, {"facets": {**member.facets, "consolidated": True}}, member.version)
            for member in summary.members
            if member.id != head
        ),
    ]


def _pattern_steps(pattern: Pattern, present: _Present, session: str, at: int) -> list[Step]:
    known = pattern.known or present.of(pattern.text, pattern.scope)
    if known is None:
        steps = _kept(_pattern_record(pattern, session, at), present)
        return [*steps, *_links(pattern.id, pattern.members, present, at)]
    facets = known.facets if _is_automatic(pattern) else not_automatic(known.facets)
    values: dict[str, Any] = {"facets": {**facets, **_pattern_facets(pattern, at, known)}}
    if PATTERN_TAG not in known.tags:
        values["tags"] = (*known.tags, PATTERN_TAG)
    return [
        Update(known.id, values, known.version),
        *_links(known.id, pattern.members, present, at),
    ]


def _kept(record: Record, present: _Present) -> list[Step]:
    """An undo leaves the same memory behind, deleted; it comes back as it was."""
    deleted = present.taken_back.get(record.id)
    return [Insert(record)] if deleted is None else [Restore(deleted.ref)]


def _links(head: str, members: Sequence[Record], present: _Present, at: int) -> list[Step]:
    return [
        Insert(Link(str(uuid4()), head, DERIVED_FROM, member.id, at))
        for member in members
        if member.id != head and (head, member.id) not in present.links
    ]


def _summary_record(summary: Summary, session: str, at: int) -> Record:
    return _record(summary, "semantic", summary.scope, {DERIVED: "summary"}, session, at)


def _pattern_record(pattern: Pattern, session: str, at: int) -> Record:
    facets = _pattern_facets(pattern, at)
    return _record(pattern, "procedural", pattern.scope, facets, session, at)


def _pattern_facets(pattern: Pattern, at: int, known: Record | None = None) -> dict[str, Any]:
    sources = {member.id for member in pattern.members}
    metadata = {"frequency": pattern.frequency, "suggested_scope": pattern.suggested_scope}
    if known is not None:
        sources |= sources_of(known)
        metadata = {**cast(Mapping[str, Any], known.facets.get("metadata") or {}), **metadata}
    return {
        DERIVED: "pattern",
        DERIVED_FROM: sorted(sources),
        REFLECTED_AT: at,
        "metadata": metadata,
    }


def _is_automatic(made: Summary | Pattern) -> bool:
    return all(member.facets.get(AUTOMATIC) for member in made.members)


def _record(
    made: Summary | Pattern,
    memory_type: str,
    scope: str,
    facets: Mapping[str, Any],
    session: str,
    at: int,
) -> Record:
    # What is made of automatic ones alone is one too, so that it fades like them.
    if _is_automatic(made):
        facets = {**facets, AUTOMATIC: True}
    return Record(
        id=made.id,
        kind=MEMORY,
        text=made.text,
        type=memory_type,
        scope=scope,
        session=session,
        name_key=text_key(made.text),
        variant=place_of(scope, session),
        importance=made.importance,
        tags=made.tags,
        occurred_at=made.occurred_at,
        facets=facets,
        created_at=at,
        updated_at=at,
    )


def _answer(planned: Plan, present: _Present) -> Reflected:
    return Reflected(
        [_consolidated(summary, present) for summary in planned.summaries],
        [_detected(pattern, present) for pattern in planned.patterns],
        SessionStats(planned.analyzed, len(planned.summaries), len(planned.patterns)),
    )


def _together(answers: Sequence[Reflected], warnings: list[Warned]) -> Reflected:
    stats = [answer.session_stats for answer in answers]
    return Reflected(
        [made for answer in answers for made in answer.consolidated_memories],
        [found for answer in answers for found in answer.patterns_detected],
        SessionStats(
            sum(one.memories_analyzed for one in stats),
            sum(one.consolidated_into for one in stats),
            sum(one.patterns_found for one in stats),
        ),
        warnings or None,
    )


def _consolidated(summary: Summary, present: _Present) -> ConsolidatedMemory:
    same = present.of(summary.text, summary.scope)
    head = same.id if same else summary.id
    return ConsolidatedMemory(
        id=head,
        content=summary.text,
        type=(same.type or "") if same else "semantic",
        derived_from=[member.id for member in summary.members if member.id != head],
        scope=summary.scope,
    )


def _detected(pattern: Pattern, present: _Present) -> DetectedPattern:
    same = pattern.known or present.of(pattern.text, pattern.scope)
    return DetectedPattern(
        pattern=pattern.text,
        frequency=pattern.frequency,
        suggested_scope=pattern.suggested_scope,
        memory_id=same.id if same else pattern.id,
    )
