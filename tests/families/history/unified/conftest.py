"""A search over everything."""

import pytest

from everkept.core.ports import Library
from unified_search import Everything


@pytest.fixture
def everything(library: Library) -> Everything:
    return Everything(library)
