"""The five core files of a bank: their templates, current names, and warnings about others."""

import re
from collections.abc import Collection, Mapping, Sequence

from everkept.core.files import FolderSurvey
from everkept.core.text import clipped
from everkept.errors import MOST_LISTED, EverkeptError, visible
from everkept.families.bank.bank_files import LOCK, Change, edit_locked, file_names
from everkept.families.bank.banks import Bank
from everkept.families.bank.file_names import leads_astray, written_name
from everkept.families.bank.model import (
    ACTIVE,
    DECISIONS,
    LEGACY_NAMES,
    PATTERNS,
    PRODUCT,
    PROGRESS,
)
from everkept.tools.tool import Warned
from everkept.values import Value


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
