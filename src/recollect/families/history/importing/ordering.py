"""Turns that came late, put where they belong: in the order in which they happened."""

from collections.abc import AsyncIterator
from typing import NamedTuple

from recollect.core.ports import RecordStore
from recollect.core.records import Record, Step, Update, Where
from recollect.core.text import clipped
from recollect.core.times import Clock
from recollect.core.transcripts import ASSISTANT
from recollect.errors import Conflict
from recollect.families.history.importing.conversations import UNSORTED, Talk
from recollect.families.history.importing.turns import NAME_WORDS
from recollect.families.history.importing.writing import commit
from recollect.families.history.model import CODE, CONVERSATION, SUMMARY, TURN

PAGE = 200  # records that are read, or moved, at once
ATTEMPTS = 20


class _Place(NamedTuple):
    at: int
    position: int
    id: str
    version: int


async def put_in_order(store: RecordStore, clock: Clock) -> None:
    """All conversations to which a turn came late; what is under way elsewhere waits."""
    for _ in range(ATTEMPTS):
        found = await store.scan(Where(kinds=(CONVERSATION,), tags=(UNSORTED,)))
        if not found:
            return
        for conversation in found:
            try:
                await _order(store, clock, conversation)
            except Conflict:  # another import has added to it: the next round sees that
                continue


async def _order(store: RecordStore, clock: Clock, conversation: Record) -> None:
    places: list[_Place] = []
    first: Record | None = None
    async for turn in _pages(store, conversation.id):
        places.append(_place(turn))
        is_human = turn.author != ASSISTANT and turn.type != SUMMARY and turn.text.strip()
        if is_human and (first is None or _place(turn) < _place(first)):
            first = turn
    places.sort()
    moved = [(new, old) for new, old in enumerate(places) if new != old.position]
    for start in range(0, len(moved), PAGE):
        at = clock()
        some = dict(moved[start : start + PAGE])
        steps: list[Step] = [Update(conversation.id, {}, conversation.version)]
        steps += [Update(old.id, {"position": new}, old.version) for new, old in some.items()]
        steps += await _code_moves(store, {old.id: new for new, old in some.items()})
        await commit(store, steps, at)
    await commit(store, [_settled(conversation, places, first).step(clock())], clock())


def _place(turn: Record) -> _Place:
    return _Place(turn.at, turn.position or 0, turn.id, turn.version)


def _settled(conversation: Record, places: list[_Place], first: Record | None) -> Talk:
    talk = Talk.of(conversation)
    talk.tags.discard(UNSORTED)
    talk.facets["turns"] = len(places)
    if first is not None and (talk.name is None or "named" in talk.facets):
        talk.name = clipped(first.text[: 4 * NAME_WORDS], NAME_WORDS)
        talk.facets["named"] = [place.id for place in places].index(first.id)
    return talk


async def _code_moves(store: RecordStore, positions: dict[str, int]) -> list[Step]:
    found = await store.scan(Where(kinds=(CODE,), parents=tuple(positions)))
    return [
        Update(code.id, {"facets": {**code.facets, "turn_position": new}}, code.version)
        for code in found
        if code.facets.get("turn_position") != (new := positions[code.parent or ""])
    ]


async def _pages(store: RecordStore, conversation: str) -> AsyncIterator[Record]:
    where = Where(kinds=(TURN,), parents=(conversation,))
    after: str | None = None
    while page := await store.scan(where, after=after, limit=PAGE):
        for turn in page:
            yield turn
        after = page[-1].id
