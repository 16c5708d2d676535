"""Imports in processes of their own, which run side by side and die at any moment."""

import random
from pathlib import Path

from everkept.core.paths import FolderExclusion
from everkept.core.transcripts import RewindEvent, Snippet, Turn
from everkept.engines.memory.store import MemoryStore
from everkept.engines.sqlite.library import SqliteLibrary
from everkept.families.history.ingest.checkpoints import Checkpoint
from memory_transcripts import MINUTE, Written, contents, importer, to_json, turn
from processes import acting
from records import DAY_ONE

ACTOR = "history_actors:import_all"
MARKER = "<!-- everkept: do not index -->"


def files(seed: int) -> list[Written]:
    """Some conversations, one resumed, one marked late, one rewound."""
    chance = random.Random(seed)
    found: list[Written] = []
    for number in range(4):
        lines = [
            Turn(
                key=f"{number}-{n}",
                session=f"s{number}",
                author=("user", "assistant")[n % 2],
                text=chance.choice(["plain words", "```py\ndef f():\n    g()\n```", "it fails"]),
                at=DAY_ONE + (100 * number + n) * MINUTE,
                project=f"/p{number % 2}",
                snippets=(Snippet(f"g({n})", file="a.py"),) if n % 3 == 0 else (),
            )
            for n in range(chance.randrange(8, 20))
        ]
        found.append(Written(f"f{number}", [*lines], portion=chance.randrange(1, 5)))
    found[1].lines[:0] = [turn(line.key, line.text, session="s1") for line in _said(found[0])]
    found[2].add(RewindEvent("s2", "2-4"), turn("700", session="s2"))
    found[3].lines.insert(7, turn("900", MARKER, session="s3"))
    return found


def _said(file: Written) -> list[Turn]:
    return [line for line in file.lines[:5] if isinstance(line, Turn)]


async def wanted(transcripts: list[Written]) -> dict[str, object]:
    store = MemoryStore()
    await importer(store).import_transcripts(transcripts)
    return await contents(store)


async def found_in(folder: Path) -> dict[str, object]:
    library = SqliteLibrary(folder)
    store = await library.open_history_store()
    assert await store.find_faults() == []
    found = await contents(store)
    await library.close()
    return found


async def test_an_import_that_is_killed_again_and_again_ends_like_a_clean_one(tmp_path: Path) -> None:
    transcripts = files(1)
    chance = random.Random(2)
    said: list[str] = []
    deaths = 0
    while "done" not in said:
        with acting(ACTOR, tmp_path, to_json(transcripts)) as actor:
            assert actor.hear() == "ready"
            actor.tell()
            said = [actor.hear() for _ in range(chance.randrange(1, 9))]
            if "done" not in said:
                actor.kill()
                deaths += 1
    assert deaths > 2
    assert await found_in(tmp_path) == await wanted(transcripts)


async def test_two_processes_that_import_at_once_end_like_one(tmp_path: Path) -> None:
    transcripts = files(3)
    await SqliteLibrary(tmp_path).close()
    arguments = (ACTOR, tmp_path, to_json(transcripts))
    with acting(*arguments) as first, acting(*arguments) as second:
        assert [first.hear(), second.hear()] == ["ready", "ready"]
        first.tell()
        second.tell()
        assert first.finish()[-1] == second.finish()[-1] == "done"
    assert await found_in(tmp_path) == await wanted(transcripts)


def test_what_was_left_out_tells_whether_all_must_be_read_again() -> None:
    written = Written("a")
    everything = Checkpoint.from_record(written, None)
    assert everything.covers(None, FolderExclusion([]))
    assert everything.covers(5, FolderExclusion(["/p"]))
    partial = Checkpoint("id", None, since=5, excluded=("/p",))
    assert partial.covers(5, FolderExclusion(["/q", "/p"]))
    assert partial.covers(9, FolderExclusion(["/p"]))
    assert not partial.covers(4, FolderExclusion(["/p"]))
    assert not partial.covers(None, FolderExclusion(["/p"]))
    assert not partial.covers(5, FolderExclusion(["/q"]))
