"""What must not be remembered of a command and its output: the secrets that it was given."""

import re
from collections.abc import Iterator

from everkept.core.secret_forms import is_placeholder
from everkept.core.secrets import masked, secret_spans

# In a command, what such an option or variable is given is a secret, however it looks.
_NAME = re.compile(
    r"[\w-]*(?:password|passwd|passphrase)"
    r"|(?:[\w-]*[-_])?(?:pass|pwd|token|secret|(?:api|access|secret)[-_]?key)",
    re.IGNORECASE,
)
_WORD = re.compile(r"(?:'[^']*'|\"(?:\\.|[^\"\\])*\"|\\.|[^\s'\"|;&\\])+", re.DOTALL)
_PATH = re.compile(r"(?:~|\.{1,2})?[/\\]|[A-Za-z]:[/\\]")
_MASK = "[masked: password]"
SHORTEST = 3  # characters; less is a number or a letter
SHORTEST_ELSEWHERE = 6  # what is shorter may be a word of its own in an output


def without_secrets(command: str) -> str:
    """The command as it may be shown."""
    parts: list[str] = []
    at = 0
    for start, end in _named(command):
        parts += [command[at:start], _MASK]
        at = end
    return masked("".join([*parts, command[at:]]))[0]


def without_those_of(command: str, output: str) -> str:
    """The output without its secrets, and without what the command was given as one."""
    spans = [*_named(command), *((start, end) for start, end, _ in secret_spans(command))]
    text = output
    for secret in sorted({command[start:end] for start, end in spans}, key=len, reverse=True):
        if len(secret) >= SHORTEST_ELSEWHERE:
            text = text.replace(secret, _MASK)
    return masked(text)[0]


def _named(command: str) -> Iterator[tuple[int, int]]:
    """Where the values of such options and variables stand, without their quotes."""
    awaited = ""  # the option whose value comes next
    for word in _WORD.finditer(command):
        name, sign, _ = word[0].partition("=")
        is_named = bool(_NAME.fullmatch(name))
        start = word.start() + len(name) + 1 if is_named and sign else word.start()
        value = command[start : word.end()].strip("'\"")
        start = command.find(value, start)
        if (awaited or (is_named and sign)) and not _is_harmless(value, awaited or name):
            yield start, start + len(value)
        awaited = name if is_named and not sign and name.startswith("-") else ""


def _is_harmless(value: str, name: str) -> bool:
    is_count = value.isdigit() and name.lower().endswith("token")
    is_no_value = len(value) < SHORTEST or value.startswith("-") or bool(_PATH.match(value))
    return is_count or is_no_value or is_placeholder(value)
