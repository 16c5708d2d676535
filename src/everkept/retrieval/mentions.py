"""What a question mentions: functions, files, times, and the concepts that are left."""

import re
from collections.abc import Callable, Set
from typing import NamedTuple

from everkept.language.code_names import (
    CALL,
    FILE,
    IDENTIFIER,
    NAMED,
    QUALIFIED,
    QUOTED,
    URL,
    WRITTEN,
    is_file,
    is_name,
    is_product,
)
from everkept.language.common_words import ASKING, EMPTY
from everkept.language.stop_words import STOP_WORDS
from everkept.retrieval.dates import said

LONGEST_READ = 2_000  # characters; what comes after was pasted, and says no more
MOST = 10  # of each sort
LONGEST_PHRASE = 4  # words of a concept that nobody put into quotes


class Mentions(NamedTuple):
    """Each as it was typed, in the order of the question."""

    functions: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    concepts: tuple[str, ...] = ()
    time_references: tuple[str, ...] = ()


def mentioned(text: str, name: str | None = None, asking: tuple[int, int] = (0, 0)) -> Mentions:
    """What the text mentions. `name` is a plain word that is known to be one of code; between the
    two places of `asking` stands what is wanted, whose words are no concepts."""
    reading = _Reading(text[:LONGEST_READ])
    reading.drop(URL)
    quoted = reading.quoted()
    files = [*quoted.files, *reading.files()]
    times = reading.times()
    functions = [*quoted.functions, *reading.functions()]
    if name is not None and name.lower() not in (known.lower() for known in (*functions, *files)):
        functions.append(name)
    spoken_of = {word.lower() for word in (*functions, *files)}
    left = (*quoted.concepts, *reading.concepts(asking, spoken_of))
    concepts = [concept for concept in left if concept.lower() not in spoken_of]
    return Mentions(
        functions=_some(functions, text),
        files=_some(files, text),
        concepts=_some(concepts, text),
        time_references=times[:MOST],
    )


def _some(found: list[str], text: str) -> tuple[str, ...]:
    """Each once, whatever its case, where it first stands in the text."""
    once: dict[str, str] = {}
    for each in found:
        once.setdefault(each.lower(), each)
    return tuple(sorted(once.values(), key=text.find)[:MOST])


_ADJECTIVES = "abstract arrow async base generic helper lambda parent pure static whole"
_NO_NAMES = frozenset(_ADJECTIVES.split())  # of functions, where the word `function` follows
_WORD = re.compile(r"[^\W_]+(?:[-'’+#.][^\W_]+)*(?:\+\+|#)?")
_BREAK = re.compile(r"[^\s\w'’-]|\|")


class _Reading:
    """A text of which each part is read once: what is taken is seen by no later question."""

    def __init__(self, text: str) -> None:
        self._left = text

    def drop(self, pattern: "re.Pattern[str]") -> None:
        self._taken(pattern, lambda _: True)

    def quoted(self) -> Mentions:
        """What stands in quotes: a file, a name of code, or else a concept as a whole."""
        found: list[str] = []
        ticked: set[str] = set()
        for match in self._taken(QUOTED, lambda _: True):
            inner = next(group for group in match.groups() if group is not None).strip()
            found.append(inner)
            if match[1] is not None:
                ticked.add(inner)
        files = [each for each in found if is_file(each)]
        names = [
            each
            for each in found
            if each not in files
            and (is_name(each) or (each in ticked and re.fullmatch(IDENTIFIER, each)))
        ]
        left = [each for each in found if each not in files and each not in names]
        concepts = [each for each in left if any(sign.isalnum() for sign in each)]
        return Mentions(tuple(map(_bare, names)), tuple(files), tuple(concepts))

    def files(self) -> list[str]:
        return [m[0] for m in self._taken(FILE, lambda m: not is_product(m[0]))]

    def times(self) -> tuple[str, ...]:
        found = said(self._left)
        for words in found:
            self._left = self._left.replace(words, "|" * len(words), 1)
        return found

    def functions(self) -> list[str]:
        found = [
            match[0]
            for pattern in (CALL, QUALIFIED, WRITTEN)
            for match in self._taken(pattern, lambda m: not is_product(m[0]))
        ]
        for pattern in NAMED:
            found += [match["name"] for match in self._taken(pattern, _is_named)]
        return [_bare(each) for each in found]

    def concepts(self, asking: tuple[int, int], spoken_of: Set[str]) -> list[str]:
        """Telling words, in phrases where they stand side by side."""
        phrases: list[list[str]] = [[]]
        end = 0
        for match in _WORD.finditer(self._left):
            word = match[0]
            asks = asking[0] <= match.start() < asking[1] and word.lower() in ASKING
            tells = _tells(word) and not asks and word.lower() not in spoken_of
            is_apart = _BREAK.search(self._left, end, match.start()) is not None
            if is_apart or not tells or len(phrases[-1]) == LONGEST_PHRASE:
                phrases.append([])
            if tells:
                phrases[-1].append(word)
            end = match.end()
        return [" ".join(words) for words in phrases if words]

    def _taken(
        self, pattern: "re.Pattern[str]", is_meant: Callable[["re.Match[str]"], bool]
    ) -> list["re.Match[str]"]:
        found = [match for match in pattern.finditer(self._left) if is_meant(match)]
        for match in found:
            start, end = match.span()
            self._left = self._left[:start] + "|" * (end - start) + self._left[end:]
        return found


def _bare(name: str) -> str:
    return name.partition("(")[0]


def _is_named(match: "re.Match[str]") -> bool:
    return _tells(match["name"]) and match["name"].lower() not in _NO_NAMES


def _tells(word: str) -> bool:
    lowered = word.lower().replace("’", "'").removesuffix("'s")
    plain = lowered.replace("'", "")
    return len(plain) > 1 and not (plain in STOP_WORDS or plain in EMPTY)
