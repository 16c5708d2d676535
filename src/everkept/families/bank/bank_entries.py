"""The entries that the tools write into a bank's files, and the edits that put them there."""

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal

from everkept.core.text import clipped, normalised
from everkept.errors import NotFound
from everkept.families.bank.bank_files import Change
from everkept.families.bank.markdown_sections import (
    CURRENT_NOTES,
    HISTORY,
    SESSION_NOTES,
    TASKS,
    appended,
    contained,
    inserted_at_top,
    item_lines,
    listed,
    one_line,
    with_list,
    without_box,
)
from everkept.tools.schema import Field
from everkept.tools.tool import Warned
from everkept.values import Value, field

EntryType = Literal["feature", "fix", "refactor", "docs", "test", "chore", "other"]
Category = Literal["observation", "blocker", "question", "decision", "todo", "other"]
Status = Literal["success", "error", "warning"]

TEXT_LIMIT = 100_000  # characters of one argument
ITEM_LIMIT = 1_000  # items of one list

LABELS: dict[EntryType, str] = {
    "feature": "✨ Feature",
    "fix": "🐛 Fix",
    "refactor": "♻️ Refactor",
    "docs": "📚 Docs",
    "test": "🧪 Test",
    "chore": "🔧 Chore",
    "other": "📝 Other",
}
SIGNS: dict[Category, str] = {
    "observation": "👀",
    "blocker": "🚧",
    "question": "❓",
    "decision": "✅",
    "todo": "📋",
    "other": "📝",
}
THOUGHT = "🧠"
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_GITHUB = re.compile(r"(?i:https?://(?:www\.)?github\.com)/([^\s/?#]+)/?")
UNKNOWN_USER = "Unknown User"
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"

Line = Annotated[str, Field(max_length=1_000, blank=False)]
Text = Annotated[str, Field(max_length=TEXT_LIMIT, blank=False)]


class Work(Value):
    """Something that was done, in a line or a few."""

    action: str
    description: str
    filename: str | None = None
    status: Status | None = None

    @property
    def details(self) -> str:
        """What is put in brackets behind it; nothing where nothing was given."""
        name = one_line(self.filename or "")
        given = [f"file: {name}"] if name else []
        given += [f"status: {self.status}"] if self.status else []
        return f" ({', '.join(given)})" if given else ""


class ProgressEntry(Value):
    """A piece of work for the history."""

    type: Annotated[EntryType, Field("Kind of change.")]
    summary: Annotated[str, Field("One line.", max_length=1_000, blank=False)]
    details: Annotated[str, Field("Free text.", max_length=TEXT_LIMIT)] | None = None
    files: Annotated[list[Line], Field("Affected files.", max_items=ITEM_LIMIT)] = field(
        default_factory=list[str]
    )
    tags: Annotated[list[Line], Field("Labels.", max_items=ITEM_LIMIT)] = field(
        default_factory=list[str]
    )


class Decision(Value):
    """What was decided, and why."""

    title: Annotated[str, Field("Title.", max_length=1_000, blank=False)]
    context: Annotated[str, Field("Why it came up.", max_length=TEXT_LIMIT, blank=False)]
    decision: Annotated[str, Field("What was decided.", max_length=TEXT_LIMIT, blank=False)]
    alternatives: Annotated[
        list[Text], Field("Options considered.", max_items=ITEM_LIMIT, one_or_more=True)
    ] = field(default_factory=list[str])
    consequences: Annotated[
        list[Text], Field("Effects.", max_items=ITEM_LIMIT, one_or_more=True)
    ] = field(default_factory=list[str])


def day(at: int) -> str:
    return f"{_moment(at):%Y-%m-%d}"


def time_of_day(at: int) -> str:
    return f"{_moment(at):%H:%M:%S}"


def clock_time(at: int) -> str:
    """As in 9:05 AM, whatever the machine's language."""
    moment = _moment(at)
    return f"{moment.hour % 12 or 12}:{moment.minute:02} {'AM' if moment.hour < 12 else 'PM'}"


def long_date(at: int) -> str:
    """As in Feb 13, 2026, 10:30 AM."""
    moment = _moment(at)
    return f"{MONTHS[moment.month - 1]} {moment.day}, {moment.year}, {clock_time(at)}"


def shown_user(name: str) -> str:
    """A name on one line; the address of a GitHub profile becomes a link to it."""
    line = one_line(name)
    found = _GITHUB.fullmatch(line)
    return f"[@{found[1]}]({line})" if found else line or UNKNOWN_USER


