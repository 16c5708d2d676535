"""Limits of requests by key: their rate, their queue, their number at the same time, and their bytes under way."""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import AsyncGenerator, Callable
from contextlib import ExitStack, asynccontextmanager

from everkept.core.mcp import MAX_MESSAGE_BYTES
from everkept.core.sessions import Account
from everkept.transports.http_exchange import Message, Receive, RequestRejected, build_rate_limited

MAX_KEYS = 4096  # with an entry; the oldest is dropped
ROUNDING_SECONDS = 1e-6  # sums of intervals are not exact

SecondsClock = Callable[[], float]


class RateLimiter:
    """Rate limiter: each key may use its `per_minute` requests at the same time, then evenly over a minute."""

    def __init__(self, per_minute: int, clock: SecondsClock) -> None:
        self._interval = 60 / per_minute
        self._clock = clock
        # Time at which the bucket of each key is full again.
        self._full_at: OrderedDict[str, float] = OrderedDict()

    def compute_wait(self, key: str) -> float:
        """Return the seconds to wait; 0: none."""
        wait = self._compute_full_at(key) - self._clock() - 60
        return wait if wait > ROUNDING_SECONDS else 0

    def take(self, key: str) -> float:
        """Return the seconds to wait, and count the request if it may pass now."""
        wait = self.compute_wait(key)
        if wait == 0:
            self._full_at[key] = self._compute_full_at(key)
            self._full_at.move_to_end(key)
            if len(self._full_at) > MAX_KEYS:
                self._full_at.popitem(last=False)
        return wait

    def give_back(self, key: str) -> None:
        """Do not count the request after all."""
        if key in self._full_at:
            self._full_at[key] -= self._interval

    def _compute_full_at(self, key: str) -> float:
        """Return when the bucket would be full after one more request."""
        return max(self._full_at.get(key, 0), self._clock()) + self._interval


class KeyedQueues:
    """Queues by key. Requests of one key run one after another, and at most `most` of them wait."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting: Counter[str] = Counter()
        self._turns: dict[str, asyncio.Lock] = {}

    def is_full(self, key: str) -> bool:
        return self._waiting[key] >= self._most

    @asynccontextmanager
    async def wait_turn(self, key: str) -> AsyncGenerator[None, None]:
        """Wait until all earlier requests of the key have ended."""
        self._waiting[key] += 1
        try:
            async with self._turns.setdefault(key, asyncio.Lock()):
                yield
        finally:
            self._waiting[key] -= 1
            if not self._waiting[key]:
                del self._waiting[key], self._turns[key]


class OpenCounts:
    """Counts of open requests by key."""

    def __init__(self) -> None:
        self._open: Counter[str] = Counter()

    def hold(self, key: str, limit: int, held: ExitStack) -> bool:
        """Count a request until `held` ends. Return False if the key has as many already."""
        if self._open[key] >= limit:
            return False
        self._open[key] += 1
        held.callback(self._release, key)
        return True

    def _release(self, key: str) -> None:
        self._open[key] -= 1
        if not self._open[key]:
            del self._open[key]


MAX_ACCOUNT_BYTES = 4 * MAX_MESSAGE_BYTES
WAIT_SECONDS = 1.0


class BodyLimits:
    """Bytes of the requests under way, by account. The owner has no limit."""

    def __init__(self, most: int = MAX_ACCOUNT_BYTES) -> None:
        self._most = most
        self._bytes: Counter[str] = Counter()

    def limit(self, account: Account | None, receive: Receive, held: ExitStack) -> Receive:
        """Return a `receive` that counts until `held` ends, and raises RequestRejected above the limit."""
        if account is None:
            return receive
        key, own = account.name, 0

        def release() -> None:
            self._bytes[key] -= own
            if not self._bytes[key]:
                del self._bytes[key]

        async def count() -> Message:
            nonlocal own
            message = await receive()
            size = len(message.get("body", b""))
            if self._bytes[key] + size > self._most:
                raise RequestRejected(
                    build_rate_limited("The requests of this account under way are too large together.", WAIT_SECONDS)
                )
            own += size
            self._bytes[key] += size
            return message

        held.callback(release)
        return count
