"""Taking the words of what was removed out of the word index: a deletion only marks them there.

An index of few rows is rewritten by the transaction that removes them. To rewrite a large one takes
seconds, in which nobody else could write: there it is merged step by step afterwards, each step in
a transaction of its own. Whatever cuts that short, the next purge goes on with it.
"""

from typing import NamedTuple

from everkept.engines.sqlite.sql import Connection
from everkept.engines.sqlite.word_index import indexed_rows, varints

AT_ONCE = 20_000  # rows that are rewritten in less than a second
PAGES = 1_000  # that a step writes, some 4 MB
MOST_STEPS = 100_000

_STRUCTURE = "SELECT block FROM words_data WHERE id = 10"
_HEADER = 8  # bytes of the structure before its numbers
_OF_SEGMENT = 8  # numbers
_MERGE = "INSERT INTO words(words, rank) VALUES ('merge', ?)"


class _Segment(NamedTuple):
    """A part of the index: it holds what was written from one moment to another."""

    id: int
    first_page: int
    last_page: int
    begin: int
    end: int
    pages_of_marks: int
    marks: int
    entries: int


def cleanse_at_once(db: Connection) -> None:
    """Rewrites the index, unless it is large."""
    if indexed_rows(db) <= AT_ONCE:
        db.execute("INSERT INTO words(words) VALUES ('optimize')")


def newest_moment(db: Connection) -> int:
    return max((segment.end for segment in _segments(db)), default=0)


def has_marks(db: Connection, until: int) -> bool:
    """Whether anything is only marked as removed of what was written by then."""
    return any(segment.marks and segment.begin <= until for segment in _segments(db))


def cleanse_some(db: Connection) -> None:
    """Goes on merging, or begins to merge all."""
    if not (_has_merged(db, PAGES) or _has_merged(db, -PAGES)):
        db.execute("INSERT INTO words(words) VALUES ('optimize')")


def _has_merged(db: Connection, pages: int) -> bool:
    before = db.total_changes()
    db.execute(_MERGE, (pages,))
    return db.total_changes() - before > 1  # the statement itself counts as one


def _segments(db: Connection) -> list[_Segment]:
    levels, _, _, *numbers = varints((db.execute(_STRUCTURE).get or b"")[_HEADER:]) or (0, 0, 0)
    segments: list[_Segment] = []
    place = 0
    for _ in range(levels):
        count = numbers[place + 1]
        place += 2
        for _ in range(count):
            segments.append(_Segment(*numbers[place : place + _OF_SEGMENT]))
            place += _OF_SEGMENT
    return segments
