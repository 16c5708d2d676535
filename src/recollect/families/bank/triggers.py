"""Which words ask for an update of the memory bank; rule files may bring a pattern of their own."""

import re

LONGEST_PATTERN = 200  # characters
LONGEST_COMMAND = 120  # characters that a pattern of a rule file gets to see
_MOST_REPEATS = 3  # each one multiplies the ways in which a text can be read
_MOST_OPTIONS = 8

DEFAULT = r"\b(umb|update\s+memory\s+bank)\b"
_DEFAULT = re.compile(DEFAULT, re.IGNORECASE)
_REPEAT = re.compile(r"[*+]|\{\d*,?\d*\}")


class BadTrigger(ValueError):
    """A pattern that cannot be used; its text says why."""


def compiled(pattern: str) -> re.Pattern[str]:
    """Raises BadTrigger.

    In YAML's double quotes \\b is a backspace, so one is read as the boundary that was meant.
    """
    if len(pattern) > LONGEST_PATTERN:
        raise BadTrigger(f"the trigger is longer than {LONGEST_PATTERN} characters")
    pattern = pattern.replace("\b", r"\b").replace("(?i)", "")
    _check_cost(pattern)
    try:
        return re.compile(pattern, re.IGNORECASE)
    except (re.error, OverflowError, RecursionError) as error:
        raise BadTrigger(f"the trigger is no pattern ({error})") from None


def asks_for_update(command: str, trigger: str | None) -> bool:
    """Whether the words are those of the trigger, or of the built-in one; raises BadTrigger."""
    line = " ".join(command.split())
    if trigger is None:
        return bool(_DEFAULT.search(line))
    return bool(compiled(trigger).search(line[:LONGEST_COMMAND]))


def own_words(trigger: str | None) -> str | None:
    """The pattern of a project as people write it; None where the usual words count."""
    return None if trigger in (None, DEFAULT) else trigger.replace("\b", r"\b")


def _check_cost(pattern: str) -> None:
    """Refuses what may take for ever: a repeated group that repeats or chooses inside."""
    repeats = options = 0
    groups = [False]  # whether each open group repeats or chooses
    closed = False  # whether the part before is such a group
    at = 0
    while at < len(pattern):
        char = pattern[at]
        step, was_closed = 1, closed
        closed = False
        if char == "\\":
            if pattern[at + 1 : at + 2].isdigit():
                raise BadTrigger("the trigger refers back to a group")
            step = 2
        elif char == "[":
            step = _class_length(pattern, at)
        elif char == "(":
            groups.append(False)
            step = 2 if pattern[at + 1 : at + 2] == "?" else 1
        elif char == ")" and len(groups) > 1:
            closed = groups.pop()
            groups[-1] |= closed
        elif char == "|":
            groups[-1] = True
        elif found := _REPEAT.match(pattern, at):
            if was_closed:
                raise BadTrigger("the trigger repeats a group that repeats or chooses inside")
            repeats, groups[-1], step = repeats + 1, True, len(found.group())
        elif char == "?":
            options += 1
            groups[-1] = True
        at += step
    if repeats > _MOST_REPEATS or options > _MOST_OPTIONS:
        raise BadTrigger("the trigger repeats too often")


def _class_length(pattern: str, at: int) -> int:
    end = at + 2 if pattern[at + 1 : at + 2] == "^" else at + 1
    end += pattern[end : end + 1] == "]"
    while end < len(pattern) and pattern[end] != "]":
        end += 2 if pattern[end] == "\\" else 1
    return end + 1 - at
