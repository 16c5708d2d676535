"""Every engine answers every question, and no engine or wrapper spells one out."""

from collections.abc import Mapping
from typing import Any

import pytest

from everkept.core import library as catalog
from everkept.core import store as questions
from everkept.core.library import Library, TableLibrary
from everkept.core.store import RecordStore, TableStore
from everkept.engines.memory.library import MemoryLibrary
from everkept.engines.memory.store import MemoryStore
from everkept.engines.postgres.library import PostgresLibrary
from everkept.engines.postgres.store import PostgresStore
from everkept.engines.sqlite.library import SqliteLibrary
from everkept.engines.sqlite.store import SqliteStore
from everkept.engines.standby.library import StandbyLibrary
from everkept.engines.surreal.library import SurrealLibrary
from everkept.engines.surreal.store import SurrealStore

STORES: list[type[TableStore]] = [MemoryStore, SqliteStore, PostgresStore, SurrealStore]
LIBRARIES: list[type[TableLibrary]] = [MemoryLibrary, SqliteLibrary, PostgresLibrary, SurrealLibrary]


def kinds_of(base: type) -> set[type]:
    """The types of questions that the port defines."""
    return {each for each in base.__subclasses__() if each.__module__ == base.__module__}


@pytest.mark.parametrize("engine", STORES)
def test_a_store_answers_every_question_and_does_every_upkeep(engine: type[TableStore]) -> None:
    assert set(engine.answers) == kinds_of(questions.StoreQuestion)
    assert set(engine.upkeeps) == kinds_of(questions.Upkeep)


@pytest.mark.parametrize("engine", LIBRARIES)
def test_a_library_answers_every_question_and_does_every_change(engine: type[TableLibrary]) -> None:
    assert set(engine.answers) == kinds_of(catalog.CatalogQuestion)
    assert set(engine.changes) == kinds_of(catalog.CatalogChange)


def test_every_change_of_a_library_is_thought_about_while_its_database_is_away() -> None:
    done: Mapping[type, Any] = vars(StandbyLibrary)["_changes"]
    assert set(done) == kinds_of(catalog.CatalogChange)


@pytest.mark.parametrize(("port", "most"), [(RecordStore, 8), (Library, 10)])
def test_a_port_has_few_methods_to_define(port: type, most: int) -> None:
    assert len(port.__abstractmethods__) <= most


@pytest.mark.parametrize("port", [RecordStore, Library])
def test_a_question_is_spelled_out_once(port: type) -> None:
    short = {name for name in vars(port) if not name.startswith("_")} - port.__abstractmethods__
    ours = [each for each in descendants(port) if each.__module__.startswith("everkept.")]
    assert [each.__name__ for each in ours if short & vars(each).keys()] == []


def descendants(port: type) -> list[type]:
    return [each for born in port.__subclasses__() for each in (born, *descendants(born))]
