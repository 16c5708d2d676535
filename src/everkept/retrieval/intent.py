"""What somebody is after who asks a question, and what the question mentions."""

import re
from collections.abc import Callable, Iterator, Set
from typing import Literal, cast

from everkept.core.answers import SearchType
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
from everkept.language.telling_words import ASKING, EMPTY
from everkept.language.words import STOP_WORDS
from everkept.patterns import compile_late
from everkept.retrieval.dates import said
from everkept.values import Value

PrimaryIntent = Literal[
    "find_code", "recall_discussion", "trace_dependencies", "understand_structure"
]

UNSURE = 0.5
SURE = 0.8  # where the question has a form that says what it is after
WAYS: dict[PrimaryIntent, tuple[SearchType, ...]] = {
    "find_code": ("semantic", "keyword"),
    "recall_discussion": ("semantic",),
    "trace_dependencies": ("graph", "semantic"),
    "understand_structure": ("graph", "semantic"),
}


class Entities(Value):
    """What a question speaks of, each as it was typed, in the order of the question."""

    functions: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    concepts: tuple[str, ...] = ()
    time_references: tuple[str, ...] = ()


class Intent(Value):
    """What a question is taken for."""

    primary_intent: PrimaryIntent
    search_types: tuple[SearchType, ...]
    entities: Entities
    confidence: float


def analysed(query: str) -> Intent:
    """Reads the question; any text has an intent, and none is an error.

    What the question begins with says what it is after: of several forms in it the first counts.
    """
    text = query[:LONGEST_READ].replace("’", "'")
    found = min(_forms(text), key=lambda form: (form.start, form.row), default=None)
    if found is not None:
        entities = mentioned(text, found.name, (found.start, found.end))
        return Intent(found.intent, WAYS[found.intent], entities, SURE)
    entities = mentioned(text)
    if _is_names_alone(text, entities):
        return Intent("find_code", WAYS["find_code"], entities, SURE)
    return Intent("recall_discussion", WAYS["recall_discussion"], entities, UNSURE)


class _Form(Value):
    """A form of question that a text has, and where it stands."""

    intent: PrimaryIntent
    start: int
    end: int
    row: int
    name: str | None


def _forms(text: str) -> Iterator[_Form]:
    from everkept.language.question_forms import question_forms

    for row, (intent, pattern) in enumerate(question_forms()):
        if match := pattern.search(text):
            name = match.groupdict().get("name")
            if name is not None and not _may_be_code(name):
                name = None
            yield _Form(cast(PrimaryIntent, intent), match.start(), match.end(), row, name)


def _may_be_code(name: str) -> bool:
    return name.lower() not in STOP_WORDS and name.lower() not in _NEVER_CODE


def _is_names_alone(text: str, entities: Entities) -> bool:
    """Names of code and nothing else, as one would type them into any search box.

    Who names an error is after what was said about it.
    """
    names = (*entities.functions, *entities.files)
    if not names or any(_ERROR.search(name) for name in names):
        return False
    left = text.lower()
    for name in sorted(names, key=len, reverse=True):
        left = left.replace(name.lower(), " ")
    return all(word in STOP_WORDS for word in _LETTERS.findall(left))


_PRONOUNS = "it them one each everything anything something thing things stuff"
_KINDS = "function functions method methods class classes module file files code"
_NEVER_CODE = frozenset(f"{_PRONOUNS} {_KINDS}".split())
_ERROR = compile_late(r"(?:Error|Exception|Warning)$")
_LETTERS = compile_late(r"[^\W_]+")


LONGEST_READ = 2_000  # characters; what comes after was pasted, and says no more
MOST = 10  # of each sort
LONGEST_PHRASE = 4  # words of a concept that nobody put into quotes


def mentioned(text: str, name: str | None = None, asking: tuple[int, int] = (0, 0)) -> Entities:
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
    return Entities(
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
_WORD = compile_late(r"[^\W_]+(?:[-'’+#.][^\W_]+)*(?:\+\+|#)?")
_BREAK = compile_late(r"[^\s\w'’-]|\|")


class _Reading:
    """A text of which each part is read once: what is taken is seen by no later question."""

    def __init__(self, text: str) -> None:
        self._left = text

    def drop(self, pattern: "re.Pattern[str]") -> None:
        self._taken(pattern, lambda _: True)

    def quoted(self) -> Entities:
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
        return Entities(tuple(map(_bare, names)), tuple(files), tuple(concepts))

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
