"""The best of a file inside a token budget: a bit of every section, and long paragraphs cut."""

import json
import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise

from everkept.core.tokens import token_count
from everkept.families.bank.context.digest import MOST_READ, moment_in, shortened
from everkept.families.bank.model import DECISIONS, PROGRESS
from everkept.families.bank.text.blocks import lines_of
from everkept.families.bank.text.markdown import (
    Section,
    block_starts,
    closed,
    items_of,
    sections,
)
from everkept.values import Value

ENTRY_LEVEL = 2  # below a heading of this level a list's items are entries of their own
ROUND = 5  # pieces of one section before the next section has its turn
LARGEST_SHARE = 3  # a piece that is not short takes a third of the room at most
SHORT = 60  # tokens
_SMALLEST_CUT = 24  # tokens or characters under which the beginning of a piece says nothing
_MOST_CHARACTERS = 8  # of one token
_SENTENCE = re.compile(r"(?<=[.!?…])[ \t]+|(?<=[。！？])|(?<=\n)")
_WORD = re.compile(r"(?<=\S)[ \t]")


class _Piece(Value):
    """Lines of a file that are shown or left out together; `above` are its headings' pieces."""

    first: int
    end: int
    above: tuple[int, ...]


def text_cost(text: str) -> int:
    """Tokens of a text inside of JSON."""
    return token_count(json.dumps(text, ensure_ascii=False)[1:-1])


def fits(text: str, room: int) -> bool:
    # What is much too long is not counted through.
    return len(text) <= max(room, 0) * _MOST_CHARACTERS and text_cost(text) <= room


def best_part(name: str, text: str, room: int) -> str | None:
    """As many of the best pieces as fit, in the order of the file; None where none does."""
    lines = lines_of(shortened(text, max(MOST_READ, room * _MOST_CHARACTERS)))
    pieces = _pieces(lines, is_log=name == DECISIONS)
    texts = ["".join(lines[piece.first : piece.end]) for piece in pieces]
    shown: dict[int, str] = {}
    left = room
    for at in _ranked(name, pieces, lines):
        headings = [above for above in pieces[at].above if above not in shown]
        before = sum(text_cost(texts[above]) for above in headings)
        most = min(left - before, max(room // LARGEST_SHARE, SHORT))
        piece: str | None = texts[at]
        if not fits(piece, most):
            is_worth_cutting = not shown or not fits(piece, SHORT)
            piece = beginning(piece, most) if is_worth_cutting else None
        if piece is None:
            continue
        shown |= {above: texts[above] for above in headings} | {at: piece}
        left -= before + text_cost(piece)
        if left < _SMALLEST_CUT // 2:
            break
    return _joined(shown, room)


def beginning(text: str, room: int) -> str | None:
    """Cut after a line or a sentence, else after a word; None where that says nothing."""
    if room < _SMALLEST_CUT:
        return None
    reachable = text[: room * _MOST_CHARACTERS]
    for ends in (_SENTENCE, _WORD):
        places = [found.start() for found in ends.finditer(reachable)]
        count = bisect_right(places, 0, key=lambda place: int(not fits(_cut(text, place), room)))
        if count and places[count - 1] > _SMALLEST_CUT:
            return _cut(text, places[count - 1])
    return None


def _cut(text: str, place: int) -> str:
    whole = closed(text[:place].rstrip())
    return f"{whole}\n…\n" if whole.endswith(("```", "~~~", "-->")) else f"{whole} …\n"


def _joined(shown: dict[int, str], room: int) -> str | None:
    """In the order of the file; the last that was chosen goes where counting was too hopeful."""
    while shown:
        text = "".join(shown[at] for at in sorted(shown))
        if fits(text, room):
            return text
        shown.popitem()
    return None


def _pieces(lines: Sequence[str], *, is_log: bool) -> list[_Piece]:
    """Headings, paragraphs and items; in a log whole sections, and elsewhere whole entries."""
    found = sections("".join(lines))
    is_whole = ENTRY_LEVEL if is_log else ENTRY_LEVEL + 1  # the level of such sections
    marks = {part.heading: part for part in found if part.level <= is_whole}
    entries = _inside(lines, [part for part in found if part.level >= is_whole])
    inner = {item.first for item in items_of(lines)} | set(block_starts(lines))
    starts = {0, *marks, *(at for at in inner if not entries[at])}
    ordered = sorted(starts) if lines else []
    pieces: list[_Piece] = []
    open_ones: list[tuple[int, int]] = []  # the end of a section, and the place of its piece
    for place, (first, end) in enumerate(pairwise([*ordered, len(lines)])):
        while open_ones and open_ones[-1][0] <= first:
            open_ones.pop()
        pieces.append(_Piece(first, end, tuple(above for _, above in open_ones)))
        if first in marks:
            open_ones.append((marks[first].end, place))
    return pieces


def _inside(lines: Sequence[str], parts: Sequence[Section]) -> bytearray:
    """For each line whether one of the sections holds it."""
    inside = bytearray(len(lines))
    until = 0
    for part in parts:
        if part.heading >= until:
            until = part.end
            inside[part.heading : until] = b"\1" * (until - part.heading)
    return inside


def _ranked(name: str, pieces: Sequence[_Piece], lines: Sequence[str]) -> list[int]:
    """Which pieces come first: each section has its turn, the newest of progress before all."""
    has_below = {above for piece in pieces for above in piece.above}
    places = [
        at
        for at, piece in enumerate(pieces)
        if at not in has_below and any(line.strip() for line in lines[piece.first : piece.end])
    ]
    if name == DECISIONS:
        return places[::-1]
    dated: list[int] = []
    if name == PROGRESS:
        moments = {at: moment_in(lines[pieces[at].first]) for at in places}
        dated = [at for at in places if moments[at] is not None]
        dated.sort(key=lambda at: str(moments[at]), reverse=True)
    groups: dict[tuple[int, ...], list[int]] = {}
    newest = set(dated)
    for at in places:
        if at not in newest:
            groups.setdefault(pieces[at].above, []).append(at)
    return _by_turns([dated, *groups.values()])


def turn_of(place: int) -> int:
    """When something has its turn by its place in a list: the first ones of all lists first."""
    return (place + ROUND - 1) // ROUND


def _by_turns(groups: Iterable[Sequence[int]]) -> list[int]:
    turns = [
        (turn_of(place), group, at)
        for group, places in enumerate(groups)
        for place, at in enumerate(places)
    ]
    return [at for _, _, at in sorted(turns, key=lambda turn: turn[:2])]