def progress_line(at: int, user: str, work: Work) -> str:
    """`- [2026-02-13 10:30:00] [Alice] - Action: text (file: x, status: y)`

    Further lines of the text are indented below, so that the entry stays one item.
    """
    stamp = f"[{day(at)} {time_of_day(at)}] [{shown_user(user)}]"
    return _entry(f"{stamp} - {one_line(work.action)}:", work.description, work.details)


def note_line(at: int, user: str, work: Work) -> str:
    """`- [10:30:00] [Alice] Action: text`, the same among the notes of a session."""
    stamp = f"[{time_of_day(at)}] [{shown_user(user)}]"
    return _entry(f"{stamp} {one_line(work.action)}:", work.description, work.details)


def session_note(at: int, note: str, sign: str | None = None) -> str:
    """`- [10:30 AM] 👀 text`"""
    return _entry(f"[{clock_time(at)}]{f' {sign}' if sign else ''}", note)


def entry_id(at: int, taken: str = "") -> str:
    """The first that the text does not hold; two entries may fall into one millisecond."""
    number = at // 1_000
    while f"<!-- ID: {(found := f'p_{day(at)}_{_base36(number)}')} -->" in taken:
        number += 1
    return found


def progress_block(at: int, identity: str, entry: ProgressEntry) -> str:
    """An entry of several lines; what its details hold is no structure of the file."""
    label = f"{LABELS[entry.type]}: {one_line(entry.summary)}"
    parts = [f"### [{long_date(at)}] {label}\n<!-- ID: {identity} -->"]
    if entry.details and entry.details.strip():
        parts.append(contained("\n".join(entry.details.strip("\r\n").splitlines())))
    if entry.files:
        listed = "\n".join(f"- {_code(name)}" for name in entry.files)
        parts.append(f"**Affected files:**\n{listed}")
    if entry.tags:
        parts.append(f"**Tags:** {', '.join(map(_code, entry.tags))}")
    return "\n\n".join([*parts, "---"])


def decision_block(at: int, user: str, decision: Decision) -> str:
    return "\n".join(
        [
            f"## {one_line(decision.title)}",
            f"- **Date:** {day(at)} {time_of_day(at)}",
            f"- **Author:** {shown_user(user)}",
            *_labelled(decision),
            *_sublist("**Alternatives Considered:** ", decision.alternatives or ["None"]),
            *_sublist("**Consequences:** ", decision.consequences or ["None"]),
        ]
    )


def numbered_decision_block(at: int, number: int, decision: Decision) -> str:
    """The form that a session of thinking leaves behind."""
    return "\n".join(
        [
            f"## {number}. {one_line(decision.title)}",
            f"- **Date:** {day(at)}",
            *_labelled(decision),
            *_sublist("**Alternatives:**", decision.alternatives),
            *_sublist("**Consequences:**", decision.consequences),
        ]
    )


def _labelled(decision: Decision) -> list[str]:
    return [
        _entry("**Context:**", decision.context),
        _entry("**Decision:**", decision.decision),
    ]


def _sublist(label: str, items: Sequence[str]) -> list[str]:
    if not items:
        return []
    return [f"- {label}", *(f"  {line}".rstrip() for item in items for line in item_lines(item))]


def _entry(head: str, text: str, end: str = "") -> str:
    """One item; what belongs to its first line stays on it."""
    first, *rest = text.strip().splitlines()
    return "\n".join(item_lines("\n".join([f"{head} {first.rstrip()}{end}", *rest])))


def _code(text: str) -> str:
    line = one_line(text)
    return f"`` {line} ``" if "`" in line else f"`{line}`"


def _base36(number: int) -> str:
    digits = ""
    while number:
        number, digit = divmod(number, 36)
        digits = _DIGITS[digit] + digits
    return digits or "0"


def _moment(at: int) -> datetime:
    return _EPOCH + timedelta(microseconds=at)


# As templates have them where nothing was ever filled in: [Task 1].
_PLACEHOLDER = re.compile(r"\[[A-Za-z][A-Za-z ]* \d+\]")

ListItem = Annotated[str, Field(max_length=TEXT_LIMIT, blank=False)]


