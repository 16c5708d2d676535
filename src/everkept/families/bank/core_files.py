"""The five core files of a bank: their templates and names, and a digest of what they say."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Annotated

from everkept.core.files import FolderSurvey
from everkept.core.text import clipped, normalised
from everkept.errors import MOST_LISTED, EverkeptError, visible
from everkept.families.bank.bank_entries import MONTHS, SIGNS
from everkept.families.bank.bank_files import LOCK, Change, edit_locked, file_names
from everkept.families.bank.banks import Bank, leads_astray, written_name
from everkept.families.bank.markdown_blocks import lines_of
from everkept.families.bank.markdown_sections import (
    ISSUES,
    NEXT_STEPS,
    SESSION_NOTES,
    TASKS,
    Section,
    body,
    box_of,
    items,
    items_below,
    items_of,
    one_line,
    section,
    sections,
    sections_titled,
    without_box,
)
from everkept.families.bank.model import (
    ACTIVE,
    CORE_FILES,
    DECISIONS,
    LEGACY_NAMES,
    PATTERNS,
    PRODUCT,
    PROGRESS,
)
from everkept.tools.schema import Field
from everkept.tools.tool import Warned
from everkept.values import Value, replace


class Migrated(Value):
    """Old names that became new ones, and those that stay because the new one is taken."""

    renamed: list[str]
    skipped: list[str]


class Prepared(Value):
    """The core files that were made, and old names that became new ones."""

    created: list[str]
    renamed: list[str]


async def ensure_core_files(bank: Bank) -> list[str]:
    """Makes those that are missing; the names it made."""
    return (await prepare(bank)).created


async def prepare(bank: Bank) -> Prepared:
    """Makes the core files that are missing, and gives old names up for those of today.

    What is there is never overwritten, so a second time nothing happens.
    """
    return await bank.files.run_locked(LOCK, lambda: _prepare_locked(bank))


async def migrate_names(bank: Bank) -> Migrated:
    """Gives the core files with an old name the one of today."""
    return await bank.files.run_locked(LOCK, lambda: _migrate_locked(bank))


def name_warnings(names: Collection[str]) -> list[Warned] | None:
    """About core files that a folder has under both of their names."""
    doubled = [
        Warned("two_names", f"{old} is not used, because {today} is there too: merge the two.")
        for today, old in LEGACY_NAMES.items()
        if today in names and old in names
    ]
    return doubled or None


async def _prepare_locked(bank: Bank) -> Prepared:
    migrated = await _migrate_locked(bank)
    try:
        made = await edit_locked(bank, {name: _begun(text) for name, text in TEMPLATES.items()})
    except EverkeptError:
        for old in migrated.renamed:
            await bank.files.rename(written_name(old), old)
        raise
    return Prepared([file.name for file in made.values()], migrated.renamed)


async def _migrate_locked(bank: Bank) -> Migrated:
    there = set(await file_names(bank))
    migrated = Migrated([], [])
    for today, old in LEGACY_NAMES.items():
        if old in there and today in there:
            migrated.skipped.append(old)
        elif old in there:
            await bank.files.rename(old, today)
            migrated.renamed.append(old)
    return migrated


def _begun(template: str) -> Change:
    return lambda before: template if before is None else None


def folder_warnings(seen: FolderSurvey) -> list[Warned] | None:
    """About core files with two names, and about what no tool can reach."""
    said = name_warnings(set(seen.files)) or []
    lost = [name for name, target in seen.links.items() if leads_astray(target)]
    lost = sorted(name for name in (*lost, *seen.unreachable) if name[0] != ".")
    return [*said, *([_out_of_reach(lost)] if lost else [])] or None


def _out_of_reach(names: Sequence[str]) -> Warned:
    shown = ", ".join(f'"{visible(clipped(name, 120))}"' for name in names[:MOST_LISTED])
    more = f" and {len(names) - MOST_LISTED} more" if len(names) > MOST_LISTED else ""
    return Warned(
        "out_of_reach",
        f"No tool can read {shown}{more}: rename what has a name that not every system knows, and"
        " put a file of its own in the place of a link that leads elsewhere.",
    )


_PRODUCT = """\
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

_ACTIVE = """\
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

_PROGRESS = """\
# Project Progress

## Completed Milestones

- [Milestone 1]

## Pending Milestones

- [Milestone 2]

## Update History

"""


def _decision(number: int) -> str:
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


_PATTERNS = """\
# System Patterns

## Architecture Patterns

- [Pattern]: [Where it is used, and why]

## Code Patterns

- [Pattern]: [Where it is used, and why]

## Documentation Patterns

