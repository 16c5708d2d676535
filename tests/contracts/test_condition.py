"""What a library says of what it is kept in."""

from typing import get_args

import pytest

from everkept import __version__
from everkept.core.library import Condition, Engine, Mode
from everkept.core.ports import Library
from everkept.engines.memory.library import MemoryLibrary
from records import batch, entity

pytestmark = pytest.mark.smoke  # every library says what it is


async def test_a_library_says_what_it_is_kept_in(library: Library) -> None:
    condition = library.condition
    assert condition.engine in get_args(Engine)
    assert condition.mode in get_args(Mode)


async def test_a_library_names_the_engine_that_it_is(library: Library, request: pytest.FixtureRequest) -> None:
    name: str = request.node.callspec.id
    named = [engine for engine in get_args(Engine) if name.startswith(engine)]
    assert library.condition.engine in (named or ["sqlite"])  # which a reading room reads


async def test_an_engine_that_answers_is_connected(library: Library) -> None:
    await library.create("shop", "")
    _, store = await library.open("shop")
    await store.commit(batch(entity("Ada")))
    condition = library.condition
    assert condition.status == "connected"
    assert condition.version
    assert (condition.since, condition.reason) == (None, "")
    assert (condition.waiting, condition.set_aside) == (0, 0)


async def test_asking_again_gives_the_same(library: Library) -> None:
    await library.list_projects()
    assert library.condition == library.condition


def test_the_reference_engine_is_as_old_as_the_program() -> None:
    assert MemoryLibrary().condition == Condition("memory", "embedded-memory", version=__version__)
