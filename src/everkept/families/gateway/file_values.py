"""A value in a gateway's file: what it should be, where it is, and what is wrong with it."""

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

from everkept.core.json_text import Document, Key
from everkept.core.text import clipped, forbidden_in_text
from everkept.errors import visible
from everkept.families.gateway.model import Problem
from everkept.tools.schema import nearest


class Notes(NamedTuple):
    """What was found out about a file so far."""

    document: Document
    problems: list[Problem]
    warnings: list[Problem]


class Place(NamedTuple):
    notes: Notes
    path: tuple[Key, ...]
    value: Any

    @property
    def line(self) -> int:
        return self.notes.document.line(self.path)

    @property
    def name(self) -> str:
        """As messages show it: `tools[0].upstream.tool`."""
        shown = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in self.path)
        return f"`{clipped(visible(shown.removeprefix('.')))}`" if shown else "The file"

    def refuse(self, problem: str, fix: str) -> None:
        self.notes.problems.append(Problem(self.line, problem, fix))

    def warn(self, warning: str, fix: str, *, fails_calls: bool = False) -> None:
        self.notes.warnings.append(Problem(self.line, warning, fix, fails_calls))

    def must_be(self, kind: str, *, is_hidden: bool = False) -> None:
        """Refuses the value; hidden ones may be secrets."""
        value = _kind(self.value) if is_hidden else shown_value(self.value)
        self.refuse(f"{self.name} is {value}.", f"It must be {kind}.")

    def get(self, key: str) -> "Place | None":
        """What stands under a key of this object."""
        values = cast(Mapping[str, Any], self.value)
        return self._below(key, values[key]) if key in values else None

    def needs(self, key: str, kind: str) -> "Place | None":
        """Like `get`, but its absence is a problem."""
        if (found := self.get(key)) is None:
            self.refuse(f"{self.name} has no `{key}`.", f"Add it: {kind}.")
        return found

    def members(self) -> "Iterator[tuple[str, Place]]":
        """Of an object."""
        for key, value in cast(Mapping[str, Any], self.value).items():
            yield key, self._below(key, value)

    def items(self) -> "Iterator[Place]":
        """Of a list."""
        for index, value in enumerate(cast(list[Any], self.value)):
            yield self._below(index, value)

    def _below(self, key: Key, value: Any) -> "Place":
        return Place(self.notes, (*self.path, key), value)


def is_object(place: Place) -> bool:
    """Refuses anything else; so do the others here."""
    if isinstance(place.value, dict):
        return True
    place.must_be("an object in { }")
    return False


def is_list(place: Place) -> bool:
    if isinstance(place.value, list):
        return True
    place.must_be("a list in [ ]")
    return False


def is_text(place: Place, *, can_be_empty: bool = False, is_hidden: bool = False) -> bool:
    if not isinstance(place.value, str):
        place.must_be("a text in quotes", is_hidden=is_hidden)
    elif not can_be_empty and not place.value.strip():
        place.refuse(f"{place.name} is empty.", "Say something there, or leave it out.")
    elif found := forbidden_in_text(place.value):
        place.refuse(
            f"{place.name} holds the character {found!a}, which no text may have.",
            "Take it out.",
        )
    else:
        return True
    return False


def text_of(place: Place | None, *, can_be_empty: bool = False) -> str | None:
    """The text there; None, and a problem, where it is something else."""
    if place is None or not is_text(place, can_be_empty=can_be_empty):
        return None
    return cast(str, place.value)


def texts_of(place: Place | None) -> list[str]:
    """The texts of a list, without those that are none."""
    if place is None or not is_list(place):
        return []
    return [cast(str, item.value) for item in place.items() if is_text(item)]


def check_keys(
    place: Place, known: Collection[str], elsewhere: Mapping[str, str] | None = None
) -> None:
    """Refuses other keys in an object; `elsewhere` has the fix for some that people expect."""
    for key, member in place.members():
        if key not in known:
            close = nearest(key, list(known))
            fix = f"Did you mean `{close}`?" if close else f"Known: {', '.join(sorted(known))}."
            member.refuse(
                f"{place.name} has the key `{clipped(visible(key))}`, which means nothing here.",
                (elsewhere or {}).get(key, fix),
            )


def warn_of_secrets(place: Place, name: str, value: str, fix: str) -> None:
    """Where a value of that name seems to be one."""
    # Imported here, as below: its patterns take longer to make than a file takes to read.
    from everkept.core.secrets import masked, masked_json

    if kinds := masked_json({name: value})[1] or masked(value)[1]:
        place.warn(
            f"{place.name} looks like a secret ({', '.join(kinds)}) written in the file.", fix
        )


def _kind(value: Any) -> str:
    if isinstance(value, str | dict | list):
        return "a text" if isinstance(value, str) else "an object or a list"
    return "null" if value is None else "true or false" if isinstance(value, bool) else "a number"


def shown_value(value: Any) -> str:
    """A value in a message: short, and without secrets."""
    from everkept.core.secrets import masked

    text = json.dumps(value, ensure_ascii=False)
    return clipped(visible(masked(text)[0]))


Path = tuple[str, ...]

_ESCAPED = re.compile(r"[\\.]")
_PART = re.compile(r"((?:[^\\.]|\\[\\.])*)(\.|\Z)", re.DOTALL)


def split_path(text: str) -> Path | None:
    """The keys of `search.text`; `\\.` is a dot in a key, and `\\\\` a backslash.

    None where a key is empty, or a backslash stands before anything else.
    """
    keys: list[str] = []
    at = 0
    while part := _PART.match(text, at):
        if not part[1]:
            return None
        keys.append(re.sub(r"\\(.)", r"\1", part[1]))
        if not part[2]:
            return tuple(keys) if part.end() == len(text) else None
        at = part.end()
    return None


def joined_path(keys: Sequence[str]) -> str:
    """The text that is split into these keys."""
    return ".".join(_ESCAPED.sub(r"\\\g<0>", key) for key in keys)


class Taken:
    """Paths with the lines that they stand in."""

    def __init__(self) -> None:
        self.lines: dict[Path, int] = {}
        self._ways: dict[Path, Path] = {}  # what leads to one of them

    def add(self, path: Path, line: int) -> None:
        self.lines[path] = line
        for length in range(1, len(path)):
            self._ways.setdefault(path[:length], path)

    def met(self, path: Path) -> Path | None:
        """One of them that is the same path, leads to it, or goes on from it."""
        return self.filled(path) or self._ways.get(path)

    def filled(self, path: Path) -> Path | None:
        """One of them that is the same path, or leads to it."""
        starts = (path[:length] for length in range(1, len(path) + 1))
        return next((start for start in starts if start in self.lines), None)
