"""What other processes do beside the one that is tested. Each speaks in lines of JSON."""

import asyncio
import contextlib
import hashlib
import json
import os
import resource
import signal
import sqlite3
import sys
import tempfile
import threading
import traceback
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import apsw

from everkept.accounts.project_rule import ProjectRule
from everkept.core.records import RecordFilter
from everkept.core.sessions import Session, ToolCall
from everkept.engines.sqlite import connection, project_lifecycle
from everkept.engines.sqlite.library import SqliteLibrary
from everkept.errors import EverkeptError
from records import batch, entity, record_ref


def say(value: Any) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def heard() -> bool:
    """Waits for a line; False when there will be none."""
    return bool(sys.stdin.readline())


def commit_numbers(folder: str, project: str, who: str, count: int) -> None:
    """Commits records one by one, and says the id of each one that is acknowledged."""

    async def run() -> None:
        library = SqliteLibrary(Path(folder))
        for number in range(count):
            _, store = await library.open(project)
            await store.commit(batch(entity(f"{who}-{number}", text=f"number {number}")))
            say(f"{who}-{number}")
        await library.close()

    asyncio.run(run())


def commit_until_told(folder: str, project: str, who: str) -> None:
    """Commits at full speed whatever happens; says what was acknowledged and what was refused."""
    told = threading.Event()
    threading.Thread(target=lambda: (heard(), told.set()), daemon=True).start()
    acknowledged: list[str] = []
    refusals: set[str] = set()
    after_refusal = 0

    async def run() -> None:
        nonlocal after_refusal
        library = SqliteLibrary(Path(folder))
        number = 0
        while not told.is_set():
            record = entity(f"{who}-{number}")
            try:
                _, store = await library.open(project)
                await store.commit(batch(record))
            except EverkeptError as error:
                refusals.add(error.code)
                continue
            acknowledged.append(record.id)
            after_refusal += bool(refusals)
            number += 1
            if number == 1:
                say("writing")
        await library.close()

    asyncio.run(run())
    say({"acknowledged": acknowledged, "refusals": sorted(refusals), "after": after_refusal})


def commit_when_told(folder: str, project: str) -> None:
    """Keeps one store open, and says for each line how a commit of it went."""

    async def run() -> None:
        library = SqliteLibrary(Path(folder))
        _, store = await library.open(project)
        await store.commit(batch(entity("first")))
        say("ready")
        for line in sys.stdin:
            say(await outcome(store.commit(batch(entity(line.strip())))))
        await library.close()

    asyncio.run(run())


def purge_when_told(folder: str, project: str) -> None:
    """Keeps one store open, and says for each line how a purge of it went."""

    async def run() -> None:
        library = SqliteLibrary(Path(folder))
        _, store = await library.open(project)
        await store.scan(RecordFilter())
        say("ready")
        for line in sys.stdin:
            say(await outcome(store.purge([record_ref(line.strip())])))
        await library.close()

    asyncio.run(run())


async def outcome(answer: Awaitable[Any]) -> str:
    try:
        await answer
    except EverkeptError as error:
        return error.code
    return "ok"


def hold_write_lock(path: str) -> None:
    connection = apsw.Connection(path)
    connection.execute("BEGIN IMMEDIATE")
    say("holding")
    heard()
    connection.execute("ROLLBACK")
    say("released")


def hold_snapshot(path: str) -> None:
    connection = apsw.Connection(path)
    connection.execute("BEGIN")
    connection.execute("SELECT count(*) FROM records").fetchall()
    say("holding")
    heard()
    connection.execute("ROLLBACK")
    say("released")


def leave_log(path: str, statements: str) -> None:
    """Runs statements and dies before the write-ahead log is folded in."""
    connection = apsw.Connection(path)
    connection.execute(statements)
    os._exit(0)


def move(folder: str, operation: str, project: str) -> None:
    """Says how it went, after having waited for a word to begin."""

    async def run() -> None:
        library = SqliteLibrary(Path(folder))
        await library.list_projects()
        say("ready")
        heard()
        say(await outcome(getattr(library, operation)(project)))
        await library.close()

    asyncio.run(run())