class TaskEdit(Value):
    """A whole new list wins over items to add and to remove."""

    add: (
        Annotated[list[ListItem], Field("To append; known ones skipped.", max_items=ITEM_LIMIT)]
        | None
    ) = None
    remove: (
        Annotated[list[ListItem], Field("Drop each task that contains one.", max_items=ITEM_LIMIT)]
        | None
    ) = None
    replace: Annotated[list[ListItem], Field("Whole new list.", max_items=ITEM_LIMIT)] | None = None

    @property
    def is_empty(self) -> bool:
        return self.replace is None and not self.add and not self.remove


class TaskOutcome(Value):
    """The list as it is now, and what really happened to it."""

    text: str
    tasks: list[str]
    added: int
    removed: int
    unmatched: list[str]

    @property
    def warnings(self) -> list[Warned]:
        return [
            Warned("task_not_found", f'No task contains "{clipped(needle)}".')
            for needle in self.unmatched
        ]


def edited_tasks(text: str, edit: TaskEdit) -> TaskOutcome:
    """Raises NotFound where a call that only removes fits no task."""
    before = listed(text, TASKS)
    if edit.replace is not None:
        return _outcome(with_list(text, TASKS, edit.replace), before, [])
    needles = {needle: needle.strip().casefold() for needle in edit.remove or ()}
    folded = [task.casefold() for task in before]
    kept = [
        task
        for task, low in zip(before, folded, strict=True)
        if not any(needle in low for needle in needles.values())
    ]
    unmatched = [
        shown for shown, needle in needles.items() if not any(needle in low for low in folded)
    ]
    if needles and len(unmatched) == len(needles) and not edit.add:
        shown = '" or "'.join(map(clipped, needles))
        raise NotFound("task", shown, message=f'No task contains "{shown}".')
    wanted = extended(kept, edit.add or ())
    return _outcome(with_list(text, TASKS, wanted, in_place=True), before, unmatched)


def extended(items: Sequence[str], new: Sequence[str]) -> list[str]:
    """The list with what it does not have yet; the placeholders of a template go."""
    known = {_key(item) for item in items}
    result = [item for item in items if not (new and _PLACEHOLDER.fullmatch(item))]
    for item in map(str.strip, new):
        if _key(item) not in known:
            known.add(_key(item))
            result.append(item)
    return result


def _outcome(text: str, before: Sequence[str], unmatched: list[str]) -> TaskOutcome:
    tasks = listed(text, TASKS)
    was = [_key(task) for task in before if not _PLACEHOLDER.fullmatch(task)]
    now = [_key(task) for task in tasks if not _PLACEHOLDER.fullmatch(task)]
    known, left = set(was), set(now)
    added = sum(key not in known for key in now)
    removed = sum(key not in left for key in was)
    return TaskOutcome(text, tasks, added, removed, unmatched)


def _key(item: str) -> str:
    return normalised(without_box(item))


PROGRESS_BEGINS = "# Progress\n\n## Update History\n"
CONTEXT_BEGINS = "# Current Context\n"
DECISIONS_BEGIN = "# Decision Log\n"


def history_line(line: str) -> Change:
    return lambda text: inserted_at_top(_or(text, PROGRESS_BEGINS), HISTORY, line)


def tracked_note(line: str) -> Change:
    """Beside an entry of the history; either heading of the notes will do, the newer one first."""
    return lambda text: inserted_at_top(_or(text, CONTEXT_BEGINS), CURRENT_NOTES, line)


def noted(text: str | None, line: str) -> str:
    return inserted_at_top(_or(text, CONTEXT_BEGINS), SESSION_NOTES, line)


def decided(block: str) -> Change:
    return lambda text: appended(_or(text, DECISIONS_BEGIN), block)


class HistoryEntry:
    """An entry of several lines; its id is known once it is written."""

    def __init__(self, at: int, entry: ProgressEntry) -> None:
        self._at = at
        self._entry = entry
        self.id = ""

    def __call__(self, text: str | None) -> str:
        self.id = entry_id(self._at, text or "")
        block = progress_block(self._at, self.id, self._entry)
        return inserted_at_top(_or(text, PROGRESS_BEGINS), HISTORY, block)


def in_turn(changes: Sequence[Callable[[str], str]]) -> Change:
    """Several edits of the active context; a file that would stay empty is not made."""

    def change(text: str | None) -> str | None:
        edited = _or(text, CONTEXT_BEGINS)
        for step in changes:
            edited = step(edited)
        return None if text is None and edited == CONTEXT_BEGINS else edited

    return change


def _or(text: str | None, beginning: str) -> str:
    return text if text is not None and text.strip("\ufeff \t\r\n") else (text or "") + beginning
