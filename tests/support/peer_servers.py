"""Other people's servers for tests: real ones with something to share, and stand-ins that fail."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from conversations import tell
from everkept.accounts.grants import create_token
from everkept.app.app import App
from everkept.core.peers import Peer
from everkept.core.sessions import Account, Session
from everkept.engines.memory.library import MemoryLibrary
from everkept.peers.identity import ServerIdentity, ensure_identity
from everkept.settings import read_settings
from hash_embedder import HashingEmbedder
from records import DAY_ONE

TOKEN = "evk_" + "t" * 43
# What every server of a test has: no model is loaded, so that it starts at once.
NEW = {"type": "semantic", "scope": "project"}
PLAIN = {"EVERKEPT_EMBEDDING_MODEL": "none"}

ME = Account("me", is_peer=True)

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class StandIn:
    """Something that listens with a certificate of its own, and what came in there."""

    port: int
    fingerprint: str
    received: bytearray = field(default_factory=bytearray)
    connections: int = 0
    was_asked: asyncio.Event = field(default_factory=asyncio.Event)  # a whole request came
    was_left: asyncio.Event = field(default_factory=asyncio.Event)  # a connection ended

    def peer(self, name: str = "anna", *, fingerprint: str = "", time_limit: float = 20) -> Peer:
        pinned = fingerprint or self.fingerprint
        return Peer(name, "127.0.0.1", self.port, pinned, TOKEN, time_limit)


def replying(status: str, body: Any = b"", **headers: str) -> Answer:
    """Answers each request in this way."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    told = {"Content-Length": str(len(content))} | {name.replace("_", "-"): value for name, value in headers.items()}
    head = "\r\n".join([f"HTTP/1.1 {status}", *(f"{n}: {v}" for n, v in told.items()), "", ""])
    return saying(head.encode() + content)


def saying(answer: bytes) -> Answer:
    """Answers with these bytes, whatever they are."""

    async def answered(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        await writer.drain()

    return answered


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Never answers."""
    await reader.read()


def found(*results: dict[str, Any], warnings: tuple[str, ...] = ()) -> dict[str, Any]:
    return {"version": 1, "results": list(results), "warnings": list(warnings)}


def result(content: str, **more: Any) -> dict[str, Any]:
    """One as a server tells it."""
    plain = {
        "id": f"turn_{abs(hash(content)) % 10**8}",
        "type": "conversation",
        "content": content,
        "score": 0.8,
        "title": None,
        "project": "shop",
        "at": "2026-03-01T10:00:00.000Z",
    }
    return plain | more


@asynccontextmanager
async def standing_in(folder: Path, answer: Answer) -> AsyncIterator[StandIn]:
    """Reads a request to the end of its body and then does what it is told."""
    made = ensure_identity(folder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.certificate, made.key)
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        stand_in.connections += 1
        try:
            if await _request(reader, stand_in.received):
                stand_in.was_asked.set()
                await answer(reader, writer)
        except (OSError, asyncio.CancelledError):
            pass  # whoever asked has gone, or the test is over
        finally:
            writer.transport.abort()
            tasks.discard(task)
            stand_in.was_left.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    stand_in = StandIn(server.sockets[0].getsockname()[1], made.fingerprint)
    try:
        yield stand_in
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()


async def _request(reader: asyncio.StreamReader, received: bytearray) -> bool:
    """Whether a whole request came."""
    while chunk := await reader.read(65_536):
        received += chunk
        head, _, body = received.partition(b"\r\n\r\n")
        lengths = [
            int(line.partition(b":")[2]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")
        ]
        if b"\r\n\r\n" in received and len(body) >= sum(lengths):
            return True
    return False


async def neighbour(folder: Path) -> App:
    """In this process: a shop and a diary, and a peer `me`, who may see neither yet."""
    settings = {"data_dir": str(folder / "data"), "deployment_mode": "embedded-memory"}
    made = App(read_settings(settings), library=MemoryLibrary(), embedder=HashingEmbedder(), clock=lambda: DAY_ONE)
    for name in ("shop", "diary"):
        await filled(made, name, made_folder(folder / name))
    await _call(made, None, "store_memory", content="Checkout of mine", **NEW | {"scope": "user"})
    await made.accounts.create_token("me", "", peer=True)
    return made


@dataclass(frozen=True)
class Household:
    """A data folder with things in it that are shared, and things that are not."""

    data: Path
    identity: ServerIdentity
    token: str  # of the peer `me`
    owners_token: str

    @property
    def options(self) -> tuple[str, ...]:
        made = self.identity
        return ("--certificate", str(made.certificate), "--certificate-key", str(made.key))


async def household(folder: Path, *, grants: tuple[str, ...] = ("shop",)) -> Household:
    """Two projects, `shop` and `diary`, each with a memory, an entity and a conversation, and what
    belongs to the user and to a session; `me` is a peer that was granted the first."""
    data = folder / "data"
    places = {name: made_folder(folder / name) for name in ("shop", "diary")}
    settings = {"data_dir": str(data), "embedding_model": "none", "log_level": "warning"}
    app = App(read_settings(settings), clock=lambda: DAY_ONE)
    try:
        for name, place in places.items():
            await filled(app, name, place)
        await _call(app, None, "store_memory", content="Checkout by the user alone", **NEW | {"scope": "user"})
        _, token = await app.accounts.create_token("me", "", peer=True)
        for name in grants:
            await app.accounts.grant("me", await app.library.get_project(name), "read")
        _, owners = await create_token(app.library, "", app.clock)
    finally:
        await app.close()
    return Household(data, ensure_identity(data), token, owners)


def made_folder(folder: Path) -> str:
    """As programs name it."""
    folder.mkdir()
    return str(folder.resolve())


async def filled(app: App, name: str, folder: str) -> None:
    project = await app.library.create(name, "")
    await app.library.link_workspace(folder, project)
    await _call(app, name, "store_memory", content=f"Checkout of the {name} waits for Redis", **NEW)
    await _call(app, name, "store_memory", content=f"Checkout in a session of {name}", **NEW | {"scope": "session"})
    entity = {"name": f"Checkout {name}", "entityType": "service", "observations": ["uses Redis"]}
    await _call(app, name, "create_entities", entities=[entity])
    await tell(
        await app.library.open_history_store(),
        f"session-{name}",
        f"Why is the checkout of the {name} slow?",
        f"The checkout of the {name} waits for Redis, I raised its limit.",
        project=folder,
    )


async def _call(app: App, project: str | None, tool: str, **arguments: Any) -> None:
    await app.call(Session("test", project=project), tool, arguments)
