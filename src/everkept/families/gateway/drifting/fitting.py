"""Whether another server takes what a schema of ours allows."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, cast

from everkept.core.text import clipped
from everkept.families.gateway.model import JSON
from everkept.families.gateway.schemas.facts import (
    KINDS,
    at,
    below,
    in_words,
    items,
    kinds,
    names,
    plain,
    required,
    values,
)
from everkept.families.gateway.schemas.root import Root
from everkept.families.gateway.schemas.validating import first_mistake

Level = Literal["error", "warning", "note"]

_DEEPEST = 5  # objects and lists inside each other; further down nobody looks


class Misfit(NamedTuple):
    """Something that ours allows and the other refuses; `place` is inside the value."""

    level: Level
    place: str
    message: str


class Side(NamedTuple):
    """A place in one of the two schemas."""

    place: Any
    root: Root

    @property
    def kinds(self) -> frozenset[str]:
        return kinds(self.place, self.root)

    @property
    def values(self) -> list[Any] | None:
        return values(self.place, self.root)

    @property
    def parts(self) -> list[JSON]:
        return plain(self.place, self.root)

    @property
    def names(self) -> list[str]:
        return names(self.place, self.root)

    @property
    def required(self) -> list[str]:
        return required(self.place, self.root)

    def refuses(self, value: Any) -> bool:
        return first_mistake(value, self.place, self.root) is not None

    def has(self, name: str) -> bool:
        """Whether there may be such a property."""
        return below(self.place, name, self.root) != []

    def down(self, name: str) -> "Side":
        return Side(at(self.place, [name], self.root), self.root)

    @property
    def items(self) -> "Side":
        return Side(items(self.place, self.root), self.root)

    @property
    def needed(self) -> list[str]:
        """The properties that must be given: one with a default need not, whatever is said."""
        return [
            name
            for name in self.required
            if not any("default" in part for part in self.down(name).parts)
        ]


def misfits(ours: Side, theirs: Side, place: str = "", depth: int = 0) -> Iterator[Misfit]:
    """What is not clear on either side is none."""
    allowed, taken = ours.kinds, theirs.kinds
    if allowed in (KINDS, frozenset()):
        return
    if not allowed & taken:
        message = f"takes {in_words(taken)}, and ours is {in_words(allowed)}"
        yield Misfit("error", place, message)
        return
    if allowed - taken:
        message = f"takes {in_words(taken)} alone, and ours may be {in_words(allowed - taken)}"
        yield Misfit("warning", place, message)
    if ours.values is not None or theirs.values is not None:
        yield from _lost_values(ours, theirs, place)
        return
    for misfit in _limits(ours, theirs):
        yield misfit._replace(place=place)
    if depth < _DEEPEST:
        yield from _inside(ours, theirs, place, depth + 1)


def shown_values(found: Sequence[Any]) -> str:
    return clipped(", ".join(json.dumps(value, ensure_ascii=False) for value in found))


def _lost_values(ours: Side, theirs: Side, place: str) -> Iterator[Misfit]:
    if ours.values is None:
        yield Misfit("warning", place, f"takes only {shown_values(theirs.values or ())}")
        return
    offered = [value for value in ours.values if not ours.refuses(value)]
    lost = [value for value in offered if theirs.refuses(value)]
    if lost:
        yield Misfit("error", place, f"does not take {shown_values(lost)}")


class _Limit(NamedTuple):
    """One end of what is allowed: the higher its rank, the less is."""

    rank: tuple[float, bool]
    said: str


def _limits(ours: Side, theirs: Side) -> Iterator[Misfit]:
    shared = ours.kinds & theirs.kinds
    for kind, keywords, said in _ENDS:
        if kind not in shared:
            continue
        own, other = _limit(ours.parts, keywords), _limit(theirs.parts, keywords)
        if other is not None and own is None and said:
            yield Misfit("note", "", f"takes {other.said}, and ours does not say so")
        elif other is not None and own is not None and own.rank < other.rank:
            yield Misfit("warning", "", f"takes {other.said}, and ours {own.said}")


def _limit(parts: Sequence[JSON], keywords: Mapping[str, tuple[str, int, bool]]) -> _Limit | None:
    """The strictest that is said."""
    found = [
        _Limit((sign * cast(float, part[word]), excludes), words.format(f"{part[word]:,}"))
        for part in parts
        for word, (words, sign, excludes) in keywords.items()
        if isinstance(part.get(word), int | float) and not isinstance(part[word], bool)
    ]
    return max(found, default=None, key=lambda limit: limit.rank)


# Of which kind of value, the keywords, and whether a limit that only they have is worth a note:
# that an empty text is refused goes without saying.
_ENDS: Sequence[tuple[str, Mapping[str, tuple[str, int, bool]], bool]] = (
    (
        "integer",
        {"minimum": ("at least {}", 1, False), "exclusiveMinimum": ("more than {}", 1, True)},
        True,
    ),
    (
        "integer",
        {"maximum": ("at most {}", -1, False), "exclusiveMaximum": ("less than {}", -1, True)},
        True,
    ),
    ("string", {"minLength": ("at least {} characters", 1, False)}, False),
    ("string", {"maxLength": ("at most {} characters", -1, False)}, True),
    ("array", {"minItems": ("at least {} items", 1, False)}, False),
    ("array", {"maxItems": ("at most {} items", -1, False)}, True),
)


def _inside(ours: Side, theirs: Side, place: str, depth: int) -> Iterator[Misfit]:
    shared = ours.kinds & theirs.kinds
    if "array" in shared:
        yield from misfits(ours.items, theirs.items, f"{place}[]", depth)
    if "object" not in shared:
        return
    for name in ours.names:
        at_name = f"{place}.{name}"
        if not theirs.has(name) and ours.has(name):
            yield Misfit("error", place, f"has no `{name}`")
        else:
            yield from misfits(ours.down(name), theirs.down(name), at_name, depth)
    given = set(ours.required)
    for name in theirs.needed:
        if name not in given:
            yield Misfit("warning", place, f"needs `{name}`, which ours may leave out")
