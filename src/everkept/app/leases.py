"""Long work that one process at a time does, while others wait for their turn."""

from uuid import uuid4

from everkept.core.ports import Library
from everkept.core.store_values import PASSING
from everkept.core.times import Clock

DURATION = 30 * 1_000_000  # microseconds after which the work of a process that died is free


class Lease:
    """A note that says whose turn it is, and until when.

    Two that come in the same moment may both believe it theirs until one looks again, so it is
    for work that is only wasted when it is done twice.
    """

    def __init__(self, library: Library, name: str, clock: Clock) -> None:
        self._library = library
        self._key = PASSING + name
        self._clock = clock
        self._owner = uuid4().hex
        self._until = 0

    async def take(self) -> bool:
        """Whether it is our turn; stays so for a while."""
        at = self._clock()
        if self._until - at > DURATION // 2:
            return True
        owner, until = await self._holder()
        if owner not in ("", self._owner) and until > at:
            self._until = 0
            return False
        await self._library.set_note(self._key, f"{self._owner} {at + DURATION}")
        self._until = at + DURATION
        return (await self._holder())[0] == self._owner

    async def end(self) -> None:
        """Lets the next one begin at once."""
        if self._until:
            self._until = 0
            if (await self._holder())[0] == self._owner:
                await self._library.set_note(self._key, None)

    async def _holder(self) -> tuple[str, int]:
        owner, _, until = (await self._library.note(self._key) or "").partition(" ")
        return owner, int(until) if until.isdecimal() else 0
