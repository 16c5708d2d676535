"""What a prompt asks for, before anything is opened."""

from typing import NamedTuple

from everkept.hooks.prompting.conditions import error_lines, error_words, is_debugging
from everkept.language.forms import OVERVIEW
from everkept.language.past_forms import Trigger, foreign_indicators_in, indicators_in, triggered
from everkept.language.telling_words import Word, telling_words

# Of a prompt that is longer the beginning and the end are read: who pastes a log says before or
# after it what to do with it, and most programs end with what went wrong.
HEAD, TAIL = 2_500, 1_500  # characters
FEWEST_WORDS = 3  # telling ones that a prompt has which asks for nothing in the past
FEWEST_HINTED = 2  # where something in it hints at the past
FEWEST_OF_TOPIC = 2  # below that, the rest of the prompt says more about what is meant

# What a program says in the user's name, and what only the program is told.
_NO_PROMPT = ("<command-", "<local-command", "<task-notification", "<bash-", "!")


class Reading(NamedTuple):
    """A prompt that may be answered: what it says, and the words that it is about.

    Where it asks for the past, `words` are those of its topic and `around` all that it has; it
    has none where it asks for all that was done of late. `error_lines` are as in `conditions`.
    """

    prompt: str
    words: tuple[Word, ...]
    around: tuple[Word, ...] = ()
    trigger: Trigger | None = None
    has_indicator: bool = False
    is_debugging: bool = False
    error: tuple[Word, ...] = ()
    error_lines: tuple[str, ...] = ()
    is_foreign: bool = False


def read(prompt: str) -> Reading | None:
    """None for a prompt that says too little, or nothing to anybody: `yes`, `go on`, `/clear`."""
    text = part_read(prompt)
    if not text or _is_command(text):
        return None
    words = telling_words(text)
    if trigger := triggered(text):
        return _for_trigger(text, trigger, words)
    if len(words) < FEWEST_HINTED:
        return None
    hints, foreign = indicators_in(text), foreign_indicators_in(text)
    debugs = is_debugging(text)
    lines = error_lines(text) if debugs else ()
    if len(words) < FEWEST_WORDS and not (hints or foreign or lines):
        return None
    return Reading(
        text,
        words,
        has_indicator=bool(hints or foreign),
        is_debugging=debugs,
        error=error_words(text) if debugs else (),
        error_lines=lines,
        is_foreign=bool(foreign),
    )


def part_read(prompt: str) -> str:
    """As much of a prompt as is read, however long it is."""
    if len(prompt) <= HEAD + TAIL:
        return prompt.strip()
    return f"{prompt[:HEAD].strip()}\n{prompt[-TAIL:].strip()}"


def _for_trigger(text: str, trigger: Trigger, words: tuple[Word, ...]) -> Reading | None:
    if trigger.wanted == OVERVIEW:
        return Reading(text, (), (), trigger)
    topic = _words_of_topic(trigger, words)
    return Reading(text, topic, words, trigger, is_foreign=trigger.is_foreign) if topic else None


def _is_command(text: str) -> bool:
    """A command of the assistant's program; a path is none."""
    first = text.split(maxsplit=1)[0]
    return text.startswith(_NO_PROMPT) or (first.startswith("/") and first.count("/") == 1)


def _words_of_topic(trigger: Trigger, around: tuple[Word, ...]) -> tuple[Word, ...]:
    words = telling_words(trigger.topic)
    if len(words) < FEWEST_OF_TOPIC:
        words = tuple(dict.fromkeys((*words, *around)))
    return words or telling_words(trigger.topic, commonplace=True)
