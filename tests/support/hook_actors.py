"""What other processes do in the tests of hooks."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import apsw

from everkept.core.records import RecordFilter, Weights
from everkept.core.runtime import run_without_loop
from everkept.engines.sqlite.library import SqliteLibrary
from everkept.engines.sqlite.read_only_library import SqliteReadOnlyLibrary
from everkept.hooks.workspace import SessionLedger
from everkept.language.words import AnyOf, WordPhrase
from records import batch, entity, memory


def _say(told: object) -> None:
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stdout.flush()


def claim(folder: str, session: str, ids: list[str]) -> None:
    """At a word; says what it got."""
    ledger = SessionLedger(Path(folder), session)
    _say("ready")
    sys.stdin.readline()
    _say(sorted(ledger.claim(ids)))


def lock_whole(*paths: str) -> None:
    """Keeps everybody out of some databases until its input ends."""
    held = [apsw.Connection(path) for path in paths]
    for connection in held:
        connection.execute("PRAGMA locking_mode=EXCLUSIVE").fetchall()
        connection.execute("BEGIN EXCLUSIVE")
    _say("locked")
    sys.stdin.read()


def write_and_crash(folder: str, project: str, name: str) -> None:
    """Ends without closing anything, so that the log stays."""

    async def write() -> None:
        _, store = await SqliteLibrary(Path(folder)).open(project)
        await store.commit(batch(entity(name)))
        _say("written")
        os._exit(0)

    asyncio.run(write())


def search_many(folder: str, project: str, many: int) -> None:
    """Says what a quick search over so many records finds, and what it had to load for it."""
    room = SqliteReadOnlyLibrary(Path(folder))
    code = f"import hook_actors; hook_actors.fill({folder!r}, {project!r}, {many})"
    subprocess.run([sys.executable, "-c", code], check=True)
    _, store = run_without_loop(room.open(project))
    words = AnyOf((WordPhrase(("needle",)), WordPhrase(("common",))))
    found = run_without_loop(store.match(words, RecordFilter(), Weights(), 1))
    _say(
        {
            "found": [match.id for match in found],
            "frequency": run_without_loop(store.measure_words(["needle"]))["needle"],
            "loaded": [name for name in ("numpy",) if name in sys.modules],
        }
    )


def fill(folder: str, project: str, many: int) -> None:
    async def write() -> None:
        library = SqliteLibrary(Path(folder))
        _, store = await library.open(project)
        records = [
            memory("common needle" if number == 17 else "common words", id=f"m {number}") for number in range(many)
        ]
        await store.commit(batch(*records))
        await library.close()

    asyncio.run(write())
