"""A store of past conversations."""

import pytest

from everkept.core.ports import Library, RecordStore


@pytest.fixture
async def store(library: Library) -> RecordStore:
    return await library.history()
