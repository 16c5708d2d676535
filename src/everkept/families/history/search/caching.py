"""Answers that are given again as long as nothing they rest on has changed."""

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from everkept.core.accounts import acting
from everkept.core.times import Clock
from everkept.values import Value

LARGEST = 1_000  # answers
HEAVIEST = 20_000  # results in all of them: some 40 MB
LIFETIME = 5 * 60 * 1_000_000  # microseconds since an answer was last given

A = TypeVar("A")


class _Entry(Value, Generic[A], frozen=False):
    stamp: object
    answer: A
    weight: int
    used_at: int


class AnswerCache(Generic[A]):
    """Keeps the answers that were given last; the age of one counts from its last use.

    A stamp tells the state of everything that an answer rests on: an answer with another one is
    never given. `weigh` says how much there is in an answer, and None for one that is not kept.
    """

    def __init__(
        self,
        clock: Clock,
        weigh: Callable[[A], int | None],
        largest: int = LARGEST,
        heaviest: int = HEAVIEST,
        lifetime: int = LIFETIME,
    ) -> None:
        self._clock = clock
        self._weigh = weigh
        self._largest = largest
        self._heaviest = heaviest
        self._lifetime = lifetime
        self._weight = 0
        self._entries: OrderedDict[object, _Entry[A]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    async def get(
        self,
        key: object,
        stamp: Callable[[], Awaitable[object]],
        make: Callable[[], Awaitable[A]],
    ) -> A:
        """The answer to `key`, made where there is none that holds. `stamp` is asked each time,
        and before the answer is made: what changes meanwhile makes it invalid."""
        key = acting(), key  # what another account was told is no answer to this one
        current = await stamp()
        entry = self._valid(key, current)
        if entry is not None:
            return entry.answer
        answer = await make()
        weight = self._weigh(answer)
        if weight is not None:
            self._keep(key, _Entry(current, answer, weight, self._clock()))
        return answer

    def _valid(self, key: object, stamp: object) -> _Entry[A] | None:
        entry = self._entries.get(key)
        if entry is None:
            return None
        now = self._clock()
        if entry.stamp != stamp or now - entry.used_at > self._lifetime:
            self._drop(key)
            return None
        entry.used_at = now
        self._entries.move_to_end(key)
        return entry

    def _keep(self, key: object, entry: _Entry[A]) -> None:
        self._drop(key)  # somebody else may have asked the same meanwhile
        self._entries[key] = entry
        self._weight += entry.weight
        while len(self._entries) > self._largest or self._weight > self._heaviest:
            self._drop(next(iter(self._entries)))

    def _drop(self, key: object) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._weight -= entry.weight
