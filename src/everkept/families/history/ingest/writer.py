"""The steps that make the store what a plan says."""

import asyncio
import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import Any, cast

from everkept.core import commits
from everkept.core.ports import RecordStore
from everkept.core.records import Batch, Delete, Insert, Link, Record, Restore, Step, Update, Where
from everkept.core.runtime import finished
from everkept.families.history.call_trace import links_of
from everkept.families.history.code_outlines import outline
from everkept.families.history.ingest.checkpoints import Counts
from everkept.families.history.ingest.conversations import GROWN, PURGING, Slot, buried, taken_back
from everkept.families.history.ingest.plan import Plan
from everkept.families.history.ingest.prepared_turns import Piece, Said
from everkept.families.history.model import CODE, DECISION, IMPORT, TURN
from everkept.values import Value, field, replace

# What an update compares and sets; the rest of a record is its identity.
_COMPARED = ("type", "name", "text", "facets", "scope", "session", "author", "position", "tags")
TOO_LONG = "rest of a text that is too long"
DOUBLED = "turn of a conversation that is read from elsewhere"
_LINKED = ("text", "type", "scope")  # what the links of code follow from


class Draft(Value, frozen=False):
    """Records and links as they are to be. Made without asking the store."""

    turns: list[tuple[Record, Slot]] = field(default_factory=list[tuple[Record, Slot]])
    code: dict[str, list[Record]] = field(default_factory=dict[str, list[Record]])  # by turn
    gone: list[Record] = field(default_factory=list[Record])
    seen: list[Step] = field(default_factory=list[Step])  # that come again and stay as they are
    buried: list[Step] = field(default_factory=list[Step])
    symbols: dict[str, Record] = field(default_factory=dict[str, Record])
    links: dict[str, list[Link]] = field(default_factory=dict[str, list[Link]])  # by code

    @property
    def known_turns(self) -> list[str]:
        return [record.id for record, slot in self.turns if slot.stored is not None]

    def tell(self, turn_id: str, slot: Slot, said: Said, at: int) -> None:
        turn = _turn(turn_id, slot, said, at)
        self.turns.append((turn, slot))
        self.code[turn.id] = [_code(piece, turn) for piece in said.pieces]

    def link(self, code: Record) -> None:
        symbols, links = links_of(code, outline(code.text, code.type))
        for symbol in symbols:
            known = self.symbols.get(symbol.id)
            if known is None or known.type is None:  # who only calls does not know what it is
                self.symbols[symbol.id] = symbol
        self.links[code.id] = [_identified(link) for link in links]


def drafted(plan: Plan, at: int) -> Draft:
    """What the plan's turns look like as records, with the links of code that is new."""
    draft = Draft()
    for unheard, slot in plan.graves.items():
        draft.buried += buried(unheard, slot.owner, slot.session, slot.at, at)
    for record_id, slot in plan.slots.items():
        talk = plan.talks.get(slot.owner)
        if talk is not None and talk.left_out is not None:
            continue  # what is there is purged
        stored = slot.stored
        was_live = stored is not None and stored.deleted_at is None
        if slot.is_live and slot.said is not None:
            draft.tell(record_id, slot, slot.said, at)
            if stored is None:
                for code in draft.code[record_id]:
                    draft.link(code)
        elif stored is None and not slot.is_live:
            draft.buried += taken_back(record_id, slot.owner, slot.session, slot.at, at)
        elif stored is not None and was_live and not slot.is_live:
            draft.gone.append(stored)
        elif stored is not None and was_live:
            draft.seen += _seen(stored, slot)
    return draft


def _seen(stored: Record, slot: Slot) -> list[Step]:
    rest = {name: value for name, value in stored.facets.items() if name != GROWN}
    facets = {**rest, **_arrival(slot)}
    tags = tuple(sorted(slot.tags))
    if (stored.tags, stored.facets) == (tags, facets):
        return []
    return [Update(stored.id, {"tags": tags, "facets": facets}, stored.version)]


def _arrival(slot: Slot) -> dict[str, Any]:
    """How it came to be what it is, which says nothing of what it is."""
    grown = [growth.to_json() for growth in slot.grown]
    return {"sequence": slot.sequence, **({GROWN: grown} if grown else {})}


class There(Value, frozen=False):
    """What the store has of the code of known turns."""

    code: dict[str, dict[str, Record]] = field(default_factory=dict[str, dict[str, Record]])
    links: dict[str, dict[str, Link]] = field(default_factory=dict[str, dict[str, Link]])
    deleted_links: set[str] = field(default_factory=set[str])
    symbols: dict[str, Record] = field(default_factory=dict[str, Record])


async def looked_up(store: RecordStore, draft: Draft) -> There:
    """Asks for what stands where the draft is to be; links of code that changes are drafted."""
    there = There()
    if turns := draft.known_turns:
        await _look_up_code(store, draft, there, turns)
    if draft.symbols:
        there.symbols = {each.id: each for each in await store.get(list(draft.symbols))}
    return there


async def _look_up_code(
    store: RecordStore, draft: Draft, there: There, turns: Sequence[str]
) -> None:
    where = Where(kinds=(CODE,), parents=tuple(turns), deleted=None)
    for code in await store.scan(where):
        there.code.setdefault(code.parent or "", {})[code.id] = code
    changed = [
        code
        for turn in turns
        for code in draft.code[turn]
        if not _is_same(there.code.get(turn, {}).get(code.id), code, _LINKED)
    ]
    ids = [code.id for code in changed]
    if not ids:
        return
    await finished(asyncio.to_thread(lambda: [draft.link(code) for code in changed]))
    for link in await store.links(ids, direction="out"):
        there.links.setdefault(link.source, {})[link.id] = link
    wanted = [link.id for each in ids for link in draft.links[each]]
    found = await store.get_links(wanted, include_deleted=True)
    there.deleted_links = {link.id for link in found if link.deleted_at is not None}


