"""Every family of tools through a real server, on each engine: the same is told everywhere."""

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from engine_journeys import ENGINES, REFERENCE, import_transcript, parameters, place
from family_journeys import follow_all

Told = Callable[[str], dict[str, list[Any]]]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """What a server says on all journeys, one after the other; once for each engine."""

    @cache
    def told(engine: str) -> dict[str, list[Any]]:
        kept = place(engine, tmp_path_factory.mktemp(engine))
        if engine != "embedded-memory":
            import_transcript(kept)
        return follow_all(kept)

    return told


@pytest.mark.parametrize("engine", parameters(ENGINES))
def test_every_family_says_the_same_on_every_engine(engine: str, told: Told) -> None:
    said = told(engine)
    expected = told(REFERENCE)
    if engine == "embedded-memory":
        expected = expected | {"history": said["history"]}
    for name in said:
        assert said[name] == expected[name], name
