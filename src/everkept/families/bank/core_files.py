"""The five core files of a bank: their templates and names, and a digest of what they say."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Annotated

from everkept.core.files import FolderSurvey
from everkept.core.text import clip_text, compute_name_key
from everkept.errors import MAX_LISTED, EverkeptError, escape_name
from everkept.families.bank.bank_entries import CATEGORY_SIGNS, MONTHS
from everkept.families.bank.bank_files import BANK_LOCK, TextChange, edit_locked, list_file_names
from everkept.families.bank.banks import Bank, is_outside_bank, normalize_name
from everkept.families.bank.markdown_blocks import split_lines
from everkept.families.bank.markdown_sections import (
    ISSUE_TITLES,
    NEXT_STEP_TITLES,
    SESSION_NOTE_TITLES,
    TASK_TITLES,
    MarkdownSection,
    find_items_below,
    find_section,
    find_sections,
    get_body,
    list_items,
    list_sections,
    parse_box,
    parse_items,
    strip_box,
    to_one_line,
)
from everkept.families.bank.model import ACTIVE, CORE_FILES, DECISIONS, LEGACY_NAMES, PATTERNS, PRODUCT, PROGRESS
from everkept.tools.schema import Field
from everkept.tools.tool import ToolWarning
from everkept.values import Value, replace


class NameMigration(Value):
    """Old names that became new ones, and those that stay because the new one is taken."""

    renamed: list[str]
    skipped: list[str]


class CoreFilesResult(Value):
    """The core files that were made, and old names that became new ones."""

    created: list[str]
    renamed: list[str]


async def ensure_core_files(bank: Bank) -> list[str]:
    """Makes those that are missing; the names it made."""
    return (await prepare_core_files(bank)).created


async def prepare_core_files(bank: Bank) -> CoreFilesResult:
    """Makes the core files that are missing, and gives old names up for those of today.

    What is there is never overwritten, so a second time nothing happens.
    """
    return await bank.files.run_locked(BANK_LOCK, lambda: _prepare_locked(bank))


async def migrate_names(bank: Bank) -> NameMigration:
    """Gives the core files with an old name the one of today."""
    return await bank.files.run_locked(BANK_LOCK, lambda: _migrate_locked(bank))


def find_name_warnings(names: Collection[str]) -> list[ToolWarning] | None:
    """About core files that a folder has under both of their names."""
    doubled = [
        ToolWarning("two_names", f"{old} is not used, because {today} is there too: merge the two.")
        for today, old in LEGACY_NAMES.items()
        if today in names and old in names
    ]
    return doubled or None


async def _prepare_locked(bank: Bank) -> CoreFilesResult:
    migrated = await _migrate_locked(bank)
    try:
        made = await edit_locked(bank, {name: _build_template_change(text) for name, text in TEMPLATES.items()})
    except EverkeptError:
        for old in migrated.renamed:
            await bank.files.rename(normalize_name(old), old)
        raise
    return CoreFilesResult([file.name for file in made.values()], migrated.renamed)


async def _migrate_locked(bank: Bank) -> NameMigration:
    there = set(await list_file_names(bank))
    migrated = NameMigration([], [])
    for today, old in LEGACY_NAMES.items():
        if old in there and today in there:
            migrated.skipped.append(old)
        elif old in there:
            await bank.files.rename(old, today)
            migrated.renamed.append(old)
    return migrated


def _build_template_change(template: str) -> TextChange:
    return lambda before: template if before is None else None


def find_folder_warnings(seen: FolderSurvey) -> list[ToolWarning] | None:
    """About core files with two names, and about what no tool can reach."""
    said = find_name_warnings(set(seen.files)) or []
    lost = [name for name, target in seen.links.items() if is_outside_bank(target)]
    lost = sorted(name for name in (*lost, *seen.unreachable) if name[0] != ".")
    return [*said, *([_build_unreachable_warning(lost)] if lost else [])] or None


def _build_unreachable_warning(names: Sequence[str]) -> ToolWarning:
    shown = ", ".join(f'"{escape_name(clip_text(name, 120))}"' for name in names[:MAX_LISTED])
    more = f" and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else ""
    return ToolWarning(
        "out_of_reach",
        f"No tool can read {shown}{more}: rename what has a name that not every system knows, and"
        " put a file of its own in the place of a link that leads elsewhere.",
    )


_PRODUCT_TEMPLATE = """\
# Project Overview

## Description

[What the project is, and whom it is for]

## Objectives

- [Objective 1]
- [Objective 2]

## Technologies

- [Technology 1]
- [Technology 2]

## Architecture

[How the parts work together]

## Project Structure

[Where to find what]
"""

_ACTIVE_TEMPLATE = """\
# Current Context

