"""What tells that something was given or spoken of before: lines for the session's ledger."""

from collections.abc import Sequence, Set
from hashlib import blake2b

from recollect.core.records import Record
from recollect.core.stemming import stem
from recollect.core.text import digest, normalised
from recollect.families.history.model import CODE
from recollect.hooks.prompting.judging import Find
from recollect.hooks.prompting.wording import Word

MOST_WORDS = 8  # of a topic
SAME_TOPIC = 0.5  # share of its words that were spoken of before


def marks_of(record: Record) -> frozenset[str]:
    """Its id, that of the turn its code stands in, and its text, which others may have too."""
    marks = {record.id, f"text-{digest(normalised(record.text))}"}
    if record.kind == CODE and record.parent:
        marks.add(record.parent)
    return frozenset(marks)


def not_given(finds: Sequence[Find], given: Set[str]) -> list[Find]:
    return [find for find in finds if given.isdisjoint(marks_of(find.record))]


def topic_marks(words: Sequence[Word]) -> frozenset[str]:
    """Of the words of a topic, without telling them: a prompt is nobody else's business."""
    return frozenset(f"topic-{_digest(stem(word.text))}" for word in words[:MOST_WORDS])


def is_same_topic(marks: Set[str], given: Set[str]) -> bool:
    return len(marks & given) > SAME_TOPIC * len(marks)


def _digest(word: str) -> str:
    return blake2b(word.encode("utf-8"), digest_size=6).hexdigest()
