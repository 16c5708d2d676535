"""Whatever happens to transcripts and imports, the end is that of one clean import."""

import asyncio
import dataclasses
import random
import tempfile
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from everkept.core.ports import RecordStore
from everkept.core.records import Batch, Change, Record
from everkept.core.transcripts import RewindEvent, Snippet, TitleEvent, Turn, has_marker
from everkept.engines.memory.store import MemoryStore
from everkept.engines.sqlite.library import SqliteLibrary
from everkept.values import replace
from examples import examples
from memory_transcripts import MINUTE, Written, contents, events_of, importer
from records import DAY_ONE

TEXTS = (
    "how do I sort a list?",
    "we decided to use sorted",
    "```py\ndef sort(x):\n    return order(x)\n```",
    "see\n```py\ndef order(x): pass\n```\nand\n```console\n$ ls\n```",
    "```py\nsort(1)\n",
    "Error: it fails",
    "the cause was a typo",
)
EDITS = (
    (),
    (Snippet("def order(y):\n    sort(y)", file="a.py"),),
    (Snippet("x = 1", file="b.py", replaced="x = 0"), Snippet("order(1)", file="c.py")),
)


class Broken(Exception):
    """Ends an import, as a crash does."""


class Fragile(MemoryStore):
    """Breaks before or after the commit of a number."""

    left: float = float("inf")
    keeps_last = True

    async def commit(self, batch: Batch) -> Change:
        self.left -= 1
        if self.left < 0 and not self.keeps_last:
            raise Broken
        change = await super().commit(batch)
        if self.left < 0:
            raise Broken
        return change