## Ongoing Tasks

- [Task 1]
- [Task 2]

## Known Issues

- [Issue 1]

## Next Steps

- [Next step 1]

## Current Session Notes

"""

_PROGRESS_TEMPLATE = """\
# Project Progress

## Completed Milestones

- [Milestone 1]

## Pending Milestones

- [Milestone 2]

## Update History

"""


def _format_decision_template(number: int) -> str:
    return f"""\

## Decision {number}

- **Date:** [Date]
- **Context:** [What made a decision necessary]
- **Decision:** [What was decided]
- **Alternatives Considered:**
  - [Alternative 1]
- **Consequences:**
  - [Consequence 1]
"""


_PATTERNS_TEMPLATE = """\
# System Patterns

## Architecture Patterns

- [Pattern]: [Where it is used, and why]

## Code Patterns

- [Pattern]: [Where it is used, and why]

## Documentation Patterns

- [Pattern]: [Where it is used, and why]
"""

TEMPLATES: Mapping[str, str] = {
    PRODUCT: _PRODUCT_TEMPLATE,
    ACTIVE: _ACTIVE_TEMPLATE,
    PROGRESS: _PROGRESS_TEMPLATE,
    DECISIONS: "# Decision Log\n" + _format_decision_template(1) + _format_decision_template(2),
    PATTERNS: _PATTERNS_TEMPLATE,
}

_BRACKETS = re.compile(r"(?:\[[^\[\]]*\][\s:,.–—-]*)+")


def is_placeholder(text: str) -> bool:
    """Whether nobody has written yet what should stand there, as in `[Task 1]`."""
    return not text.strip() or _BRACKETS.fullmatch(text.strip()) is not None


STATE_TITLES = ("Current Project State", "Project State", "Current State")
PENDING_TITLES = ("Pending Milestones",)
MAX_PATTERN_LINES = 20  # of system-patterns.md
MAX_ITEM_CHARACTERS = 1_000  # characters of one item
MAX_SUMMARY_CHARACTERS = 300  # characters of a decision
MAX_ITEMS_LISTED = 50  # items of one list, unless more are asked for
MAX_READ_CHARACTERS = 200_000  # characters of a file; the newest of a larger one is at one of its ends

_DAY = re.compile(r"\d{4}-\d{2}-\d{2}(?:[ T]\d{2}:\d{2}(?::\d{2})?)?")
_LONG_DAY = re.compile(r"([A-Z][a-z]{2}) (\d{1,2}), (\d{4}), (\d{1,2}):(\d{2}) ([AP])M")
_CHILD = re.compile(r"\s*(?:[-*+]|\d{1,9}[.)])\s+(?=\S)")
_INNER_BOX = re.compile(_CHILD.pattern + r"\[ \]\s+(.+)")
_TEMPLATE_TITLE = re.compile(r"Decision \d+")
_RULE_OR_COMMENT = re.compile(r"\s*(?:[-*_]\s*){3,}|\s*<!--.*-->\s*")
_OPEN_NOTE = re.compile(rf"{CATEGORY_SIGNS['blocker']}|{CATEGORY_SIGNS['todo']}|\b(?:todo|blocker|blocked)\b", re.I)


class RecentDecision(Value):
    title: str
    date: str | None
    summary: str


class CurrentContext(Value):
    """Open tasks come before those that are ticked."""

    tasks: list[str]
    issues: list[str]
    next_steps: Annotated[list[str], Field(name="nextSteps")]


class Digest(Value, kw_only=True):
    """Newest first, everywhere; `alsoUnfinished` is what is open outside the current context."""

    project_state: Annotated[str, Field(name="projectState")] | None = None
    current_context: Annotated[CurrentContext, Field(name="currentContext")]
    also_unfinished: Annotated[list[str], Field(name="alsoUnfinished")] | None = None
    recent_progress: Annotated[list[str], Field(name="recentProgress")]
    recent_decisions: Annotated[list[RecentDecision], Field(name="recentDecisions")]
    system_patterns: Annotated[str, Field(name="systemPatterns")] | None = None
    graph_summary: Annotated[str, Field(name="graphSummary")] | None = None


class _DatedEntry(Value):
    at: datetime
    line: int
    text: str


def build_digest(
    texts: Mapping[str, str],
    *,
    most_progress: int,
    most_decisions: int,
    with_patterns: bool,
    graph_summary: str | None = None,
) -> Digest:
    """Of the core files that are there; what templates say counts as nothing."""
    read = {name: shorten_text(text) for name, text in texts.items()}
    active, progress = read.get(ACTIVE, ""), read.get(PROGRESS, "")
    tasks = _list_items(active, TASK_TITLES)
    patterns = texts.get(PATTERNS, "")
    shows_patterns = with_patterns and patterns.strip() not in ("", TEMPLATES[PATTERNS].strip())
    return Digest(
        project_state=_find_state(active),
        current_context=CurrentContext(
            [_format_item(task) for task in sorted(tasks, key=_is_done)],
            [_format_item(issue) for issue in _list_items(active, ISSUE_TITLES)],
            [_format_item(step) for step in _list_items(active, NEXT_STEP_TITLES)],
        ),
        also_unfinished=_list_unfinished(read) or None,
        recent_progress=list_recent_progress(progress)[:most_progress],
        recent_decisions=list_recent_decisions(read.get(DECISIONS, ""))[:most_decisions],
        system_patterns="".join(split_lines(patterns[:MAX_READ_CHARACTERS])[:MAX_PATTERN_LINES]).rstrip()
        if shows_patterns
        else None,
        graph_summary=graph_summary,
    )


def limit_digest(digest: Digest) -> tuple[Digest, list[str]]:
    """At most so many items of each list, and sentences about how many more there are."""
    current, open_ones = digest.current_context, digest.also_unfinished or []
    lists = {
        "tasks": current.tasks,
        "issues": current.issues,
        "nextSteps": current.next_steps,
        "alsoUnfinished": open_ones,
    }
    more = [
        f"{name} shows {MAX_ITEMS_LISTED} of {len(found)}."
        for name, found in lists.items()
        if len(found) > MAX_ITEMS_LISTED
    ]
    tasks, issues, steps, unfinished = (found[:MAX_ITEMS_LISTED] for found in lists.values())
    context = CurrentContext(tasks, issues, steps)
    return replace(digest, current_context=context, also_unfinished=unfinished or None), more


def shorten_text(text: str, most: int = MAX_READ_CHARACTERS) -> str:
    """Both ends of a text that is very long, cut between lines where there are any."""
    if len(text) <= most:
        return text
    head, tail = text[: most // 2], text[-most // 2 :]
    whole_head = head[: head.rfind("\n") + 1] or head
    return f"{whole_head}\n{tail[tail.find(chr(10)) + 1 :] or tail}"


def list_recent_progress(text: str) -> list[str]:
    """Entries of both formats, newest first; of one minute the upper one is the newer.

    One of the formats has no seconds, and new entries are put at the top.
    """
    found = sorted([*_find_dated_items(text), *_find_dated_headings(text)], key=lambda entry: entry.line)
    return [entry.text for entry in sorted(found, key=lambda entry: entry.at, reverse=True)]


def list_recent_decisions(text: str) -> list[RecentDecision]:
    """The last in the file first, because new ones are added at its end."""
    found = [part for part in list_sections(text) if part.level == 2]
    made = (_parse_decision(part.title, lines) for part, lines in _pair_with_lines(text, found))
    return [decision for decision in made if decision is not None][::-1]


def parse_moment(text: str) -> datetime | None:
    """The first date in a line, to the minute where it has a time."""
    try:
        if found := _LONG_DAY.search(text):
            month, day, year, hour, minute, half = found.groups()
            hours = int(hour) % 12 + (12 if half == "P" else 0)
            return datetime(int(year), MONTHS.index(month) + 1, int(day), hours, int(minute))
        found = _DAY.search(text)
        return None if found is None else datetime.fromisoformat(found.group()).replace(second=0)
    except (ValueError, KeyError):
        return None


def _list_items(text: str, titles: Sequence[str]) -> list[str]:
    """The items below these headings; where there is no list, what is said there instead."""
    below = (item.said for item in find_items_below(text, titles))
    found = [item for item in below if not is_placeholder(strip_box(item))]
    if not found:
        lines = split_lines(text)
        parts = [part for part in find_sections(text, *titles) if part.level > 1]
        bodies = ("".join(lines[part.first : part.end]) for part in parts)
        found = [said for said in bodies if not list_items(said) and not is_placeholder(said)]
    return found


def _format_item(text: str) -> str:
    """On one line, with the items below it between semicolons."""
    parts = [""]
    for line in text.splitlines():
        if found := _CHILD.match(line):
            parts.append(line[found.end() :])
        else:
            parts[-1] += f" {line}"
    shown = [line for part in parts if (line := to_one_line(part))]
    first, rest = shown[0] if shown else "", "; ".join(shown[1:])
    between = " " if first.endswith(":") else "; "
    return clip_text(f"{first}{between}{rest}" if rest else first, MAX_ITEM_CHARACTERS)


def _is_done(item: str) -> bool:
    """Ticked, with nothing open below it."""
    return parse_box(item) is True and not any(map(_INNER_BOX.match, item.splitlines()[1:]))


def _find_state(active: str) -> str | None:
    found = find_section(active, *STATE_TITLES)
    lines = [] if found is None else get_body(active, found).splitlines()
    return next((line.strip() for line in lines if not is_placeholder(line)), None)


def _list_unfinished(texts: Mapping[str, str]) -> list[str]:
    """Notes about what blocks or is to do, milestones to come, and boxes without a tick."""
    active = texts.get(ACTIVE, "")
    notes = [note for note in _list_items(active, SESSION_NOTE_TITLES) if _OPEN_NOTE.search(note)]
    open_notes = [f"{ACTIVE}: {_format_item(note)}" for note in notes if not _is_done(note)]
    pending = [
        f"{PROGRESS}: {_format_item(strip_box(item))}"
        for item in _list_items(texts.get(PROGRESS, ""), PENDING_TITLES)
        if not _is_done(item)
    ]
    boxes = (f"{name}: {box}" for name in CORE_FILES for box in _list_open_boxes(texts.get(name, "")))
    return list(dict.fromkeys([*open_notes, *pending, *boxes]))


def _list_open_boxes(text: str) -> Iterator[str]:
    """Also those inside other items; what the current context lists is left out."""
    if "[ ]" not in text:
        return
    parts = find_sections(text, *TASK_TITLES, *ISSUE_TITLES, *NEXT_STEP_TITLES)
    shown = {at for part in parts if part.level > 1 for at in range(part.first, part.end)}
    for item in parse_items(split_lines(text)):
        if item.first in shown:
            continue
        first, *rest = item.said.splitlines() or [""]
        if parse_box(first) is False and not is_placeholder(strip_box(first)):
            yield _format_item(strip_box(first))
        yield from (_format_item(found[1]) for line in rest if (found := _INNER_BOX.match(line)))


def _find_dated_items(text: str) -> Iterator[_DatedEntry]:
    for item in parse_items(split_lines(text)):
        first = item.said.partition("\n")[0]
        is_entry = first.startswith("[") and parse_box(first) is not False
        if is_entry and (at := parse_moment(first)):
            yield _DatedEntry(at, item.first, _format_item(item.said))


def _find_dated_headings(text: str) -> Iterator[_DatedEntry]:
    for part in list_sections(text):
        begins = part.title.lstrip("[")[:1]
        is_entry = part.level > 1 and (part.title.startswith("[") or begins.isdigit())
        if is_entry and (at := parse_moment(part.title)):
            yield _DatedEntry(at, part.heading, _format_item(part.title))


def _pair_with_lines(text: str, parts: Iterable[MarkdownSection]) -> Iterator[tuple[MarkdownSection, list[str]]]:
    lines = split_lines(text)
    for part in parts:
        yield part, [line.rstrip("\r\n") for line in lines[part.first : part.end]]


def _parse_decision(title: str, lines: Sequence[str]) -> RecentDecision | None:
    """None where the block is as the template has it."""
    labels: dict[str, list[str]] = {"": []}
    label = ""
    nested = {at for item in parse_items(lines) for at in range(item.first + 1, item.end)}
    for at, line in enumerate(lines):
        if at not in nested and (found := _parse_label(line)):
            label, value = found
            labels.setdefault(label, []).append(value)
        else:
            labels[label].append(line)
    said = {key: _join_plain_text(values) for key, values in labels.items()}
    is_template = _TEMPLATE_TITLE.fullmatch(title) or is_placeholder(title)
    if is_template and not any(said.values()):
        return None
    date = said.get("date") or next(iter(_DAY.findall(title)), None)
    summary = next((said[key] for key in ("decision", "", "context") if said.get(key)), "")
    return RecentDecision(title, date, clip_text(summary, MAX_SUMMARY_CHARACTERS))


def _parse_label(line: str) -> tuple[str, str] | None:
    """What stands in front of a colon in bold type, and what comes after it."""
    bare = line.strip()
    if bare[1:2].isspace() and bare[0] in "-*+":
        bare = bare[1:].lstrip()
    if not bare.startswith("**"):
        return None
    name, closing, value = bare[2:].partition("**")
    name = name.strip().removesuffix(":").strip()
    if not closing or not name or ":" in name or "*" in name:
        return None
    return compute_name_key(name), value.strip().removeprefix(":").strip()


def _join_plain_text(lines: Sequence[str]) -> str:
    """What stands in lines, without list markers, rules, comments and placeholders."""
    bare = (re.sub(r"^\s*[-*+]\s+", "", line) for line in lines if not _RULE_OR_COMMENT.fullmatch(line))
    return to_one_line(" ".join(line for line in bare if not is_placeholder(line)))
