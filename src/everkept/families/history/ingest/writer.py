"""Steps that bring the store to the state of a plan."""

import asyncio
import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import Any, cast

from everkept.core import commits
from everkept.core.ports import RecordStore
from everkept.core.records import Batch, Delete, Insert, Record, RecordFilter, RecordLink, Restore, Step, Update
from everkept.core.runtime import wait_finished
from everkept.families.history.call_trace import build_symbol_links
from everkept.families.history.code_outlines import outline_code
from everkept.families.history.ingest.checkpoints import ImportCounts
from everkept.families.history.ingest.conversations import (
    GROWTH_FACET,
    PURGING_TAG,
    TurnSlot,
    build_deleted_turn,
    build_tombstone,
)
from everkept.families.history.ingest.plan import ImportPlan
from everkept.families.history.ingest.prepared_turns import CodePiece, PreparedTurn
from everkept.families.history.model import CODE, DECISION, IMPORT_TOOL, TURN
from everkept.values import Value, field, replace

# Fields that an update compares and sets. The others identify the record.
_COMPARED_FIELDS = ("type", "name", "text", "facets", "scope", "session", "author", "position", "tags")
TOO_LONG_REASON = "rest of a very long text"
DUPLICATE_REASON = "turn of a conversation imported from another copy"
_LINK_FIELDS = ("text", "type", "scope")  # fields that determine the links of code


class ImportDraft(Value, frozen=False):
    """Planned records and links, built without access to the store."""

    turns: list[tuple[Record, TurnSlot]] = field(default_factory=list[tuple[Record, TurnSlot]])
    code: dict[str, list[Record]] = field(default_factory=dict[str, list[Record]])  # by turn
    gone: list[Record] = field(default_factory=list[Record])
    seen: list[Step] = field(default_factory=list[Step])  # for turns that occur again without changes
    buried: list[Step] = field(default_factory=list[Step])
    symbols: dict[str, Record] = field(default_factory=dict[str, Record])
    links: dict[str, list[RecordLink]] = field(default_factory=dict[str, list[RecordLink]])  # by code

    @property
    def known_turns(self) -> list[str]:
        return [record.id for record, slot in self.turns if slot.stored is not None]

    def add_turn(self, turn_id: str, slot: TurnSlot, said: PreparedTurn, at: int) -> None:
        turn = _build_turn(turn_id, slot, said, at)
        self.turns.append((turn, slot))
        self.code[turn.id] = [_build_code(piece, turn) for piece in said.pieces]

    def add_links(self, code: Record) -> None:
        symbols, links = build_symbol_links(code, outline_code(code.text, code.type))
        for symbol in symbols:
            known = self.symbols.get(symbol.id)
            if known is None or known.type is None:  # code that only calls a symbol does not know its kind
                self.symbols[symbol.id] = symbol
        self.links[code.id] = [_with_content_id(link) for link in links]


def build_draft(plan: ImportPlan, at: int) -> ImportDraft:
    """Build the records of the plan's turns, with the links of new code."""
    draft = ImportDraft()
    for unheard, slot in plan.tombstones.items():
        draft.buried += build_tombstone(unheard, slot.owner, slot.session, slot.at, at)
    for record_id, slot in plan.slots.items():
        talk = plan.talks.get(slot.owner)
        if talk is not None and talk.exclusion_reason is not None:
            continue  # stored turns are purged
        stored = slot.stored
        was_live = stored is not None and stored.deleted_at is None
        if slot.is_live and slot.said is not None:
            draft.add_turn(record_id, slot, slot.said, at)
            if stored is None:
                for code in draft.code[record_id]:
                    draft.add_links(code)
        elif stored is None and not slot.is_live:
            draft.buried += build_deleted_turn(record_id, slot.owner, slot.session, slot.at, at)
        elif stored is not None and was_live and not slot.is_live:
            draft.gone.append(stored)
        elif stored is not None and was_live:
            draft.seen += _build_seen_steps(stored, slot)
    return draft


def _build_seen_steps(stored: Record, slot: TurnSlot) -> list[Step]:
    rest = {name: value for name, value in stored.facets.items() if name != GROWTH_FACET}
    facets = {**rest, **_build_arrival_facets(slot)}
    tags = tuple(sorted(slot.tags))
    if (stored.tags, stored.facets) == (tags, facets):
        return []
    return [Update(stored.id, {"tags": tags, "facets": facets}, stored.version)]