class Imports(RuleBasedStateMachine):
    """Transcripts that are written, cut, rewritten and resumed, while imports come and go."""

    def __init__(self) -> None:
        super().__init__()
        self.files: list[Written] = []
        self.copied: dict[str, int] = {}  # lines of a file that another has copies of, or it itself
        self.grown: dict[str, int] = {}  # where a turn grew, in the last file in which it did
        self.clock = 0
        self.loop = asyncio.Runner()

    @initialize()
    def begin(self) -> None:
        self.store = Fragile()
        self.add_file("s0", portion=2)

    def run(self) -> None:
        self.loop.run(importer(self.store).import_transcripts(self.files))

    def add_file(self, session: str, portion: int, *lines: Turn) -> Written:
        file = Written(f"file {len(self.files)}", [*lines], portion=portion)
        file.modified = DAY_ONE - 1_000_000 + 1_000 * len(self.files)
        self.files.append(file)
        if not lines:
            self.say(file, session, 0, 0)
        return file

    def say(self, file: Written, session: str, words: int, edits: int, **more: Any) -> None:
        self.clock += 1
        said = Turn(
            key=f"k{self.clock}",
            session=session,
            author=("user", "assistant")[self.clock % 2],
            text=TEXTS[words],
            at=DAY_ONE + self.clock * MINUTE,
            project="/p",
            snippets=EDITS[edits],
        )
        file.add(replace(said, **more))

    def file(self, number: int) -> Written:
        return self.files[number % len(self.files)]

    @rule(portion=st.integers(1, 4))
    def another_session(self, portion: int) -> None:
        self.add_file(f"s{len(self.files)}", portion)

    @rule(
        number=st.integers(0, 9),
        text=st.integers(0, len(TEXTS) - 1),
        edits=st.integers(0, len(EDITS) - 1),
        is_timed=st.booleans(),
        early=st.sampled_from([0, 0, 0, 2, 5]),
    )
    def something_is_said(self, number: int, text: int, edits: int, is_timed: bool, early: int = 0) -> None:
        file = self.file(number)
        at = DAY_ONE + (self.clock + 1 - early) * MINUTE if is_timed else None
        self.say(file, session_of(file), text, edits, at=at)

    @rule(number=st.integers(0, 9), text=st.integers(0, len(TEXTS) - 1), edits=st.integers(0, 2))
    def the_last_turn_grows(self, number: int, text: int, edits: int) -> None:
        file = self.file(number)
        last = file.lines[-1]
        if isinstance(last, Turn) and self.may_grow(last.key, file):
            file.add(replace(last, text=TEXTS[text], snippets=EDITS[edits]))

    def may_grow(self, key: str, file: Written) -> bool:
        """A copy is not written to any more once a later one was: who is first would count."""
        place, last = self.files.index(file), self.grown.get(key, 0)
        if place < last and not self.is_first(key, file):
            return False
        self.grown[key] = max(place, last)
        return True

    def is_first(self, key: str, file: Written) -> bool:
        """Whether what others have of a turn are copies from there."""
        return file is next(each for each in self.files if key in keys_in(each))

    @rule(number=st.integers(0, 9), back=st.integers(0, 5))
    def a_turn_is_taken_back(self, number: int, back: int) -> None:
        file = self.file(number)
        turns = said_in(file)
        if turns:
            file.add(RewindEvent(session_of(file), turns[-1 - back % len(turns)].key))

    @rule(number=st.integers(0, 9))
    def what_was_taken_back_is_said_again(self, number: int) -> None:
        file = self.file(number)
        last = file.lines[-1]
        if isinstance(last, RewindEvent) and all_timed(file):
            self.clock += 1
            # In other words: a copy of what was said before would pass for more of it.
            text = f"again\n{TEXTS[self.clock % len(TEXTS)]}"
            self.say(file, session_of(file), 0, 0, key=last.key, text=text)

    @rule(number=st.integers(0, 9), title=st.sampled_from(["one", "two"]))
    def a_title_is_given(self, number: int, title: str) -> None:
        self.file(number).add(TitleEvent(session_of(self.file(number)), title))

    @rule(number=st.integers(0, 9), line=st.integers(0, 20))
    def a_line_is_rewritten(self, number: int, line: int) -> None:
        file = self.file(number)
        index = line % len(file.lines)
        old = file.lines[index]
        # What a copy has added stays, whatever the copy says then.
        if isinstance(old, Turn) and (old.key not in self.grown or self.is_first(old.key, file)):
            self.clock += 1
            file.lines[index] = replace(old, text=f"rewritten {self.clock}: {old.text[:80]}")
            file.modified += 1

    @rule(number=st.integers(0, 9), line=st.integers(0, 20))
    def a_turn_vanishes(self, number: int, line: int) -> None:
        file = self.file(number)
        first = self.copied.get(file.name, 1)
        keys = Counter(each.key for each in file.lines if isinstance(each, Turn))
        # Not the last one: it is open, and its mark lies before it.
        self.run()
        able = [each for each in file.lines[first:-1] if isinstance(each, Turn)]
        able = [each for each in able if keys[each.key] == 1 and not has_marker(each.text)]
        if able and all_timed(file):
            file.lines.remove(able[line % len(able)])
            file.modified += 1

    @rule(number=st.integers(0, 9), line=st.integers(0, 20))
    def a_turn_is_put_between(self, number: int, line: int) -> None:
        file = self.file(number)
        first = self.copied.get(file.name, 1)
        # Not right before an open turn: that comes again anyway, and has its number already.
        self.run()
        starts = [n for n, _ in events_of(file.lines, 0)[:-1] if n >= first]
        if starts and all_timed(file):
            self.say(file, session_of(file), 0, 1)
            file.lines.insert(starts[line % len(starts)], file.lines.pop())

    @precondition(lambda self: len(self.files) < 5)
    @rule(number=st.integers(0, 9), portion=st.integers(1, 4))
    def a_session_is_resumed(self, number: int, portion: int) -> None:
        file = self.file(number)
        session = f"s{len(self.files)}"
        copies = [replace(each, session=session) for each in said_in(file)]
        if copies and not any(has_marker(each.text) for each in copies):
            copy = self.add_file(session, portion, *copies)
            self.copied |= {file.name: len(file.lines), copy.name: len(copies)}

    @rule(number=st.integers(0, 9))
    def a_marker_is_set(self, number: int) -> None:
        if number == 0:
            file = self.file(self.clock)
            self.say(file, session_of(file), 0, 0, text="<!-- everkept: do not index -->")

    @rule()
    def all_is_imported(self) -> None:
        self.run()

    @rule(number=st.integers(0, 9), lines=st.integers(1, 4))
    def a_cut_transcript_is_imported(self, number: int, lines: int) -> None:
        file = self.file(number)
        whole = list(file.lines)
        first = self.copied.get(file.name, 1)
        file.lines = whole[: max(first, len(whole) - lines)]
        file.modified += 1
        self.run()
        file.lines = whole
        file.modified += 1

    @rule(commits=st.integers(0, 6), keeps_last=st.booleans())
    def an_import_breaks(self, commits: int, keeps_last: bool) -> None:
        self.store.left, self.store.keeps_last = commits, keeps_last
        try:
            self.run()
        except Broken:
            pass
        finally:
            self.store.left = float("inf")

    @rule()
    def two_import_at_once(self) -> None:
        async def both() -> None:
            taking = (importer(self.store).import_transcripts(self.files) for _ in range(2))
            await asyncio.gather(*taking)

        self.loop.run(both())

    def teardown(self) -> None:
        with self.loop:
            if self.files:
                self.run()
                made, wanted = held(self.store), clean(self.files)
                assert self.loop.run(made) == self.loop.run(wanted)


