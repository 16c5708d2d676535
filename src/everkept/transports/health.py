"""Whether the server lives, and whether it can be asked: for whatever watches over it."""

import asyncio
import json
import time
from collections.abc import Callable

from everkept.core.ports import Library
from everkept.errors import EverkeptError
from everkept.transports.asgi import ASGIApp, Message, Receive, Send, answer, for_reading
from everkept.transports.limits import Seconds

HEALTH_PATH, READY_PATH = "/health", "/ready"
PATIENCE = 1.0  # seconds that the library has to answer
FRESH = 1.0  # seconds that one answer counts: nobody needs a token to ask
PROBE = "ready"  # a note that nobody writes

NO_STORE = ((b"cache-control", b"no-store"),)


def health_routes(
    library: Callable[[], Library],
    *,
    patience: float = PATIENCE,
    clock: Seconds = time.monotonic,
) -> dict[str, ASGIApp]:
    """They tell nothing of what is stored, and so need no token."""
    readiness = _Readiness(library, patience, clock)
    return {HEALTH_PATH: for_reading(_alive), READY_PATH: for_reading(readiness.answer)}


async def _alive(_scope: Message, _receive: Receive, send: Send) -> None:
    await _tell(send, 200, "ok")


class _Readiness:
    """One question at a time, and one a second at most, however many ask."""

    def __init__(self, library: Callable[[], Library], patience: float, clock: Seconds) -> None:
        self._library = library
        self._patience = patience
        self._clock = clock
        self._asking = asyncio.Lock()
        self._status: str | None = None
        self._until = 0.0

    async def answer(self, _scope: Message, _receive: Receive, send: Send) -> None:
        async with self._asking:
            if self._status is None or self._clock() >= self._until:
                self._status = await self._asked()
                self._until = self._clock() + FRESH
            status = self._status
        await _tell(send, 503 if status == "unavailable" else 200, status)

    async def _asked(self) -> str:
        try:
            async with asyncio.timeout(self._patience):
                library = self._library()
                await library.note(PROBE)
        except (TimeoutError, EverkeptError):
            return "unavailable"
        return "ready" if library.condition.status == "connected" else "degraded"


async def _tell(send: Send, status: int, word: str) -> None:
    await answer(send, status, json.dumps({"status": word}).encode(), headers=NO_STORE)
