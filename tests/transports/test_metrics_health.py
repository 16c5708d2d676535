import asyncio
from typing import Any

import pytest

from asgi_client import asked
from everkept.core.library import Condition
from everkept.engines.memory.library import MemoryLibrary
from everkept.errors import StoreUnreachable
from everkept.transports.http_exchange import ASGIApp
from everkept.transports.metrics import build_health_routes
from server_processes import HANG


class Watched(MemoryLibrary):
    """A library that may be slow, away or replaced, and counts how often it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0
        self.now = 0.0
        self.error: Exception | None = None
        self.hangs = False
        self.status: Any = "connected"

    async def get_note(self, key: str) -> str | None:
        self.asked += 1
        if self.hangs:
            await asyncio.Event().wait()
        if self.error is not None:
            raise self.error
        return await super().get_note(key)

    @property
    def condition(self) -> Condition:
        return Condition("memory", "embedded-memory", self.status)


@pytest.fixture
def library() -> Watched:
    return Watched()


def routes(library: Watched) -> dict[str, ASGIApp]:
    return build_health_routes(lambda: library, patience=0.01, clock=lambda: library.now)


async def test_a_server_that_lives_says_so_without_asking_anybody(library: Watched) -> None:
    answer = await asked(routes(library)["/health"])
    assert (answer.status, answer.json) == (200, {"status": "ok"})
    assert library.asked == 0


async def test_a_server_whose_library_answers_is_ready(library: Watched) -> None:
    answer = await asked(routes(library)["/ready"])
    assert (answer.status, answer.json) == (200, {"status": "ready"})


async def test_what_stands_in_for_a_database_is_ready_and_degraded(library: Watched) -> None:
    library.status = "degraded"
    answer = await asked(routes(library)["/ready"])
    assert (answer.status, answer.json) == (200, {"status": "degraded"})


@pytest.mark.parametrize("hangs", [True, False])
async def test_a_library_that_does_not_answer_is_not_ready(library: Watched, hangs: bool) -> None:
    library.hangs, library.error = hangs, StoreUnreachable("at postgres://secret")
    async with asyncio.timeout(HANG):
        answer = await asked(routes(library)["/ready"])
    assert (answer.status, answer.json) == (503, {"status": "unavailable"})


async def test_the_library_is_asked_once_a_second_at_most(library: Watched) -> None:
    ready = routes(library)["/ready"]
    await asyncio.gather(*(asked(ready) for _ in range(10)))
    assert library.asked == 1
    library.now, library.error = 0.9, StoreUnreachable("away")
    assert (await asked(ready)).status == 200
    library.now = 1.0
    assert (await asked(ready)).status == 503


@pytest.mark.parametrize("path", ["/health", "/ready"])
async def test_who_only_wants_the_head_gets_no_body(library: Watched, path: str) -> None:
    app = routes(library)[path]
    head, whole = await asked(app, path, "HEAD"), await asked(app, path)
    assert (head.status, head.body) == (200, b"")
    assert head.headers == whole.headers
    assert head.headers["content-length"] == str(len(whole.body))


@pytest.mark.parametrize("method", ["POST", "DELETE"])
async def test_nothing_else_can_be_done_there(library: Watched, method: str) -> None:
    answer = await asked(routes(library)["/health"], "/health", method)
    assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD")
