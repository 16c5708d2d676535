"""Stores that an import is tried on."""

from collections.abc import AsyncIterator

import pytest

from everkept.core.ports import Library, RecordStore


@pytest.fixture
async def store(library: Library) -> AsyncIterator[RecordStore]:
    store = await library.open_history_store()
    yield store
    assert await store.find_faults() == []
