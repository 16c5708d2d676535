"""Real database servers that tests kill, freeze and cut off, and libraries on them."""

from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Protocol

import pytest

import postgres_server
import surreal_server
from everkept.core.ports import Library
from everkept.engines.postgres.schema import LAYOUT
from postgres_libraries import library_over as on_postgres
from proxies import Direction
from surreal_libraries import library_over as on_surreal

KINDS = (pytest.param("surreal-2", marks=pytest.mark.thorough), "surreal-3", "postgres")


class Server(Protocol):
    """What a test can do to any of them; its data outlives it, where it has a folder for them."""

    @property
    def url(self) -> str: ...

    async def kill(self) -> None: ...

    async def restart(self) -> None: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...


class Proxy(Protocol):
    was_cut: Any

    @property
    def url(self) -> str: ...

    def cut_after(self, count: int, direction: Direction = "both") -> None: ...


def served(kind: str, folder: Path | None = None) -> AbstractAsyncContextManager[Server]:
    """One of its own, gone when the block ends; PostgreSQL finds a folder by itself."""
    if kind == "postgres":
        return postgres_server.served()
    return surreal_server.served(int(kind[-1]), folder, orderly=True)


def proxied(server: Server) -> AbstractAsyncContextManager[Proxy]:
    if isinstance(server, postgres_server.Server):
        return postgres_server.proxied(server)
    assert isinstance(server, surreal_server.Server)
    return surreal_server.proxied(server)


def library_on(server: Server, namespace: str) -> Library:
    """The database itself, with nothing that stands by; closed with the server."""
    if isinstance(server, postgres_server.Server):
        return on_postgres(server.database(namespace, layout=LAYOUT))
    assert isinstance(server, surreal_server.Server)
    return on_surreal(server.connection(namespace))
