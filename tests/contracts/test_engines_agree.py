"""The same random commits on every engine: what one of them answers, all must."""

import asyncio
import os
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import postgres_server
from everkept.core.commits import plan_undo
from everkept.core.ports import PurgeResult, RecordStore, RecordVector
from everkept.core.records import (
    Batch,
    Change,
    Delete,
    Insert,
    Record,
    RecordFilter,
    RecordLink,
    Ref,
    Restore,
    Step,
    Update,
    Weights,
)
from everkept.engines.memory.store import MemoryStore
from everkept.engines.sqlite.connection import create
from everkept.engines.sqlite.database import Database
from everkept.engines.sqlite.schema import PROJECT
from everkept.engines.sqlite.store import SqliteStore
from everkept.engines.surreal.drivers import EmbeddedConnection
from everkept.engines.surreal.store import SurrealStore
from everkept.errors import EverkeptError
from everkept.language.words import parse_query
from everkept.values import replace
from examples import examples
from postgres_libraries import library_over
from random_steps import (
    DELETIONS,
    DRAFTS,
    FAMILY,
    KINDS,
    LATER,
    LINKS,
    LIVE,
    MODELS,
    NEW_LINKS,
    NEW_RECORDS,
    QUERIES,
    RECORDS,
    RESTORATIONS,
    SCOPES,
    UPDATES,
    WHERES,
    WORDS,
    Draft,
    Pick,
)
from records import DAY_ONE
from surreal_server import fresh_namespace, shared

T = TypeVar("T")


