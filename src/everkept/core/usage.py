"""How often tools of the gateway were called, and how that went."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from everkept.values import Value


class Usage(Value):
    """Calls of one tool: a sum that others are added to."""

    tool: str
    calls: int
    errors: int
    total_ms: float
    longest_ms: float
    last_at: int  # microseconds since 1970

    @property
    def mean_ms(self) -> float:
        return self.total_ms / self.calls if self.calls else 0.0


class UsageLog(Protocol):
    """What is known of it on this machine."""

    async def add_usage(self, rows: Sequence[Usage]) -> None:
        """Adds to what is stored, all of it or nothing, whatever others add meanwhile."""
        ...

    async def usage(self) -> list[Usage]:
        """One for each tool that was called, the most called first and then by name."""
        ...


def summed(rows: Iterable[Usage]) -> list[Usage]:
    """One for each tool, the most called first and then by name."""
    sums: dict[str, Usage] = {}
    for row in rows:
        known = sums.get(row.tool)
        sums[row.tool] = _sum(known, row) if known else row
    return sorted(sums.values(), key=lambda usage: (-usage.calls, usage.tool))


def _sum(one: Usage, other: Usage) -> Usage:
    return Usage(
        one.tool,
        one.calls + other.calls,
        one.errors + other.errors,
        one.total_ms + other.total_ms,
        max(one.longest_ms, other.longest_ms),
        max(one.last_at, other.last_at),
    )
