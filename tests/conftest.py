"""What every test may use."""

import pytest


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def no_config_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """A developer's own settings must not decide what a test sees."""
    monkeypatch.setenv("RECOLLECT_CONFIG", "none")
