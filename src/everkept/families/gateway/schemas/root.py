"""A JSON Schema that others wrote, and how much work is spent on it."""

import re
from typing import Any, cast

from everkept.families.gateway.model import JSON

MOST_STEPS = 300_000  # about a second; a schema of a few lines can ask for years
DEEPEST = 50  # schemas inside each other, references included


class TooIntricate(Exception):
    """It would take more work than it is worth: nothing is said about the rest."""


class Steps:
    """The work that is left. It may be shared by all schemas of a server."""

    def __init__(self, left: int = MOST_STEPS) -> None:
        self.left = left

    def take(self, count: int = 1) -> None:
        self.left -= count
        if self.left < 0:
            raise TooIntricate


class Root:
    """A whole schema: what references inside it are relative to."""

    def __init__(self, schema: JSON, steps: Steps | None = None) -> None:
        self.schema = schema
        self.steps = steps or Steps()

    def target(self, reference: Any) -> Any:
        """What a reference inside the schema leads to; None where it leads elsewhere."""
        if not isinstance(reference, str) or not re.match(r"#(/|$)", reference):
            return None
        self.steps.take(len(reference) // _LETTERS_A_STEP)
        found: Any = self.schema
        for step in reference[2:].split("/") if len(reference) > 1 else ():
            self.steps.take()
            key = _unescaped(step)
            if isinstance(found, dict):
                found = cast(JSON, found).get(key)
            elif isinstance(found, list) and key.isdecimal() and len(key) < _LONGEST_INDEX:
                items = cast(list[Any], found)
                found = items[int(key)] if int(key) < len(items) else None
            else:
                return None
        return found


_LETTERS_A_STEP = 16
_LONGEST_INDEX = 10  # digits


def listed(value: Any) -> list[Any]:
    """The value where it is a list, as it should be."""
    return cast(list[Any], value) if isinstance(value, list) else []


def by_name(value: Any) -> JSON:
    """The value where it is an object, as it should be."""
    return cast(JSON, value) if isinstance(value, dict) else {}


def texts(value: Any) -> list[str]:
    return [item for item in listed(value) if isinstance(item, str)]


def _unescaped(step: str) -> str:
    # Imported here: few schemas refer to themselves.
    from urllib.parse import unquote

    return unquote(step).replace("~1", "/").replace("~0", "~")
