"""A store of past conversations."""

import pytest

from everkept.core.ports import Library, RecordStore
from unified_search import Everything


@pytest.fixture
async def store(library: Library) -> RecordStore:
    return await library.open_history_store()


@pytest.fixture
def everything(library: Library) -> Everything:
    return Everything(library)
