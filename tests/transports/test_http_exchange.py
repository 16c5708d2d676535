"""The watch over an answer costs nothing while answers are quick."""

import asyncio
from typing import Any

import pytest

from everkept.transports.guard import Guard
from everkept.transports.http import McpEndpoint
from http_client import Exchange, SessionClient, stateless


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tasks that were made, by their names."""
    made: list[str] = []
    create = asyncio.create_task

    def count(coroutine: Any, **options: Any) -> Any:
        made.append(options.get("name", ""))
        return create(coroutine, **options)

    monkeypatch.setattr(asyncio, "create_task", count)
    return made


async def test_a_quick_answer_is_made_in_the_task_of_its_request(endpoint: McpEndpoint, tasks: list[str]) -> None:
    client = await SessionClient.begin(endpoint)
    await client.ask("ping").document()
    await Exchange(endpoint, stateless("server/discover")).document()
    assert tasks == [""] * 3  # those of the requests themselves


async def test_headers_are_decoded_once(endpoint: McpEndpoint) -> None:
    class Value(bytes):
        decoded = 0

        def decode(self, *args: Any, **options: Any) -> str:
            Value.decoded += 1
            return super().decode(*args, **options)

    exchange = Exchange(
        Guard(endpoint, "localhost", None), stateless("server/discover"), more_headers=[(b"x-counted", Value(b"x"))]
    )
    assert (await exchange.document())[0] == 200
    assert Value.decoded == 1
