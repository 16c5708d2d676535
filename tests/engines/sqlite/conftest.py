"""A library on disk with one project, its file, and a data folder with something of everything."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from data_folders import filled
from everkept.care.check_context import CheckContext
from everkept.core.times import read_clock
from everkept.engines.sqlite.library import SqliteLibrary
from everkept.settings import read_settings
from records import batch, entity

PROJECT_NAME = "project"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
async def library(folder: Path) -> AsyncIterator[SqliteLibrary]:
    """Its project holds the record `kept`."""
    library = SqliteLibrary(folder)
    await library.create(PROJECT_NAME, "")
    _, store = await library.open(PROJECT_NAME)
    await store.commit(batch(entity("kept", text="a text to keep")))
    yield library
    await library.close()


@pytest.fixture
def path(library: SqliteLibrary, folder: Path) -> Path:
    """The file of the library's project."""
    [path] = (folder / "projects").glob("*.db")
    return path


@pytest.fixture
def data(tmp_path: Path) -> Path:
    filled(tmp_path / "data", "shop", "old", archived=("old",))
    return tmp_path / "data"


@pytest.fixture
def context(data: Path) -> CheckContext:
    return CheckContext(read_settings({"data_dir": data, "config": "none"}, {}), read_clock)
