"""Trying again where somebody else was faster."""

import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from everkept.errors import Conflict

ATTEMPTS = 100  # of others that commit between our reading and our writing

log = logging.getLogger(__name__)

T = TypeVar("T")


async def unopposed(attempt: Callable[[], Awaitable[T]], what: str) -> T:
    """Calls it until it ends without a Conflict: it has to look at the store anew each time."""
    for _ in range(ATTEMPTS):
        try:
            return await attempt()
        except Conflict as conflict:
            log.debug("another was faster: %s", conflict)
    raise Conflict(
        f"Others change {what} all the time.",
        hint="Stop the import or forgetting that runs beside, and call again.",
    )
