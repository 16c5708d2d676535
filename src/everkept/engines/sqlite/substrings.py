"""Which records may contain a text: what they say, in lower case and in one piece of memory.

SQLite would read every record for it. Here a search in memory names the few records that SQLite
then looks at itself, so that the answer is the one that it would have given.
"""

from array import array
from bisect import bisect_right
from itertools import accumulate
from threading import Lock

from everkept.engines.sqlite.commit import newest_change
from everkept.engines.sqlite.connection import Connection
from everkept.engines.sqlite.replication import restocked
from everkept.engines.sqlite.rows import listed

MOST_BYTES = 8_000_000  # of all texts; 10,000 entities take some three million
MOST_CHANGED = 2_000  # records beside the piece; with more of them it is read again

_SEPARATOR, _END = "\x1f", "\x1e"
_SAID = (
    "SELECT r.key, coalesce(r.name, '') || char(31) || coalesce(r.type, '') || char(31) || r.text "
    "FROM records r WHERE r.deleted_at IS NULL"
)
_CHANGED = (
    "SELECT item FROM edits WHERE change > ?1 AND subject = 'record' UNION "
    "SELECT value FROM changes, json_each(changes.reindexed) WHERE seq > ?1"
)
_REMOVED = "SELECT count(*) FROM changes WHERE seq > ? AND tool IN ('purge', 'redact')"


class Substrings:
    """The texts of all live records of a file. A question first follows what anyone has changed.

    It is `outdated` when too much has changed to follow it.
    """

    def __init__(self, db: Connection, generation: int) -> None:
        """Read everything: that takes a moment, and is for a thread that no caller waits for."""
        self.generation = generation  # of the file that was read
        self.is_outdated = False
        self._seen, self._restocked = newest_change(db), restocked(db)
        self._changed: dict[int, bytes] = {}
        self._keys = array("q")
        texts: list[bytes] = []
        for key, said in db.execute(_SAID).fetchall():
            self._keys.append(key)
            texts.append(_lowered(said))
        self._starts = array("q", accumulate(map(len, texts), initial=0))
        self._is_too_large = self._starts[-1] > MOST_BYTES
        self._text = b"" if self._is_too_large else b"".join(texts)
        # While a file is being closed, a second thread may read it already.
        self._lock = Lock()

    def find(self, db: Connection, text: str) -> list[int] | None:
        """Return the keys of all records that may contain the text; None if that is not known."""
        if self._is_too_large or not text or _SEPARATOR in text or _END in text:
            return None
        with self._lock:
            self._follow(db)
            return None if self.is_outdated else self._having(text.lower().encode())

    def _having(self, wanted: bytes) -> list[int]:
        keys = [key for key, text in self._changed.items() if wanted in text]
        place = self._text.find(wanted)
        while place >= 0:
            row = bisect_right(self._starts, place)
            if self._keys[row - 1] not in self._changed:
                keys.append(self._keys[row - 1])
            place = self._text.find(wanted, self._starts[row])
        return keys

    def _follow(self, db: Connection) -> None:
        newest, number = newest_change(db), restocked(db)
        if (newest, number) == (self._seen, self._restocked) or self.is_outdated:
            return
        changed = self._changed_since(db) if number == self._restocked else None
        if changed is None or len(changed) + len(self._changed) > MOST_CHANGED:
            self.is_outdated = True
            self._text = b""
            return
        self._changed.update(dict.fromkeys(changed, b""))
        found = db.execute(
            f"{_SAID} AND r.key IN (SELECT value FROM json_each(?))", (listed(changed),)
        )
        self._changed.update((key, _lowered(said)) for key, said in found)
        self._seen = newest

    def _changed_since(self, db: Connection) -> list[int] | None:
        """Return None if something was removed: it is not to stay here, and its key is free."""
        if db.execute(_REMOVED, (self._seen,)).get:
            return None
        return [row[0] for row in db.execute(_CHANGED, (self._seen,))]


def _lowered(said: str) -> bytes:
    return (said.lower() + _END).encode()