def _build_arrival_facets(slot: TurnSlot) -> dict[str, Any]:
    """Return the facets about the import of a turn, which are not part of its content."""
    grown = [growth.to_json() for growth in slot.grown]
    return {"sequence": slot.sequence, **({GROWTH_FACET: grown} if grown else {})}


class StoredCode(Value, frozen=False):
    code: dict[str, dict[str, Record]] = field(default_factory=dict[str, dict[str, Record]])
    links: dict[str, dict[str, RecordLink]] = field(default_factory=dict[str, dict[str, RecordLink]])
    deleted_links: set[str] = field(default_factory=set[str])
    symbols: dict[str, Record] = field(default_factory=dict[str, Record])


async def read_stored_code(store: RecordStore, draft: ImportDraft) -> StoredCode:
    """Read the stored records that the draft replaces, and add the links of changed code to the draft."""
    there = StoredCode()
    if turns := draft.known_turns:
        await _read_turn_code(store, draft, there, turns)
    if draft.symbols:
        there.symbols = {each.id: each for each in await store.get(list(draft.symbols))}
    return there


async def _read_turn_code(store: RecordStore, draft: ImportDraft, there: StoredCode, turns: Sequence[str]) -> None:
    where = RecordFilter(kinds=(CODE,), parents=tuple(turns), deleted=None)
    for code in await store.scan(where):
        there.code.setdefault(code.parent or "", {})[code.id] = code
    changed = [
        code
        for turn in turns
        for code in draft.code[turn]
        if not _is_same(there.code.get(turn, {}).get(code.id), code, _LINK_FIELDS)
    ]
    ids = [code.id for code in changed]
    if not ids:
        return
    await wait_finished(asyncio.to_thread(lambda: [draft.add_links(code) for code in changed]))
    for link in await store.find_links(ids, direction="out"):
        there.links.setdefault(link.source, {})[link.id] = link
    wanted = [link.id for each in ids for link in draft.links[each]]
    found = await store.get_links(wanted, include_deleted=True)
    there.deleted_links = {link.id for link in found if link.deleted_at is not None}


def build_steps(plan: ImportPlan, draft: ImportDraft, there: StoredCode, at: int) -> tuple[list[Step], ImportCounts]:
    """Build all steps of one commit except the checkpoint."""
    counts = ImportCounts(turns_left_out=plan.left_out)
    if plan.doubled:
        counts.skipped[DUPLICATE_REASON] += plan.doubled
    steps: list[Step] = []
    for talk in plan.talks.values():
        if talk.is_kept:
            steps.append(talk.build_step(at))
            is_new = talk.stored is None
            counts.conversations += is_new and talk.exclusion_reason is None
            counts.conversations_left_out += (is_new and bool(talk.exclusion_reason)) or (PURGING_TAG in talk.tags)
    kept = {talk.id for talk in plan.talks.values() if talk.is_kept}
    steps += [Update(i, {}, each.version) for i, each in plan.guards.items() if i not in kept]
    for turn in draft.gone:
        steps.append(Delete(turn.ref))
        counts.turns_removed += 1
    steps += draft.seen
    steps += draft.buried
    return steps + _build_record_steps(draft, there, counts), counts


def _build_record_steps(draft: ImportDraft, there: StoredCode, counts: ImportCounts) -> list[Step]:
    steps: list[Step] = []
    for symbol in draft.symbols.values():
        steps += _build_symbol_steps(symbol, there.symbols.get(symbol.id), counts)
    for record, slot in draft.turns:
        steps += _build_turn_steps(record, slot, draft, there, counts)
    return steps


async def rewrite_turn(store: RecordStore, turn_id: str, slot: TurnSlot, at: int) -> None:
    """Change a stored turn to the state of its slot. Raise Conflict if it changed since it was read."""
    draft, counts = ImportDraft(), ImportCounts()
    if slot.said is None:
        steps = _build_seen_steps(cast(Record, slot.stored), slot)
    else:
        draft.add_turn(turn_id, slot, slot.said, at)
        there = await read_stored_code(store, draft)
        steps = _build_record_steps(draft, there, counts)
    if steps:
        await commit_import(store, steps, at)


async def commit_import(store: RecordStore, steps: Sequence[Step], at: int) -> None:
    """Commit the steps. Raise Conflict if another import was faster."""
    await commits.commit(store, Batch(tuple(steps), at, IMPORT_TOOL, derived=True))


def _build_turn(record_id: str, slot: TurnSlot, said: PreparedTurn, at: int) -> Record:
    return Record(
        id=record_id,
        kind=TURN,
        created_at=at,
        updated_at=at,
        text=said.text,
        type=said.type,
        parent=slot.owner,
        scope=slot.scope,
        session=slot.session,
        position=slot.position,
        author=said.author,
        occurred_at=slot.at,
        facets={**said.facets, **_build_arrival_facets(slot)},
        tags=tuple(sorted(slot.tags)),
    )


