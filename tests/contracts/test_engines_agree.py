"""The same random commits on every engine: what one of them answers, all must."""

import asyncio
import os
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from making import DAY_ONE
from recollect.core.ports import Purged, RecordStore
from recollect.core.records import (
    Batch,
    Change,
    Delete,
    Insert,
    Link,
    Record,
    Ref,
    Restore,
    Step,
    Update,
    Weights,
    Where,
)
from recollect.core.undo import plan_undo
from recollect.core.words import parse_query
from recollect.engines.memory import MemoryStore
from recollect.engines.sqlite.connections import create
from recollect.engines.sqlite.database import Database
from recollect.engines.sqlite.schema import PROJECT
from recollect.engines.sqlite.store import SqliteStore
from recollect.errors import RecollectError

T = TypeVar("T")

# Few of each, so that steps meet.
RECORDS = [f"r{number}" for number in range(6)]
LINKS = [f"l{number}" for number in range(4)]
WORDS = ["red", "Blue", "parser", "parsing", "getUserName", "Größe", "日本語", "C++", "a_b", "50%"]
QUERIES = [
    "red",
    "blue parser",
    "parse OR blue",
    "red NOT blue",
    '"red blue"',
    "par*",
    "user name",
    "日本",
    "groesse OR größe",
    "c++",
]

record_ids = st.sampled_from(RECORDS)
link_ids = st.sampled_from(LINKS)
names = st.sampled_from(["red", "blue", "parser", None])
texts = st.lists(st.sampled_from(WORDS), max_size=3).map(" ".join)
facets = st.sampled_from([{}, {"n": 1}, {"tags": ["a", "b"]}])
refs = st.one_of(
    st.builds(Ref, st.just("record"), record_ids), st.builds(Ref, st.just("link"), link_ids)
)
inserted_records = st.builds(
    lambda record_id, kind, name, variant, parent, text, more: Record(
        id=record_id,
        kind=kind,
        created_at=DAY_ONE,
        updated_at=DAY_ONE,
        name=name,
        name_key=name,
        variant=variant,
        parent=parent,
        text=text,
        facets=more,
    ),
    record_ids,
    st.sampled_from(["entity", "note"]),
    names,
    st.sampled_from(["", "x"]),
    st.none() | record_ids,
    texts,
    facets,
)
inserted_links = st.builds(
    lambda link_id, source, verb, target: Link(link_id, source, verb, target, DAY_ONE),
    link_ids,
    record_ids,
    st.sampled_from(["to", "from"]),
    record_ids,
)


@dataclass(frozen=True)
class Amend:
    """An update whose version is known once it runs; `behind` makes it a stale one."""

    id: str
    values: dict[str, Any]
    behind: int


amended_values = st.fixed_dictionaries(
    {},
    optional={
        "name": names,
        "name_key": names,
        "text": texts,
        "facets": facets,
        "type": st.sampled_from(["red", None]),
    },
)
steps = st.one_of(
    st.builds(Insert, inserted_records),
    st.builds(Insert, inserted_links),
    st.builds(Amend, record_ids, amended_values, st.sampled_from([0, 0, 0, 1])),
    st.builds(Delete, refs),
    st.builds(Restore, refs),
)


