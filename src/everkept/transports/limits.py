"""How often somebody may come: a bucket for each, which fills up again evenly, and a queue."""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

MOST_KEYS = 4096  # of which something is remembered; the one that came longest ago is forgotten
ROUNDING = 1e-6  # seconds; sums of intervals are not exact

Seconds = Callable[[], float]


class Buckets:
    """Each key may come as often as `per_minute` at once, and then as evenly as a minute allows."""

    def __init__(self, per_minute: int, clock: Seconds) -> None:
        self._interval = 60 / per_minute
        self._clock = clock
        # When the bucket of each will be full again: all that there is to know of it.
        self._full_at: OrderedDict[str, float] = OrderedDict()

    def wait(self, key: str) -> float:
        """Seconds until it may come again; 0: now."""
        wait = self._after(key) - self._clock() - 60
        return wait if wait > ROUNDING else 0

    def take(self, key: str) -> float:
        """The same; where it may come now, it has come."""
        wait = self.wait(key)
        if wait == 0:
            self._full_at[key] = self._after(key)
            self._full_at.move_to_end(key)
            if len(self._full_at) > MOST_KEYS:
                self._full_at.popitem(last=False)
        return wait

    def give_back(self, key: str) -> None:
        """It has not come after all."""
        if key in self._full_at:
            self._full_at[key] -= self._interval

    def _after(self, key: str) -> float:
        """When the bucket would be full after one more."""
        return max(self._full_at.get(key, 0), self._clock()) + self._interval


class Queues:
    """Those of one key come one after another; more than `most` of them do not wait."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting: Counter[str] = Counter()
        self._turns: dict[str, asyncio.Lock] = {}

    def is_full(self, key: str) -> bool:
        return self._waiting[key] >= self._most

    @asynccontextmanager
    async def turn(self, key: str) -> AsyncGenerator[None, None]:
        """Begins when all of the key have left that came before."""
        self._waiting[key] += 1
        try:
            async with self._turns.setdefault(key, asyncio.Lock()):
                yield
        finally:
            self._waiting[key] -= 1
            if not self._waiting[key]:
                del self._waiting[key], self._turns[key]
