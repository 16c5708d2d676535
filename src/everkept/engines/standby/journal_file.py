"""File of the journal: its tables as numbered migrations, and one thread that writes."""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable
from contextlib import closing
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

from everkept.core.disk import sync_folder, translate_os_errors
from everkept.core.locks import WaitingLock
from everkept.core.records import Batch, Delete, Insert, Record, RecordLink, Ref, Restore, Step, Update
from everkept.engines.sqlite.connection import (
    BusyHandler,
    Connection,
    check_version,
    connect,
    create,
    fold,
    open_transaction,
    translate_errors,
    unlink_logs,
)
from everkept.engines.sqlite.database import ConnectionWorker
from everkept.engines.sqlite.schema import Schema
from everkept.engines.standby.journal_acts import Commit, decode_act, encode_act
from everkept.errors import Conflict, StoreDamaged
from everkept.values import replace

# `reason` is NULL while an entry is pending. `numbers` has the number of an entry's commit in the log of the replica,
# until that log is the database's own, and in the log of the database, once it is committed there. `tally` avoids
# counting.
_JOURNAL_1 = """
CREATE TABLE meta(key TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE entries(
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    act TEXT NOT NULL,
    local_seq INTEGER,
    undoes INTEGER,
    reason TEXT,
    aside_at INTEGER);
CREATE INDEX entries_waiting ON entries(seq) WHERE reason IS NULL;
CREATE INDEX entries_aside ON entries(seq) WHERE reason IS NOT NULL;
CREATE INDEX entries_undoing ON entries(undoes) WHERE undoes IS NOT NULL;

CREATE TABLE tally(waiting INTEGER NOT NULL, aside INTEGER NOT NULL, bytes INTEGER NOT NULL);
INSERT INTO tally VALUES (0, 0, 0);
CREATE TRIGGER entries_more AFTER INSERT ON entries BEGIN
    UPDATE tally SET waiting = waiting + (new.reason IS NULL),
        aside = aside + (new.reason IS NOT NULL), bytes = bytes + length(new.act);
END;
CREATE TRIGGER entries_less AFTER DELETE ON entries BEGIN
    UPDATE tally SET waiting = waiting - (old.reason IS NULL),
        aside = aside - (old.reason IS NOT NULL), bytes = bytes - length(old.act);
END;
CREATE TRIGGER entries_moved AFTER UPDATE OF reason ON entries BEGIN
    UPDATE tally SET
        waiting = waiting + (new.reason IS NULL) - (old.reason IS NULL),
        aside = aside + (new.reason IS NOT NULL) - (old.reason IS NOT NULL);
END;

CREATE TABLE numbers(
    entry INTEGER PRIMARY KEY,
    store TEXT NOT NULL,
    local_seq INTEGER,
    seq INTEGER);
CREATE INDEX numbers_local ON numbers(store, local_seq) WHERE local_seq IS NOT NULL;

CREATE TABLE mappings(
    topic TEXT NOT NULL,
    key TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY(topic, key)) WITHOUT ROWID;
"""

# The account that made the write. NULL is the owner.
_JOURNAL_2 = "ALTER TABLE entries ADD COLUMN account TEXT;"

# Writes of accounts are counted separately from the owner's, and rejected ones from pending ones, so that none of them
# uses the quota of another.
_JOURNAL_3 = """
DROP TRIGGER entries_more;
DROP TRIGGER entries_less;
DROP TRIGGER entries_moved;
DROP TABLE tally;
CREATE TABLE tally(
    of_accounts INTEGER NOT NULL,
    aside INTEGER NOT NULL,
    entries INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    PRIMARY KEY(of_accounts, aside)) WITHOUT ROWID;
INSERT INTO tally VALUES (0, 0, 0, 0), (0, 1, 0, 0), (1, 0, 0, 0), (1, 1, 0, 0);
UPDATE tally SET (entries, bytes) = (
    SELECT count(*), coalesce(sum(length(act)), 0) FROM entries
    WHERE (account IS NOT NULL) = of_accounts AND (reason IS NOT NULL) = tally.aside);
CREATE TRIGGER entries_more AFTER INSERT ON entries BEGIN
    UPDATE tally SET entries = entries + 1, bytes = bytes + length(new.act)
    WHERE of_accounts = (new.account IS NOT NULL) AND aside = (new.reason IS NOT NULL);
END;
CREATE TRIGGER entries_less AFTER DELETE ON entries BEGIN
    UPDATE tally SET entries = entries - 1, bytes = bytes - length(old.act)
    WHERE of_accounts = (old.account IS NOT NULL) AND aside = (old.reason IS NOT NULL);
END;
CREATE TRIGGER entries_moved AFTER UPDATE OF reason ON entries BEGIN
    UPDATE tally SET entries = entries - 1, bytes = bytes - length(old.act)
    WHERE of_accounts = (old.account IS NOT NULL) AND aside = (old.reason IS NOT NULL);
    UPDATE tally SET entries = entries + 1, bytes = bytes + length(new.act)
    WHERE of_accounts = (new.account IS NOT NULL) AND aside = (new.reason IS NOT NULL);
END;
"""

