"""The record that each commit of an import passes, and that a forgetting closes before it looks.

Whoever planned before it was closed has to plan again, and then sees what is excluded by now.
"""

from collections.abc import Callable, Sequence
from typing import cast

from everkept.core.commits import commit, retry
from everkept.core.ports import RecordStore
from everkept.core.records import Batch, Insert, Record, Step, Update
from everkept.core.times import Clock
from everkept.families.history.model import FORGET

GATE = "gate"  # its id and kind

_Change = Callable[[Sequence[str]], Sequence[str]]


def passed(gate: Record) -> Step:
    """Changes nothing, and is refused once the gate was closed."""
    return Update(gate.id, {}, gate.version)


def unfinished(gate: Record) -> list[str]:
    """The folders that are being forgotten, or were when somebody was interrupted."""
    return cast(list[str], gate.facets.get("forgetting", []))


async def gate_of(store: RecordStore, clock: Clock) -> Record:
    async def found() -> Record:
        for gate in await store.get([GATE]):
            return gate
        at = clock()
        gate = Record(id=GATE, kind=GATE, created_at=at, updated_at=at)
        await commit(store, Batch((Insert(gate),), at, FORGET, derived=True))
        return gate

    return await retry(found, "the gate")


async def close(store: RecordStore, clock: Clock, folders: Sequence[str]) -> None:
    """Stops what was planned before, and remembers the folders until it is opened again."""
    await _set(store, clock, lambda known: sorted({*known, *folders}))


async def reopen(store: RecordStore, clock: Clock, folders: Sequence[str]) -> None:
    await _set(store, clock, lambda known: [each for each in known if each not in folders])


async def _set(store: RecordStore, clock: Clock, change: _Change) -> None:
    async def attempt() -> None:
        gate = await gate_of(store, clock)
        facets = {
            "closed": gate.facets.get("closed", 0) + 1,
            "forgetting": list(change(unfinished(gate))),
        }
        step = Update(gate.id, {"facets": facets}, gate.version)
        await commit(store, Batch((step,), clock(), FORGET, derived=True))

    await retry(attempt, "the gate")
