"""How the core files of a new bank begin; what stands in square brackets waits to be written."""

import re
from collections.abc import Mapping

from everkept.families.bank.model import ACTIVE, DECISIONS, PATTERNS, PRODUCT, PROGRESS

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
