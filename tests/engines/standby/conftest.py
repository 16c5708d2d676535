from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from everkept.core.ports import Library
from everkept.engines.memory.library import MemoryLibrary
from everkept.engines.sqlite.library import SqliteLibrary
from everkept.engines.standby.journal import Journal

LIBRARIES: dict[str, Callable[[Path], Library]] = {"memory": lambda _: MemoryLibrary(), "sqlite": SqliteLibrary}


@pytest.fixture(params=LIBRARIES)
async def library(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Library]:
    library = LIBRARIES[request.param](tmp_path / "database")
    yield library
    await library.close()


@pytest.fixture
def journal_path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


@pytest.fixture
async def journal(journal_path: Path) -> AsyncIterator[Journal]:
    journal = Journal(journal_path)
    yield journal
    await journal.close()
