"""Entries that the tools write into a bank's files, and the edits that insert them."""

import re
from collections.abc import Callable, Sequence
from typing import Annotated, Literal

from everkept.core.text import clip_text, compute_name_key
from everkept.core.times import to_datetime
from everkept.errors import NotFound
from everkept.families.bank.bank_files import TextChange
from everkept.families.bank.banks import UNKNOWN_USER
from everkept.families.bank.markdown_sections import (
    CURRENT_NOTE_TITLES,
    HISTORY_TITLES,
    SESSION_NOTE_TITLES,
    TASK_TITLES,
    append_block,
    contain_text,
    format_item_lines,
    insert_at_top,
    list_titled_items,
    replace_list,
    strip_box,
    to_one_line,
)
from everkept.tools.schema import Field
from everkept.tools.tool import ToolWarning
from everkept.values import Value, field

EntryType = Literal["feature", "fix", "refactor", "docs", "test", "chore", "other"]
Category = Literal["observation", "blocker", "question", "decision", "todo", "other"]
Status = Literal["success", "error", "warning"]

MAX_TEXT_CHARACTERS = 100_000  # of one argument
MAX_LIST_ITEMS = 1_000

ENTRY_TYPE_LABELS: dict[EntryType, str] = {
    "feature": "✨ Feature",
    "fix": "🐛 Fix",
    "refactor": "♻️ Refactor",
    "docs": "📚 Docs",
    "test": "🧪 Test",
    "chore": "🔧 Chore",
    "other": "📝 Other",
}
CATEGORY_SIGNS: dict[Category, str] = {
    "observation": "👀",
    "blocker": "🚧",
    "question": "❓",
    "decision": "✅",
    "todo": "📋",
    "other": "📝",
}
THOUGHT_SIGN = "🧠"
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_GITHUB_PROFILE = re.compile(r"(?i:https?://(?:www\.)?github\.com)/([^\s/?#]+)/?")
_BASE36_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"

EntryLine = Annotated[str, Field(max_length=1_000, blank=False)]
EntryText = Annotated[str, Field(max_length=MAX_TEXT_CHARACTERS, blank=False)]


class WorkItem(Value):
    action: str
    description: str
    filename: str | None = None
    status: Status | None = None

    @property
    def details(self) -> str:
        """Return the details in parentheses, or an empty string."""
        name = to_one_line(self.filename or "")
        given = [f"file: {name}"] if name else []
        given += [f"status: {self.status}"] if self.status else []
        return f" ({', '.join(given)})" if given else ""


class ProgressEntry(Value):
    type: Annotated[EntryType, Field("Kind of change")]
    summary: Annotated[str, Field("What changed, in one line", max_length=1_000, blank=False)]
    details: Annotated[str, Field("Details in any form", max_length=MAX_TEXT_CHARACTERS)] | None = None
    files: Annotated[list[EntryLine], Field("Changed files", max_items=MAX_LIST_ITEMS)] = field(
        default_factory=list[str]
    )
    tags: Annotated[list[EntryLine], Field("Labels, such as api", max_items=MAX_LIST_ITEMS)] = field(
        default_factory=list[str]
    )


class Decision(Value):
    title: Annotated[str, Field("Short title", max_length=1_000, blank=False)]
    context: Annotated[str, Field("Why a decision was needed", max_length=MAX_TEXT_CHARACTERS, blank=False)]
    decision: Annotated[str, Field("What was decided", max_length=MAX_TEXT_CHARACTERS, blank=False)]
    alternatives: Annotated[
        list[EntryText], Field("Alternatives considered", max_items=MAX_LIST_ITEMS, one_or_more=True)
    ] = field(default_factory=list[str])
    consequences: Annotated[list[EntryText], Field("Expected effects", max_items=MAX_LIST_ITEMS, one_or_more=True)] = (
        field(default_factory=list[str])
    )


def format_day(at: int) -> str:
    return f"{to_datetime(at):%Y-%m-%d}"


def format_time(at: int) -> str:
    return f"{to_datetime(at):%H:%M:%S}"


def format_clock_time(at: int) -> str:
    """Format a time like 9:05 AM, whatever the machine's language."""
    moment = to_datetime(at)
    return f"{moment.hour % 12 or 12}:{moment.minute:02} {'AM' if moment.hour < 12 else 'PM'}"


def format_long_date(at: int) -> str:
    """Format a time like Feb 13, 2026, 10:30 AM."""
    moment = to_datetime(at)
    return f"{MONTHS[moment.month - 1]} {moment.day}, {moment.year}, {format_clock_time(at)}"


def format_user(name: str) -> str:
    """Return the name on one line. The address of a GitHub profile becomes a link."""
    line = to_one_line(name)
    found = _GITHUB_PROFILE.fullmatch(line)
    return f"[@{found[1]}]({line})" if found else line or UNKNOWN_USER


