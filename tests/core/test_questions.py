"""Every engine answers every question, and wrappers pass on what they do not know."""

import pytest

from everkept.core import questions
from everkept.core.store import RecordStore, TableStore
from everkept.engines.memory.store import MemoryStore
from everkept.engines.postgres.store import PostgresStore
from everkept.engines.sqlite.store import SqliteStore
from everkept.engines.surreal.store import SurrealStore

ENGINES = [MemoryStore, SqliteStore, PostgresStore, SurrealStore]


def of(kind: type) -> set[type]:
    """The types of this kind that the port defines."""
    return {each for each in kind.__subclasses__() if each.__module__ == questions.__name__}


@pytest.mark.parametrize("engine", ENGINES)
def test_an_engine_answers_every_question(engine: type[TableStore]) -> None:
    assert set(engine.answers) == of(questions.Question)


@pytest.mark.parametrize("engine", ENGINES)
def test_an_engine_does_every_upkeep(engine: type[TableStore]) -> None:
    assert set(engine.upkeeps) == of(questions.Upkeep)


def test_a_store_has_few_methods_to_define() -> None:
    assert RecordStore.__abstractmethods__ == {"ask", "commit", "maintain"}


@pytest.mark.parametrize("engine", ENGINES)
def test_an_engine_spells_out_no_question(engine: type[TableStore]) -> None:
    short = {name for name in vars(RecordStore) if not name.startswith("_")}
    assert short & vars(engine).keys() == {"commit"}
