"""Processes that write beside a backup or a restore, or die in the middle of one."""

import asyncio
import os
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import apsw

from actors import say
from data_folders import MODEL, off_folders, vector_of
from everkept.care.backup import restore
from everkept.core.ports import RecordStore
from everkept.core.records import Delete, Ref
from everkept.core.times import read_clock
from everkept.engines.sqlite import restore as sqlite_restore
from everkept.engines.sqlite.archive import COPIES_PREFIX
from everkept.engines.sqlite.care import SqliteCare
from everkept.engines.sqlite.library import SqliteLibrary
from everkept.engines.sqlite.snapshot import open_scratch
from everkept.errors import EverkeptError
from records import DAY_ONE, batch, entity, link, memory, note

DIED = 9


class Told:
    """What the test asks for: each line is a number to count to, answered with the count; "end" ends the process."""

    def __init__(self) -> None:
        self._count = 0
        self._grows = threading.Condition()
        self.is_over = False
        threading.Thread(target=self._listen, daemon=True).start()

    @property
    def count(self) -> int:
        return self._count

    @count.setter
    def count(self, value: int) -> None:
        with self._grows:
            self._count = value
            self._grows.notify_all()

    def _listen(self) -> None:
        for line in sys.stdin:
            if line.strip() == "end":
                break
            with self._grows:
                self._grows.wait_for(partial(self._has_reached, int(line)))
            say(self._count)
        self.is_over = True

    def _has_reached(self, least: int) -> bool:
        return self._count >= least


def write_much(folder: str, project: str, who: str) -> None:
    """Stores one of each thing again and again, until told to end; counts the rounds."""
    told = Told()

    async def run() -> None:
        library = SqliteLibrary(Path(folder))
        while not told.is_over:
            found, store = await library.open(project)
            name = f"{who}-{told.count}"
            before = f"{who}-{told.count - 1}" if told.count else None
            await _round(store, name, before)
            await _round(await library.open_user_store(), name, before)
            await library.set_note(name, str(told.count))
            await library.link_workspace(f"/work/{name}", found)
            told.count += 1
            if told.count == 1:
                say("writing")
        await library.close()

    asyncio.run(run())
    say(told.count)


async def _round(store: RecordStore, name: str, before: str | None) -> None:
    links = [link(name, "follows", before)] if before else []
    remembered = memory(f"{name} is remembered", tags=("all", name))
    await store.commit(batch(entity(name), note(name, f"about {name}"), *links, remembered))
    await store.put_vectors(MODEL, [vector_of(remembered.id, 1)])
    await store.note_accesses({remembered.id: 1}, DAY_ONE)


def move_back_and_forth(folder: str, project: str) -> None:
    """Takes a thing from a project to the user's file and back: the target first, always."""
    told = Told()

    async def run() -> None:
        library = SqliteLibrary(Path(folder))
        _, store = await library.open(project)
        user = await library.open_user_store()
        await store.commit(batch(entity("wanderer 0")))
        source, target = store, user
        while not told.is_over:
            await target.commit(batch(entity(f"wanderer {told.count + 1}")))
            gone = Ref("record", f"wanderer {told.count}")
            await source.commit(batch(Delete(gone)))
            source, target = target, source
            told.count += 1
            if told.count == 1:
                say("writing")
        await library.close()

    asyncio.run(run())
    say(told.count)


def make_and_delete_projects(folder: str, who: str) -> None:
    """Makes a project, puts it away, and deletes every second one."""
    told = Told()

    async def run() -> None:
        library = SqliteLibrary(Path(folder))
        while not told.is_over:
            name = f"{who}-{told.count}"
            await tried(library.create(name, ""))
            _, store = await library.open(name)
            await store.commit(batch(entity("kept")))
            await tried(library.archive(name))
            if told.count % 2:
                await tried(library.delete(name))
            told.count += 1
            if told.count == 1:
                say("writing")
        await library.close()

    asyncio.run(run())
    say(told.count)


async def tried(work: Any) -> None:
    """A file that is being copied cannot be moved just then."""
    try:
        await work
    except EverkeptError as error:
        if error.code != "store_busy":
            raise


def serve_through(folder: str, project: str, who: str) -> None:
    """Writes like a server that outlives a restore: whatever is refused is tried again.

    Says at its end, for each place, what was acknowledged there in its order.
    """
    told = Told()
    kept: dict[str, list[str]] = {project: [], "@user": [], "@history": []}
    refused: set[str] = set()

    async def run() -> None:
        library = SqliteLibrary(Path(folder))
        number = 0
        while not told.is_over:
            number += 1
            for place, ids in kept.items():
                try:
                    store = await _store(library, place)
                    await store.commit(batch(entity(f"{who}-{number}", text=f"number {number}")))
                except EverkeptError as error:
                    refused.add(error.code)
                else:
                    ids.append(f"{who}-{number}")
            told.count = number
            if number == 1:
                say("writing")
        await library.close()

    asyncio.run(run())
    say({"kept": kept, "refused": sorted(refused)})


async def _store(library: SqliteLibrary, place: str) -> RecordStore:
    if place == "@user":
        return await library.open_user_store()
    if place == "@history":
        return await library.open_history_store()
    return (await library.open(place))[1]


def restore_and_die(folder: str, file: str, safety: str, after: int) -> None:
    """Is gone, as if killed, when so many databases have their new content."""
    put: Callable[..., None] = sqlite_restore.put_store
    done = 0

    def counted(*arguments: Any) -> None:
        nonlocal done
        if done == after:
            os._exit(DIED)
        put(*arguments)
        done += 1

    sqlite_restore.put_store = counted

    def die(*_arguments: object) -> None:
        os._exit(DIED)

    def ask(*_shown: object) -> bool:
        return True

    sqlite_restore.put_catalog = die
    care = SqliteCare(Path(folder))
    restore(care, Path(file), read_clock, off_folders, ask, replace=True, safety=Path(safety))


def lock_whole(path: str) -> None:
    """Nobody else can even read it."""
    connection: Any = apsw.Connection(path)
    connection.execute("BEGIN EXCLUSIVE")
    say("holding")
    sys.stdin.readline()
    connection.execute("ROLLBACK")


def hold_scratch(place: str) -> None:
    """Copies beside a backup, without end."""
    with open_scratch(Path(place), COPIES_PREFIX) as folder:
        say(str(folder))
        sys.stdin.readline()


def hold_stage(folder: str) -> None:
    """Verifies a backup, without end."""
    with SqliteCare(Path(folder)).open_stage() as stage:
        say(str(stage))
        sys.stdin.readline()
