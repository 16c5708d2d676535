"""A SurrealDB server for tests: the engine of either version behind its own wire protocol.

What it is not: `surreal start`. It has one session, no permissions, and no live queries.
"""

import argparse
import asyncio
import os
import socket
import ssl
import sys
import threading
import time
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from importlib import import_module
from typing import Any

import websockets
from surrealdb.data.cbor import decode, encode
from websockets.asyncio.server import ServerConnection

ENGINES = {2: "surrealdb._surrealdb_ext", 3: "surrealdb_embedded"}
FAILED, WRONG_LOGIN = -32000, -32002
PATIENCE = 30  # seconds
BEFORE_LOGIN = ("signin", "ping", "version")

Engine = Any  # an AsyncEmbeddedDB of either version


class StandIn:
    """Lets in who knows the password, and hands everything else to the engine."""

    def __init__(self, engine: Engine, user: str, password: str, namespace: str, *, orderly: bool = False) -> None:
        self._engine = engine
        # Both engines in memory, and the older one in files, lose one of two changes of a record
        # that overlap now and then, and say nothing. One text at a time they lose none.
        self._order: AbstractAsyncContextManager[object] = asyncio.Lock() if orderly else nullcontext()
        self._login = {"user": user, "pass": password} | ({"ns": namespace} if namespace else {})

    async def serve(self, socket: ServerConnection) -> None:
        """Every request by itself, as a server does: a slow one does not hold up the others."""
        async with asyncio.TaskGroup() as work:
            with suppress(websockets.ConnectionClosed):
                await self._let_in(socket)
                async for frame in socket:
                    work.create_task(self._execute(socket, frame))

    async def _let_in(self, socket: ServerConnection) -> None:
        is_known = False
        while not is_known:
            frame = await socket.recv(decode=False)
            request = decode(frame)
            if request["method"] == "signin":
                is_known = request["params"][0] == self._login
                await _send(socket, encode(_welcome(request["id"], is_known)))
            elif request["method"] in BEFORE_LOGIN:
                await self._execute(socket, frame)
            else:
                message = "IAM error: Not enough permissions to perform this action"
                await _send(socket, _failure(request["id"], FAILED, message))

    async def _execute(self, socket: ServerConnection, frame: Any) -> None:
        try:
            async with self._order:
                answer = await self._engine.execute(frame)
        except RuntimeError as error:  # the older engine raises what a server answers
            answer = _failure(decode(frame).get("id"), FAILED, str(error))
        await _send(socket, answer)


async def _send(socket: ServerConnection, frame: bytes) -> None:
    with suppress(websockets.ConnectionClosed):
        await socket.send(frame)


def _welcome(request_id: str, is_known: bool) -> dict[str, Any]:
    if is_known:
        return {"id": request_id, "result": "token"}
    message = "There was a problem with authentication"
    return {"id": request_id, "error": {"code": WRONG_LOGIN, "message": message}}


def _failure(request_id: str, code: int, message: str) -> bytes:
    return encode({"id": request_id, "error": {"code": code, "message": message}})


async def _run(options: argparse.Namespace) -> None:
    engine = import_module(ENGINES[options.core]).AsyncEmbeddedDB(options.store)
    await engine.connect()
    stand_in = StandIn(engine, options.user, options.password, options.namespace, orderly=options.orderly)
    context = None
    if options.certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(options.certificate)
    async with websockets.serve(
        stand_in.serve,
        sock=_listen(options.port),
        subprotocols=[websockets.Subprotocol("cbor")],
        compression=None,
        max_size=None,
        ssl=context,
    ) as server:
        sys.stdout.write(f"{next(iter(server.sockets)).getsockname()[1]}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


def _listen(port: int) -> socket.socket:
    """Another server may have got the port while this one was down; it keeps it for a moment."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            return socket.create_server(("127.0.0.1", port))
        except OSError:
            if port == 0 or time.monotonic() > until:
                raise
            time.sleep(0.1)


def _end_with_parent() -> None:
    """Its input ends when the test's process does, however that ends."""
    sys.stdin.read()
    os._exit(0)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--core", type=int, choices=ENGINES, required=True)
    parser.add_argument("--store", default="mem://")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--user", default="root")
    parser.add_argument("--password", default="root")
    parser.add_argument("--namespace", default="", help="whose user it is; none: the root's")
    parser.add_argument("--certificate", default="")
    parser.add_argument("--orderly", action="store_true", help="one text at a time")
    threading.Thread(target=_end_with_parent, daemon=True).start()
    asyncio.run(_run(parser.parse_args()))


if __name__ == "__main__":
    main()
