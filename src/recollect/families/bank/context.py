"""A bank's core files and its digest inside a token budget: the most useful first."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from recollect.core.tokens import token_count
from recollect.errors import InvalidInput
from recollect.families.bank.digest import CurrentContext, Digest, moment_in
from recollect.families.bank.markdown import Section, items_of, lines_of, sections
from recollect.families.bank.model import ACTIVE, DECISIONS, PATTERNS, PRODUCT, PROGRESS
from recollect.tools.schema import to_json

BY_USE = (ACTIVE, PROGRESS, DECISIONS, PRODUCT, PATTERNS)
ENTRY_LEVEL = 2  # below a heading of this level a list's items are entries of their own
ROUND = 5  # items of one kind before the next kind has its turn
_MOST_CHARACTERS = 8  # of one token
_AROUND = 8  # tokens of a comma or a key beside an item

BuildDigest = Callable[[Digest, Sequence[str]], Any]


@dataclass(frozen=True, slots=True)
class Fitted:
    """The texts that have room, which of them are cut, and sentences about what is missing."""

    texts: Mapping[str, str]
    cut: frozenset[str]
    warnings: Sequence[str]


BuildBundle = Callable[[Fitted], Any]


@dataclass(frozen=True, slots=True)
class _Piece:
    """Lines of a file that are shown or left out together; `above` are its headings' pieces."""

    first: int
    end: int
    above: tuple[int, ...]


def cost(answer: Any) -> int:
    """Tokens of an answer as the JSON that a client gets."""
    return token_count(json.dumps(to_json(answer), ensure_ascii=False))


def fitting_files(texts: Mapping[str, str], build: BuildBundle, budget: int) -> Fitted:
    """Whole files while there is room, then the newest or first pieces of the next ones."""
    wanted = [name for name in BY_USE if name in texts]
    fitted = _fitted(wanted, {}, frozenset())
    needed = cost(build(fitted))
    if needed > budget:
        raise _too_small(budget, needed)
    for name in wanted:
        # Between quotes a text costs the same wherever it stands, so it is counted only once.
        used = sum(_text_cost(text) for text in fitted.texts.values())
        empty = dict.fromkeys([*fitted.texts, name], "")
        whole_frame = cost(build(_fitted(wanted, empty, fitted.cut)))
        if _fits(texts[name], budget - used - whole_frame):
            fitted = _fitted(wanted, {**fitted.texts, name: texts[name]}, fitted.cut)
            continue
        cut = fitted.cut | {name}
        room = budget - used - cost(build(_fitted(wanted, empty, cut)))
        part = _best_part(name, texts[name], room)
        if part is not None:
            fitted = _fitted(wanted, {**fitted.texts, name: part}, cut)
    return fitted


