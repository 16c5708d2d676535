"""A library on disk with one project, and the file of that project."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from everkept.engines.sqlite.library import SqliteLibrary
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
