"""Journal of pending and rejected writes on the local disk, shared by all processes of a data folder."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from everkept.core.locks import WaitingLock
from everkept.core.records import Ref
from everkept.core.text import format_count
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

# Limits of the owner's pending writes, and of the rejected ones. All accounts together have half of each.
MAX_BYTES = 64 * 1024 * 1024
MAX_ENTRIES = 20_000
# Topics of mappings: the database's id of a project that was created here, and the number of failures of an entry.
PROJECT_TOPIC = "project"
_FAILURES_TOPIC = "failures"
_MERGED_TOPIC = "merged "  # and the name of a store: the database's id of an item that was created here too
_REJECTED_HINT = (
    "List rejected writes with `everkept journal`. Discard one with `everkept journal --discard NUMBER`, or send it "
    "again with `--retry NUMBER`."
)


class JournalEntry(Value):
    """A pending act. `undoes` is the entry whose commit it undoes, if that was pending too.

    `account` and `account_id` identify the account that made it. None is the owner.
    """

    seq: int
    act: Act
    local_seq: int | None = None  # the number of its commit in the log of the replica
    undoes: int | None = None
    account: str | None = None
    account_id: str = ""


class RejectedWrite(Value):
    """An act that could not be applied when the database was back."""

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
        return f"{format_count(self.entries, 'write')} ({format_count(self.bytes, 'byte')})"


class ForgottenWrites(NamedTuple):
    """Number of changed entries. `complete` is False while a reader keeps old pages."""

    entries: int
    complete: bool


class Journal:
    """Acts in the order of their arrival. The first call opens or creates the file.

    An act is on disk when `append` returns. After closing, the next call opens the file again.
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
        """Append an act and return the number of its entry. A commit without a key gets one. Raise StorageFull."""
        if isinstance(act, Commit) and act.batch.key is None:
            act = Commit(act.store, replace(act.batch, key=uuid4().hex))
        text = encode_act(act)

        def work(db: Connection) -> int:
            self._refuse_if_full(db, len(text), is_account=account is not None)
            seq = int(
                db.execute(
                    "INSERT INTO entries(act, local_seq, undoes, account, account_id) VALUES (?,?,?,?,?) RETURNING seq",
                    (text, local_seq, journal_acts.find_undone_entry(db, act), account, account_id),
                ).get
            )
            if isinstance(act, Commit) and local_seq is not None:
                journal_acts.note_number(db, act.store, local_seq, seq)
            return seq

        return await self._file.write(work)

    async def list_pending(self, after: int = 0, limit: int = 100) -> list[JournalEntry]:
        """Return pending entries after this one, oldest first."""

        def work(db: Connection) -> list[Row]:
            return db.execute(
                "SELECT seq, act, local_seq, undoes, account, account_id FROM entries "
                "WHERE reason IS NULL AND seq > ? ORDER BY seq LIMIT ?",
                (after, limit),
            ).fetchall()

        async with self.lock_writes():  # an entry that is being added may be removed again
            rows = await self._file.read(work)
        return [JournalEntry(seq, decode_act(act), *rest) for seq, act, *rest in rows]

    async def remove(self, seq: int, *, committed_as: int | None = None) -> None:
        """Remove a finished entry. `committed_as` is the number of its commit in the database."""
        await self.remove_all({seq: committed_as})

    async def remove_all(self, committed_as: Mapping[int, int | None]) -> None:
        """Remove finished entries, each with the number of its commit in the database."""

        def work(db: Connection) -> None:
            for seq, number in committed_as.items():
                db.execute("DELETE FROM entries WHERE seq = ?", (seq,))
                journal_acts.set_committed_seq(db, seq, number)
                _forget_failures(db, seq)

        await self._file.write(work)

    async def count_failure(self, seq: int) -> int:
        """Count a failure of the database at this entry, which stays pending. Return the number of failures."""

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
        """Return the number of the entry's commit in the database, or None if it was not committed."""
        return await self._file.read(lambda db: journal_acts.find_committed_seq(db, seq))

    async def forget_numbers(self, store: str) -> None:
        """Forget local numbers and merged items, because the replica's log is now the database's.

        Pending undos keep their entry. Rejected writes keep the merged items, because they can be sent again.
        """

        def work(db: Connection) -> None:
            journal_acts.forget_numbers(db, store)
            db.execute(
                "DELETE FROM mappings WHERE topic = ? AND NOT EXISTS (SELECT 1 FROM entries)", (_MERGED_TOPIC + store,)
            )

        await self._file.write(work)

    async def reject(self, seq: int, reason: str) -> None:
        """Reject an entry and keep it for the user. Later entries are not blocked."""
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
        """Move a rejected entry to the end of the pending ones. Return its new number. Raise NotFound."""

        def work(db: Connection) -> int:
            _expect_rejected(db, seq)
            return _requeue(db, seq)

        return await self._file.write(work)

    async def retry_all_rejected(self) -> Mapping[int, int]:
        """Move all rejected entries to the end of the pending ones, in order. Map their old numbers to the new ones."""

        def work(db: Connection) -> dict[int, int]:
            rows = db.execute("SELECT seq FROM entries WHERE reason IS NOT NULL ORDER BY seq")
            return {seq: _requeue(db, seq) for (seq,) in rows.fetchall()}

        return await self._file.write(work)

    async def discard_rejected(self, seq: int) -> None:
        """Delete a rejected entry permanently. Raise NotFound if there is none."""

        def work(db: Connection) -> None:
            _expect_rejected(db, seq)
            db.execute("DELETE FROM entries WHERE seq = ?", (seq,))

        await self._file.write(work)

    async def forget(self, store: str, refs: Sequence[Ref], *, belongings: bool = True) -> ForgottenWrites:
        """Erase these references from the entries of a store, until no byte is left.

        The rest of each entry is kept. With `belongings`, children and links created here are erased too.
        """
        if not self._path.exists():
            return ForgottenWrites(0, complete=True)
        purge_set = journal_file.JournalPurgeSet(refs, belongings=belongings)
        count = await self._file.write(
            lambda db: journal_file.purge_entries(db, _list_store_names(db, store), purge_set)
        )
        # Writes that were sent long ago may still be in the log of the file.
        return ForgottenWrites(count, complete=await self._file.fold())

    def count_writes(self) -> JournalCounts:
        """Return the numbers of pending and rejected writes, or the last known ones if the file is unreadable."""
        try:
            self._last_counts = self._file.read_inline(_count_writes) or JournalCounts(0, 0)
        except (EverkeptError, OSError):
            self._file.close_inline()
        return self._last_counts

    async def note(self, topic: str, key: str, value: str) -> None:
        """Note which key of the database a local key stands for."""
        await self._file.write(
            lambda db: _execute(db, "INSERT OR REPLACE INTO mappings VALUES (?,?,?)", topic, key, value)
        )

    async def look_up(self, topic: str, key: str) -> str | None:
        return await self._file.read(
            lambda db: db.execute("SELECT value FROM mappings WHERE topic = ? AND key = ?", (topic, key)).get
        )

    async def note_merged(self, store: str, merged: Mapping[str, str | None]) -> None:
        """Note with which items of the database new items of a store were merged. None removes the note."""

        def work(db: Connection) -> None:
            for own_id, other in merged.items():
                if other is None:
                    db.execute("DELETE FROM mappings WHERE topic = ? AND key = ?", (_MERGED_TOPIC + store, own_id))
                else:
                    db.execute("INSERT OR REPLACE INTO mappings VALUES (?,?,?)", (_MERGED_TOPIC + store, own_id, other))

        await self._file.write(work)

    async def read_merged(self, store: str) -> dict[str, str]:
        """Return with which items of the database new items of a store were merged."""
        return await self._file.read(
            lambda db: dict(
                db.execute("SELECT key, value FROM mappings WHERE topic = ?", (_MERGED_TOPIC + store,)).fetchall()
            )
        )

    def lock_replay(self) -> AbstractAsyncContextManager[None]:
        """Lock the replay among all processes. Others may still append. Raise StoreBusy after the wait."""
        return self._replaying.hold_async()

    def lock_writes(self) -> AbstractAsyncContextManager[None]:
        """Lock changes of the replica among all processes, for moments without database calls. Raise StoreBusy."""
        return self._writing.hold_async()

    async def close(self) -> None:
        """Close the file after running calls, which take moments."""
        await self._file.close()

    def _refuse_if_full(self, db: Connection, more: int, *, is_account: bool) -> None:
        """Raise StorageFull at a limit. Rejected writes stay, so too many of them block new pending writes too.

        Accounts have a separate limit, so that they use nothing of the owner's.
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
            full, hint = waiting, "Make the database reachable again, so that pending writes are sent."
        else:
            return
        raise StorageFull(
            f"The database is unreachable, and the journal{' of accounts' * is_account} is full: {waiting} pending, "
            f"{aside} rejected. At most {most} can be {'rejected' if full is aside else 'pending'}. "
            "Nothing was stored.",
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
        hint = "List rejected writes with `everkept journal`."
        raise NotFound("write", str(seq), message=f"No rejected write has the number {seq}.", hint=hint)


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
    """Return the names of a store. A project that was created on both sides has two."""
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