def all_timed(file: Written) -> bool:
    """A turn without a time keeps the one it had, whatever comes to stand before it."""
    return all(line.at is not None for line in file.lines if isinstance(line, Turn))


def session_of(file: Written) -> str:
    return next(line.session for line in file.lines)


def keys_in(file: Written) -> set[str]:
    return {line.key for line in file.lines if isinstance(line, Turn)}


def said_in(file: Written) -> list[Turn]:
    """Its turns that were not taken back, line by line."""
    turns: list[Turn] = []
    for line in file.lines:
        if isinstance(line, Turn):
            turns.append(line)
        elif isinstance(line, RewindEvent):
            keys = [each.key for each in turns]
            turns = turns[: keys.index(line.key)] if line.key in keys else turns
    return turns


async def held(store: RecordStore) -> dict[str, Any]:
    """A title waits at its transcript, or with a conversation that has no turn any more."""
    found = await contents(store)
    return {name: untitled(each) for name, each in found.items()}


def untitled(item: Any) -> Any:
    if not isinstance(item, Record):
        return item
    return replace(item, facets={name: v for name, v in item.facets.items() if name != "title"})


async def clean(files: list[Written]) -> dict[str, Any]:
    store = MemoryStore()
    await importer(store).import_transcripts([dataclasses.replace(file, portion=3, opened=0) for file in files])
    return await held(store)


TestImports = Imports.TestCase
TestImports.settings = settings(
    max_examples=examples(60), stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck)
)


def random_files(seed: int) -> list[Written]:
    """Transcripts as the machine writes them, without an import between."""
    chance = random.Random(seed)
    machine = Imports()
    machine.begin()
    for _ in range(60):
        number, other = chance.randrange(10), chance.randrange(20)
        match chance.randrange(6):
            case 0:
                machine.something_is_said(number, other % len(TEXTS), other % 3, is_timed=True)
            case 1:
                machine.something_is_said(number, other % len(TEXTS), 0, is_timed=False)
            case 2:
                machine.the_last_turn_grows(number, other % len(TEXTS), other % 3)
            case 3:
                machine.a_turn_is_taken_back(number, other)
            case 4 if len(machine.files) < 5:
                machine.a_session_is_resumed(number, 1 + other % 3)
            case _:
                machine.a_title_is_given(number, "title")
    machine.loop.close()
    return machine.files


async def test_two_stores_on_one_file_agree(tmp_path: Path) -> None:
    for seed in range(4):
        files = random_files(seed)
        async with AsyncExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=tmp_path)))
            stores: list[RecordStore] = []
            for _ in range(2):
                library = SqliteLibrary(folder)
                stack.push_async_callback(library.close)
                stores.append(await library.open_history_store())
            await asyncio.gather(*(importer(store).import_transcripts(files) for store in stores))
            assert await held(stores[0]) == await clean(files)
            assert await stores[1].find_faults() == []