def _build_code(piece: CodePiece, turn: Record) -> Record:
    facets: dict[str, Any] = {"source": turn.facets["source"], "change": piece.change, "turn_position": turn.position}
    if piece.replaced:
        facets["replaced"] = piece.replaced
    return Record(
        id=piece.id,
        kind=CODE,
        created_at=turn.created_at,
        updated_at=turn.updated_at,
        text=piece.text,
        name=piece.file,
        type=piece.language,
        parent=turn.id,
        scope=turn.scope,
        session=turn.session,
        author=turn.author,
        occurred_at=turn.occurred_at,
        facets=facets,
    )


def _build_turn_steps(
    record: Record, slot: TurnSlot, draft: ImportDraft, there: StoredCode, counts: ImportCounts
) -> list[Step]:
    own = _build_upsert(record, slot.stored)
    code = _build_code_steps(record, draft, there, counts)
    was_live = slot.stored is not None and slot.stored.deleted_at is None
    is_changed = (
        bool(code) or slot.stored is None or _get_compared_content(slot.stored) != _get_compared_content(record)
    )
    if not was_live:
        counts.turns += 1
        counts.decisions += record.type == DECISION
    elif is_changed:
        counts.turns_changed += 1
    if is_changed and slot.said is not None:
        counts.masked.update(slot.said.masked)
        if slot.said.cut:
            counts.skipped[TOO_LONG_REASON] += slot.said.cut
    return own + code


def _get_compared_content(turn: Record) -> tuple[Any, ...]:
    """Return the values that count as a change of a turn, without its position and import data."""
    facets = {name: v for name, v in turn.facets.items() if name not in ("sequence", GROWTH_FACET)}
    return turn.text, turn.type, turn.scope, turn.author, turn.effective_at, facets


def _build_code_steps(turn: Record, draft: ImportDraft, there: StoredCode, counts: ImportCounts) -> list[Step]:
    stored = there.code.get(turn.id, {})
    wanted = draft.code[turn.id]
    # Deleting code deletes its links. Code of a deleted turn is already deleted.
    steps: list[Step] = [
        Delete(old.ref)
        for old in stored.values()
        if old.deleted_at is None and old.id not in {code.id for code in wanted}
    ]
    for code in wanted:
        before = stored.get(code.id)
        counts.code += before is None or before.deleted_at is not None
        steps += _build_upsert(code, before)
        steps += _build_link_steps(code, draft, there, counts)
    return steps


def _build_link_steps(code: Record, draft: ImportDraft, there: StoredCode, counts: ImportCounts) -> list[Step]:
    if code.id not in draft.links:
        return []
    links = {link.id: link for link in draft.links[code.id]}
    stored = there.links.get(code.id, {})
    steps: list[Step] = [Delete(old.ref) for i, old in stored.items() if i not in links]
    for link in links.values():
        if link.id not in stored:
            is_back = link.id in there.deleted_links
            steps.append(Restore(link.ref) if is_back else Insert(link))
            counts.links += 1
    return steps


def _build_symbol_steps(symbol: Record, stored: Record | None, counts: ImportCounts) -> list[Step]:
    if stored is None:
        counts.symbols += 1
        return [Insert(symbol)]
    if stored.type is None and symbol.type is not None:
        return [Update(stored.id, {"type": symbol.type}, stored.version)]
    return []


def _build_upsert(record: Record, stored: Record | None) -> list[Step]:
    if stored is None:
        return [Insert(record)]
    values = {name: getattr(record, name) for name in (*_COMPARED_FIELDS, "occurred_at")}
    update = Update(stored.id, values, stored.version)
    if stored.deleted_at is not None:
        return [Restore(stored.ref), update]
    return [] if _is_same(stored, record, values) else [update]


def _is_same(stored: Record | None, record: Record, names: Iterable[str]) -> bool:
    if stored is None or stored.deleted_at is not None:
        return False
    return all(getattr(stored, name) == getattr(record, name) for name in names)


def _with_content_id(link: RecordLink) -> RecordLink:
    """Return the link with an id that includes its facets, because a stored link cannot be changed."""
    if not link.facets:
        return link
    told = json.dumps(link.facets, sort_keys=True, ensure_ascii=True)
    return replace(link, id=f"{link.id}_{hashlib.sha256(told.encode()).hexdigest()[:8]}")
