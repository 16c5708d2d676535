"""What a session was about, in a line: how many memories of which type, and their key topics."""

from collections import Counter
from collections.abc import Iterator, Sequence

from everkept.core.records import Record
from everkept.families.memories.kinds import NOTHING_STORED
from everkept.language.sentences import beginning
from everkept.retrieval import topics

TYPES = ("episodic", "semantic", "procedural", "working")
LONGEST_TEXT = 2_000  # characters of a memory that are read
MOST_READ = 200_000  # characters in all: a summary at shutdown has no time for more


def session_summary(records: Sequence[Record], names: Sequence[str] = ()) -> str:
    """For people and for the record of a session that ends; `names` are linked entities'."""
    if not records:
        return NOTHING_STORED
    counts = Counter(record.type or "" for record in records)
    listed = ", ".join(f"{counts[kind]} {kind}" for kind in TYPES if counts[kind])
    noun = "memory" if len(records) == 1 else "memories"
    line = f"{len(records)} {noun} ({listed})." if listed else f"{len(records)} {noun}."
    named = key_topics(records, names)
    return f"{line} Key topics: {', '.join(named)}" if named else line


def key_topics(
    records: Sequence[Record], names: Sequence[str] = (), limit: int = topics.MOST_TOPICS
) -> list[str]:
    """What most of the memories speak of, spelled as they do, the weightiest first."""
    return topics.key_topics(_read(records), names, limit)


def _read(records: Sequence[Record]) -> Iterator[tuple[str, Sequence[str]]]:
    """Texts and tags, as far as there is time; the newest tell best where a session has come to."""
    left = MOST_READ
    for record in sorted(records, key=lambda r: (r.at, r.id), reverse=True):
        if left <= 0:
            return
        text = beginning(record.text, LONGEST_TEXT)
        yield text, record.tags
        left -= len(text) + sum(map(len, record.tags))
