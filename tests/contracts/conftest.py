"""Every engine, so that one suite holds all of them to the same promises.

The whole suite runs on the engines that differ; on their variants it does with --all, and
otherwise a few tests do, which are marked `smoke`.
"""

from collections.abc import AsyncIterator, Callable
from itertools import count
from pathlib import Path

import pytest

import postgres_libraries
import postgres_server
from everkept.core.ports import Library, RecordStore
from everkept.core.times import Clock
from everkept.engines.memory.library import MemoryLibrary
from everkept.engines.sqlite.library import SqliteLibrary
from everkept.engines.standby.journal import Journal
from everkept.engines.standby.library import StandbyLibrary
from everkept.engines.surreal.drivers import EmbeddedConnection
from everkept.engines.surreal.library import SurrealLibrary
from file_stores import STORES, Filing, filing
from reading_rooms import read_by_room
from records import DAY_ONE, MILLISECOND
from surreal_libraries import library_over
from surreal_server import fresh_namespace, shared


def surreal_within(place: Path | None, clock: Clock) -> Library:
    connection = EmbeddedConnection(place, "test", time_limit=60)
    mode = "embedded-memory" if place is None else "embedded-file"
    return SurrealLibrary(connection, mode=mode, place=str(place or ""), clock=clock)


def surreal_served(core: int, clock: Clock) -> Library:
    """One server for all tests; each has a namespace of its own there."""
    return library_over(shared(core).connection(fresh_namespace()), clock=clock)


SCHEMAS = postgres_server.Schemas()


def postgres_served(clock: Clock) -> Library:
    """One server for all tests; each has a schema to itself there."""
    database = postgres_server.shared().database(SCHEMAS.lend())
    return postgres_libraries.library_over(database, clock=clock)


def standing_by(folder: Path, clock: Clock) -> Library:
    """A database that never goes away, with what would stand in for it."""
    replica = SqliteLibrary(folder / "replica", clock=clock)
    return StandbyLibrary(MemoryLibrary(clock), replica, Journal(folder / "journal.db"), clock=clock)


ENGINES: dict[str, Callable[[Path, Clock], Library]] = {
    "memory": lambda _, clock: MemoryLibrary(clock),
    "memory-standby": standing_by,
    "sqlite": lambda folder, clock: SqliteLibrary(folder, clock=clock),
    "room": lambda folder, clock: read_by_room(SqliteLibrary(folder, clock=clock), folder),
    "surreal": lambda _, clock: surreal_within(None, clock),
    "surreal-file": lambda folder, clock: surreal_within(folder, clock),
    "surreal-2": lambda _, clock: surreal_served(2, clock),
    "surreal-3": lambda _, clock: surreal_served(3, clock),
    "postgres": lambda _, clock: postgres_served(clock),
}
VARIANTS = ENGINES.keys() - {"memory", "sqlite", "surreal-3", "postgres"}


def pytest_itemcollected(item: pytest.Item) -> None:
    """Leave the variants of an engine to the thorough tests."""
    engine = item.callspec.params.get("library") if hasattr(item, "callspec") else None
    if engine in VARIANTS and not item.get_closest_marker("smoke"):
        item.add_marker("thorough")


@pytest.fixture
def clock() -> Clock:
    """A millisecond later each time it is asked."""
    ticks = count(DAY_ONE, MILLISECOND)
    return lambda: next(ticks)


@pytest.fixture(params=ENGINES)
async def library(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> AsyncIterator[Library]:
    library = ENGINES[request.param](tmp_path / "data", clock)
    yield library
    await library.close()
    SCHEMAS.take_back()


@pytest.fixture
async def store(library: Library) -> RecordStore:
    await library.create("project", "")
    _, store = await library.open("project")
    return store


@pytest.fixture(params=STORES)
async def files(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Filing]:
    """A store of a folder that does not exist yet."""
    async with filing(request.param, tmp_path) as made:
        yield made
