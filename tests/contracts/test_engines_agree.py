"""The same random commits on every engine: what one of them answers, all must."""

import asyncio
import os
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from making import DAY_ONE
from recollect.core.ports import Embedded, Purged, RecordStore
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
    Subject,
    Update,
    Weights,
    Where,
)
from recollect.core.undo import plan_undo
from recollect.core.words import parse_query
from recollect.engines.memory.store import MemoryStore
from recollect.engines.sqlite.connections import create
from recollect.engines.sqlite.database import Database
from recollect.engines.sqlite.schema import PROJECT
from recollect.engines.sqlite.store import SqliteStore
from recollect.errors import RecollectError

T = TypeVar("T")

# Few of each, so that steps meet.
RECORDS = [f"r{number}" for number in range(12)]
LINKS = [f"l{number}" for number in range(8)]
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


@dataclass(frozen=True)
class Pick:
    """One of those that are in a certain state when a batch begins, whichever they are."""

    state: Literal["live", "deleted", "unused", "any"]
    which: int

    def among(self, choices: Mapping[str, Sequence[str]]) -> str:
        pool = choices[self.state] or choices["any"]
        return pool[self.which % len(pool)]


@dataclass(frozen=True)
class Draft:
    """A step before it is known which things it is about."""

    make: Literal["record", "link", "update", "delete", "restore"]
    subject: Subject
    first: Pick
    second: Pick | None
    third: Pick
    values: Mapping[str, Any]


def picks(*states: Literal["live", "deleted", "unused", "any"]) -> st.SearchStrategy[Pick]:
    return st.builds(Pick, st.sampled_from(states), st.integers(0, 20))


SCOPES = st.sampled_from(["", "session", "project"])
names = st.sampled_from(["red", "blue", "parser", None, None, None])
texts = st.lists(st.sampled_from(WORDS), max_size=3).map(" ".join)
values = st.fixed_dictionaries(
    {"name": names, "text": texts},
    optional={
        "facets": st.sampled_from([{}, {"n": 1}, {"tags": ["a", "b"]}]),
        "type": st.sampled_from(["red", None]),
        "variant": st.sampled_from(["", "x"]),
        "scope": SCOPES,
        "session": st.sampled_from(["s1", "s1", "s2", None]),
        "position": st.sampled_from([1, 2, 3, None]),
        "author": st.sampled_from(["Ada", "Zoë", "", None]),
        "importance": st.sampled_from([0.0, 0.5, 1.0, None]),
        "occurred_at": st.sampled_from([DAY_ONE - 1, DAY_ONE + 1, None]),
        "tags": st.lists(st.sampled_from("xyz"), max_size=3).map(tuple),
    },
).map(lambda drawn: drawn | {"name_key": drawn["name"]})
subjects = st.sampled_from(["record", "record", "link"])
LIVE = picks("live")
ANY = picks("any")


def drafted(make: str, subject: Any, first: Any, second: Any = ANY) -> st.SearchStrategy[Draft]:
    return st.builds(Draft, st.just(make), subject, first, second, picks("live", "any"), values)


