"""A server whose answers are not those of SurrealDB, or say what seldom happens."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from surrealdb.data.cbor import decode, encode
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

from everkept.engines.surreal.drivers import Credentials, SocketConnection
from everkept.errors import StorageFull, StoreUnreachable
from surreal_server import PATIENCE

FINE = [{"status": "OK", "result": None}] * 2


@asynccontextmanager
async def answering(answer: Callable[[str], bytes]) -> AsyncGenerator[SocketConnection, None]:
    """A connection to what gives such an answer, by the id, to all but the first requests."""

    async def talk(socket: ServerConnection) -> None:
        try:
            while True:
                request = decode(await socket.recv(decode=False))
                if request["method"] == "query" and "USE NS" in request["params"][0]:
                    await socket.send(answer(request["id"]))
                else:
                    await socket.send(encode({"id": request["id"], "result": FINE}))
        except ConnectionClosed:
            return

    async with serve(talk, "127.0.0.1", 0, subprotocols=[Subprotocol("cbor")]) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        connection = SocketConnection(f"ws://127.0.0.1:{port}", "memory", Credentials("", ""))
        yield connection
        await connection.close()


NONSENSE: dict[str, Callable[[str], bytes]] = {
    "deep": lambda _: b"\x81" * 200_000,
    "no message": lambda _: b"\xff",
    "no map": lambda _: encode([1, 2]),
    "no result": lambda number: encode({"id": number, "result": None}),
    "no statements": lambda number: encode({"id": number, "result": [1, 2]}),
    "no parts": lambda number: encode({"id": number, "result": [{"status": "OK"}]}),
}


@pytest.mark.parametrize("kind", NONSENSE)
async def test_an_answer_that_makes_no_sense_is_one_of_no_database(kind: str) -> None:
    async with answering(NONSENSE[kind]) as connection, asyncio.timeout(PATIENCE):
        for statement in ("RETURN 1", "CREATE a"):
            with pytest.raises(StoreUnreachable):
                await connection.run("default", statement)


async def test_a_full_disk_of_a_server_is_told_as_the_one_of_the_server() -> None:
    full: list[dict[str, Any]] = [
        *FINE[:1],
        {"status": "ERR", "result": "IO error: No space left on device (os error 28)"},
    ]
    async with answering(lambda number: encode({"id": number, "result": full})) as connection:
        with pytest.raises(StorageFull) as raised:
            await connection.run("default", "CREATE a")
    told = raised.value.to_envelope()
    assert told["place"].startswith("ws://127.0.0.1:")
    assert "server" in told["message"]
    assert "current_size" not in told
