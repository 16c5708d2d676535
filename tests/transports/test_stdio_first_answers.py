"""First answers of the last start, compared in process with those of this one."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import pytest

from everkept.app.app import App
from everkept.core.sessions import Session
from everkept.errors import Refused
from everkept.first_answers import CachedAnswers, ClientAnswers, ServerStart, read_answers
from everkept.settings import Settings
from everkept.transports.connection import TOOLS_CHANGED, ClientConnection
from everkept.transports.dispatch import Dispatcher, Request
from everkept.transports.stdio import CHECK_SECONDS, check_answers, save_answers
from server_processes import HANG, INITIALIZE, META

EMPTY = ClientAnswers(b"{}", b'{"tools":[]}')
OLD = CachedAnswers(["2025-11-25"], EMPTY, EMPTY)


class Checked:
    """A client of a server that has answers of an older start; `told` reached it since."""

    def __init__(self, dispatcher: Dispatcher, path: Path, files: Iterable[str] | None) -> None:
        self.path = path
        self._dispatcher = dispatcher
        self.connection = ClientConnection(Session())
        self.told: asyncio.Queue[str] = asyncio.Queue()
        check_answers(dispatcher, ServerStart(str(path)), lambda: files)

    async def __call__(self, method: str, **params: Any) -> dict[str, Any]:
        async def tell(name: str, _: dict[str, Any]) -> None:
            await self.told.put(name)

        answer = await self._dispatcher.handle(self.connection, 1, method, params, notify=tell, announce=tell)
        return answer.as_json()

    async def news(self) -> str:
        return await asyncio.wait_for(self.told.get(), HANG)


@pytest.fixture
async def dispatcher(tmp_path: Path) -> AsyncIterator[Dispatcher]:
    app = App(Settings(tmp_path / "data"))
    yield Dispatcher(app)
    await app.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    save_answers(tmp_path / "kept", OLD, [])
    return tmp_path / "kept"


async def test_a_list_of_the_last_start_is_given_once_and_corrected(dispatcher: Dispatcher, path: Path) -> None:
    client = Checked(dispatcher, path, [])
    hello = await client("initialize", **INITIALIZE)
    assert hello["capabilities"]["tools"] == {"listChanged": True}
    assert await client("tools/list") == {"tools": []}
    real = await client("tools/list")
    assert len(real["tools"]) > 20
    assert await client.news() == TOOLS_CHANGED
    kept = read_answers(str(path))
    assert kept is not None
    assert json.loads(kept.plain.tools) == real


async def test_nothing_is_compared_while_a_call_runs(dispatcher: Dispatcher, path: Path) -> None:
    client = Checked(dispatcher, path, [])
    await client("initialize", **INITIALIZE)
    async with client.connection.turns.reserve(writes=False):
        await client("tools/list")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.told.get(), 2 * CHECK_SECONDS)
    assert await client.news() == TOOLS_CHANGED


@pytest.mark.parametrize("params", [{"_meta": META}, {}], ids=["stateless", "no handshake"])
async def test_a_client_that_cannot_be_corrected_gets_the_real_list(
    dispatcher: Dispatcher, path: Path, params: dict[str, Any]
) -> None:
    client = Checked(dispatcher, path, [])
    assert len((await client("tools/list", **params))["tools"]) > 20


async def test_answers_that_more_than_files_decides_are_corrected_and_not_kept(
    dispatcher: Dispatcher, path: Path
) -> None:
    client = Checked(dispatcher, path, None)
    await client("initialize", **INITIALIZE)
    assert await client("tools/list") == {"tools": []}
    assert await client.news() == TOOLS_CHANGED
    assert read_answers(str(path)) is None


async def test_a_list_that_fails_is_corrected_and_not_kept(dispatcher: Dispatcher, path: Path) -> None:
    async def fail(request: Request) -> dict[str, Any]:
        raise Refused("There are no tools now.")

    dispatcher.methods["tools/list"] = fail
    client = Checked(dispatcher, path, [])
    await client("initialize", **INITIALIZE)
    assert await client("tools/list") == {"tools": []}
    assert await client.news() == TOOLS_CHANGED
    assert read_answers(str(path)) is None
