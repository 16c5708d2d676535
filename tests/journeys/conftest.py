"""Clients of every kind."""

from pathlib import Path
from typing import Any

import pytest

from gateway_front import Front

# Transport and era. Each is tried once; the other pairs are left to the thorough tests.
CLIENTS: list[Any] = [
    ("stdio", "2026-07-28"),
    ("http", "legacy"),
    pytest.param(("stdio", "legacy"), marks=pytest.mark.thorough),
    pytest.param(("http", "2026-07-28"), marks=pytest.mark.thorough),
]


@pytest.fixture(params=CLIENTS, ids="-".join)
def kind(request: pytest.FixtureRequest) -> tuple[str, str]:
    """The transport and the era of a client."""
    return request.param


@pytest.fixture
def front(kind: tuple[str, str], tmp_path: Path) -> Front:
    return Front(tmp_path, *kind)
