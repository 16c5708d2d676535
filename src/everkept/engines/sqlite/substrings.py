"""Index of lower-case texts in memory, which finds records that may contain a text.

SQLite would have to read every record. It only checks the candidates instead, so the answer is the same.
"""

from array import array
from bisect import bisect_right
from itertools import accumulate
from threading import Lock

from everkept.engines.sqlite.commit import read_newest_change
from everkept.engines.sqlite.connection import Connection
from everkept.engines.sqlite.replication import read_replication_number
from everkept.engines.sqlite.rows import encode_list

MAX_BYTES = 8_000_000  # for all texts; 10,000 entities take some three million
MAX_CHANGED_RECORDS = 2_000  # records changed since the index was built; beyond that it is read again

_SEPARATOR, _TERMINATOR = "\x1f", "\x1e"
_SELECT_TEXTS = (
    "SELECT r.key, coalesce(r.name, '') || char(31) || coalesce(r.type, '') || char(31) || r.text "
    "FROM records r WHERE r.deleted_at IS NULL"
)
_SELECT_CHANGED = (
    "SELECT item FROM edits WHERE change > ?1 AND subject = 'record' UNION "
    "SELECT value FROM changes, json_each(changes.reindexed) WHERE seq > ?1"
)
_COUNT_REMOVED = "SELECT count(*) FROM changes WHERE seq > ? AND tool IN ('purge', 'redact')"


class SubstringIndex:
    """The texts of all live records of a file. Each query first applies all changes since the last one.

    The index is outdated if too much has changed to apply it.
    """

    def __init__(self, db: Connection, generation: int) -> None:
        """Read all texts. This takes a moment and belongs in a thread that no caller waits for."""
        self.generation = generation  # of the file that was read
        self.is_outdated = False
        self._seen, self._restocked = read_newest_change(db), read_replication_number(db)
        self._changed: dict[int, bytes] = {}
        self._keys = array("q")
        texts: list[bytes] = []
        for key, said in db.execute(_SELECT_TEXTS).fetchall():
            self._keys.append(key)
            texts.append(_encode_lower(said))
        self._starts = array("q", accumulate(map(len, texts), initial=0))
        self._is_too_large = self._starts[-1] > MAX_BYTES
        self._text = b"" if self._is_too_large else b"".join(texts)
        # While a file is being closed, a second thread may already read it.
        self._lock = Lock()

    def find(self, db: Connection, text: str) -> list[int] | None:
        """Return the keys of all records that may contain the text, or None if the index cannot know."""
        if self._is_too_large or not text or _SEPARATOR in text or _TERMINATOR in text:
            return None
        with self._lock:
            self._catch_up(db)
            return None if self.is_outdated else self._find_keys(text.lower().encode())

    def _find_keys(self, wanted: bytes) -> list[int]:
        keys = [key for key, text in self._changed.items() if wanted in text]
        place = self._text.find(wanted)
        while place >= 0:
            row = bisect_right(self._starts, place)
            if self._keys[row - 1] not in self._changed:
                keys.append(self._keys[row - 1])
            place = self._text.find(wanted, self._starts[row])
        return keys

    def _catch_up(self, db: Connection) -> None:
        newest, number = read_newest_change(db), read_replication_number(db)
        if (newest, number) == (self._seen, self._restocked) or self.is_outdated:
            return
        changed = self._find_changed(db) if number == self._restocked else None
        if changed is None or len(changed) + len(self._changed) > MAX_CHANGED_RECORDS:
            self.is_outdated = True
            self._text = b""
            return
        self._changed.update(dict.fromkeys(changed, b""))
        found = db.execute(f"{_SELECT_TEXTS} AND r.key IN (SELECT value FROM json_each(?))", (encode_list(changed),))
        self._changed.update((key, _encode_lower(said)) for key, said in found)
        self._seen = newest

    def _find_changed(self, db: Connection) -> list[int] | None:
        """Return the changed keys, or None after a purge or redaction: erased text must go, and keys are reused."""
        if db.execute(_COUNT_REMOVED, (self._seen,)).get:
            return None
        return [row[0] for row in db.execute(_SELECT_CHANGED, (self._seen,))]


def _encode_lower(said: str) -> bytes:
    return (said.lower() + _TERMINATOR).encode()