def steps_of(plan: Plan, draft: Draft, there: There, at: int) -> tuple[list[Step], Counts]:
    """All that one commit does, but for the checkpoint."""
    counts = Counts(turns_left_out=plan.left_out)
    if plan.doubled:
        counts.skipped[DOUBLED] += plan.doubled
    steps: list[Step] = []
    for talk in plan.talks.values():
        if talk.is_kept:
            steps.append(talk.step(at))
            is_new = talk.stored is None
            counts.conversations += is_new and talk.left_out is None
            counts.conversations_left_out += (is_new and bool(talk.left_out)) or (
                PURGING in talk.tags
            )
    kept = {talk.id for talk in plan.talks.values() if talk.is_kept}
    steps += [Update(i, {}, each.version) for i, each in plan.guards.items() if i not in kept]
    for turn in draft.gone:
        steps.append(Delete(turn.ref))
        counts.turns_removed += 1
    steps += draft.seen
    steps += draft.buried
    return steps + _told_steps(draft, there, counts), counts


def _told_steps(draft: Draft, there: There, counts: Counts) -> list[Step]:
    steps: list[Step] = []
    for symbol in draft.symbols.values():
        steps += _symbol_steps(symbol, there.symbols.get(symbol.id), counts)
    for record, slot in draft.turns:
        steps += _turn_steps(record, slot, draft, there, counts)
    return steps


async def retell(store: RecordStore, turn_id: str, slot: Slot, at: int) -> None:
    """Makes a turn that is there what its slot says. Raises Conflict."""
    draft, counts = Draft(), Counts()
    if slot.said is None:
        steps = _seen(cast(Record, slot.stored), slot)
    else:
        draft.tell(turn_id, slot, slot.said, at)
        there = await looked_up(store, draft)
        steps = _told_steps(draft, there, counts)
    if steps:
        await commit(store, steps, at)


async def commit(store: RecordStore, steps: Sequence[Step], at: int) -> None:
    """Raises Conflict where another import was faster."""
    await commits.commit(store, Batch(tuple(steps), at, IMPORT, derived=True))


def _turn(record_id: str, slot: Slot, said: Said, at: int) -> Record:
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
        facets={**said.facets, **_arrival(slot)},
        tags=tuple(sorted(slot.tags)),
    )


def _code(piece: Piece, turn: Record) -> Record:
    facets: dict[str, Any] = {
        "source": turn.facets["source"],
        "change": piece.change,
        "turn_position": turn.position,
    }
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


def _turn_steps(
    record: Record, slot: Slot, draft: Draft, there: There, counts: Counts
) -> list[Step]:
    own = _upserted(record, slot.stored)
    code = _code_steps(record, draft, there, counts)
    was_live = slot.stored is not None and slot.stored.deleted_at is None
    is_changed = bool(code) or slot.stored is None or _told(slot.stored) != _told(record)
    if not was_live:
        counts.turns += 1
        counts.decisions += record.type == DECISION
    elif is_changed:
        counts.turns_changed += 1
    if is_changed and slot.said is not None:
        counts.masked.update(slot.said.masked)
        if slot.said.cut:
            counts.skipped[TOO_LONG] += slot.said.cut
    return own + code


def _told(turn: Record) -> tuple[Any, ...]:
    """What makes it another when it changes: not where it stands, nor when it was read."""
    facets = {name: v for name, v in turn.facets.items() if name not in ("sequence", GROWN)}
    return turn.text, turn.type, turn.scope, turn.author, turn.at, facets


def _code_steps(turn: Record, draft: Draft, there: There, counts: Counts) -> list[Step]:
    stored = there.code.get(turn.id, {})
    wanted = draft.code[turn.id]
    # What goes takes its links with it; a deletion of its turn took it already.
    steps: list[Step] = [
        Delete(old.ref)
        for old in stored.values()
        if old.deleted_at is None and old.id not in {code.id for code in wanted}
    ]
    for code in wanted:
        before = stored.get(code.id)
        counts.code += before is None or before.deleted_at is not None
        steps += _upserted(code, before)
        steps += _link_steps(code, draft, there, counts)
    return steps


def _link_steps(code: Record, draft: Draft, there: There, counts: Counts) -> list[Step]:
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


def _symbol_steps(symbol: Record, stored: Record | None, counts: Counts) -> list[Step]:
    if stored is None:
        counts.symbols += 1
        return [Insert(symbol)]
    if stored.type is None and symbol.type is not None:
        return [Update(stored.id, {"type": symbol.type}, stored.version)]
    return []


def _upserted(record: Record, stored: Record | None) -> list[Step]:
    if stored is None:
        return [Insert(record)]
    values = {name: getattr(record, name) for name in (*_COMPARED, "occurred_at")}
    update = Update(stored.id, values, stored.version)
    if stored.deleted_at is not None:
        return [Restore(stored.ref), update]
    return [] if _is_same(stored, record, values) else [update]


def _is_same(stored: Record | None, record: Record, names: Iterable[str]) -> bool:
    if stored is None or stored.deleted_at is not None:
        return False
    return all(getattr(stored, name) == getattr(record, name) for name in names)


def _identified(link: Link) -> Link:
    """A link cannot be changed: one that says something else of the same ends is another."""
    if not link.facets:
        return link
    told = json.dumps(link.facets, sort_keys=True, ensure_ascii=True)
    return replace(link, id=f"{link.id}_{hashlib.sha256(told.encode()).hexdigest()[:8]}")
