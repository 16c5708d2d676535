"""Turns that came late, and turns that a transcript no longer has when it is read again."""

from collections.abc import AsyncIterator
from contextlib import suppress
from typing import NamedTuple

from everkept.core.commits import retry
from everkept.core.ports import RecordStore
from everkept.core.records import Delete, Record, Step, Update, Where
from everkept.core.times import Clock
from everkept.core.transcripts import ASSISTANT
from everkept.errors import Conflict
from everkept.families.history.ingest.checkpoints import Checkpoint, Counts, transcript_of
from everkept.families.history.ingest.conversations import UNSORTED, Gist, Talk, own_text
from everkept.families.history.ingest.turns import opening
from everkept.families.history.ingest.writer import commit
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


REREAD_PAGE = 200  # turns that go at once


async def take_back(
    store: RecordStore, clock: Clock, checkpoint: Checkpoint, counts: Counts
) -> None:
    """Deletes such turns; what another transcript has told too stays.

    Raises Conflict where somebody was faster: then it may go on, if the checkpoint is still ours.
    """
    assert checkpoint.stored is not None
    guard = Update(checkpoint.id, {}, checkpoint.stored.version)
    where = Where(kinds=(TURN,), tags=checkpoint.old_tags)
    while where.tags and (page := await store.scan(where, limit=REREAD_PAGE)):
        lonely = [turn for turn in page if not any(map(transcript_of, _others(turn, checkpoint)))]
        steps: list[Step] = [guard]
        steps += [Update(t.id, {"tags": _others(t, checkpoint)}, t.version) for t in page]
        steps += [Delete(turn.ref) for turn in lonely]
        owners = sorted({turn.parent for turn in lonely if turn.parent})
        for conversation in await store.get(owners):
            talk = Talk.of(conversation)
            talk.tags.add(UNSORTED)
            steps.append(talk.step(clock()))
        await commit(store, steps, clock())
        counts.turns_removed += len(lonely)


def _others(turn: Record, checkpoint: Checkpoint) -> tuple[str, ...]:
    """The tags that it does not have from this transcript."""
    return tuple(tag for tag in turn.tags if transcript_of(tag) != checkpoint.id)