def format_progress_line(at: int, user: str, work: WorkItem) -> str:
    """Format `- [2026-02-13 10:30:00] [Alice] - Action: text (file: x, status: y)`.

    Further lines of the text are indented, so that the entry stays one list item.
    """
    stamp = f"[{format_day(at)} {format_time(at)}] [{format_user(user)}]"
    return _format_entry(f"{stamp} - {to_one_line(work.action)}:", work.description, work.details)


def format_note_line(at: int, user: str, work: WorkItem) -> str:
    """Format `- [10:30:00] [Alice] Action: text` for the session notes."""
    stamp = f"[{format_time(at)}] [{format_user(user)}]"
    return _format_entry(f"{stamp} {to_one_line(work.action)}:", work.description, work.details)


def format_session_note(at: int, user: str, note: str, sign: str | None = None) -> str:
    """Format `- [10:30 AM] [Alice] 👀 text`."""
    return _format_entry(f"[{format_clock_time(at)}] [{format_user(user)}]{f' {sign}' if sign else ''}", note)


def build_entry_id(at: int, taken: str = "") -> str:
    """Return an id that `taken` does not contain yet: two entries may have the same millisecond."""
    number = at // 1_000
    while f"<!-- ID: {(found := f'p_{format_day(at)}_{_to_base36(number)}')} -->" in taken:
        number += 1
    return found


def format_progress_block(at: int, user: str, identity: str, entry: ProgressEntry) -> str:
    """Format an entry of several lines. Its details cannot change the structure of the file."""
    label = f"{ENTRY_TYPE_LABELS[entry.type]}: {to_one_line(entry.summary)}"
    parts = [f"### [{format_long_date(at)}] [{format_user(user)}] {label}\n<!-- ID: {identity} -->"]
    if entry.details and entry.details.strip():
        parts.append(contain_text("\n".join(entry.details.strip("\r\n").splitlines())))
    if entry.files:
        listed = "\n".join(f"- {_format_code(name)}" for name in entry.files)
        parts.append(f"**Affected files:**\n{listed}")
    if entry.tags:
        parts.append(f"**Tags:** {', '.join(map(_format_code, entry.tags))}")
    return "\n\n".join([*parts, "---"])


def format_decision_block(at: int, user: str, decision: Decision) -> str:
    return "\n".join(
        [
            f"## {to_one_line(decision.title)}",
            f"- **Date:** {format_day(at)} {format_time(at)}",
            f"- **Author:** {format_user(user)}",
            *_format_labels(decision),
            *_format_sublist("**Alternatives Considered:** ", decision.alternatives or ["None"]),
            *_format_sublist("**Consequences:** ", decision.consequences or ["None"]),
        ]
    )


def format_numbered_decision(at: int, number: int, decision: Decision) -> str:
    """Format a decision of a thinking session."""
    return "\n".join(
        [
            f"## {number}. {to_one_line(decision.title)}",
            f"- **Date:** {format_day(at)}",
            *_format_labels(decision),
            *_format_sublist("**Alternatives:**", decision.alternatives),
            *_format_sublist("**Consequences:**", decision.consequences),
        ]
    )


def _format_labels(decision: Decision) -> list[str]:
    return [_format_entry("**Context:**", decision.context), _format_entry("**Decision:**", decision.decision)]


def _format_sublist(label: str, items: Sequence[str]) -> list[str]:
    if not items:
        return []
    return [f"- {label}", *(f"  {line}".rstrip() for item in items for line in format_item_lines(item))]


def _format_entry(head: str, text: str, end: str = "") -> str:
    """Format one list item. `head` and `end` stay on its first line."""
    first, *rest = text.strip().splitlines()
    return "\n".join(format_item_lines("\n".join([f"{head} {first.rstrip()}{end}", *rest])))


def _format_code(text: str) -> str:
    line = to_one_line(text)
    return f"`` {line} ``" if "`" in line else f"`{line}`"


def _to_base36(number: int) -> str:
    digits = ""
    while number:
        number, digit = divmod(number, 36)
        digits = _BASE36_DIGITS[digit] + digits
    return digits or "0"


# Placeholders of a template, such as [Task 1].
_PLACEHOLDER_ITEM = re.compile(r"\[[A-Za-z][A-Za-z ]* \d+\]")

ListItem = Annotated[str, Field(max_length=MAX_TEXT_CHARACTERS, blank=False)]


class TaskEdit(Value):
    """Edit of the task list. `replace` takes precedence over `add` and `remove`."""

    add: Annotated[list[ListItem], Field("Tasks to add; skips known tasks", max_items=MAX_LIST_ITEMS)] | None = None
    remove: (
        Annotated[list[ListItem], Field("Remove every task that contains one of these texts", max_items=MAX_LIST_ITEMS)]
        | None
    ) = None
    replace: (
        Annotated[list[ListItem], Field("New list; `add` and `remove` are ignored", max_items=MAX_LIST_ITEMS)] | None
    ) = None

    @property
    def is_empty(self) -> bool:
        return self.replace is None and not self.add and not self.remove