def archive_restore_commit_and_die(folder: str, project: str) -> None:
    async def run() -> None:
        library = SqliteLibrary(Path(folder))
        await library.archive(project)
        await library.restore(project)
        _, store = await library.open(project)
        await store.commit(batch(entity("acknowledged")))
        say("acknowledged")
        os.kill(os.getpid(), signal.SIGKILL)

    asyncio.run(run())


def die_while_archiving(folder: str, project: str) -> None:
    """When the file has moved, and the list of projects does not say so yet."""
    project_lifecycle._finish = lambda *_: os._exit(DIED)
    asyncio.run(SqliteLibrary(Path(folder)).archive(project))


def rows_of_view(path: str, view: str) -> None:
    """As a person with another SQLite sees it."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        found = connection.execute(f"SELECT * FROM {view} ORDER BY id")
        say([dict(zip([c[0] for c in found.description], row, strict=True)) for row in found])


def digests(folder: str, pattern: str = "*") -> None:
    """In a process of its own: opening a file and closing it drops all locks its process has."""
    say(
        {
            str(path): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(Path(folder).rglob(pattern))
            if path.is_file() and not path.name.endswith("-shm")
        }
    )


def files_with(folder: str, *needles: str) -> None:
    """Which files have one of the texts anywhere in their bytes, whatever its case."""
    wanted = [needle.lower().encode() for needle in needles]
    say(
        [
            path.name
            for path in sorted(Path(folder).rglob("*"))
            if path.is_file() and any(needle in path.read_bytes().lower() for needle in wanted)
        ]
    )


def use_library(folder: str, project: str, user: int) -> None:
    """Says how reading and writing go for another user."""

    async def rehearse() -> None:
        """Loads what is imported late: that user may not be able to read the program."""
        with tempfile.TemporaryDirectory() as scratch:
            library = SqliteLibrary(Path(scratch))
            await library.create(project, "")
            await library.open(project)
            await library.close()

    async def run() -> None:
        library = SqliteLibrary(Path(folder))
        projects = [found.name for found in await library.list_projects()]
        _, store = await library.open(project)
        records = [record.id for record in await store.scan(RecordFilter())]
        say(
            {
                "projects": projects,
                "records": records,
                "commit": await outcome(store.commit(batch(entity("fresh")))),
                "purge": await outcome(store.purge([record_ref(found) for found in records])),
                "create": await outcome(library.create("another", "")),
                "archive": await outcome(library.archive(project)),
                "delete": await outcome(library.delete(project)),
                "set_note": await outcome(library.set_note("key", "value")),
            }
        )
        await library.close()

    asyncio.run(rehearse())
    os.setuid(user)
    asyncio.run(run())


def outgrow_file_limit(folder: str, project: str) -> None:
    """Writes until the operating system refuses; says what was kept and how it goes on."""

    async def run() -> None:
        library = SqliteLibrary(Path(folder))
        _, store = await library.open(project)
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, hard))
        acknowledged: list[str] = []
        refused = "ok"
        while refused == "ok":
            name = f"record {len(acknowledged)}"
            refused = await outcome(store.commit(batch(entity(name, text=name * 1_000))))
            if refused == "ok":
                acknowledged.append(name)
        kept = [record.id for record in await store.scan(RecordFilter())]
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        later = await outcome(store.commit(batch(entity("later"))))
        found = await store.find_faults()
        say([refused, kept == acknowledged, later, found])
        await library.close()

    asyncio.run(run())


def crash_at_lines(folder: str, operation: str, every: int) -> None:
    """Runs an operation again and again, and dies so many lines later each time.

    Says after each crash what a start finds: forks share the loaded program, so that a hundred
    crashes take a few seconds.
    """
    template = Path(folder)
    for line in range(1, 1_000, every):
        copy = template.with_name(f"{template.name}-{line}")
        _copy_tree(template, copy)
        died = _forked(lambda copy=copy, line=line: _run_and_die(copy, operation, line))
        _forked(lambda copy=copy: asyncio.run(_describe(copy)))
        if died == 0:
            return


# The lines of these modules are where a move can be cut in two.
_MOVING = {project_lifecycle.__file__: None, connection.__file__: {"transaction", "create", "fold", "migrate"}}
DIED = 9


def _run_and_die(folder: Path, operation: str, at_line: int) -> None:
    lines = 0

    def count(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal lines
        if event == "line":
            lines += 1
            if lines == at_line:
                os._exit(DIED)
        return count

    def trace(frame: FrameType, _event: str, _: Any) -> Any:
        functions = _MOVING.get(frame.f_code.co_filename, ())
        return count if functions is None or frame.f_code.co_name in functions else None

    async def run() -> None:
        library = SqliteLibrary(folder)
        await library.list_projects()
        threading.settrace(trace)
        # The thread that writes is made at the first write, and so under the trace.
        arguments = ("made", "") if operation == "create" else ("project",)
        await getattr(library, operation)(*arguments)
        await library.close()

    asyncio.run(run())


async def _describe(folder: Path) -> None:
    library = SqliteLibrary(folder)
    projects = {project.name: project.status for project in await library.list_projects()}
    records: list[str] = []
    problems: list[str] = []
    for name, status in projects.items():
        if status == "archived":
            await library.restore(name)
        _, store = await library.open(name)
        records += [record.id for record in await store.scan(RecordFilter())]
        problems += await store.find_faults()
        await store.commit(batch(entity("after")))
        if status == "archived":
            await library.archive(name)
    await library.close()
    with contextlib.closing(apsw.Connection(str(folder / "_meta.db"))) as meta:
        unfinished = meta.execute("SELECT count(*) FROM projects WHERE transition NOT NULL").get
    say(
        {
            "projects": projects,
            "records": records,
            "problems": problems,
            "files": _folders_of_files(folder),
            "unfinished": unfinished,
        }
    )


def _folders_of_files(folder: Path) -> list[str]:
    below = [*(folder / "projects").iterdir(), *(folder / "archive").iterdir()]
    return sorted(path.parent.name for path in below)


def _copy_tree(source: Path, target: Path) -> None:
    for path in source.rglob("*"):
        copied = target / path.relative_to(source)
        if path.is_dir():
            copied.mkdir(parents=True, exist_ok=True)
        else:
            copied.parent.mkdir(parents=True, exist_ok=True)
            copied.write_bytes(path.read_bytes())


def _forked(run: Callable[[], None]) -> int:
    child = os.fork()
    if child == 0:
        with _exiting():
            run()
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code in (0, DIED), code
    return code


@contextlib.contextmanager
def _exiting() -> Iterator[None]:
    """Never returns: a child must not go on with its parent's program."""
    code = 1
    try:
        yield
        code = 0
    finally:
        if code:
            traceback.print_exc()
        sys.stdout.flush()
        os._exit(code)


def spoil(path: str) -> None:
    """Makes every page but the first unreadable."""
    file = Path(path)
    size = file.stat().st_size
    with file.open("r+b") as opened:
        opened.seek(4096)
        opened.write(b"\xff" * (size - 4096))
    say("spoiled")


def set_transition(meta: str, project: str, transition: str) -> None:
    with contextlib.closing(apsw.Connection(meta)) as connection:
        connection.execute("UPDATE projects SET transition = ? WHERE name = ?", (transition, project))
    say("set")


def create_projects(folder: str, who: str, count: int) -> None:
    async def run() -> None:
        library = SqliteLibrary(Path(folder))
        for number in range(count):
            say(await outcome(library.create(f"{who}-{number}", "")))
        await library.close()

    asyncio.run(run())


def write_in_workspace(folder: str, workspace: str, number: int) -> None:
    """A window of an assistant: waits for a word, and says how its first write went."""

    async def run() -> None:
        library = SqliteLibrary(Path(folder))
        rule = ProjectRule(library, workspace=Path(workspace))
        say("ready")
        heard()
        store = await rule.open_to_write(ToolCall(Session(), "test"), None)
        say(await outcome(store.commit(batch(entity(str(number))))))
        await library.close()

    asyncio.run(run())