RECORD, LINK = st.just("record"), st.just("link")
NEW_RECORDS = drafted("record", RECORD, picks("unused"), st.none() | LIVE)
NEW_LINKS = drafted("link", LINK, picks("unused"), LIVE)
UPDATES = drafted("update", RECORD, LIVE)
DELETIONS = drafted("delete", subjects, LIVE)
RESTORATIONS = drafted("restore", subjects, picks("deleted"))
# Mostly what fits, and now and then what does not.
DRAFTS = st.one_of(
    NEW_RECORDS,
    NEW_LINKS,
    UPDATES,
    DELETIONS,
    RESTORATIONS,
    drafted("record", RECORD, ANY),
    drafted("link", LINK, ANY),
    drafted("delete", subjects, ANY),
    drafted("restore", subjects, ANY),
)
LATER = st.integers(-1, 2)
TIMES = st.none() | st.integers(DAY_ONE - 1, DAY_ONE + 4)
WHERES = st.builds(
    Where,
    kinds=st.sampled_from([(), ("note",), ("note", "entity")]),
    ids=st.none() | st.lists(st.sampled_from(RECORDS), max_size=4).map(tuple),
    types=st.sampled_from([(), (), ("red",)]),
    scopes=st.sampled_from([(), ("project",), ("session", "")]),
    sessions=st.sampled_from([None, None, ("s1",), ("s1", "s2")]),
    places=st.sampled_from([None, None, (("s1", 1), ("s2", 2)), ()]),
    visible_to=st.sampled_from([None, "s1", "s3"]),
    tags=st.sampled_from([(), (), ("x",), ("y", "z")]),
    min_importance=st.sampled_from([None, None, 0.0, 0.5]),
    after=TIMES,
    before=TIMES,
    created_before=TIMES,
    touched_after=TIMES,
    deleted=st.sampled_from([False, True, None]),
)
MODELS = st.sampled_from(["one", "two"])
KINDS = ("entity", "note")
TURNS = [
    {"text": text, "session": "s1", "position": position}
    for position, text in enumerate(("parser", "Größe"), start=1)
]
FAMILY = [
    Draft("record", "record", Pick("any", 0), None, Pick("any", 0), {"name": "red"}),
    Draft("record", "record", Pick("any", 1), None, Pick("any", 0), {"name": "blue"}),
    Draft("record", "record", Pick("any", 2), Pick("any", 0), Pick("any", 0), TURNS[0]),
    Draft("record", "record", Pick("any", 3), Pick("any", 2), Pick("any", 0), TURNS[1]),
    Draft("link", "link", Pick("any", 0), Pick("any", 0), Pick("any", 1), {}),
]


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
        # The same file, as if it were large.
        self.arrays = SqliteStore(self.database, "project", 1, lambda: self.at, many=0)

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
        self.commit_drafts(
            [Draft("update", "record", which, None, Pick("any", 0), {"scope": scope})], 0
        )

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
        known = self.runner.run(self.memory.scan(Where(deleted=None)))
        links = self.runner.run(self.memory.get_links(LINKS, include_deleted=True))
        choices = {"record": choices_of(RECORDS, known), "link": choices_of(LINKS, links)}
        versions = {record.id: record.version for record in known}
        steps = [self.step(draft, choices, versions) for draft in drafts]
        self.commit(Batch(tuple(steps), self.at, "test", "client"))

    def step(
        self,
        draft: Draft,
        choices: Mapping[str, Mapping[str, Sequence[str]]],
        versions: dict[str, int],
    ) -> Step:
        item_id = draft.first.among(choices[draft.subject])
        second = draft.second and draft.second.among(choices["record"])
        match draft.make:
            case "record":
                kind = "entity" if second is None else "note"
                more = {"id": item_id, "kind": kind, "parent": second, **draft.values}
                return Insert(Record(**more, created_at=self.at, updated_at=self.at))
            case "link":
                target = draft.third.among(choices["record"])
                return Insert(Link(item_id, second or target, "to", target, self.at))
            case "update":
                version = versions.get(item_id, 1)
                versions[item_id] = version + 1
                is_late = draft.third.which > 18
                return Update(item_id, draft.values, version - is_late)
            case "delete":
                return Delete(Ref(draft.subject, item_id))
            case "restore":
                return Restore(Ref(draft.subject, item_id))

    @rule(
        records=st.lists(st.sampled_from(RECORDS), max_size=2),
        links=st.lists(st.sampled_from(LINKS), max_size=2),
    )
    def purge(self, records: list[str], links: list[str]) -> None:
        refs = [Ref("record", item) for item in records] + [Ref("link", item) for item in links]
        purged = self.both(lambda store: store.purge(refs))
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
                self.find(words, Where(kinds=kinds))

    def find(self, words: Any, where: Where) -> None:
        first = self.both(lambda store: found(store, words, where))
        assert self.runner.run(found(self.arrays, words, where)) == first

    @rule(where=WHERES, limit=st.none() | st.integers(0, 5))
    def choose(self, where: Where, limit: int | None) -> None:
        self.both(lambda store: store.scan(where, order="newest", limit=limit))
        self.both(lambda store: store.scan(where, limit=limit))
        self.both(lambda store: store.how_many(where))
        self.find(parse_query("red blue parser").any_term(), where)
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
            Embedded(record.id, record.version - (is_late and number == 0), direction(angle))
            for number, record in enumerate(known)
            if record.text
        ]
        self.both(lambda store: store.put_vectors(model, items))

    @rule(counts=st.dictionaries(st.sampled_from(RECORDS), st.integers(1, 3)))
    def give_out(self, counts: dict[str, int]) -> None:
        self.both(lambda store: store.note_accesses(counts, self.at))

    @rule(model=MODELS, kinds=st.sampled_from([("note",), KINDS]), limit=st.integers(0, 5))
    def embed_those_who_wait(self, model: str, kinds: tuple[str, ...], limit: int) -> None:
        waiting = self.both(lambda store: store.unembedded(model, kinds, limit))
        assert isinstance(waiting, list)
        self.embed([record.id for record in waiting], model, len(waiting) % 4, is_late=False)

    @rule(text=st.sampled_from([*WORDS, "GRÖ", "5", "%", "_", "e"]))
    def find_part(self, text: str) -> None:
        self.both(lambda store: store.containing(text, Where(), 100))

    @invariant()
    def all_that_can_be_read_is_equal(self) -> None:
        self.both(everything)

    def undo_change(self, change: Change) -> Change | str:
        """The undoing change, or the code of the refusal."""
        seen = self.both(lambda store: store.revision())
        planned = self.both(lambda store: plan_undo(store, change))
        if isinstance(planned, str) or isinstance(seen, str):
            return str(planned)
        return self.commit(Batch(planned, self.at, "undo", undoes=change.seq, revision=seen))

    def live(self) -> tuple[list[Record], list[Link]]:
        """What an undo and its own undo together must leave as it was."""
        records = self.runner.run(self.memory.scan(Where()))
        links = self.runner.run(self.memory.links(RECORDS))
        return [replace(r, version=0, updated_at=0) for r in records], links


