"""What other processes do with a journal beside the one that is tested."""

import asyncio
import resource
import signal
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

from actors import heard, outcome, say
from everkept.engines.sqlite.library import SqliteLibrary
from everkept.engines.standby.journal import Journal
from everkept.engines.standby.journal_acts import USER_STORE, Commit, SetNote
from everkept.engines.standby.replay import replay
from records import batch, entity


def append_until_killed(path: str, who: str, count: int) -> None:
    """Says the name of each record whose commit is kept."""

    async def run() -> None:
        journal = Journal(Path(path))
        for number in range(count):
            name = f"{who}-{number}"
            await journal.append(Commit(USER_STORE, batch(entity(name))), number)
            say(name)
        await journal.close()

    asyncio.run(run())


def replay_all(path: str, folder: str) -> None:
    """Into a library on disk, when told; says how many were done and set aside."""

    async def run() -> None:
        journal, library = Journal(Path(path)), SqliteLibrary(Path(folder))
        say("ready")
        heard()
        done = await replay(journal, library, on_progress=lambda *_: None)
        say([done.count, done.aside])
        await library.close()
        await journal.close()

    asyncio.run(run())


def replay_and_die(path: str, folder: str, lines: int) -> None:
    """Ends without warning when so many lines of the replay, or of what it uses, have run."""
    left = lines

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        if "/everkept/engines/" not in frame.f_code.co_filename.replace("\\", "/"):
            return None
        if event == "line":
            left -= 1
            if left <= 0:
                signal.raise_signal(signal.SIGKILL)
        return trace

    threading.settrace(trace)
    sys.settrace(trace)
    replay_all(path, folder)


def hold(path: str) -> None:
    """Has the journal for itself until it is told, or ended."""

    async def run() -> None:
        journal = Journal(Path(path))
        async with journal.lock_replay():
            say("held")
            await asyncio.to_thread(heard)
        say("free")

    asyncio.run(run())


def outgrow_file_limit(path: str) -> None:
    """Appends until the operating system refuses; says how, and whether what was kept is there."""

    async def run() -> None:
        journal = Journal(Path(path))
        await journal.append(SetNote("first", "x"))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, hard))
        kept, refused = 1, "ok"
        while refused == "ok":
            refused = await outcome(journal.append(SetNote(str(kept), "x" * 5_000)))
            kept += refused == "ok"
        waiting = len(await journal.list_pending(limit=1_000))
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        later = await outcome(journal.append(SetNote("later", "x")))
        say([refused, waiting == kept == journal.count_writes().waiting - 1, later])
        await journal.close()

    asyncio.run(run())
