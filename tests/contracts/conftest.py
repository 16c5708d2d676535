"""Every engine, so that one suite holds all of them to the same promises."""

from collections.abc import AsyncIterator, Callable
from itertools import count
from pathlib import Path

import pytest

from making import DAY_ONE, MILLISECOND
from reading import read_by_room
from recollect.core.ports import Library, RecordStore
from recollect.core.times import Clock
from recollect.engines.memory.library import MemoryLibrary
from recollect.engines.sqlite.library import SqliteLibrary

ENGINES: dict[str, Callable[[Path, Clock], Library]] = {
    "memory": lambda _, clock: MemoryLibrary(clock),
    "sqlite": lambda folder, clock: SqliteLibrary(folder, clock=clock),
    "room": lambda folder, clock: read_by_room(SqliteLibrary(folder, clock=clock), folder),
}


@pytest.fixture
def clock() -> Clock:
    """A millisecond later each time it is asked."""
    ticks = count(DAY_ONE, MILLISECOND)
    return lambda: next(ticks)


@pytest.fixture(params=ENGINES)
async def library(
    request: pytest.FixtureRequest, tmp_path: Path, clock: Clock
) -> AsyncIterator[Library]:
    library = ENGINES[request.param](tmp_path / "data", clock)
    yield library
    await library.close()


@pytest.fixture
async def store(library: Library) -> RecordStore:
    await library.create("project", "")
    _, store = await library.open("project")
    return store
