"""An assistant with memories."""

import pytest

from everkept.core.ports import Library
from remembering import Assistant


@pytest.fixture
def assistant(library: Library) -> Assistant:
    return Assistant(library)
