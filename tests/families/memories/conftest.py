"""An assistant with memories."""

import pytest

from assistant import Assistant
from everkept.core.ports import Library


@pytest.fixture
def assistant(library: Library) -> Assistant:
    return Assistant(library)
