"""What is worth telling of what was said: prompts that say something, and decisions."""

from collections.abc import Iterable

from everkept.core.text import clipped
from everkept.language.common_words import FILLING
from everkept.language.phrases import is_decision
from everkept.language.sentences import sentences, without_blocks
from everkept.patterns import compile_late

LONGEST_DECISION = 300  # characters
LONGEST_PROMPT = 300
MOST_READ = 20_000  # characters of a turn
FEWEST_WORDS = 2

_WORD = compile_late(r"\w[\w'’.-]*")
_WORDY = 4  # characters, where a script puts no blanks between words


def says_something(prompt: str) -> bool:
    """Not `hi`, nor `ok, go on`, nor a command of the assistant's own without more."""
    words = [word.lower() for word in _WORD.findall(prompt)]
    telling = [word for word in words if word not in FILLING]
    if any(not word.isascii() and len(word) >= _WORDY for word in telling):
        return True
    is_command = prompt.lstrip().startswith("/") and len(words) < FEWEST_WORDS
    return len(telling) >= FEWEST_WORDS and not is_command


def prompt_line(prompt: str) -> str:
    """Its beginning, without blocks of code where there is anything else."""
    begun = prompt[: 4 * LONGEST_PROMPT]
    return clipped(without_blocks(begun).strip() or begun, LONGEST_PROMPT)


def decided_in(text: str) -> list[str]:
    """The sentences that say a decision."""
    read = text[:MOST_READ]
    if not is_decision(read):  # quick, and true of few texts
        return []
    return [clipped(each, LONGEST_DECISION) for each in sentences(read) if is_decision(each)]


def decisions_of(texts: Iterable[str], most: int) -> list[str]:
    """Those of turns that are known to be some, each once."""
    found: dict[str, None] = {}
    for text in texts:
        told = decided_in(text) or [clipped(text[: 4 * LONGEST_DECISION], LONGEST_DECISION)]
        found |= dict.fromkeys(told)
    return list(found)[:most]
