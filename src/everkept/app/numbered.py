"""Numbers of changes that hold on this machine alone, while the database is away."""

from collections.abc import Awaitable, Callable, Sequence

from everkept.values import Value


class Numbered(Value):
    """A change that waits for its database, which will give it another number than it has here."""

    project_id: str | None  # None: it belongs to none
    seq: int
    at: int
    tool: str


NumberedHere = Callable[[], Awaitable[Sequence[Numbered]]]


async def nothing_numbered_here() -> Sequence[Numbered]:
    """Where the database cannot be away."""
    return ()
