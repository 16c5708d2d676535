"""Failed commands with their secrets masked, and the earlier fix of the same error."""

import re
from collections.abc import Iterator, Sequence

from everkept.core.context_text import count_tokens
from everkept.core.records import Record, RecordFilter
from everkept.core.secret_values import is_placeholder
from everkept.core.secrets import find_secrets, mask_text
from everkept.families.memories.context import build_entry, fence_memories, is_current
from everkept.families.memories.memory_identity import MEMORY
from everkept.hooks.events import HookAnswer, HookContext, HookEvent
from everkept.hooks.shell_commands import compute_signatures
from everkept.hooks.workspace import FAILED_TAG, FIXED_TAG, find_project

# In a command, the value of such an option or variable is a secret, whatever it looks like.
_NAME = re.compile(
    r"[\w-]*(?:password|passwd|passphrase)"
    r"|(?:[\w-]*[-_])?(?:pass|pwd|token|secret|(?:api|access|secret)[-_]?key)",
    re.IGNORECASE,
)
_WORD = re.compile(r"(?:'[^']*'|\"(?:\\.|[^\"\\])*\"|\\.|[^\s'\"|;&\\])+", re.DOTALL)
_PATH = re.compile(r"(?:~|\.{1,2})?[/\\]|[A-Za-z]:[/\\]")
_MASK = "[masked: password]"
MIN_SECRET_CHARACTERS = 3  # a shorter value is a number or a letter
MIN_OUTPUT_SECRET_CHARACTERS = 6  # a shorter value may be an ordinary word of the output


def mask_command(command: str) -> str:
    parts: list[str] = []
    at = 0
    for start, end in _find_secret_spans(command):
        parts += [command[at:start], _MASK]
        at = end
    return mask_text("".join([*parts, command[at:]]))[0]


def mask_output(command: str, output: str) -> str:
    """Mask the secrets in the output, including those that the command was given."""
    spans = [*_find_secret_spans(command), *((start, end) for start, end, _ in find_secrets(command))]
    text = output
    for secret in sorted({command[start:end] for start, end in spans}, key=len, reverse=True):
        if len(secret) >= MIN_OUTPUT_SECRET_CHARACTERS:
            text = text.replace(secret, _MASK)
    return mask_text(text)[0]


def _find_secret_spans(command: str) -> Iterator[tuple[int, int]]:
    """Yield the spans of the values of such options and variables, without their quotes."""
    awaited = ""  # option whose value comes next
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
    is_no_value = len(value) < MIN_SECRET_CHARACTERS or value.startswith("-") or bool(_PATH.match(value))
    return is_count or is_no_value or is_placeholder(value)


MAX_SCANNED_MEMORIES = 100  # the newest
MAX_CONTEXT_TOKENS = 300
MAX_TEXT_CHARACTERS = 2_000  # read of each memory
INTRODUCTION = "Everkept: this project had the same error before, and it was fixed."


def find_failure(head: str, event: HookEvent, around: HookContext) -> Record | None:
    """Return the session's memory of a failure that begins with the head, or None if it is forgotten."""
    where = RecordFilter(kinds=(MEMORY,), sessions=(event.session.strip(),), tags=(FAILED_TAG,))
    found: list[Record] = around.run(_read_newest(where, event, around))
    return next((record for record in found if record.text.partition("\n")[0] == head), None)


def find_earlier_fix(lines: Sequence[str], event: HookEvent, around: HookContext) -> HookAnswer | None:
    """Return what fixed one of these lines in another session. The ledger makes sure it is given once."""
    known = compute_signatures(lines)
    if not known:
        return None
    where = RecordFilter(kinds=(MEMORY,), scopes=("project",), tags=(FIXED_TAG,), automatic=True)
    found: list[Record] = around.run(_read_newest(where, event, around))
    for record in found:
        is_elsewhere = record.session != event.session.strip() and is_current(record)
        if is_elsewhere and known & compute_signatures(record.text.splitlines()[1:]):
            return _build_answer(record, around)
    return None


async def _read_newest(where: RecordFilter, event: HookEvent, around: HookContext) -> list[Record]:
    if around.room is None:
        return []
    project = await find_project(event.folder, around.settings, around.room)
    if project is None or project.is_off:
        return []
    _, store = await around.room.open(project.name)
    return await store.scan(where, order="newest", limit=MAX_SCANNED_MEMORIES)


def _build_answer(record: Record, around: HookContext) -> HookAnswer | None:
    entry = build_entry(record, MAX_TEXT_CHARACTERS, around.now)
    line = entry.fit_line(MAX_CONTEXT_TOKENS - count_tokens(_fence_body("")))
    if line is None or not around.ledger.claim([record.id]):
        return None
    return HookAnswer(context=_fence_body(f"{line}\n"))


def _fence_body(body: str) -> str:
    return f"{INTRODUCTION}\n{fence_memories(body)}"