def choices_of(every: Sequence[str], known: Sequence[Record | Link]) -> Mapping[str, Sequence[str]]:
    return {
        "live": [thing.id for thing in known if thing.deleted_at is None],
        "deleted": [thing.id for thing in known if thing.deleted_at is not None],
        "unused": sorted(set(every) - {thing.id for thing in known}),
        "any": every,
    }


async def outcome(answer: Awaitable[T]) -> T | str:
    try:
        return await answer
    except RecollectError as error:
        return error.code


async def found(store: RecordStore, words: Any, where: Where) -> set[tuple[str, str | None]]:
    return {(m.id, m.parent) for m in await store.match(words, where, Weights(), 100)}


async def everything(store: RecordStore) -> list[Any]:
    """In one go: a state machine asks it after each of thousands of steps."""
    refs = [Ref("record", "r1"), Ref("link", "l0"), Ref("record", "r0")]
    answers: list[Any] = [
        await store.scan(Where(deleted=None)),
        await store.scan(Where(parents=("r0", "r1")), limit=2),
        await store.scan(Where(), order="name", after=("blue", "")),
        await store.scan(Where(), after="r1"),
        await store.scan(Where(deleted=None), order="newest", after="r2", limit=2),
        await store.get_links(LINKS, include_deleted=True),
        await store.links(RECORDS[:3], direction="in"),
        await store.links(RECORDS[:3], direction="out"),
        await store.scan_links(deleted=True),
        await store.count(),
        await store.changes(limit=1_000),
        await store.history(refs, after=1),
        await store.revision(),
        await store.accesses(RECORDS),
        await store.authors(),
        [await store.scopes(kind) for kind in KINDS],
        set(await store.tally(KINDS)),
        await store.frequencies(["red", "parser", "user", "nothing"]),
    ]
    for model in ("one", "two"):
        answers += [
            await store.unembedded(model, KINDS, 100),
            await store.vector_counts(model, KINDS),
            await nearby(store, model, Where(deleted=None)),
        ]
    return answers


def direction(angle: int) -> Any:
    vector = np.zeros(8, np.float32)
    vector[angle % 2] = 1.0 if angle < 2 else -1.0
    return vector


async def nearby(store: RecordStore, model: str, where: Where) -> dict[str, float]:
    """All of them: of equally near ones each engine may say first what it likes."""
    vector = np.full(8, np.sqrt(1 / 8), np.float32)
    matches = await store.near(model, vector, where, 100, also=RECORDS[:2])
    assert [m.score for m in matches] == sorted((m.score for m in matches), reverse=True)
    return {match.id: round(match.score, 3) for match in matches}


# More by environment for a long night; this many take some twenty seconds.
EXAMPLES = int(os.environ.get("RECOLLECT_TEST_EXAMPLES", "60"))

TestEngines = Engines.TestCase
TestEngines.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