# The id of the account that the server knew when it accepted the write, because another account may get the name.
_JOURNAL_4 = "ALTER TABLE entries ADD COLUMN account_id TEXT NOT NULL DEFAULT '';"

JOURNAL_SCHEMA = Schema(
    "journal",
    0x45564B4A,  # "EVKJ"
    (_JOURNAL_1, _JOURNAL_2, _JOURNAL_3, _JOURNAL_4),
    "Check whether another program wrote it, then move it to another folder. It was not changed.",
)


log = logging.getLogger(__name__)

_TITLE = "The journal of pending writes"
_INLINE_WAIT_SECONDS = 0.05  # how long an inline read waits for another process
_FOLD_SECONDS = 1.0  # how long to wait for readers

T = TypeVar("T")


class _FileReplaced(Exception):
    """Another process has moved the file since it was opened here."""


class JournalFile:
    """One thread with a connection, and another connection for inline reads from the event loop."""

    def __init__(self, path: Path) -> None:
        self._first = path
        self._founding = WaitingLock(path.with_suffix(".founding"), "The creation of the journal")
        self._worker = ConnectionWorker(f"journal {path.name}", self._open)
        self._inode: int | None = None  # of the file that the worker has open
        self._is_suspect = False
        self._glass: tuple[Connection, int] | None = None  # with the inode of its file

    @property
    def _path(self) -> Path:
        """The path of the latest file. A damaged file that could not be moved has a successor."""
        path = self._first
        while (successor := self._build_successor(path)).exists():
            path = successor
        return path

    def _build_successor(self, path: Path) -> Path:
        number = 1 if path == self._first else int(path.stem.rpartition("-")[2])
        return path.with_name(f"{self._first.stem}-{number + 1}{path.suffix}")

    async def read(self, question: Callable[[Connection], T]) -> T:
        """Run the query. Repeat it once if the file was damaged, or replaced by another process."""

        def ask(db: Connection) -> T:
            with translate_errors(self._path, JOURNAL_SCHEMA, title=_TITLE, connection=db):
                if _find_inode(self._path) != self._inode:
                    raise _FileReplaced
                return question(db)

        try:
            return await self._worker.run(ask)
        except StoreDamaged:
            self._is_suspect = True
        except (_FileReplaced, Conflict):
            pass
        await self.close()
        return await self._worker.run(ask)

    async def write(self, work: Callable[[Connection], T]) -> T:
        """Run the work in one transaction, which is on disk when this returns."""

        def commit(db: Connection) -> T:
            with open_transaction(db):
                check_version(db, self._path, JOURNAL_SCHEMA, _TITLE)
                return work(db)

        return await self.read(commit)

    async def fold(self) -> bool:
        """Empty the write-ahead log. Return False if a reader still needs it."""
        return await asyncio.to_thread(fold, self._path, JOURNAL_SCHEMA, _FOLD_SECONDS, title=_TITLE)

    def read_inline(self, question: Callable[[Connection], T]) -> T | None:
        """Run a query that takes microseconds, without a thread. Return None if there is no file."""
        inode = _find_inode(self._path)
        if self._glass is None or self._glass[1] != inode:
            self.close_inline()
            if inode is None:
                return None
            busy = BusyHandler(_INLINE_WAIT_SECONDS)
            self._glass = connect(self._path, JOURNAL_SCHEMA, busy=busy, title=_TITLE), inode
        with translate_errors(self._path, JOURNAL_SCHEMA, title=_TITLE):
            return question(self._glass[0])

    def close_inline(self) -> None:
        glass, self._glass = self._glass, None
        if glass is not None:
            glass[0].close()

    async def close(self) -> None:
        self.close_inline()
        await self._worker.close()

    def _open(self, busy: BusyHandler) -> Connection:
        if self._is_suspect:
            self._move_if_damaged()
        try:
            connection = self._connect(busy)
        except StoreDamaged:
            self._move_if_damaged()
            connection = self._connect(busy)
        # Without it, macOS does not wait until the data is really on the disk.
        connection.execute("PRAGMA fullfsync=ON").fetchall()
        return connection

    def _connect(self, busy: BusyHandler) -> Connection:
        path = self._path
        with translate_os_errors(path):
            if not path.exists():
                with self._founding.hold():
                    _create_file(path)
            self._inode = _find_inode(path)
        return connect(path, JOURNAL_SCHEMA, synchronous="full", busy=busy, title=_TITLE)

    def _move_if_damaged(self) -> None:
        """Move a damaged file, unless another process has already done so."""
        with self._founding.hold(), translate_os_errors(self._first):
            path = self._path
            if not path.exists() or self._is_sound():
                self._is_suspect = False
                return
            try:
                left = _move_damaged(path)
            except PermissionError:
                # Windows cannot move a file that another process has open. That process finds the successor when it
                # next uses the journal.
                left = path
                _create_file(self._build_successor(path))
            self._is_suspect = False
        log.error(
            "journal %s is damaged and kept as %s: its pending writes are not sent to the database; started a new one",
            path,
            left.name,
        )

    def _is_sound(self) -> bool:
        try:
            with (
                translate_errors(self._path, JOURNAL_SCHEMA, title=_TITLE),
                closing(connect(self._path, JOURNAL_SCHEMA, title=_TITLE)) as db,
            ):
                return db.execute("PRAGMA quick_check(1)").fetchall() == [("ok",)]
        except StoreDamaged:
            return False


