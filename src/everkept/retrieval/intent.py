"""Intent of a question, and the names, files, times and concepts that it mentions."""

import re
from collections.abc import Callable, Iterator, Set
from typing import Literal, cast

from everkept.core.answers import SearchType
from everkept.language.code_names import (
    CALL,
    CASED_NAME,
    DECLARED_NAMES,
    FILE,
    IDENTIFIER,
    QUALIFIED,
    QUOTED,
    URL,
    is_file,
    is_name,
    is_product,
)
from everkept.language.telling_words import ASKING_WORDS, EMPTY_WORDS
from everkept.language.words import STOP_WORDS
from everkept.patterns import compile_late
from everkept.retrieval.dates import find_date_phrases
from everkept.values import Value

PrimaryIntent = Literal["find_code", "recall_discussion", "trace_dependencies", "understand_structure"]

UNSURE_CONFIDENCE = 0.5
SURE_CONFIDENCE = 0.8  # if the question has a form that shows its intent
SEARCH_TYPES: dict[PrimaryIntent, tuple[SearchType, ...]] = {
    "find_code": ("semantic", "keyword"),
    "recall_discussion": ("semantic",),
    "trace_dependencies": ("graph", "semantic"),
    "understand_structure": ("graph", "semantic"),
}


class QuestionEntities(Value):
    """Things that a question mentions, spelled as typed, in the order of the question."""

    functions: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    concepts: tuple[str, ...] = ()
    time_references: tuple[str, ...] = ()


class QuestionIntent(Value):
    """Presumed intent of a question."""

    primary_intent: PrimaryIntent
    search_types: tuple[SearchType, ...]
    entities: QuestionEntities
    confidence: float


def analyze_question(query: str) -> QuestionIntent:
    """Classify any text. The first of several matching forms counts, because the beginning shows the intent."""
    text = query[:MAX_CHARACTERS].replace("’", "'")
    found = min(_find_forms(text), key=lambda form: (form.start, form.row), default=None)
    if found is not None:
        entities = find_mentions(text, found.name, (found.start, found.end))
        return QuestionIntent(found.intent, SEARCH_TYPES[found.intent], entities, SURE_CONFIDENCE)
    entities = find_mentions(text)
    if _has_only_names(text, entities):
        return QuestionIntent("find_code", SEARCH_TYPES["find_code"], entities, SURE_CONFIDENCE)
    return QuestionIntent("recall_discussion", SEARCH_TYPES["recall_discussion"], entities, UNSURE_CONFIDENCE)


class _FoundForm(Value):
    """Question form that a text matches, and its position."""

    intent: PrimaryIntent
    start: int
    end: int
    row: int
    name: str | None


def _find_forms(text: str) -> Iterator[_FoundForm]:
    from everkept.language.question_forms import list_question_forms

    for row, (intent, pattern) in enumerate(list_question_forms()):
        if match := pattern.search(text):
            name = match.groupdict().get("name")
            if name is not None and (name.lower() in STOP_WORDS or name.lower() in _NEVER_CODE):
                name = None
            yield _FoundForm(cast(PrimaryIntent, intent), match.start(), match.end(), row, name)


def _has_only_names(text: str, entities: QuestionEntities) -> bool:
    """Return whether the text has only code names. The name of an error does not count: it asks what was said."""
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


MAX_CHARACTERS = 2_000  # longer text is pasted, and the rest adds nothing
MAX_MENTIONS = 10  # of each kind
MAX_PHRASE_WORDS = 4  # of a concept that is not in quotes


def find_mentions(text: str, name: str | None = None, asking: tuple[int, int] = (0, 0)) -> QuestionEntities:
    """Return what the text mentions. `name` is a plain word that is known to be a code name.

    `asking` is the range of characters that states what is wanted; its words are not concepts.
    """
    reading = _TextParts(text[:MAX_CHARACTERS])
    reading.drop(URL)
    quoted = reading.take_quoted()
    files = [*quoted.files, *reading.take_files()]
    times = reading.take_times()
    functions = [*quoted.functions, *reading.take_functions()]
    if name is not None and name.lower() not in (known.lower() for known in (*functions, *files)):
        functions.append(name)
    spoken_of = {word.lower() for word in (*functions, *files)}
    left = (*quoted.concepts, *reading.take_concepts(asking, spoken_of))
    concepts = [concept for concept in left if concept.lower() not in spoken_of]
    return QuestionEntities(
        functions=_list_distinct(functions, text),
        files=_list_distinct(files, text),
        concepts=_list_distinct(concepts, text),
        time_references=times[:MAX_MENTIONS],
    )