- [Pattern]: [Where it is used, and why]
"""

TEMPLATES: Mapping[str, str] = {
    PRODUCT: _PRODUCT,
    ACTIVE: _ACTIVE,
    PROGRESS: _PROGRESS,
    DECISIONS: "# Decision Log\n" + _decision(1) + _decision(2),
    PATTERNS: _PATTERNS,
}

_BRACKETS = re.compile(r"(?:\[[^\[\]]*\][\s:,.–—-]*)+")


def is_placeholder(text: str) -> bool:
    """Whether nobody has written yet what should stand there, as in `[Task 1]`."""
    return not text.strip() or _BRACKETS.fullmatch(text.strip()) is not None


STATE = ("Current Project State", "Project State", "Current State")
PENDING = ("Pending Milestones",)
PATTERN_LINES = 20  # of system-patterns.md
LONGEST = 1_000  # characters of one item
LONGEST_SUMMARY = 300  # characters of a decision
MAX_ITEMS_LISTED = 50  # items of one list, unless more are asked for
MOST_READ = 200_000  # characters of a file; the newest of a larger one is at one of its ends

_DAY = re.compile(r"\d{4}-\d{2}-\d{2}(?:[ T]\d{2}:\d{2}(?::\d{2})?)?")
_LONG_DAY = re.compile(r"([A-Z][a-z]{2}) (\d{1,2}), (\d{4}), (\d{1,2}):(\d{2}) ([AP])M")
_CHILD = re.compile(r"\s*(?:[-*+]|\d{1,9}[.)])\s+(?=\S)")
_INNER_BOX = re.compile(_CHILD.pattern + r"\[ \]\s+(.+)")
_TEMPLATE_TITLE = re.compile(r"Decision \d+")
_MARKS = re.compile(r"\s*(?:[-*_]\s*){3,}|\s*<!--.*-->\s*")
_OPEN_NOTE = re.compile(rf"{SIGNS['blocker']}|{SIGNS['todo']}|\b(?:todo|blocker|blocked)\b", re.I)


class Decided(Value):
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
    recent_decisions: Annotated[list[Decided], Field(name="recentDecisions")]
    system_patterns: Annotated[str, Field(name="systemPatterns")] | None = None
    graph_summary: Annotated[str, Field(name="graphSummary")] | None = None


class _Dated(Value):
    at: datetime
    line: int
    text: str


def digest_of(
    texts: Mapping[str, str],
    *,
    most_progress: int,
    most_decisions: int,
    with_patterns: bool,
    graph_summary: str | None = None,
) -> Digest:
    """Of the core files that are there; what templates say counts as nothing."""
    read = {name: shortened(text) for name, text in texts.items()}
    active, progress = read.get(ACTIVE, ""), read.get(PROGRESS, "")
    tasks = _listed(active, TASKS)
    patterns = texts.get(PATTERNS, "")
    shows_patterns = with_patterns and patterns.strip() not in ("", TEMPLATES[PATTERNS].strip())
    return Digest(
        project_state=_state(active),
        current_context=CurrentContext(
            [_item(task) for task in sorted(tasks, key=_is_done)],
            [_item(issue) for issue in _listed(active, ISSUES)],
            [_item(step) for step in _listed(active, NEXT_STEPS)],
        ),
        also_unfinished=_also_unfinished(read) or None,
        recent_progress=recent_progress(progress)[:most_progress],
        recent_decisions=recent_decisions(read.get(DECISIONS, ""))[:most_decisions],
        system_patterns="".join(lines_of(patterns[:MOST_READ])[:PATTERN_LINES]).rstrip()
        if shows_patterns
        else None,
        graph_summary=graph_summary,
    )


def limited(digest: Digest) -> tuple[Digest, list[str]]:
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


def shortened(text: str, most: int = MOST_READ) -> str:
    """Both ends of a text that is very long, cut between lines where there are any."""
    if len(text) <= most:
        return text
    head, tail = text[: most // 2], text[-most // 2 :]
    whole_head = head[: head.rfind("\n") + 1] or head
    return f"{whole_head}\n{tail[tail.find(chr(10)) + 1 :] or tail}"


def recent_progress(text: str) -> list[str]:
    """Entries of both formats, newest first; of one minute the upper one is the newer.

    One of the formats has no seconds, and new entries are put at the top.
    """
    found = sorted([*_dated_items(text), *_dated_headings(text)], key=lambda entry: entry.line)
    return [entry.text for entry in sorted(found, key=lambda entry: entry.at, reverse=True)]


def recent_decisions(text: str) -> list[Decided]:
    """The last in the file first, because new ones are added at its end."""
    found = [part for part in sections(text) if part.level == 2]
    made = (_decided(part.title, lines) for part, lines in _with_lines(text, found))
    return [decision for decision in made if decision is not None][::-1]


def moment_in(text: str) -> datetime | None:
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


def _listed(text: str, titles: Sequence[str]) -> list[str]:
    """The items below these headings; where there is no list, what is said there instead."""
    below = (item.said for item in items_below(text, titles))
    found = [item for item in below if not is_placeholder(without_box(item))]
    if not found:
        lines = lines_of(text)
        parts = [part for part in sections_titled(text, *titles) if part.level > 1]
        bodies = ("".join(lines[part.first : part.end]) for part in parts)
        found = [said for said in bodies if not items(said) and not is_placeholder(said)]
    return found


def _item(text: str) -> str:
    """On one line, with the items below it between semicolons."""
    parts = [""]
    for line in text.splitlines():
        if found := _CHILD.match(line):
            parts.append(line[found.end() :])
        else:
            parts[-1] += f" {line}"
    shown = [line for part in parts if (line := one_line(part))]
    first, rest = shown[0] if shown else "", "; ".join(shown[1:])
    between = " " if first.endswith(":") else "; "
    return clipped(f"{first}{between}{rest}" if rest else first, LONGEST)


def _is_done(item: str) -> bool:
    """Ticked, with nothing open below it."""
    return box_of(item) is True and not any(map(_INNER_BOX.match, item.splitlines()[1:]))


def _state(active: str) -> str | None:
    found = section(active, *STATE)
    lines = [] if found is None else body(active, found).splitlines()
    return next((line.strip() for line in lines if not is_placeholder(line)), None)


def _also_unfinished(texts: Mapping[str, str]) -> list[str]:
    """Notes about what blocks or is to do, milestones to come, and boxes without a tick."""
    active = texts.get(ACTIVE, "")
    notes = [note for note in _listed(active, SESSION_NOTES) if _OPEN_NOTE.search(note)]
    open_notes = [f"{ACTIVE}: {_item(note)}" for note in notes if not _is_done(note)]
    pending = [
        f"{PROGRESS}: {_item(without_box(item))}"
        for item in _listed(texts.get(PROGRESS, ""), PENDING)
        if not _is_done(item)
    ]
    boxes = (f"{name}: {box}" for name in CORE_FILES for box in _open_boxes(texts.get(name, "")))
    return list(dict.fromkeys([*open_notes, *pending, *boxes]))


def _open_boxes(text: str) -> Iterator[str]:
    """Also those inside other items; what the current context lists is left out."""
    if "[ ]" not in text:
        return
    parts = sections_titled(text, *TASKS, *ISSUES, *NEXT_STEPS)
    shown = {at for part in parts if part.level > 1 for at in range(part.first, part.end)}
    for item in items_of(lines_of(text)):
        if item.first in shown:
            continue
        first, *rest = item.said.splitlines() or [""]
        if box_of(first) is False and not is_placeholder(without_box(first)):
            yield _item(without_box(first))
        yield from (_item(found[1]) for line in rest if (found := _INNER_BOX.match(line)))


def _dated_items(text: str) -> Iterator[_Dated]:
    for item in items_of(lines_of(text)):
        first = item.said.partition("\n")[0]
        is_entry = first.startswith("[") and box_of(first) is not False
        if is_entry and (at := moment_in(first)):
            yield _Dated(at, item.first, _item(item.said))


def _dated_headings(text: str) -> Iterator[_Dated]:
    for part in sections(text):
        begins = part.title.lstrip("[")[:1]
        is_entry = part.level > 1 and (part.title.startswith("[") or begins.isdigit())
        if is_entry and (at := moment_in(part.title)):
            yield _Dated(at, part.heading, _item(part.title))


def _with_lines(text: str, parts: Iterable[Section]) -> Iterator[tuple[Section, list[str]]]:
    lines = lines_of(text)
    for part in parts:
        yield part, [line.rstrip("\r\n") for line in lines[part.first : part.end]]


def _decided(title: str, lines: Sequence[str]) -> Decided | None:
    """None where the block is as the template has it."""
    labels: dict[str, list[str]] = {"": []}
    label = ""
    nested = {at for item in items_of(lines) for at in range(item.first + 1, item.end)}
    for at, line in enumerate(lines):
        if at not in nested and (found := _labelled(line)):
            label, value = found
            labels.setdefault(label, []).append(value)
        else:
            labels[label].append(line)
    said = {key: _said(values) for key, values in labels.items()}
    is_template = _TEMPLATE_TITLE.fullmatch(title) or is_placeholder(title)
    if is_template and not any(said.values()):
        return None
    date = said.get("date") or next(iter(_DAY.findall(title)), None)
    summary = next((said[key] for key in ("decision", "", "context") if said.get(key)), "")
    return Decided(title, date, clipped(summary, LONGEST_SUMMARY))


def _labelled(line: str) -> tuple[str, str] | None:
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
    return normalised(name), value.strip().removeprefix(":").strip()


def _said(lines: Sequence[str]) -> str:
    """What stands in lines, without list markers, rules, comments and placeholders."""
    bare = (re.sub(r"^\s*[-*+]\s+", "", line) for line in lines if not _MARKS.fullmatch(line))
    return one_line(" ".join(line for line in bare if not is_placeholder(line)))
