"""What stands around a hit: the turns beside it, the turn of code, the conversation."""

import asyncio
from collections.abc import Mapping, Sequence

from everkept.core.ports import RecordStore
from everkept.core.records import Record, Where
from everkept.families.history.model import CODE, CONVERSATION, TURN
from everkept.values import Value, field

NOWHERE: Mapping[int, Record] = {}
FIRST_TURNS = 4  # of a conversation, in which everybody has spoken as a rule


class Surroundings(Value):
    """Turns by conversation and position, and conversations by id."""

    turns: Mapping[str, Mapping[int, Record]] = field(
        default_factory=dict[str, Mapping[int, Record]]
    )
    conversations: Mapping[str, Record] = field(default_factory=dict[str, Record])
    turns_of_code: Mapping[str, Record] = field(default_factory=dict[str, Record])

    def turn(self, record: Record) -> Record | None:
        """The turn itself, or the one that code stands in."""
        return record if record.kind == TURN else self.turns_of_code.get(record.parent or "")

    def beside(self, turn: Record | None, step: int) -> Record | None:
        if turn is None or turn.position is None:
            return None
        return self.turns.get(turn.parent or "", NOWHERE).get(turn.position + step)

    def participants(self, turn: Record | None) -> list[str]:
        """Who speaks in the conversation, as far as its turns are here, in the order they spoke."""
        known = self.turns.get((turn.parent if turn else None) or "", NOWHERE)
        return list(dict.fromkeys(a for place in sorted(known) if (a := known[place].author)))

    def conversation(self, turn: Record | None) -> Record | None:
        return None if turn is None else self.conversations.get(turn.parent or "")


async def surroundings(
    store: RecordStore, records: Sequence[Record], *, beside: bool = True
) -> Surroundings:
    """Of turns and code; the turns beside them, and the first ones of their conversations, where
    these are wanted."""
    parents = [record.parent for record in records if record.kind == CODE and record.parent]
    of_code = {turn.id: turn for turn in await store.get(parents)} if parents else {}
    turns = [*(record for record in records if record.kind == TURN), *of_code.values()]
    ids = list(dict.fromkeys(turn.parent for turn in turns if turn.parent))
    around, known = await asyncio.gather(_beside(store, turns if beside else ()), store.get(ids))
    conversations = {record.id: record for record in known if record.kind == CONVERSATION}
    return Surroundings(around, conversations, of_code)


async def turns_between(
    store: RecordStore, conversation: str, session: str, first: int, last: int
) -> list[Record]:
    """The turns of a conversation from one position to another, in their order."""
    places = tuple((session, position) for position in range(max(first, 0), last + 1))
    # Another program may have used the same id for a session of its own.
    found = [turn for turn in await _at(store, places) if turn.parent == conversation]
    return sorted(found, key=lambda turn: (turn.position or 0, turn.id))


async def _beside(store: RecordStore, turns: Sequence[Record]) -> dict[str, dict[int, Record]]:
    """The turns at these, just before and after them, and at the beginning of the conversation,
    by conversation and position."""
    places = {
        (turn.session, place)
        for turn in turns
        if turn.session is not None and turn.position is not None
        for place in (*range(FIRST_TURNS), *range(turn.position - 1, turn.position + 2))
    }
    around: dict[str, dict[int, Record]] = {}
    for turn in await _at(store, sorted(places)):
        around.setdefault(turn.parent or "", {})[turn.position or 0] = turn
    return around


async def _at(store: RecordStore, places: Sequence[tuple[str, int]]) -> list[Record]:
    return await store.scan(Where(kinds=(TURN,), places=tuple(places))) if places else []
