"""How often tools of the gateway were called, and how that went."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Usage:
    """Calls of one tool: a sum that others are added to."""

    tool: str
    calls: int
    errors: int
    total_ms: float
    longest_ms: float
    last_at: int  # microseconds since 1970
