"""Quotas: how much an account may store, in one project and in all that belongs to it."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

from everkept.core.records import Batch, Insert, Record, Restore, Step, Update
from everkept.core.store import CountLive, MeasureSize, RecordStore
from everkept.core.text import format_count
from everkept.core.times import Clock
from everkept.errors import QuotaExceeded, Unavailable
from everkept.values import Value

TRUST_MICROSECONDS = 600_000_000  # after which stored data is measured again
ROW_BYTES = 200  # of a record or link, beside its texts


class StorageQuotas(Value):
    """Limits of what an account may store; 0 for any amount.

    Engines that cannot measure bytes count those of new texts.
    """

    project_records: int = 100_000
    project_bytes: int = 1024**3
    account_records: int = 200_000
    account_bytes: int = 2 * 1024**3
    projects: int = 100


class StoredAmount(NamedTuple):
    records: int
    size: int

    def add(self, other: "StoredAmount") -> "StoredAmount":
        return StoredAmount(self.records + other.records, self.size + other.size)


class QuotaScope(NamedTuple):
    """Something with a quota: the stores are listed when they are measured."""

    key: str
    title: str  # how an error names it
    names: tuple[str, str]  # of the settings for its records and bytes
    limits: StoredAmount
    list_stores: Callable[[], Awaitable[Sequence[RecordStore]]]


class StorageGuard:
    """Check of writes of accounts. Amounts are measured every ten minutes, and what is written since then is added."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._amounts: dict[str, tuple[StoredAmount, int]] = {}

    async def check(self, batch: Batch, scopes: Sequence[QuotaScope]) -> None:
        """Raise QuotaExceeded if the batch adds to a full scope. Batches that only delete always pass."""
        new = _measure_steps(batch.steps)
        if new.size == 0:
            return
        amounts = {scope.key: await self._check_scope(scope, new) for scope in scopes}
        for key, amount in amounts.items():
            if key in self._amounts:
                self._amounts[key] = amount.add(new), self._amounts[key][1]

    async def _check_scope(self, scope: QuotaScope, new: StoredAmount) -> StoredAmount:
        known = self._amounts.get(scope.key)
        is_fresh = known is not None and 0 <= self._clock() - known[1] < TRUST_MICROSECONDS
        # Before an error, look again: something may have been deleted.
        if known is None or not is_fresh or _find_excess(scope, known[0].add(new)) is not None:
            try:
                measured = await measure_stores(await scope.list_stores())
            except Unavailable:
                return StoredAmount(0, 0)  # the copy of a database that is unreachable may lack some stores
            known = self._amounts[scope.key] = measured, self._clock()
        excess = _find_excess(scope, known[0].add(new))
        if excess is not None:
            raise _build_quota_error(scope, known[0].add(new), excess)
        return known[0]


async def measure_stores(stores: Sequence[RecordStore]) -> StoredAmount:
    total = StoredAmount(0, 0)
    for store in stores:
        counts = await store.ask(CountLive())
        total = total.add(StoredAmount(sum(counts.values()), await store.ask(MeasureSize())))
    return total


def _find_excess(scope: QuotaScope, amount: StoredAmount) -> int | None:
    """Return which limit is exceeded: 0 for records, 1 for bytes, but None for neither."""
    return next((number for number in (0, 1) if 0 < scope.limits[number] < amount[number]), None)


def _build_quota_error(scope: QuotaScope, amount: StoredAmount, excess: int) -> QuotaExceeded:
    unit, name, limit = ("record", "byte")[excess], scope.names[excess], scope.limits[excess]
    return QuotaExceeded(
        f"{scope.title} would have {format_count(amount[excess], unit)}; accounts may store {limit:,}. "
        "Nothing was stored.",
        hint=f"Delete what is not needed, or ask the server's owner for a larger {name}.",
        quota=name,
        limit=limit,
    )


def _measure_steps(steps: Sequence[Step]) -> StoredAmount:
    """Return what steps add. Updates add the bytes of their texts, because the log keeps the old ones."""
    records = size = 0
    for step in steps:
        if isinstance(step, Insert):
            records += 1
            size += ROW_BYTES
            if isinstance(step.item, Record):
                size += len(step.item.name or "") + len(step.item.text)
        elif isinstance(step, Restore):
            records += 1
            size += ROW_BYTES
        elif isinstance(step, Update):
            size += _count_text(step.values)
    return StoredAmount(records, size)


def _count_text(values: Mapping[str, Any]) -> int:
    return sum(len(value) for value in values.values() if isinstance(value, str))
