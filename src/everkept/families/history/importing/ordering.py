"""Turns that came late, put where they belong: in the order in which they happened."""

from collections.abc import AsyncIterator
from contextlib import suppress
from typing import NamedTuple

from everkept.core.commits import retry
from everkept.core.ports import RecordStore
from everkept.core.records import Record, Step, Update, Where
from everkept.core.times import Clock
from everkept.core.transcripts import ASSISTANT
from everkept.errors import Conflict
from everkept.families.history.importing.conversations import UNSORTED, Gist, Talk
from everkept.families.history.importing.growing import own_text
from everkept.families.history.importing.texts import opening
from everkept.families.history.importing.writing import commit
from everkept.families.history.model import CODE, CONVERSATION, SUMMARY, TURN

PAGE = 200  # records that are read, or moved, at once


class _Place(NamedTuple):
    at: int
    sequence: int
    id: str
    position: int
    version: int


async def put_in_order(store: RecordStore, clock: Clock) -> None:
    """All conversations to which a turn came late, or from which one went."""
    for conversation in await store.scan(Where(kinds=(CONVERSATION,), tags=(UNSORTED,))):
        one = conversation.id
        with suppress(Conflict):  # another import adds to it all the time, and will do this
            await retry(lambda one=one: _order(store, clock, one), f"the conversation {one}")


async def _order(store: RecordStore, clock: Clock, conversation_id: str) -> None:
    found = await store.get([conversation_id])
    if not found or UNSORTED not in found[0].tags:
        return
    [conversation] = found
    places: list[_Place] = []
    gist = Gist()
    first: Record | None = None
    async for turn in _pages(store, conversation.id):
        place = _place(turn)
        places.append(place)
        gist.add(turn.at, place.sequence, turn.scope, turn.facets.get("branch"))
        is_human = turn.author != ASSISTANT and turn.type != SUMMARY and turn.text.strip()
        if is_human and (first is None or place < _place(first)):
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
    talk = Talk.of(conversation)
    talk.tags.discard(UNSORTED)
    if not talk.left_out:
        talk.settle(gist)
        talk.facets["turns"] = len(places)
        _rename(talk, places, first)
    await commit(store, [talk.step(clock())], clock())


def _place(turn: Record) -> _Place:
    sequence = turn.facets.get("sequence", 0)
    return _Place(turn.at, sequence, turn.id, turn.position or 0, turn.version)


def _rename(talk: Talk, places: list[_Place], first: Record | None) -> None:
    if talk.name is not None and "named" not in talk.facets:
        return  # its program has named it
    talk.name = None
    talk.facets.pop("named", None)
    if first is not None:
        talk.call(opening(own_text(first)), [place.id for place in places].index(first.id))


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
