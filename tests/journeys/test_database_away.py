"""A database that comes and goes: nothing acknowledged is lost, and nothing is there twice."""

import asyncio
import tempfile
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import patch

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from everkept.core.records import Record, RecordFilter, Update
from everkept.engines.memory.library import MemoryLibrary
from everkept.engines.standby import library
from everkept.engines.standby.failover import ADD_WAIT_SECONDS
from everkept.engines.standby.replica_follower import DELAY_SECONDS
from everkept.errors import EverkeptError
from examples import examples
from records import DAY_ONE, batch, entity, note
from standby import BOUND, EVERY, PATIENCE, Standing
from store_copies import everything

T = TypeVar("T")

ATTEMPTS = (1.0, 2.0, 4.0, 8.0, EVERY)
PLACES = ("project", "other", "user")
BREAKING = ["commit", "commit", "open", "GetNote", "GetRecords", "ReadChanges", "ScanRecords"]
WHICH = st.integers(0, 30)


@dataclass
class Acknowledged:
    """What the program was told to be stored, in its order."""

    ids: list[str] = field(default_factory=list[str])
    texts: dict[str, set[str]] = field(default_factory=dict[str, set[str]])


class Away(RuleBasedStateMachine):
    """Random calls while the line to the database is cut, mended, and cut within a call."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self.runner = asyncio.Runner()
        self.database = MemoryLibrary(lambda: DAY_ONE)
        self.standing = self.run(self.started(is_cut=False))
        self.known = {place: Acknowledged() for place in PLACES}
        self.tried: dict[str, set[str]] = {place: set() for place in PLACES}
        self.number = 0

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    async def started(self, *, is_cut: bool) -> Standing:
        standing = Standing(Path(self.folder.name), self.database)
        standing.line.is_cut = is_cut
        return standing

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """No call waits for longer than its patience."""

        async def called() -> T:
            return await self.standing.time.rushes(work, PATIENCE, ADD_WAIT_SECONDS)

        return self.run(called())

    @initialize()
    def make_projects(self) -> None:
        for place in PLACES[:2]:
            self.call(self.standing.library.create(place, ""))
        self.run(self.standing.followed())

    async def store(self, place: str) -> Any:
        if place == "user":
            return await self.standing.library.open_user_store()
        return (await self.standing.library.open(place))[1]

    async def stored(self, place: str) -> Any:
        if place == "user":
            return await self.database.open_user_store()
        return (await self.database.open(place))[1]

    @rule(place=st.sampled_from(PLACES), which=st.none() | WHICH)
    def insert(self, place: str, which: int | None) -> None:
        self.number += 1
        name, known = f"r{self.number}", self.known[place]
        parents = [record_id for record_id in known.ids if not record_id.startswith("n")]
        record = entity(name) if which is None or not parents else note(parents[which % len(parents)], f"n{name}")
        self.tried[place].add(record.id)
        if self.commits(place, record):
            known.ids.append(record.id)
            known.texts[record.id] = {record.text}

    def commits(self, place: str, step: Record | Update) -> bool:
        async def commit() -> bool:
            store = await self.store(place)
            try:
                await store.commit(batch(step, at=DAY_ONE + self.number))
            except EverkeptError:
                return False
            return True

        return self.call(commit())

    @rule(place=st.sampled_from(PLACES), which=WHICH)
    def update(self, place: str, which: int) -> None:
        known = self.known[place]
        if not known.ids:
            return
        record_id = known.ids[which % len(known.ids)]
        found = self.call(self.got(place, record_id))
        self.number += 1
        text = f"text {self.number}"
        if self.commits(place, Update(record_id, {"text": text}, found[0].version)):
            known.texts[record_id] = {text}
        else:
            known.texts[record_id].add(text)  # refused, or nobody knows

    async def got(self, place: str, record_id: str) -> list[Record]:
        """What was stored is there, whoever is asked."""
        found = await (await self.store(place)).get([record_id])
        assert found
        return found

    @rule(place=st.sampled_from(PLACES))
    def others_write(self, place: str) -> None:
        self.number += 1
        record = entity(f"x{self.number}")
        self.tried[place].add(record.id)

        async def commit() -> None:
            await (await self.stored(place)).commit(batch(record, at=DAY_ONE + self.number))

        self.run(commit())

    @rule()
    def cut(self) -> None:
        self.standing.line.cut()

    @rule(name=st.sampled_from(BREAKING))
    def break_in_the_next(self, name: str) -> None:
        self.standing.line.breaks_in(name)

    @rule()
    def mend(self) -> None:
        self.standing.line.mend()

    @rule(seconds=st.sampled_from([DELAY_SECONDS, EVERY]))
    def time_passes(self, seconds: float) -> None:
        """Whatever was to be done then is begun, and perhaps interrupted by what comes next."""

        async def passed() -> None:
            if self.standing.time.asleep(seconds):
                await self.standing.time.comes(seconds)

        self.run(passed())

    @rule()
    def follow(self) -> None:
        async def followed() -> None:
            await self.standing.library.open_user_store()
            if self.standing.time.asleep(DELAY_SECONDS):
                await self.standing.followed()

        self.run(followed())

    @rule()
    def come_back(self) -> None:
        self.standing.line.mend()

        async def back() -> None:
            time = self.standing.time
            await time.rushes(self.standing.library.list_projects(), PATIENCE, ADD_WAIT_SECONDS)
            await time.rushes(self.standing.becomes("connected"), *ATTEMPTS)

        self.run(back())

    @rule(is_cut=st.booleans())
    def restart(self, *, is_cut: bool) -> None:
        """However slow the disk is, what was stored last comes to the copy before the end."""
        with patch.object(library, "CLOSE_SECONDS", BOUND):
            self.run(self.standing.library.close())
        self.standing = self.run(self.started(is_cut=is_cut))

    def teardown(self) -> None:
        with self.folder, self.runner:
            self.come_back()
            try:
                self.run(self.check())
            finally:
                self.run(self.standing.library.close())

    async def check(self) -> None:
        assert self.standing.library.condition.waiting == 0
        assert self.standing.library.condition.set_aside == 0
        for place in PLACES:
            await self.store(place)
        await self.standing.library.set_note("the end", "is followed")
        await self.standing.followed()
        for place in PLACES:
            store, known = await self.stored(place), self.known[place]
            inserted = [
                edit.id
                for change in await store.read_changes(limit=10_000)
                for edit in change.edits
                if edit.operation == "insert"
            ]
            assert len(inserted) == len(set(inserted))
            assert set(inserted) <= self.tried[place]
            assert [each for each in inserted if each in known.texts] == known.ids
            texts = {record.id: record.text for record in await store.scan(RecordFilter())}
            assert all(texts[record_id] in known.texts[record_id] for record_id in known.ids)
            here = await (self.standing.replica.open_user_store() if place == "user" else self.here(place))
            assert await contents(here) == await contents(store)

    async def here(self, place: str) -> Any:
        return (await self.standing.replica.open(place))[1]


async def contents(store: Any) -> dict[str, Any]:
    found = await everything(store)
    wanted = ("records", "links", "changes", "revision", "wrong")
    return {name: sorted(found[name], key=repr) if name == "records" else found[name] for name in wanted}


Away.TestCase.settings = settings(
    max_examples=examples(25),
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
test_nothing_is_lost_and_nothing_is_there_twice = Away.TestCase