def fitting_digest(digest: Digest, build: BuildDigest, budget: int) -> tuple[Digest, list[str]]:
    """The digest with what has room, by turns of what is most useful; and what was left out."""
    if cost(build(digest, [])) <= budget:
        return digest, []
    kinds = _kinds(digest)
    everything = [(kind, at) for kind, found in kinds.items() for at in range(len(found))]
    ranked = sorted(everything, key=lambda entry: entry[1] // ROUND)
    nothing = build(_only(digest, kinds, []), [_omitted(kinds, [])])
    room = budget - cost(nothing)
    if room < 0:
        raise _too_small(budget, cost(nothing))
    chosen: list[tuple[str, int]] = []
    for kind, at in ranked:
        needed = token_count(json.dumps(to_json(kinds[kind][at]), ensure_ascii=False)) + _AROUND
        if needed <= room:
            chosen.append((kind, at))
            room -= needed
    while True:
        kept, warnings = _only(digest, kinds, chosen), [_omitted(kinds, chosen)]
        if not chosen or cost(build(kept, warnings)) <= budget:
            return kept, warnings
        chosen.pop()


def _fitted(wanted: Sequence[str], texts: Mapping[str, str], cut: frozenset[str]) -> Fitted:
    left_out = [_left_out(name) for name in wanted if name not in texts]
    return Fitted(texts, cut, [*(_is_cut(name) for name in wanted if name in cut), *left_out])


def _best_part(name: str, text: str, room: int) -> str | None:
    """As many of the best pieces as fit, in the order of the file; None where none does."""
    lines = lines_of(_reachable(text, room, from_end=name == DECISIONS))
    pieces = _pieces(lines, is_log=name == DECISIONS)
    ranked = _ranked(name, pieces, lines)
    count, left = 0, room
    while count < len(ranked) and left > 0:
        piece = pieces[ranked[count]]
        left -= _text_cost("".join(lines[piece.first : piece.end]))
        count += 1
    while count > 0:
        shown = _shown(pieces, ranked[:count], lines)
        if _fits(shown, room):
            return shown
        count -= 1
    return None


def _reachable(text: str, room: int, *, from_end: bool) -> str:
    """As much of a text as could ever fit, cut between lines."""
    most = max(room, 1) * _MOST_CHARACTERS
    if len(text) <= most:
        return text
    if from_end:
        return text[text.find("\n", len(text) - most) + 1 :]
    return text[: text.rfind("\n", 0, most) + 1]


def _pieces(lines: Sequence[str], *, is_log: bool) -> list[_Piece]:
    """Headings with the text below them, and the items of lists; in a log whole sections."""
    found = sections("".join(lines))
    marks = {part.heading: part for part in found if not is_log or part.level <= ENTRY_LEVEL}
    starts = {0, *marks} if lines else set[int]()
    if not is_log:
        entries = _inside(lines, [part for part in found if part.level > ENTRY_LEVEL])
        starts |= {item.first for item in items_of(lines) if not entries[item.first]}
    ordered = sorted(starts)
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
    """Which pieces come first: of a log the last, of progress the newest, else as they stand."""
    places = list(range(len(pieces)))
    if name == DECISIONS:
        return places[::-1]
    if name != PROGRESS:
        return places
    moments = {at: moment_in(lines[pieces[at].first]) for at in places}
    dated = sorted(
        (at for at in places if moments[at] is not None),
        key=lambda at: str(moments[at]),
        reverse=True,
    )
    return [*dated, *(at for at in places if moments[at] is None)]


def _shown(pieces: Sequence[_Piece], chosen: Sequence[int], lines: Sequence[str]) -> str:
    wanted = {*chosen, *(above for at in chosen for above in pieces[at].above)}
    return "".join("".join(lines[pieces[at].first : pieces[at].end]) for at in sorted(wanted))


def _fits(text: str, room: int) -> bool:
    # What is much too long is not counted through.
    return len(text) <= max(room, 0) * _MOST_CHARACTERS and _text_cost(text) <= room


def _text_cost(text: str) -> int:
    return token_count(json.dumps(text, ensure_ascii=False)[1:-1])


def _kinds(digest: Digest) -> dict[str, Sequence[Any]]:
    """What a digest holds by the names on the wire, the most useful first."""
    current = digest.current_context
    return {
        "projectState": [digest.project_state] if digest.project_state else [],
        "tasks": current.tasks,
        "issues": current.issues,
        "alsoUnfinished": digest.also_unfinished or [],
        "nextSteps": current.next_steps,
        "recentDecisions": digest.recent_decisions,
        "recentProgress": digest.recent_progress,
        "graphSummary": [digest.graph_summary] if digest.graph_summary else [],
        "systemPatterns": [digest.system_patterns] if digest.system_patterns else [],
    }


def _only(
    digest: Digest, kinds: Mapping[str, Sequence[Any]], chosen: Sequence[tuple[str, int]]
) -> Digest:
    kept: dict[str, list[Any]] = {kind: [] for kind in kinds}
    for kind, at in sorted(chosen):
        kept[kind].append(kinds[kind][at])
    return replace(
        digest,
        project_state=next(iter(kept["projectState"]), None),
        current_context=CurrentContext(kept["tasks"], kept["issues"], kept["nextSteps"]),
        also_unfinished=kept["alsoUnfinished"] or None,
        recent_progress=kept["recentProgress"],
        recent_decisions=kept["recentDecisions"],
        system_patterns=next(iter(kept["systemPatterns"]), None),
        graph_summary=next(iter(kept["graphSummary"]), None),
    )


def _omitted(kinds: Mapping[str, Sequence[Any]], chosen: Sequence[tuple[str, int]]) -> str:
    left = {k: len(found) - sum(kind == k for kind, _ in chosen) for k, found in kinds.items()}
    named = ", ".join(f"{count} {kind}" for kind, count in left.items() if count)
    return f"Left out for want of room: {named}."


def _is_cut(name: str) -> str:
    return f"{name} is cut to fit maxTokens; read_memory_bank_file gives all of it."


def _left_out(name: str) -> str:
    return f"{name} is left out: no part of it fits maxTokens."


def _too_small(budget: int, needed: int) -> InvalidInput:
    return InvalidInput(
        f"`maxTokens` is {budget}; the answer without any content takes {needed} already.",
        hint="Give more, or leave it out.",
        argument="maxTokens",
        value=budget,
        needed=needed,
    )
