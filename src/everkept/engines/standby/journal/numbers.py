"""What commits that waited are called in the log of the local copy, and in the database's.

A batch that takes back a commit names it by the log that it was planned on. Within the journal it
names the entry instead, whose number is never used again.
"""

from everkept.engines.sqlite.sql import Connection
from everkept.engines.standby.journal.acts import Act, Commit

_UNREFERRED = "entry NOT IN (SELECT undoes FROM entries WHERE undoes IS NOT NULL)"


def note(db: Connection, store: str, local_seq: int, entry: int) -> None:
    """A log only grows: who has the number or a later one is from before the log was replaced."""
    db.execute(
        "UPDATE numbers SET local_seq = NULL WHERE store = ? AND local_seq >= ?", (store, local_seq)
    )
    db.execute(
        "INSERT INTO numbers(entry, store, local_seq) VALUES (?,?,?)", (entry, store, local_seq)
    )


def undone_entry(db: Connection, act: Act) -> int | None:
    """The entry whose commit the act takes back; None where the database has that one's number."""
    if not isinstance(act, Commit) or act.batch.undoes is None:
        return None
    return db.execute(
        "SELECT entry FROM numbers WHERE store = ? AND local_seq = ?",
        (act.store, act.batch.undoes),
    ).get


def settle(db: Connection, entry: int, committed_as: int | None) -> None:
    db.execute("UPDATE numbers SET seq = ? WHERE entry = ?", (committed_as, entry))


def committed_as(db: Connection, entry: int) -> int | None:
    return db.execute("SELECT seq FROM numbers WHERE entry = ?", (entry,)).get


def renumber(db: Connection, old: int, new: int) -> None:
    db.execute("UPDATE numbers SET entry = ? WHERE entry = ?", (new, old))
    db.execute("UPDATE entries SET undoes = ? WHERE undoes = ?", (new, old))


def forget(db: Connection, store: str) -> None:
    db.execute("UPDATE numbers SET local_seq = NULL WHERE store = ?", (store,))
    db.execute(
        f"DELETE FROM numbers WHERE store = ? AND {_UNREFERRED} "
        "AND entry NOT IN (SELECT seq FROM entries)",
        (store,),
    )
