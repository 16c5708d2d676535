"""What somebody is after who asks a question, and by which ways that is found best."""

import re
from collections.abc import Iterator
from typing import Literal, cast

from everkept.core.searching import SearchType
from everkept.language.stop_words import STOP_WORDS
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
    """What a question speaks of, as it was typed."""

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
    # Their patterns are compiled at the first question: that takes longer than a start may.
    from everkept.retrieval.mentions import LONGEST_READ, mentioned

    text = query[:LONGEST_READ].replace("’", "'")
    found = min(_forms(text), key=lambda form: (form.start, form.row), default=None)
    if found is not None:
        entities = Entities(*mentioned(text, found.name, (found.start, found.end)))
        return Intent(found.intent, WAYS[found.intent], entities, SURE)
    entities = Entities(*mentioned(text))
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
    return name.lower() not in STOP_WORDS and name.lower() not in _NO_NAMES


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
_NO_NAMES = frozenset(f"{_PRONOUNS} {_KINDS}".split())
_ERROR = re.compile(r"(?:Error|Exception|Warning)$")
_LETTERS = re.compile(r"[^\W_]+")
