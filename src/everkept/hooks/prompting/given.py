"""What tells that something was given or spoken of before: lines for the session's ledger."""

from collections.abc import Iterable, Sequence, Set

from everkept.core.digests import blake2b
from everkept.core.records import Record
from everkept.core.text import digest, normalised
from everkept.families.history.model import CODE
from everkept.hooks.prompting.judging import LONGEST_COMPARED, Find
from everkept.language.stems import stem
from everkept.language.telling_words import Word, stems

MOST_WORDS = 8  # of a topic
SAME_TOPIC = 0.5  # share of its words that were spoken of before


def marks_of(record: Record) -> frozenset[str]:
    """Its id, that of the turn its code stands in, and its text, which others may have too; that
    of memories which were made by themselves, or of which others were made, in any order."""
    marks = {record.id, f"text-{digest(normalised(record.text))}"}
    if _is_copied(record):
        marks.add(f"words-{digest(' '.join(sorted(_words_of(record))))}")
    if record.kind == CODE and record.parent:
        marks.add(record.parent)
    return frozenset(marks)


def not_given(finds: Sequence[Find], given: Set[str]) -> list[Find]:
    return [find for find in finds if given.isdisjoint(marks_of(find.record))]


def said_once(finds: Iterable[Find]) -> tuple[Find, ...]:
    """Without what one of the others says too: consolidation makes memories of the sentences of
    others, and both stay. That which says more takes the better place of the two."""
    kept: list[Find] = []
    said: list[Set[str]] = []
    for find in finds:
        words = _words_of(find.record) if find.is_memory else frozenset[str]()
        for place, other in enumerate(kept):
            is_copy = (
                words and said[place] and (_is_copied(find.record) or _is_copied(other.record))
            )
            if is_copy and (words <= said[place] or said[place] <= words):
                if said[place] < words:
                    kept[place], said[place] = find, words
                break
        else:
            kept.append(find)
            said.append(words)
    return tuple(kept)


def _is_copied(record: Record) -> bool:
    facets = record.facets
    return bool(facets.get("automatic") or facets.get("consolidated") or facets.get("derived"))


def _words_of(record: Record) -> frozenset[str]:
    return stems(record.text[:LONGEST_COMPARED])


def topic_marks(words: Sequence[Word]) -> frozenset[str]:
    """Of the words of a topic, without telling them: a prompt is nobody else's business."""
    return frozenset(f"topic-{_digest(stem(word.text))}" for word in words[:MOST_WORDS])


def is_same_topic(marks: Set[str], given: Set[str]) -> bool:
    return len(marks & given) > SAME_TOPIC * len(marks)


def _digest(word: str) -> str:
    return blake2b(word.encode("utf-8"), digest_size=6).hexdigest()
