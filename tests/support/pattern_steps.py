# pyright: basic
"""Steps of a regular expression, counted by a small backtracking matcher that works as Python's does.

Bounds are cut to a few repetitions, so that short texts show how the steps grow: what is bounded costs a constant.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from re import _constants as op  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

Then = Callable[[int], int | None]
Part = Callable[[int, Then], int | None]

CUT_BOUND = 6  # repetitions of what is bounded
LARGEST_BOUND = 2_000  # repetitions; more count as unbounded
LAST_CHARACTERS = ("\x00", "\n")
PIECES = "a1 \n.A"
SAMPLES = "a1 .A_-/:=\"'\n(@#,<[{x*|`"


class TooManySteps(Exception):
    """The steps passed the limit that a linear pattern would keep."""


class StepCounter:
    """One pattern, and the steps that a search for all its matches takes in a text."""

    def __init__(self, pattern: str, flags: int) -> None:
        tree = parser.parse(pattern, flags)
        self._flags = tree.state.flags
        self._tree = list(tree)
        self._known: dict[tuple[int, str], bool] = {}
        self._groups: dict[int, tuple[int, int]] = {}
        self._text = ""
        self._steps = self._limit = 0
        self._part = self._build(self._tree)

    def count(self, text: str, limit: int, *, at_start: bool = False) -> int:
        self._text, self._steps, self._limit = text, 0, limit
        start = 0
        while start <= len(text):
            self._tick()
            self._groups.clear()
            end = self._part(start, lambda at: at)
            if at_start:
                break
            start = end if end is not None and end > start else start + 1
        return self._steps

    def list_hostile(self) -> Iterator[tuple[str, str]]:
        """Yield the beginnings and the repeated pieces that its own repetitions can read."""
        yield from _list_pumps(self._tree, "")

    def _tick(self) -> None:
        self._steps += 1
        if self._steps > self._limit:
            raise TooManySteps

    def _build(self, items: Sequence[Any]) -> Part:
        parts = [self._build_one(*item) for item in items]
        if not parts:
            return lambda at, then: then(at)

        def run(at: int, then: Then, number: int = 0) -> int | None:
            if number == len(parts):
                return then(at)
            return parts[number](at, lambda end: run(end, then, number + 1))

        return parts[0] if len(parts) == 1 else run

    def _build_one(self, kind: Any, value: Any) -> Part:
        if (accepts := self._find_test(kind, value)) is not None:
            return self._build_character(accepts)
        if kind is op.BRANCH:
            return self._build_branch([self._build(each) for each in value[1]])
        if kind is op.SUBPATTERN:
            return self._build_group(value[0], self._build(value[3]))
        if kind in (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT):
            return self._build_repeat(kind, value)
        if kind is op.ATOMIC_GROUP:
            return self._build_atomic(self._build(value))
        if kind in (op.ASSERT, op.ASSERT_NOT):
            return self._build_assertion(kind is op.ASSERT, value)
        if kind is op.AT:
            return self._build_place(value)
        if kind is op.GROUPREF:
            return self._build_reference(value)
        if kind is op.GROUPREF_EXISTS:
            return self._build_condition(value)
        raise NotImplementedError(str(kind))

    def _find_test(self, kind: Any, value: Any) -> Callable[[str], bool] | None:
        if kind not in (op.LITERAL, op.NOT_LITERAL, op.ANY, op.IN):
            return None
        flags = self._flags
        identity = id(value) if kind is op.IN else hash((str(kind), value))

        def accepts(character: str) -> bool:
            key = (identity, character)
            if key not in self._known:
                self._known[key] = _accepts(kind, value, character, flags)
            return self._known[key]

        return accepts

    def _build_character(self, accepts: Callable[[str], bool]) -> Part:
        def run(at: int, then: Then) -> int | None:
            self._tick()
            return then(at + 1) if at < len(self._text) and accepts(self._text[at]) else None

        return run

    def _build_branch(self, branches: list[Part]) -> Part:
        def run(at: int, then: Then) -> int | None:
            for branch in branches:
                if (end := branch(at, then)) is not None:
                    return end
            return None

        return run

    def _build_group(self, number: int | None, body: Part) -> Part:
        def run(at: int, then: Then) -> int | None:
            def close(end: int) -> int | None:
                if number is not None:
                    self._groups[number] = (at, end)
                return then(end)

            return body(at, close)

        return run

    def _build_atomic(self, body: Part) -> Part:
        def run(at: int, then: Then) -> int | None:
            end = body(at, lambda reached: reached)
            return None if end is None else then(end)

        return run

    def _build_assertion(self, wanted: bool, value: Any) -> Part:
        direction, items = value
        body = self._build(items)
        width = items.getwidth()[0]

        def run(at: int, then: Then) -> int | None:
            start = at if direction > 0 else at - width
            met = start >= 0 and body(start, lambda reached: reached) is not None
            return then(at) if met == wanted else None

        return run

    def _build_place(self, place: Any) -> Part:
        multiline = bool(self._flags & re.MULTILINE)

        def run(at: int, then: Then) -> int | None:
            self._tick()
            text = self._text
            if place in (op.AT_BOUNDARY, op.AT_NON_BOUNDARY):
                met = (_is_word(text[at - 1 : at]) != _is_word(text[at : at + 1])) == (place is op.AT_BOUNDARY)
            elif place is op.AT_BEGINNING:
                met = at == 0 or (multiline and text[at - 1] == "\n")
            elif place is op.AT_BEGINNING_STRING:
                met = at == 0
            elif place is op.AT_END:
                met = at == len(text) or text[at:] == "\n" or (multiline and text[at] == "\n")
            else:
                met = at == len(text)
            return then(at) if met else None

        return run

    def _build_reference(self, number: int) -> Part:
        def run(at: int, then: Then) -> int | None:
            self._tick()
            if number not in self._groups:
                return None
            start, end = self._groups[number]
            return then(at + end - start) if self._text.startswith(self._text[start:end], at) else None

        return run

    def _build_condition(self, value: Any) -> Part:
        number, yes, no = value
        chosen = self._build(yes), self._build(no or [])
        return lambda at, then: chosen[number not in self._groups](at, then)

    def _build_repeat(self, kind: Any, value: Any) -> Part:
        least, most, items = value
        least = min(least, CUT_BOUND)
        most = None if is_unbounded(most) else min(most, CUT_BOUND)
        accepts = self._find_test(*items[0]) if len(items) == 1 else None
        if accepts is not None:
            return self._build_run(kind, least, most, accepts)
        body = self._build(items)

        def repeat(at: int, then: Then, count: int = 0) -> int | None:
            def again(end: int) -> int | None:
                return None if end == at and count >= least else repeat(end, then, count + 1)

            if kind is op.MIN_REPEAT and count >= least and (end := then(at)) is not None:
                return end
            if (most is None or count < most) and (end := body(at, again)) is not None:
                return end
            return then(at) if count >= least and kind is not op.MIN_REPEAT else None

        if kind is not op.POSSESSIVE_REPEAT:
            return repeat

        def take(at: int, then: Then) -> int | None:
            count = 0
            while most is None or count < most:
                end = body(at, lambda reached: reached)
                if end is None or end == at:
                    break
                at, count = end, count + 1
            return then(at) if count >= least else None

        return take

    def _build_run(self, kind: Any, least: int, most: int | None, accepts: Callable[[str], bool]) -> Part:
        def run(at: int, then: Then) -> int | None:
            text, end = self._text, at
            last = len(text) if most is None else min(len(text), at + most)
            if kind is op.MIN_REPEAT:
                while True:
                    if end - at >= least and (found := then(end)) is not None:
                        return found
                    self._tick()
                    if end >= last or not accepts(text[end]):
                        return None
                    end += 1
            while end < last and accepts(text[end]):
                self._tick()
                end += 1
            lowest = end if kind is op.POSSESSIVE_REPEAT else at + least
            for place in range(end, lowest - 1, -1):
                if place - at < least:
                    break
                self._tick()
                if (found := then(place)) is not None:
                    return found
            return None

        return run


def is_unbounded(most: Any) -> bool:
    return most is op.MAXREPEAT or most > LARGEST_BOUND


def _is_word(character: str) -> bool:
    return character.isalnum() or character == "_"


def _accepts(kind: Any, value: Any, character: str, flags: int) -> bool:
    if kind is op.ANY:
        return character != "\n" or bool(flags & re.DOTALL)
    variants = {character, character.lower(), character.upper()} if flags & re.IGNORECASE else {character}
    if kind is op.LITERAL:
        return any(ord(each) == value for each in variants if len(each) == 1)
    if kind is op.NOT_LITERAL:
        return all(ord(each) != value for each in variants if len(each) == 1)
    negated = value[0][0] is op.NEGATE
    met = any(_is_in(each, item) for each in variants if len(each) == 1 for item in value)
    return met != negated


def _is_in(character: str, item: tuple[Any, Any]) -> bool:
    kind, value = item
    if kind is op.LITERAL:
        return ord(character) == value
    if kind is op.RANGE:
        return value[0] <= ord(character) <= value[1]
    if kind is op.CATEGORY:
        name = str(value)
        test = str.isdigit if "DIGIT" in name else str.isspace if "SPACE" in name else _is_word
        return test(character) != ("NOT" in name)
    return False


def _sample(items: Sequence[Any]) -> str:
    """Build a text that the parts may match."""
    text = ""
    for kind, value in items:
        if kind in (op.LITERAL, op.NOT_LITERAL, op.ANY, op.IN):
            accepted = (each for each in SAMPLES if _accepts(kind, value, each, 0))
            text += chr(value) if kind is op.LITERAL else next(accepted, "") or _first_of(value)
        elif kind is op.BRANCH:
            text += _sample(value[1][0])
        elif kind is op.SUBPATTERN:
            text += _sample(value[3])
        elif kind is op.ATOMIC_GROUP:
            text += _sample(value)
        elif kind in (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT):
            text += _sample(value[2]) * min(value[0], CUT_BOUND)
    return text


def _list_pieces(items: Sequence[Any]) -> list[str]:
    """List texts of one repetition: of a class, each of its characters that other patterns read too."""
    if len(items) == 1 and items[0][0] in (op.ANY, op.IN, op.NOT_LITERAL):
        kind, value = items[0]
        accepted = [each for each in PIECES if _accepts(kind, value, each, 0)]
        if accepted:
            return accepted
    piece = _sample(items)
    return [piece] if piece else []


def _first_of(items: Any) -> str:
    return next((chr(v if k is op.LITERAL else v[0]) for k, v in items if k in (op.LITERAL, op.RANGE)), "")


def _list_pumps(items: Sequence[Any], before: str) -> Iterator[tuple[str, str]]:
    for number, (kind, value) in enumerate(items):
        prefix = before + _sample(items[:number])
        if kind in (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT):
            if is_unbounded(value[1]):
                yield from ((prefix, piece) for piece in _list_pieces(value[2]))
            yield from _list_pumps(value[2], prefix)
        elif kind is op.SUBPATTERN:
            yield from _list_pumps(value[3], prefix)
        elif kind is op.ATOMIC_GROUP:
            yield from _list_pumps(value, prefix)
        elif kind is op.BRANCH:
            for branch in value[1]:
                yield from _list_pumps(branch, prefix)
