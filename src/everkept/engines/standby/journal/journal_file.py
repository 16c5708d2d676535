"""The file that the journal is kept in: made when it is missing, moved aside when it is damaged."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

from everkept.core.disk import sync_folder, usable
from everkept.core.locks import WaitingLock
from everkept.engines.sqlite.connections import (
    BusyHandler,
    check_version,
    connect,
    create,
    fold,
    transaction,
    translated,
    unlink_logs,
)
from everkept.engines.sqlite.database import Worker
from everkept.engines.sqlite.sql import Connection
from everkept.engines.standby.journal.schema import JOURNAL
from everkept.errors import Conflict, StoreDamaged

log = logging.getLogger(__name__)

_TITLE = "The journal of what waits for the database"
_GLANCE = 0.05  # seconds that a glance waits for another process
_FOLD = 1.0  # seconds that readers have to end

T = TypeVar("T")


class _Replaced(Exception):
    """Another process has moved the file away since it was opened here."""


class JournalFile:
    """One thread and one connection, and another one for glances from the event loop."""

    def __init__(self, path: Path) -> None:
        self._first = path
        self._founding = WaitingLock(path.with_suffix(".founding"), "The making of the journal")
        self._worker = Worker(f"journal {path.name}", self._open)
        self._inode: int | None = None  # of what the worker has open
        self._is_suspect = False
        self._glass: tuple[Connection, int] | None = None  # with the inode of what it has open

    @property
    def _path(self) -> Path:
        """Of the last one: a damaged file that could not be moved away has a successor."""
        path = self._first
        while (successor := self._successor_of(path)).exists():
            path = successor
        return path

    def _successor_of(self, path: Path) -> Path:
        number = 1 if path == self._first else int(path.stem.rpartition("-")[2])
        return path.with_name(f"{self._first.stem}-{number + 1}{path.suffix}")

    async def read(self, question: Callable[[Connection], T]) -> T:
        """Asks once more where the file was damaged, or replaced by another process."""

        def ask(db: Connection) -> T:
            with translated(self._path, JOURNAL, title=_TITLE, connection=db):
                self._expect_in_place()
                return question(db)

        try:
            return await self._worker.run(ask)
        except StoreDamaged:
            self._is_suspect = True
        except (_Replaced, Conflict):
            pass
        await self.close()
        return await self._worker.run(ask)

    async def write(self, work: Callable[[Connection], T]) -> T:
        """In one transaction, which is on the disk when this returns."""

        def commit(db: Connection) -> T:
            with transaction(db):
                check_version(db, self._path, JOURNAL, _TITLE)
                return work(db)

        return await self.read(commit)

    async def fold(self) -> bool:
        """Empties the log beside the file; False if a reader needs it still."""
        return await asyncio.to_thread(fold, self._path, JOURNAL, _FOLD, title=_TITLE)

    def glance(self, question: Callable[[Connection], T]) -> T | None:
        """For what takes microseconds, without a thread; None where there is no file."""
        inode = _inode_of(self._path)
        if self._glass is None or self._glass[1] != inode:
            self.put_glass_away()
            if inode is None:
                return None
            busy = BusyHandler(_GLANCE)
            self._glass = connect(self._path, JOURNAL, busy=busy, title=_TITLE), inode
        with translated(self._path, JOURNAL, title=_TITLE):
            return question(self._glass[0])

    def put_glass_away(self) -> None:
        glass, self._glass = self._glass, None
        if glass is not None:
            glass[0].close()

    async def close(self) -> None:
        self.put_glass_away()
        await self._worker.close()

    def _expect_in_place(self) -> None:
        if _inode_of(self._path) != self._inode:
            raise _Replaced

    def _open(self, busy: BusyHandler) -> Connection:
        if self._is_suspect:
            self._move_if_damaged()
        try:
            connection = self._connected(busy)
        except StoreDamaged:
            self._move_if_damaged()
            connection = self._connected(busy)
        # Without it macOS leaves it to the disk when something is really there.
        connection.execute("PRAGMA fullfsync=ON").fetchall()
        return connection

    def _connected(self, busy: BusyHandler) -> Connection:
        path = self._path
        with usable(path):
            if not path.exists():
                with self._founding.held():
                    _make(path)
            self._inode = _inode_of(path)
        return connect(path, JOURNAL, synchronous="full", busy=busy, title=_TITLE)

    def _move_if_damaged(self) -> None:
        """Somebody else may have done so already."""
        with self._founding.held(), usable(self._first):
            path = self._path
            if not path.exists() or self._is_sound():
                self._is_suspect = False
                return
            try:
                left = _moved(path)
            except PermissionError:
                # Windows moves no file that another process has open. That one will look for the
                # successor as soon as it uses the journal.
                left = path
                _make(self._successor_of(path))
            self._is_suspect = False
        log.error(
            "the journal %s is damaged: it is left as %s, and what waited in it is not written "
            "to the database; a new one is begun",
            path,
            left.name,
        )

    def _is_sound(self) -> bool:
        try:
            with (
                translated(self._path, JOURNAL, title=_TITLE),
                closing(connect(self._path, JOURNAL, title=_TITLE)) as db,
            ):
                return db.execute("PRAGMA quick_check(1)").fetchall() == [("ok",)]
        except StoreDamaged:
            return False


def _make(path: Path) -> None:
    if path.exists():
        return
    # Under another name first, so that nobody opens a half-made one.
    draft = path.with_name(f"{path.stem}.{uuid4().hex}.new")
    try:
        create(draft, JOURNAL)
        # The log of a file that was moved away would be taken for the new one's.
        unlink_logs(path)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
        unlink_logs(draft)
    sync_folder(path.parent)


def _moved(path: Path) -> Path:
    aside = path.with_name(f"{path.stem}.damaged-{uuid4().hex[:8]}.db")
    # The file itself comes last: without its log it is still a damaged one.
    for suffix in ("-wal", "-shm", ""):
        beside = path.with_name(path.name + suffix)
        if beside.exists():
            beside.rename(aside.with_name(aside.name + suffix))
    return aside


def _inode_of(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return None
