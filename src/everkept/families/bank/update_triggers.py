"""Which words ask for an update of the memory bank; rule files may bring a pattern of their own."""

import re

from everkept.values import Value

LONGEST_PATTERN = 200  # characters
LONGEST_COMMAND = 120  # characters that a pattern of a rule file gets to see

DEFAULT = r"\b(umb|update\s+memory\s+bank)\b"
_DEFAULT = re.compile(DEFAULT, re.IGNORECASE)
# One part of a pattern. Whatever else a pattern may hold could take for ever.
_PART = re.compile(
    r"""(?P<open>\((?:\?:)?)
    | (?P<close>\))
    | (?P<or>\|)
    | (?P<edge>\\b|[\^$])
    | (?P<blanks>\\s[+*]?)
    | (?P<text>\\[^\w\s]|[^\\.^$*+?{}\[\]|()])
    """,
    re.VERBOSE,
)
# Blanks beside blanks can be shared out between the two, and so in many ways.
_DOUBLE_BLANKS = re.compile(r"\\s[+*]?(?:\\b|\?:|[\^$()|])*\\s")


class BadTrigger(ValueError):
    """A pattern that cannot be used; its text says why."""


def compiled(pattern: str) -> re.Pattern[str]:
    """Raises BadTrigger.

    In YAML's double quotes \\b is a backspace, so one is read as the boundary that was meant.
    """
    if len(pattern) > LONGEST_PATTERN:
        raise BadTrigger(f"the trigger is longer than {LONGEST_PATTERN} characters")
    pattern = pattern.replace("\b", r"\b").removeprefix("(?i)")
    if _DOUBLE_BLANKS.search(pattern):
        raise BadTrigger("the trigger has blanks beside blanks")
    reader = _Reader()
    at = 0
    while at < len(pattern):
        found = _PART.match(pattern, at)
        if found is None:
            raise _not_simple(pattern[at : at + 2])
        reader.read(str(found.lastgroup), found.group())
        at = found.end()
    reader.end()
    return re.compile(pattern, re.IGNORECASE)


def asks_for_update(command: str, trigger: str | None) -> bool:
    """Whether the words are those of the trigger, or of the built-in one; raises BadTrigger."""
    line = " ".join(command.split())
    if trigger is None:
        return bool(_DEFAULT.search(line))
    return bool(compiled(trigger).search(line[:LONGEST_COMMAND]))


def own_words(trigger: str | None) -> str | None:
    """The pattern of a project as people write it; None where the usual words count."""
    return None if trigger in (None, DEFAULT) else trigger.replace("\b", r"\b")


class _Reader(Value, frozen=False):
    """Follows a pattern: words on all its ways, and no more than one place where it chooses."""

    has_words: bool = False  # on the way that is being read
    groups: int = 0
    in_group: bool = False
    choice: int | None = None  # the group that chooses, 0 for none

    def read(self, kind: str, part: str) -> None:
        if kind == "open":
            if self.in_group:
                raise _not_simple(part)
            self.in_group, self.groups, self.has_words = True, self.groups + 1, False
        elif kind == "close":
            if not self.in_group:
                raise BadTrigger("the trigger closes a bracket that is not open")
            self._check_words()
            self.in_group = False
        elif kind == "or":
            self._choose()
        elif kind == "text":
            self.has_words = True

    def end(self) -> None:
        if self.in_group:
            raise BadTrigger("the trigger has a bracket that is not closed")
        self._check_words()

    def _choose(self) -> None:
        """Several places would multiply the ways in which a text can be read."""
        self._check_words()
        place = self.groups if self.in_group else 0
        if self.choice not in (None, place):
            raise BadTrigger("the trigger chooses in more than one place")
        self.choice, self.has_words = place, False

    def _check_words(self) -> None:
        if not self.has_words:
            raise BadTrigger("the trigger would be met without any word")


def _not_simple(part: str) -> BadTrigger:
    return BadTrigger(
        f"the trigger holds `{part}`, and only words, \\b, ^, $, \\s+ and one (choice|of|words) "
        "are understood"
    )