def _list_distinct(found: list[str], text: str) -> tuple[str, ...]:
    """Return each item once, ignoring case, in the order of the text."""
    once: dict[str, str] = {}
    for each in found:
        once.setdefault(each.lower(), each)
    return tuple(sorted(once.values(), key=text.find)[:MAX_MENTIONS])


_ADJECTIVES = "abstract arrow async base generic helper lambda parent pure static whole"
_NO_NAMES = frozenset(_ADJECTIVES.split())  # of functions, if the word `function` follows
_WORD = compile_late(r"[^\W_]+(?:[-'’+#.][^\W_]+)*(?:\+\+|#)?")
_BREAK = compile_late(r"[^\s\w'’-]|\|")


class _TextParts:
    """Text of which each part is read once: later reads do not see text that an earlier one took."""

    def __init__(self, text: str) -> None:
        self._left = text

    def drop(self, pattern: "re.Pattern[str]") -> None:
        self._take(pattern, lambda _: True)

    def take_quoted(self) -> QuestionEntities:
        """Take the quoted texts: each is a file, a code name, otherwise a concept as a whole."""
        found: list[str] = []
        ticked: set[str] = set()
        for match in self._take(QUOTED, lambda _: True):
            inner = next(group for group in match.groups() if group is not None).strip()
            found.append(inner)
            if match[1] is not None:
                ticked.add(inner)
        files = [each for each in found if is_file(each)]
        names = [
            each
            for each in found
            if each not in files and (is_name(each) or (each in ticked and re.fullmatch(IDENTIFIER, each)))
        ]
        left = [each for each in found if each not in files and each not in names]
        concepts = [each for each in left if any(sign.isalnum() for sign in each)]
        return QuestionEntities(tuple(map(_strip_call, names)), tuple(files), tuple(concepts))

    def take_files(self) -> list[str]:
        return [m[0] for m in self._take(FILE, lambda m: not is_product(m[0]))]

    def take_times(self) -> tuple[str, ...]:
        found = find_date_phrases(self._left)
        for words in found:
            self._left = self._left.replace(words, "|" * len(words), 1)
        return found

    def take_functions(self) -> list[str]:
        found = [
            match[0]
            for pattern in (CALL, QUALIFIED, CASED_NAME)
            for match in self._take(pattern, lambda m: not is_product(m[0]))
        ]
        for pattern in DECLARED_NAMES:
            named = self._take(pattern, lambda m: _is_telling(m["name"]) and m["name"].lower() not in _NO_NAMES)
            found += [match["name"] for match in named]
        return [_strip_call(each) for each in found]

    def take_concepts(self, asking: tuple[int, int], spoken_of: Set[str]) -> list[str]:
        """Return the content words, joined into phrases if they are adjacent."""
        phrases: list[list[str]] = [[]]
        end = 0
        for match in _WORD.finditer(self._left):
            word = match[0]
            asks = asking[0] <= match.start() < asking[1] and word.lower() in ASKING_WORDS
            tells = _is_telling(word) and not asks and word.lower() not in spoken_of
            is_apart = _BREAK.search(self._left, end, match.start()) is not None
            if is_apart or not tells or len(phrases[-1]) == MAX_PHRASE_WORDS:
                phrases.append([])
            if tells:
                phrases[-1].append(word)
            end = match.end()
        return [" ".join(words) for words in phrases if words]

    def _take(self, pattern: "re.Pattern[str]", is_meant: Callable[["re.Match[str]"], bool]) -> list["re.Match[str]"]:
        found = [match for match in pattern.finditer(self._left) if is_meant(match)]
        for match in found:
            start, end = match.span()
            self._left = self._left[:start] + "|" * (end - start) + self._left[end:]
        return found


def _strip_call(name: str) -> str:
    return name.partition("(")[0]


def _is_telling(word: str) -> bool:
    lowered = word.lower().replace("’", "'").removesuffix("'s")
    plain = lowered.replace("'", "")
    return len(plain) > 1 and not (plain in STOP_WORDS or plain in EMPTY_WORDS)
