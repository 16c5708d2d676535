"""A failed command, without the secrets that it was given, and what fixed it before."""

import re
from collections.abc import Iterator, Sequence

from everkept.core.context_text import token_count
from everkept.core.records import Record, Where
from everkept.core.secret_forms import is_placeholder
from everkept.core.secrets import masked, secret_spans
from everkept.families.memories.context import entry_of, fenced, is_current
from everkept.families.memories.memory_identity import MEMORY
from everkept.hooks.commands import signatures
from everkept.hooks.events import Answer, Around, HookEvent
from everkept.hooks.workspace import FAILED, FIXED, project_of

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


LOOKED_AT = 100  # memories, the newest
MOST_TOKENS = 300
LONGEST_TEXT = 2_000  # characters that are read of a memory
INTRODUCTION = "Everkept: the same error was met before in this project, and then mended."


def said_of_failure(head: str, event: HookEvent, around: Around) -> list[str]:
    """The lines that the memory of a failure has below its head; none where it is forgotten."""
    where = Where(kinds=(MEMORY,), sessions=(event.session.strip(),), tags=(FAILED,))
    found: list[Record] = around.run(_newest(where, event, around))
    for record in found:
        first, *rest = record.text.splitlines()
        if first == head:
            return rest
    return []


def mended_before(lines: Sequence[str], event: HookEvent, around: Around) -> Answer | None:
    """What helped in another session against one of these lines; told once."""
    known = signatures(lines)
    if not known:
        return None
    where = Where(kinds=(MEMORY,), scopes=("project",), tags=(FIXED,), automatic=True)
    found: list[Record] = around.run(_newest(where, event, around))
    for record in found:
        is_elsewhere = record.session != event.session.strip() and is_current(record)
        if is_elsewhere and known & signatures(record.text.splitlines()[1:]):
            return _told(record, around)
    return None


async def _newest(where: Where, event: HookEvent, around: Around) -> list[Record]:
    if around.room is None:
        return []
    project = await project_of(event.folder, around.settings, around.room)
    if project is None or project.is_off:
        return []
    _, store = await around.room.open(project.name)
    return await store.scan(where, order="newest", limit=LOOKED_AT)


def _told(record: Record, around: Around) -> Answer | None:
    entry = entry_of(record, LONGEST_TEXT, around.now)
    line = entry.fitting(MOST_TOKENS - token_count(_framed("")))
    if line is None or not around.ledger.claim([record.id]):
        return None
    return Answer(context=_framed(f"{line}\n"))


def _framed(body: str) -> str:
    return f"{INTRODUCTION}\n{fenced(body)}"
