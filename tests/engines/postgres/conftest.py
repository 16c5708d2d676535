"""Servers of PostgreSQL, and tables of its own for a test."""

from collections.abc import AsyncGenerator, Generator, Iterator
from pathlib import Path

import pytest

from certificates import certificate
from everkept.engines.postgres.store import PostgresStore
from postgres_libraries import Shelf, shelf_of
from postgres_server import Encrypted, Server, encrypted, fresh_schema, served, shared
from postgres_tables import Tables

PASSWORD = "correct horse"


@pytest.fixture
async def server() -> AsyncGenerator[Server, None]:
    """One of its own, to be killed, frozen or spoilt."""
    async with served() as server:
        yield server


@pytest.fixture
async def common() -> AsyncGenerator[Server, None]:
    """The shared one; what a test opens there is closed behind it."""
    server = shared()
    yield server
    await server.disconnect()


@pytest.fixture(scope="session")
def guarded_server() -> Generator[Server, None, None]:
    server = Server(password=PASSWORD)
    server.start()
    yield server
    server.end()


@pytest.fixture
async def guarded(guarded_server: Server) -> AsyncGenerator[Server, None]:
    """One that wants a password."""
    yield guarded_server
    await guarded_server.disconnect()


@pytest.fixture
def proof(tmp_path: Path) -> Path:
    return certificate(tmp_path)


@pytest.fixture
async def secure(guarded: Server, proof: Path) -> AsyncGenerator[Encrypted, None]:
    """The one that wants a password, by a way that wants TLS."""
    async with encrypted(guarded, proof) as proxy:
        yield proxy


@pytest.fixture
async def shelf() -> AsyncGenerator[Shelf, None]:
    async with shelf_of() as shelf:
        yield shelf


@pytest.fixture
async def store(shelf: Shelf) -> PostgresStore:
    return await shelf.library().open_user_store()


@pytest.fixture
def tables() -> Iterator[Tables]:
    made = Tables(fresh_schema())
    yield made
    made.connection.execute(f"DROP SCHEMA {made.schema} CASCADE".encode())
    made.connection.close()