def _create_file(path: Path) -> None:
    if path.exists():
        return
    # Use a temporary name first, so that no process opens an incomplete file.
    draft = path.with_name(f"{path.stem}.{uuid4().hex}.new")
    try:
        create(draft, JOURNAL_SCHEMA)
        # The log of a file that was moved elsewhere would be taken for the new file's.
        unlink_logs(path)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
        unlink_logs(draft)
    sync_folder(path.parent)


def _move_damaged(path: Path) -> Path:
    aside = path.with_name(f"{path.stem}.damaged-{uuid4().hex[:8]}.db")
    # The file itself comes last: without its log it is still recognized as damaged.
    for suffix in ("-wal", "-shm", ""):
        beside = path.with_name(path.name + suffix)
        if beside.exists():
            beside.rename(aside.with_name(aside.name + suffix))
    return aside


def _find_inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return None


_REMOVED_REASON = "Part of this write was erased permanently."


class JournalPurgeSet:
    """References to erase from the journal. With `belongings`, it also collects their children and links."""

    def __init__(self, refs: Iterable[Ref], *, belongings: bool) -> None:
        self._refs = set(refs)
        self._belongings = belongings

    def filter_batch(self, batch: Batch) -> Batch:
        return replace(batch, steps=tuple(step for step in batch.steps if not self._has_step(step)))

    def _has_step(self, step: Step) -> bool:
        match step:
            case Insert(Record() as record):
                return self._should_remove(record.ref, (record.parent,))
            case Insert(RecordLink() as link):
                return self._should_remove(link.ref, (link.source, link.target))
            case Update():
                return Ref("record", step.id) in self._refs
            case Delete(ref) | Restore(ref):
                return ref in self._refs
            case _:
                raise TypeError(step)

    def _should_remove(self, ref: Ref, owners: Iterable[str | None]) -> bool:
        if self._belongings and any(Ref("record", each) in self._refs for each in owners if each):
            self._refs.add(ref)
        return ref in self._refs


def purge_entries(db: Connection, stores: Collection[str], purge_set: JournalPurgeSet) -> int:
    """Erase the references from entries, and entries that become empty. Return the number of changed entries."""
    rows = db.execute(
        "SELECT seq, act, local_seq, undoes, reason, aside_at, account, account_id FROM entries"
    ).fetchall()
    changed = 0
    for seq, text, local_seq, undoes, reason, *rest in sorted(rows):
        act = decode_act(text)
        if not isinstance(act, Commit) or act.store not in stores:
            continue
        left = purge_set.filter_batch(act.batch)
        if left.steps == act.batch.steps:
            continue
        changed += 1
        db.execute("DELETE FROM entries WHERE seq = ?", (seq,))
        if left.steps:
            why = reason and _REMOVED_REASON  # the reason may contain erased text
            db.execute(
                "INSERT INTO entries"
                "(seq, act, local_seq, undoes, reason, aside_at, account, account_id) "
                "VALUES (?,?,?,?,?,?,?,?)",
                (seq, encode_act(Commit(act.store, left)), local_seq, undoes, why, *rest),
            )
    return changed