class Engines(RuleBasedStateMachine):
    """Runs everything on the reference engine and on another, and compares all that they say."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.at = DAY_ONE
        self.memory: RecordStore = MemoryStore(lambda: self.at)
        self.other = self.opened()
        self.searched: list[RecordStore] = []  # more ways to find words in the other

    def opened(self) -> RecordStore:
        raise NotImplementedError

    async def close(self) -> None:
        raise NotImplementedError

    def teardown(self) -> None:
        with self.runner:
            found = self.runner.run(self.other.find_faults())
            self.runner.run(self.close())
        assert found == []

    def both(self, ask: Callable[[RecordStore], Awaitable[T]]) -> T | str:
        """The answer or the code of the error, which must be one and the same."""
        first = self.runner.run(outcome(ask(self.memory)))
        second = self.runner.run(outcome(ask(self.other)))
        assert first == second
        return first

    def commit(self, batch: Batch) -> Change | str:
        return self.both(lambda store: store.commit(batch))

    def changes(self) -> list[Change]:
        return self.runner.run(self.memory.read_changes(limit=1_000))

    @initialize()
    def begin_with_a_family(self) -> None:
        self.commit_drafts(FAMILY, 0)

    @rule(draft=NEW_RECORDS, later=LATER)
    def insert_a_record(self, draft: Draft, later: int) -> None:
        self.commit_drafts([draft], later)

    @rule(draft=NEW_LINKS, later=LATER)
    def insert_a_link(self, draft: Draft, later: int) -> None:
        self.commit_drafts([draft], later)

    @rule(draft=UPDATES, later=LATER)
    def update(self, draft: Draft, later: int) -> None:
        self.commit_drafts([draft], later)

    @rule(which=LIVE, scope=SCOPES)
    def let_others_see(self, which: Pick, scope: str) -> None:
        self.commit_drafts([Draft("update", "record", which, None, Pick("any", 0), {"scope": scope})], 0)

    @rule(draft=DELETIONS, later=LATER)
    def delete(self, draft: Draft, later: int) -> None:
        self.commit_drafts([draft], later)

    @rule(draft=RESTORATIONS, later=LATER)
    def restore(self, draft: Draft, later: int) -> None:
        self.commit_drafts([draft], later)

    @rule(drafts=st.lists(DRAFTS, min_size=2, max_size=4), later=LATER)
    def commit_several(self, drafts: list[Draft], later: int) -> None:
        self.commit_drafts(drafts, later)

    def commit_drafts(self, drafts: Sequence[Draft], later: int) -> None:
        self.at += later
        known = self.runner.run(self.memory.scan(RecordFilter(deleted=None)))
        links = self.runner.run(self.memory.get_links(LINKS, include_deleted=True))
        choices = {"record": choices_of(RECORDS, known), "link": choices_of(LINKS, links)}
        versions = {record.id: record.version for record in known}
        steps = [self.step(draft, choices, versions) for draft in drafts]
        self.commit(Batch(tuple(steps), self.at, "test", "client"))

    def step(self, draft: Draft, choices: Mapping[str, Mapping[str, Sequence[str]]], versions: dict[str, int]) -> Step:
        item_id = draft.first.among(choices[draft.subject])
        second = draft.second and draft.second.among(choices["record"])
        match draft.make:
            case "record":
                kind = "entity" if second is None else "note"
                more = {"id": item_id, "kind": kind, "parent": second, **draft.values}
                return Insert(Record(**more, created_at=self.at, updated_at=self.at))
            case "link":
                target = draft.third.among(choices["record"])
                return Insert(RecordLink(item_id, second or target, "to", target, self.at))
            case "update":
                version = versions.get(item_id, 1)
                versions[item_id] = version + 1
                is_late = draft.third.which > 18
                return Update(item_id, draft.values, version - is_late)
            case "delete":
                return Delete(Ref(draft.subject, item_id))
            case "restore":
                return Restore(Ref(draft.subject, item_id))

    @rule(records=st.lists(st.sampled_from(RECORDS), max_size=2), links=st.lists(st.sampled_from(LINKS), max_size=2))
    def purge(self, records: list[str], links: list[str]) -> None:
        refs = [Ref("record", item) for item in records] + [Ref("link", item) for item in links]
        purged = self.both(lambda store: store.purge(refs))
        assert isinstance(purged, PurgeResult)
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
        for words in (parsed.expression, parsed.build_all_query(), parsed.build_any_query()):
            if words is not None:
                self.find(words, RecordFilter(kinds=kinds))

    def find(self, words: Any, where: RecordFilter) -> None:
        first = self.both(lambda store: found(store, words, where))
        for another in self.searched:
            assert self.runner.run(found(another, words, where)) == first

    @rule(where=WHERES, limit=st.none() | st.integers(0, 5))
    def choose(self, where: RecordFilter, limit: int | None) -> None:
        self.both(lambda store: store.scan(where, order="newest", limit=limit))
        self.both(lambda store: store.scan(where, limit=limit))
        self.both(lambda store: store.count_records(where))
        self.find(parse_query("red blue parser").build_any_query(), where)
        self.both(lambda store: nearby(store, "one", where))

    @rule(
        records=st.lists(st.sampled_from(RECORDS), max_size=4, unique=True),
        model=MODELS,
        angle=st.integers(0, 3),
        is_late=st.booleans(),
    )
    def embed(self, records: list[str], model: str, angle: int, *, is_late: bool) -> None:
        known = self.runner.run(self.memory.get(records, include_deleted=True))
        items = [
            RecordVector(record.id, record.version - (is_late and number == 0), direction(angle))
            for number, record in enumerate(known)
            if record.text
        ]
        self.both(lambda store: store.put_vectors(model, items))

    @rule(counts=st.dictionaries(st.sampled_from(RECORDS), st.integers(1, 3)))
    def give_out(self, counts: dict[str, int]) -> None:
        self.both(lambda store: store.note_accesses(counts, self.at))

    @rule(model=MODELS, kinds=st.sampled_from([("note",), KINDS]), limit=st.integers(0, 5))
    def embed_those_who_wait(self, model: str, kinds: tuple[str, ...], limit: int) -> None:
        waiting = self.both(lambda store: store.find_unembedded(model, kinds, limit))
        assert isinstance(waiting, list)
        self.embed([record.id for record in waiting], model, len(waiting) % 4, is_late=False)

    @rule(text=st.sampled_from([*WORDS, "GRÖ", "5", "%", "_", "e"]))
    def find_part(self, text: str) -> None:
        self.both(lambda store: store.match_text(text, RecordFilter(), 100))

    @invariant()
    def all_that_can_be_read_is_equal(self) -> None:
        self.both(everything)

    def undo_change(self, change: Change) -> Change | str:
        """The undoing change, or the code of the refusal."""
        seen = self.both(lambda store: store.get_revision())
        planned = self.both(lambda store: plan_undo(store, change))
        if isinstance(planned, str) or isinstance(seen, str):
            return str(planned)
        return self.commit(Batch(planned, self.at, "undo", undoes=change.seq, revision=seen))

    def live(self) -> tuple[list[Record], list[RecordLink]]:
        """What an undo and its own undo together must leave as it was."""
        records = self.runner.run(self.memory.scan(RecordFilter()))
        links = self.runner.run(self.memory.find_links(RECORDS))
        return [replace(r, version=0, updated_at=0) for r in records], links


def choices_of(every: Sequence[str], known: Sequence[Record | RecordLink]) -> Mapping[str, Sequence[str]]:
    return {
        "live": [thing.id for thing in known if thing.deleted_at is None],
        "deleted": [thing.id for thing in known if thing.deleted_at is not None],
        "unused": sorted(set(every) - {thing.id for thing in known}),
        "any": every,
    }


async def outcome(answer: Awaitable[T]) -> T | str:
    try:
        return await answer
    except EverkeptError as error:
        return error.code


async def found(store: RecordStore, words: Any, where: RecordFilter) -> set[tuple[str, str | None]]:
    return {(m.id, m.parent) for m in await store.match(words, where, Weights(), 100)}


async def everything(store: RecordStore) -> list[Any]:
    """In one go: a state machine asks it after each of thousands of steps."""
    refs = [Ref("record", "r1"), Ref("link", "l0"), Ref("record", "r0")]
    answers: list[Any] = [
        await store.scan(RecordFilter(deleted=None)),
        await store.scan(RecordFilter(parents=("r0", "r1")), limit=2),
        await store.scan(RecordFilter(), order="name", after=("blue", "")),
        await store.scan(RecordFilter(), after="r1"),
        await store.scan(RecordFilter(deleted=None), order="newest", after="r2", limit=2),
        await store.get_links(LINKS, include_deleted=True),
        await store.find_links(RECORDS[:3], direction="in"),
        await store.find_links(RECORDS[:3], direction="out"),
        await store.scan_links(deleted=True),
        await store.count_live(),
        await store.read_changes(limit=1_000),
        await store.read_history(refs, after=1),
        await store.get_revision(),
        await store.get_accesses(RECORDS),
        await store.list_authors(),
        [await store.list_scopes(kind) for kind in KINDS],
        set(await store.tally(KINDS)),
        await store.measure_words(["red", "parser", "user", "nothing"]),
    ]
    for model in ("one", "two"):
        answers += [
            await store.find_unembedded(model, KINDS, 100),
            await store.count_vectors(model, KINDS),
            await nearby(store, model, RecordFilter(deleted=None)),
        ]
    return answers


def direction(angle: int) -> Any:
    vector = np.zeros(8, np.float32)
    vector[angle % 2] = 1.0 if angle < 2 else -1.0
    return vector


async def nearby(store: RecordStore, model: str, where: RecordFilter) -> dict[str, float]:
    """All of them: of equally near ones each engine may say first what it likes."""
    vector = np.full(8, np.sqrt(1 / 8), np.float32)
    matches = await store.find_near(model, vector, where, 100, also=RECORDS[:2])
    assert [m.score for m in matches] == sorted((m.score for m in matches), reverse=True)
    return {match.id: round(match.score, 3) for match in matches}


class WithSqlite(Engines):
    def opened(self) -> RecordStore:
        self.folder = tempfile.TemporaryDirectory()
        path = Path(self.folder.name) / "project.db"
        create(path, PROJECT)
        self.database = Database(path, PROJECT)
        return SqliteStore(self.database, "project", 1, lambda: self.at)

    @initialize()
    def search_as_in_a_large_file(self) -> None:
        self.searched = [SqliteStore(self.database, "project", 1, lambda: self.at, many=0)]

    async def close(self) -> None:
        with self.folder:
            await self.database.close()


class WithSurreal(Engines):
    core = 2

    def opened(self) -> RecordStore:
        self.connection = shared(self.core).connection(fresh_namespace())
        return SurrealStore(self.connection, "project", lambda: self.at)

    async def close(self) -> None:
        await self.connection.close()


class WithNewSurreal(WithSurreal):
    core = 3


class WithEmbeddedSurreal(Engines):
    def opened(self) -> RecordStore:
        self.folder = tempfile.TemporaryDirectory()
        self.connection = EmbeddedConnection(self.place(), "memory", time_limit=60)
        return SurrealStore(self.connection, "project", lambda: self.at)

    def place(self) -> Path | None:
        return Path(self.folder.name) / "surreal"

    async def close(self) -> None:
        with self.folder:
            await self.connection.close()


class WithSurrealInMemory(WithEmbeddedSurreal):
    def place(self) -> Path | None:
        return None


class WithPostgres(Engines):
    def opened(self) -> RecordStore:
        self.library = library_over(postgres_server.shared().database(), clock=lambda: self.at)
        return self.runner.run(self.library.open_user_store())

    async def close(self) -> None:
        await self.library.close()


# More by environment for a long night; this many take some twenty seconds for each engine.
EXAMPLES = examples(int(os.environ.get("EVERKEPT_TEST_EXAMPLES", "60")))


def chosen(count: int) -> settings:
    return settings(
        max_examples=max(count, 5), stateful_step_count=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )


TestSqlite = WithSqlite.TestCase
TestSqlite.settings = chosen(EXAMPLES)
TestSurreal = pytest.mark.thorough(WithSurreal.TestCase)
TestSurreal.settings = chosen(EXAMPLES // 6)
TestNewSurreal = WithNewSurreal.TestCase
TestNewSurreal.settings = chosen(EXAMPLES // 6)
TestEmbeddedSurreal = pytest.mark.thorough(WithEmbeddedSurreal.TestCase)
TestEmbeddedSurreal.settings = chosen(EXAMPLES // 12)
TestSurrealInMemory = pytest.mark.thorough(WithSurrealInMemory.TestCase)
TestSurrealInMemory.settings = chosen(EXAMPLES // 12)
TestPostgres = WithPostgres.TestCase
TestPostgres.settings = chosen(EXAMPLES // 6)