class TaskOutcome(Value):
    text: str
    tasks: list[str]
    added: int
    removed: int
    unmatched: list[str]

    @property
    def warnings(self) -> list[ToolWarning]:
        return [ToolWarning("task_not_found", f'No task contains "{clip_text(needle)}".') for needle in self.unmatched]


def edit_tasks(text: str, edit: TaskEdit) -> TaskOutcome:
    """Edit the tasks. Raise NotFound if a call that only removes matches no task."""
    before = list_titled_items(text, TASK_TITLES)
    if edit.replace is not None:
        return _build_outcome(replace_list(text, TASK_TITLES, edit.replace), before, [])
    needles = {needle: needle.strip().casefold() for needle in edit.remove or ()}
    folded = [task.casefold() for task in before]
    kept = [
        task for task, low in zip(before, folded, strict=True) if not any(needle in low for needle in needles.values())
    ]
    unmatched = [shown for shown, needle in needles.items() if not any(needle in low for low in folded)]
    if needles and len(unmatched) == len(needles) and not edit.add:
        shown = '" or "'.join(map(clip_text, needles))
        hint = "Pass a part of a task in active-context.md."
        raise NotFound("task", shown, message=f'No task contains "{shown}".', hint=hint)
    wanted = extend_items(kept, edit.add or ())
    return _build_outcome(replace_list(text, TASK_TITLES, wanted, in_place=True), before, unmatched)


def extend_items(items: Sequence[str], new: Sequence[str]) -> list[str]:
    """Return the list with its missing items appended and without the placeholders of a template."""
    known = {_normalize_item(item) for item in items}
    result = [item for item in items if not (new and _PLACEHOLDER_ITEM.fullmatch(item))]
    for item in map(str.strip, new):
        if _normalize_item(item) not in known:
            known.add(_normalize_item(item))
            result.append(item)
    return result


def _build_outcome(text: str, before: Sequence[str], unmatched: list[str]) -> TaskOutcome:
    tasks = list_titled_items(text, TASK_TITLES)
    was = [_normalize_item(task) for task in before if not _PLACEHOLDER_ITEM.fullmatch(task)]
    now = [_normalize_item(task) for task in tasks if not _PLACEHOLDER_ITEM.fullmatch(task)]
    known, left = set(was), set(now)
    added = sum(key not in known for key in now)
    removed = sum(key not in left for key in was)
    return TaskOutcome(text, tasks, added, removed, unmatched)


def _normalize_item(item: str) -> str:
    return compute_name_key(strip_box(item))


PROGRESS_HEADER = "# Progress\n\n## Update History\n"
CONTEXT_HEADER = "# Current Context\n"
DECISIONS_HEADER = "# Decision Log\n"


def build_history_change(line: str) -> TextChange:
    return lambda text: insert_at_top(_ensure_header(text, PROGRESS_HEADER), HISTORY_TITLES, line)


def build_note_change(line: str) -> TextChange:
    """Build the edit that adds a note next to a history entry, below the newer heading if both exist."""
    return lambda text: insert_at_top(_ensure_header(text, CONTEXT_HEADER), CURRENT_NOTE_TITLES, line)


def insert_session_note(text: str | None, line: str) -> str:
    return insert_at_top(_ensure_header(text, CONTEXT_HEADER), SESSION_NOTE_TITLES, line)


def build_decision_change(block: str) -> TextChange:
    return lambda text: append_block(_ensure_header(text, DECISIONS_HEADER), block)


class HistoryEntry:
    """Edit that inserts an entry of several lines. `id` is set when it is applied."""

    def __init__(self, at: int, user: str, entry: ProgressEntry) -> None:
        self._at = at
        self._user = user
        self._entry = entry
        self.id = ""

    def __call__(self, text: str | None) -> str:
        self.id = build_entry_id(self._at, text or "")
        block = format_progress_block(self._at, self._user, self.id, self._entry)
        return insert_at_top(_ensure_header(text, PROGRESS_HEADER), HISTORY_TITLES, block)


def combine_changes(changes: Sequence[Callable[[str], str]]) -> TextChange:
    """Combine edits of the active context. An empty file is not created."""

    def change(text: str | None) -> str | None:
        edited = _ensure_header(text, CONTEXT_HEADER)
        for step in changes:
            edited = step(edited)
        return None if text is None and edited == CONTEXT_HEADER else edited

    return change


def _ensure_header(text: str | None, beginning: str) -> str:
    return text if text is not None and text.strip("\ufeff \t\r\n") else (text or "") + beginning