class Engines(RuleBasedStateMachine):
    """Runs everything on both engines and compares all that they say."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        path = Path(self.folder.name) / "project.db"
        create(path, PROJECT)
        self.database = Database(path, PROJECT)
        self.runner = asyncio.Runner()
        self.at = DAY_ONE
        self.memory: RecordStore = MemoryStore(lambda: self.at)
        self.sqlite: RecordStore = SqliteStore(self.database, "project", 1, lambda: self.at)

    def teardown(self) -> None:
        with self.folder, self.runner:
            found = self.runner.run(self.sqlite.check())
            self.runner.run(self.database.close())
        assert found == []

    def both(self, ask: Callable[[RecordStore], Awaitable[T]]) -> T | str:
        """The answer or the code of the error, which must be one and the same."""
        first = self.runner.run(outcome(ask(self.memory)))
        second = self.runner.run(outcome(ask(self.sqlite)))
        assert first == second
        return first

    def commit(self, batch: Batch) -> Change | str:
        return self.both(lambda store: store.commit(batch))

    def changes(self) -> list[Change]:
        return self.runner.run(self.memory.changes(limit=1_000))

    @rule(drawn=st.lists(steps, min_size=1, max_size=4), later=st.integers(-1, 2))
    def commit_steps(self, drawn: list[Step | Amend], later: int) -> None:
        self.at += later
        known = self.runner.run(self.memory.scan(Where(deleted=None)))
        versions = {record.id: record.version for record in known}
        fitting: list[Step] = []
        for step in drawn:
            if isinstance(step, Amend):
                version = versions.get(step.id, 1)
                fitting.append(Update(step.id, step.values, version - step.behind))
                versions[step.id] = version + bool(step.values)
            else:
                fitting.append(step)
        self.commit(Batch(tuple(fitting), self.at, "test", "client"))

    @rule(record=inserted_records)
    def insert(self, record: Record) -> None:
        self.commit(Batch((Insert(record),), self.at, "test"))

    @rule(ids=st.lists(record_ids, max_size=2))
    def purge(self, ids: list[str]) -> None:
        purged = self.both(lambda store: store.purge(ids))
        assert isinstance(purged, Purged)
        assert purged.complete

    @rule(which=st.integers(0, 30))
    def undo(self, which: int) -> None:
        changes = self.changes()
        if changes:
            self.undo_change(changes[which % len(changes)])

    @rule()
    def undo_the_newest_and_redo_it(self) -> None:
        changes = self.changes()
        if not changes:
            return
        before = self.live()
        undoing = self.undo_change(changes[-1])
        if isinstance(undoing, Change):
            redoing = self.undo_change(undoing)
            assert isinstance(redoing, Change)
            assert self.live() == before

    @rule(query=st.sampled_from(QUERIES), kinds=st.sampled_from([(), ("note",)]))
    def find_words(self, query: str, kinds: tuple[str, ...]) -> None:
        parsed = parse_query(query)
        for words in (parsed.expression, parsed.all_terms(), parsed.any_term()):
            if words is not None:
                self.both(lambda store, words=words: found(store, words, Where(kinds=kinds)))

    @rule(text=st.sampled_from([*WORDS, "GRÖ", "5", "%", "_", "e"]))
    def find_part(self, text: str) -> None:
        self.both(lambda store: store.containing(text, Where(), 100))

    @invariant()
    def all_records_and_links_are_equal(self) -> None:
        self.both(lambda store: store.scan(Where(deleted=None)))
        self.both(lambda store: store.get_links(LINKS, include_deleted=True))
        for direction in ("in", "out"):
            self.both(lambda store, to=direction: store.links(RECORDS[:3], direction=to))

    @invariant()
    def all_counts_and_changes_are_equal(self) -> None:
        self.both(lambda store: store.count())
        self.both(lambda store: store.changes(limit=1_000))
        self.both(lambda store: store.revision())

    @invariant()
    def all_scans_and_histories_are_equal(self) -> None:
        self.both(lambda store: store.scan(Where(parents=("r0", "r1")), limit=2))
        self.both(lambda store: store.scan(Where(), order="name", after=("blue", "")))
        for ref in (Ref("record", "r0"), Ref("link", "l0")):
            self.both(lambda store, ref=ref: store.history(ref, after=1))

    def undo_change(self, change: Change) -> Change | str:
        """The undoing change, or the code of the refusal."""
        planned = self.both(lambda store: plan_undo(store, change))
        if isinstance(planned, str):
            return planned
        return self.commit(Batch(planned, self.at, "undo", undoes=change.seq))

    def live(self) -> tuple[list[Record], list[Link]]:
        """What an undo and its own undo together must leave as it was."""
        records = self.runner.run(self.memory.scan(Where()))
        links = self.runner.run(self.memory.links(RECORDS))
        return [replace(r, version=0, updated_at=0) for r in records], links


async def outcome(answer: Awaitable[T]) -> T | str:
    try:
        return await answer
    except RecollectError as error:
        return error.code


async def found(store: RecordStore, words: Any, where: Where) -> set[tuple[str, str | None]]:
    return {(m.id, m.parent) for m in await store.match(words, where, Weights(), 100)}


# More by environment for a long night; this many take some twenty seconds.
EXAMPLES = int(os.environ.get("RECOLLECT_TEST_EXAMPLES", "60"))

TestEngines = Engines.TestCase
TestEngines.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
