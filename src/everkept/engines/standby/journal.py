"""What could not be written yet, on the local disk, shared by all processes of a data folder."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from everkept.core.locks import WaitingLock
from everkept.core.records import Ref
from everkept.core.times import Clock, read_clock
from everkept.engines.sqlite.connection import BUSY_SECONDS, Connection, Row
from everkept.engines.standby import journal_acts, journal_file
from everkept.engines.standby.journal_acts import (
    Act,
    Commit,
    decode_act,
    encode_act,
    format_store_name,
    parse_project_id,
)
from everkept.engines.standby.journal_file import JournalFile
from everkept.errors import EverkeptError, NotFound, StorageFull
from everkept.values import Value, replace

# How much of the owner's may wait, and how much be set aside; of all accounts' together half of it.
MAX_BYTES = 64 * 1024 * 1024
MAX_ENTRIES = 20_000
# Topics of the notes: the id of a project here, and of the one there; how often the database
# failed over an entry.
PROJECT_TOPIC = "project"
_FAILURES_TOPIC = "failures"
_REJECTED_HINT = (
    "`everkept journal` lists what is set aside: `everkept journal --discard NUMBER` gives one "
    "up, and `--retry NUMBER` lets it wait again."
)


class JournalEntry(Value):
    """An act that waits. `undoes` is the entry whose commit it takes back, if that waited too.

    `account` is the name of the account that did it, and `account_id` its id; None: the owner.
    """

    seq: int
    act: Act
    local_seq: int | None = None  # the number of its commit in the log of the local copy
    undoes: int | None = None
    account: str | None = None
    account_id: str = ""


class RejectedWrite(Value):
    """An act that could not be done when the database was back."""

    seq: int
    act: Act
    reason: str
    at: int
    account: str | None = None


class JournalCounts(NamedTuple):
    waiting: int
    aside: int


class _JournalSize(NamedTuple):
    entries: int
    bytes: int

    def __str__(self) -> str:
        return f"{self.entries:,} writes of {self.bytes:,} bytes"


class ForgottenWrites(NamedTuple):
    """`complete` is False while somebody keeps old pages alive."""

    entries: int
    complete: bool


class Journal:
    """Acts in the order of their arrival. Nothing is opened or made before the first call.

    What `append` has returned from is on the disk. Closing is not final: the next call opens the
    file again.
    """

    def __init__(
        self,
        path: Path,
        *,
        limit_bytes: int = MAX_BYTES,
        limit_entries: int = MAX_ENTRIES,
        patience: float = BUSY_SECONDS,
        clock: Clock = read_clock,
    ) -> None:
        self._path = path
        self._limit_bytes = limit_bytes
        self._limit_entries = limit_entries
        self._clock = clock
        self._replaying = WaitingLock(path.with_suffix(".lock"), "The replay of the journal", patience)
        self._writing = WaitingLock(path.with_suffix(".writing"), "The local copy", patience)
        self._file = JournalFile(path)
        self._last_counts = JournalCounts(0, 0)

    @property
    def folder(self) -> Path:
        return self._path.parent

    async def append(
        self, act: Act, local_seq: int | None = None, account: str | None = None, account_id: str = ""
    ) -> int:
        """Gives the number of the entry. A commit without a key gets one. Raises StorageFull."""
        if isinstance(act, Commit) and act.batch.key is None:
            act = Commit(act.store, replace(act.batch, key=uuid4().hex))
        text = encode_act(act)

        def work(db: Connection) -> int:
            self._refuse_if_full(db, len(text), is_account=account is not None)
            undoes = journal_acts.find_undone_entry(db, act)
            seq = int(
                db.execute(
                    "INSERT INTO entries(act, local_seq, undoes, account, account_id) VALUES (?,?,?,?,?) RETURNING seq",
                    (text, local_seq, undoes, account, account_id),
                ).get
            )
            if isinstance(act, Commit) and local_seq is not None:
                journal_acts.note_number(db, act.store, local_seq, seq)
            return seq

        return await self._file.write(work)

    async def list_pending(self, after: int = 0, limit: int = 100) -> list[JournalEntry]:
        """What waits behind an entry, the oldest first."""

        def work(db: Connection) -> list[Row]:
            return db.execute(
                "SELECT seq, act, local_seq, undoes, account, account_id FROM entries "
                "WHERE reason IS NULL AND seq > ? ORDER BY seq LIMIT ?",
                (after, limit),
            ).fetchall()

        async with self.lock_writes():  # what is just being added may be taken back again
            rows = await self._file.read(work)
        return [JournalEntry(seq, decode_act(act), *rest) for seq, act, *rest in rows]

    async def remove(self, seq: int, *, committed_as: int | None = None) -> None:
        """It is done: its commit has this number in the log of the database."""
        await self.remove_all({seq: committed_as})

    async def remove_all(self, committed_as: Mapping[int, int | None]) -> None:
        """These are done, as `remove` has it of one."""

        def work(db: Connection) -> None:
            for seq, number in committed_as.items():
                db.execute("DELETE FROM entries WHERE seq = ?", (seq,))
                journal_acts.set_committed_seq(db, seq, number)
                _forget_failures(db, seq)

        await self._file.write(work)

    async def count_failure(self, seq: int) -> int:
        """The database failed over it, and it waits on; gives how often it did by now."""

        def work(db: Connection) -> int:
            return int(
                db.execute(
                    "INSERT INTO mappings VALUES (?,?,'1') ON CONFLICT DO "
                    "UPDATE SET value = CAST(value AS INTEGER) + 1 RETURNING value",
                    (_FAILURES_TOPIC, str(seq)),
                ).get
            )

        return await self._file.write(work)

    async def find_committed_seq(self, seq: int) -> int | None:
        """The number that the commit of an entry got in the log of the database, if it was made."""
        return await self._file.read(lambda db: journal_acts.find_committed_seq(db, seq))

    async def forget_numbers(self, store: str) -> None:
        """The log of the local copy of a store is that of the database from now on.

        What waits already and takes back something that waited is not changed by it.
        """
        await self._file.write(lambda db: journal_acts.forget_numbers(db, store))

    async def reject(self, seq: int, reason: str) -> None:
        """It cannot be done: it is kept for the user, and what waits behind it goes on."""
        at = self._clock()

        def work(db: Connection) -> None:
            db.execute("UPDATE entries SET reason = ?, aside_at = ? WHERE seq = ?", (reason, at, seq))
            _forget_failures(db, seq)

        await self._file.write(work)

    async def list_rejected(self) -> list[RejectedWrite]:
        rows = await self._file.read(
            lambda db: db.execute(
                "SELECT seq, act, reason, aside_at, account FROM entries WHERE reason IS NOT NULL ORDER BY seq"
            ).fetchall()
        )
        return [RejectedWrite(seq, decode_act(act), *rest) for seq, act, *rest in rows]

    async def retry_rejected(self, seq: int) -> int:
        """Puts it behind all that waits; gives its new number. Raises NotFound."""

        def work(db: Connection) -> int:
            _expect_rejected(db, seq)
            return _requeue(db, seq)

        return await self._file.write(work)

    async def retry_all_rejected(self) -> Mapping[int, int]:
        """Puts all that are set aside behind all that waits, in their order; gives by the number
        of each its new one."""

        def work(db: Connection) -> dict[int, int]:
            rows = db.execute("SELECT seq FROM entries WHERE reason IS NOT NULL ORDER BY seq")
            return {seq: _requeue(db, seq) for (seq,) in rows.fetchall()}

        return await self._file.write(work)

    async def discard_rejected(self, seq: int) -> None:
        """Gives it up for good. Raises NotFound."""

        def work(db: Connection) -> None:
            _expect_rejected(db, seq)
            db.execute("DELETE FROM entries WHERE seq = ?", (seq,))

        await self._file.write(work)

    async def forget(self, store: str, refs: Sequence[Ref], *, belongings: bool = True) -> ForgottenWrites:
        """Takes these things out of what is kept here of a store, until no byte of them is left.

        Of the entries that had some of them the rest is kept. With `belongings` a record takes the
        children and links along that are made here.
        """
        if not self._path.exists():
            return ForgottenWrites(0, complete=True)
        purge_set = journal_file.JournalPurgeSet(refs, belongings=belongings)
        count = await self._file.write(
            lambda db: journal_file.purge_entries(db, _list_store_names(db, store), purge_set)
        )
        # What was brought over long ago may still stand in the log of the file.
        return ForgottenWrites(count, complete=await self._file.fold())

    def count_writes(self) -> JournalCounts:
        """How many wait and how many are set aside, whoever put them there.

        Of a file that cannot be read just now, what was known before.
        """
        try:
            self._last_counts = self._file.read_inline(_count_writes) or JournalCounts(0, 0)
        except (EverkeptError, OSError):
            self._file.close_inline()
        return self._last_counts

    async def note(self, topic: str, key: str, value: str) -> None:
        """Keeps what a key of one side means on the other."""
        await self._file.write(
            lambda db: _execute(db, "INSERT OR REPLACE INTO mappings VALUES (?,?,?)", topic, key, value)
        )

    async def look_up(self, topic: str, key: str) -> str | None:
        return await self._file.read(
            lambda db: db.execute("SELECT value FROM mappings WHERE topic = ? AND key = ?", (topic, key)).get
        )

    def lock_replay(self) -> AbstractAsyncContextManager[None]:
        """For one holder among all processes: whoever replays. Others may append meanwhile.

        Raises StoreBusy.
        """
        return self._replaying.hold_async()

    def lock_writes(self) -> AbstractAsyncContextManager[None]:
        """For one holder among all processes, and for moments: whoever adds an act and does it to
        the local copy, or changes that otherwise. The database is not asked meanwhile.

        Raises StoreBusy.
        """
        return self._writing.hold_async()

    async def close(self) -> None:
        """Waits for what is under way, which takes moments."""
        await self._file.close()

    def _refuse_if_full(self, db: Connection, more: int, *, is_account: bool) -> None:
        """What is set aside stays: where that is too much, nothing may wait that might add to it.

        Accounts have a room of their own, so that they use up none of the owner's.
        """
        [waiting, aside] = [
            _JournalSize(*row)
            for row in db.execute(
                "SELECT entries, bytes FROM tally WHERE of_accounts = ? ORDER BY aside", (is_account,)
            )
        ]
        share = 2 if is_account else 1
        most = _JournalSize(self._limit_entries // share, self._limit_bytes // share)
        if aside.entries >= most.entries or aside.bytes >= most.bytes:
            full, hint = aside, _REJECTED_HINT
        elif waiting.entries >= most.entries or waiting.bytes + more > most.bytes:
            full, hint = waiting, "Make the database reachable again: what waits is written then."
        else:
            return
        raise StorageFull(
            f"The database is away. {'Of accounts, ' * is_account}{waiting} wait for it, and "
            f"{aside} are set aside: no more than {most} together may "
            f"{'be set aside' if full is aside else 'wait'}. Nothing of this call was stored.",
            hint=hint,
            current_size=full.bytes,
            limit=most.bytes,
            waiting=waiting.entries,
            set_aside=aside.entries,
            limit_entries=most.entries,
            path=str(self._path),
        )


def _expect_rejected(db: Connection, seq: int) -> None:
    if not db.execute("SELECT 1 FROM entries WHERE seq = ? AND reason IS NOT NULL", (seq,)).get:
        raise NotFound("write", str(seq), message=f"No write with the number {seq} is set aside.")


def _requeue(db: Connection, seq: int) -> int:
    new = int(
        db.execute(
            "INSERT INTO entries(act, local_seq, undoes, account, account_id) "
            "SELECT act, local_seq, undoes, account, account_id FROM entries WHERE seq = ? "
            "RETURNING seq",
            (seq,),
        ).get
    )
    db.execute("DELETE FROM entries WHERE seq = ?", (seq,))
    journal_acts.renumber(db, seq, new)
    return new


def _list_store_names(db: Connection, store: str) -> set[str]:
    """A project that was made on both sides has two."""
    others = db.execute(
        "SELECT key FROM mappings WHERE topic = ? AND value = ?", (PROJECT_TOPIC, parse_project_id(store))
    )
    return {store, *(format_store_name(key) for (key,) in others)}


def _count_writes(db: Connection) -> JournalCounts:
    rows = db.execute("SELECT sum(entries) FROM tally GROUP BY aside ORDER BY aside")
    return JournalCounts(*(count for (count,) in rows))


def _forget_failures(db: Connection, seq: int) -> None:
    db.execute("DELETE FROM mappings WHERE topic = ? AND key = ?", (_FAILURES_TOPIC, str(seq)))


def _execute(db: Connection, statement: str, *bindings: object) -> None:
    db.execute(statement, bindings)
