"""The five core files of a bank: their templates and names, and a digest of their content."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Annotated

from everkept.core.files import FolderSurvey
from everkept.core.text import clip_text, compute_name_key
from everkept.errors import EverkeptError, escape_name
from everkept.families.bank.bank_entries import CATEGORY_SIGNS, MONTHS
from everkept.families.bank.bank_files import BANK_LOCK, TextChange, edit_locked, format_names, list_file_names
from everkept.families.bank.banks import Bank, is_outside_bank, normalize_name
from everkept.families.bank.markdown_blocks import split_lines
from everkept.families.bank.markdown_sections import (
    ISSUE_TITLES,
    NEXT_STEP_TITLES,
    SESSION_NOTE_TITLES,
    TASK_TITLES,
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
    """Older names that were replaced, and those kept because the current name exists too."""

    renamed: list[str]
    skipped: list[str]


class CoreFilesResult(Value):
    """The core files that were created, and the older names that were replaced."""

    created: list[str]
    renamed: list[str]


async def ensure_core_files(bank: Bank) -> list[str]:
    """Create missing core files and return their names."""
    return (await prepare_core_files(bank)).created


async def prepare_core_files(bank: Bank) -> CoreFilesResult:
    """Create missing core files, and rename files with older names. Existing files are never overwritten."""
    return await bank.files.run_locked(BANK_LOCK, lambda: _prepare_locked(bank))


async def migrate_names(bank: Bank) -> NameMigration:
    return await bank.files.run_locked(BANK_LOCK, lambda: _migrate_locked(bank))


def find_name_warnings(names: Collection[str]) -> list[ToolWarning] | None:
    """Return warnings about core files that exist under both of their names."""
    doubled = [
        ToolWarning("two_names", f"{old} is ignored because {today} exists too. Merge the two files.")
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
    """Return warnings about core files with two names, and about files that tools cannot reach."""
    said = find_name_warnings(set(seen.files)) or []
    lost = [name for name, target in seen.links.items() if is_outside_bank(target)]
    lost = sorted(name for name in (*lost, *seen.unreachable) if name[0] != ".")
    if lost:
        shown = [f'"{escape_name(clip_text(name, 120))}"' for name in lost]
        message = (
            f"No tool can read {format_names(shown)}. "
            "Rename files whose names are not portable, and replace links that lead outside the bank with files."
        )
        said.append(ToolWarning("out_of_reach", message))
    return said or None


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
    """Return whether the text is empty or a template's placeholder, such as `[Task 1]`."""
    return not text.strip() or _BRACKETS.fullmatch(text.strip()) is not None


STATE_TITLES = ("Current Project State", "Project State", "Current State")
MAX_OVERVIEW_LINES = 6  # of product-context.md, a line per section
OVERVIEW_TITLES = ("description", "overview", "project overview", "purpose", "summary")
PENDING_TITLES = ("Pending Milestones",)
MAX_PATTERN_LINES = 20  # of system-patterns.md
MAX_ITEM_CHARACTERS = 1_000
MAX_SUMMARY_CHARACTERS = 300  # of a decision
MAX_ITEMS_LISTED = 50  # of one list, unless the caller requests more
MAX_READ_CHARACTERS = 200_000  # of a file; in a larger one the newest entries are at one of the ends

_DAY = re.compile(r"\d{4}-\d{2}-\d{2}(?:[ T]\d{2}:\d{2}(?::\d{2})?)?")
_LONG_DAY = re.compile(r"([A-Z][a-z]{2}) (\d{1,2}), (\d{4}), (\d{1,2}):(\d{2}) ([AP])M")
_CHILD = re.compile(r"(?<!\s)\s*(?:[-*+]|\d{1,9}[.)])\s+(?=\S)")
_INNER_BOX = re.compile(_CHILD.pattern + r"\[ \]\s+(.+)")
_TEMPLATE_TITLE = re.compile(r"Decision \d+")
_RULE_OR_COMMENT = re.compile(r"\s*(?:[-*_]\s*){3,}|\s*<!--.*-->\s*")
_OPEN_NOTE = re.compile(rf"{CATEGORY_SIGNS['blocker']}|{CATEGORY_SIGNS['todo']}|\b(?:todo|blocker|blocked)\b", re.I)


class RecentDecision(Value):
    title: str
    date: str | None
    summary: str


class CurrentContext(Value):
    """Current tasks, issues and next steps. Open tasks come first."""

    tasks: list[str]
    issues: list[str]
    next_steps: Annotated[list[str], Field(name="nextSteps")]


