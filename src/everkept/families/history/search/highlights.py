"""Highlights: the short phrases of a text that say what was asked, with those words marked."""

import re
from collections.abc import Sequence

from everkept.families.history.search.wording import sought_by, without_masks
from everkept.language.sentences import sentences
from everkept.language.telling_words import stems
from everkept.retrieval.excerpts import Sought
from everkept.values import Value

MOST = 3  # phrases
LONGEST = 100  # characters of a phrase, without its marks
BESIDE = 24  # characters that are shown on each side of the words
MARK = "**"

_WORD = re.compile(r"[^\s()\[\]{}<>,;\"`=|]+")
_CORE = re.compile(r"\w(?:\S*\w)?")


class Phrase(Value):
    """A part of a line from its first word that was asked for to its last, and how many there
    are."""

    text: str
    asked: frozenset[str]


def highlights(text: str, query: str) -> list[str]:
    """The phrases with most of the words, in the order of the text; none where no word is there."""
    sought = sought_by(query)
    text = without_masks(text)
    phrases = [
        phrase
        for sentence in sentences(text)
        for line in sentence.splitlines()
        if (phrase := _phrase(line, sought)) is not None
    ]
    chosen: list[Phrase] = []
    told: set[str] = set()
    by_words = sorted(range(len(phrases)), key=lambda i: (-len(phrases[i].asked), i))
    for number in by_words:
        # Another phrase with the same words tells nothing, but for the first one.
        if len(chosen) < MOST and not phrases[number].asked <= told:
            chosen.append(phrases[number])
            told |= phrases[number].asked
    return [phrase.text for phrase in phrases if phrase in chosen]


def _phrase(line: str, sought: Sought) -> Phrase | None:
    """The words that were asked for and what stands between them, with a little on both sides."""
    if not sought.may_be_in(line):
        return None
    found = [
        (word, said)
        for word in _WORD.finditer(line)
        if sought.may_be_in_chunk(word[0]) and (said := _said(word[0], sought))
    ]
    if not found:
        return None
    first, last = found[0][0], found[0][0]
    said = found[0][1]
    marked = [first]
    for word, more in found[1:]:
        if word.end() - first.start() <= LONGEST - 2 * BESIDE:
            last, said = word, said | more
            marked.append(word)
    start = _earlier(line, first.start())
    end = _later(line, last.end())
    pieces: list[str] = []
    at = start
    for word in marked:
        left, right = _core(word, said)
        pieces += [line[at:left], MARK, line[left:right][:LONGEST], MARK]
        at = right
    shown = " ".join("".join([*pieces, line[at:end]]).split())
    return Phrase(("… " if start else "") + shown + ("…" if end < len(line) else ""), said)


def _said(word: str, sought: Sought) -> frozenset[str]:
    """A number counts by itself: the 3 of S3 was not asked for."""
    found = sought.said_in(word)
    if not any(map(str.isdigit, found)) or len(stems(word)) == 1:
        return found
    return frozenset(s for s in found if not s.isdigit())


def _core(word: "re.Match[str]", asked: frozenset[str]) -> tuple[int, int]:
    """Where a word begins and ends without the punctuation at its edges; of scripts without spaces
    only what was asked for."""
    pieces = [(at, at + 2) for at in range(len(word[0])) if word[0][at : at + 2] in asked]
    if pieces and not word[0].isascii():
        return word.start() + pieces[0][0], word.start() + _end_of_run(pieces)
    found = _CORE.search(word[0])
    if found is None:
        return word.span()
    return word.start() + found.start(), word.start() + found.end()


def _end_of_run(pieces: Sequence[tuple[int, int]]) -> int:
    """Where the first pieces end that overlap each other."""
    end = pieces[0][1]
    for left, right in pieces:
        if left <= end:
            end = right
    return end


def _earlier(line: str, at: int) -> int:
    """A place before, where a word begins."""
    if at <= BESIDE:
        return 0
    blank = line.find(" ", at - BESIDE, at)
    return at if blank < 0 else blank + 1


def _later(line: str, at: int) -> int:
    if len(line) - at <= BESIDE:
        return len(line)
    blank = line.rfind(" ", at, at + BESIDE)
    return at if blank < 0 else blank
