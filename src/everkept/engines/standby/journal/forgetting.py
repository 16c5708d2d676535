"""Taking things that were removed for good out of what waits, or was set aside."""

from collections.abc import Collection, Iterable

from everkept.core.records import Batch, Delete, Insert, Link, Record, Ref, Restore, Step, Update
from everkept.engines.sqlite.sql import Connection
from everkept.engines.standby.journal.acts import Commit
from everkept.engines.standby.journal.encoding import decoded, encoded
from everkept.values import replace

_REMOVED = "Part of it was removed for good."


class Doomed:
    """Things to be forgotten; with `belongings` also children and links, as they come up."""

    def __init__(self, refs: Iterable[Ref], *, belongings: bool) -> None:
        self._refs = set(refs)
        self._belongings = belongings

    def without(self, batch: Batch) -> Batch:
        return replace(batch, steps=tuple(step for step in batch.steps if not self._has(step)))

    def _has(self, step: Step) -> bool:
        match step:
            case Insert(Record() as record):
                return self._takes(record.ref, (record.parent,))
            case Insert(Link() as link):
                return self._takes(link.ref, (link.source, link.target))
            case Update():
                return Ref("record", step.id) in self._refs
            case Delete(ref) | Restore(ref):
                return ref in self._refs
            case _:
                raise TypeError(step)

    def _takes(self, ref: Ref, owners: Iterable[str | None]) -> bool:
        if self._belongings and any(Ref("record", each) in self._refs for each in owners if each):
            self._refs.add(ref)
        return ref in self._refs


def forget(db: Connection, stores: Collection[str], doomed: Doomed) -> int:
    """Gives how many entries had something of it. One of which nothing is left goes as a whole."""
    rows = db.execute(
        "SELECT seq, act, local_seq, undoes, reason, aside_at, account, account_id FROM entries"
    ).fetchall()
    changed = 0
    for seq, text, local_seq, undoes, reason, *rest in sorted(rows):
        act = decoded(text)
        if not isinstance(act, Commit) or act.store not in stores:
            continue
        left = doomed.without(act.batch)
        if left.steps == act.batch.steps:
            continue
        changed += 1
        db.execute("DELETE FROM entries WHERE seq = ?", (seq,))
        if left.steps:
            why = reason and _REMOVED  # the reason may name what is to be forgotten
            db.execute(
                "INSERT INTO entries"
                "(seq, act, local_seq, undoes, reason, aside_at, account, account_id) "
                "VALUES (?,?,?,?,?,?,?,?)",
                (seq, encoded(Commit(act.store, left)), local_seq, undoes, why, *rest),
            )
    return changed