class Digest(Value, kw_only=True):
    """Summary of the core files, newest first. `alsoUnfinished` has open items outside the current context."""

    project_overview: Annotated[str, Field(name="projectOverview")] | None = None
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
    """Build the digest of the existing core files. Placeholders of templates are ignored."""
    read = {name: shorten_text(text) for name, text in texts.items()}
    active, progress = read.get(ACTIVE, ""), read.get(PROGRESS, "")
    tasks = _list_items(active, TASK_TITLES)
    patterns = texts.get(PATTERNS, "")
    shows_patterns = with_patterns and patterns.strip() not in ("", TEMPLATES[PATTERNS].strip())
    return Digest(
        project_overview=_describe_project(read.get(PRODUCT, "")),
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
    """Cut each list to MAX_ITEMS_LISTED items. Return warnings with the full counts."""
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
    """Return both ends of a very long text, cut between lines if possible."""
    if len(text) <= most:
        return text
    head, tail = text[: most // 2], text[-most // 2 :]
    whole_head = head[: head.rfind("\n") + 1] or head
    return f"{whole_head}\n{tail[tail.find(chr(10)) + 1 :] or tail}"


def list_recent_progress(text: str) -> list[str]:
    """Return entries of both formats, newest first. Within one minute, the upper entry is newer.

    One of the formats has no seconds, and new entries are inserted at the top.
    """
    found = sorted([*_find_dated_items(text), *_find_dated_headings(text)], key=lambda entry: entry.line)
    return [entry.text for entry in sorted(found, key=lambda entry: entry.at, reverse=True)]


def list_recent_decisions(text: str) -> list[RecentDecision]:
    """Return the decisions, last in the file first, because new ones are appended."""
    lines = [line.rstrip("\r\n") for line in split_lines(text)]
    found = [part for part in list_sections(text) if part.level == 2]
    made = (_parse_decision(part.title, lines[part.first : part.end]) for part in found)
    return [decision for decision in made if decision is not None][::-1]


def parse_moment(text: str) -> datetime | None:
    """Return the first date in a line, without seconds, or None."""
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
    """Return the items below these headings, or the plain text there if it has no list."""
    below = (item.said for item in find_items_below(text, titles))
    found = [item for item in below if not is_placeholder(strip_box(item))]
    if not found:
        lines = split_lines(text)
        parts = [part for part in find_sections(text, *titles) if part.level > 1]
        bodies = ("".join(lines[part.first : part.end]) for part in parts)
        found = [said for said in bodies if not list_items(said) and not is_placeholder(said)]
    return found


def _format_item(text: str) -> str:
    """Format an item on one line, with its nested items separated by semicolons."""
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
    """Return whether the item is ticked and has no open nested items."""
    return parse_box(item) is True and not any(map(_INNER_BOX.match, item.splitlines()[1:]))


def _describe_project(product: str) -> str | None:
    """Return what product-context.md says about the project, a line per section, or None if it is not filled in."""
    lines = split_lines(product)
    parts = list_sections(product)
    starts = [*(part.heading for part in parts), len(lines)]
    told: list[str] = []
    for part, end in zip(parts, starts[1:], strict=True):
        filled = [line for line in lines[part.first : end] if not is_placeholder(_CHILD.sub("", line, count=1))]
        if said := _format_item("\n".join(filled)):
            label = "" if part.level == 1 or compute_name_key(part.title) in OVERVIEW_TITLES else f"{part.title}: "
            told.append(clip_text(f"{label}{said}", MAX_SUMMARY_CHARACTERS))
    return "\n".join(told[:MAX_OVERVIEW_LINES]) or None


def _find_state(active: str) -> str | None:
    found = find_section(active, *STATE_TITLES)
    lines = [] if found is None else get_body(active, found).splitlines()
    return next((line.strip() for line in lines if not is_placeholder(line)), None)


def _list_unfinished(texts: Mapping[str, str]) -> list[str]:
    """Return open notes about blockers and tasks, pending milestones and unticked boxes."""
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
    """Yield unticked boxes, including nested ones, except those in the lists of the current context."""
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


def _parse_decision(title: str, lines: Sequence[str]) -> RecentDecision | None:
    """Parse a decision. Return None for an unchanged template block."""
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
    """Split a line into its bold label before a colon and the text after it."""
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
    """Join lines without list markers, rules, comments and placeholders."""
    bare = (re.sub(r"^\s*[-*+]\s+", "", line) for line in lines if not _RULE_OR_COMMENT.fullmatch(line))
    return to_one_line(" ".join(line for line in bare if not is_placeholder(line)))
