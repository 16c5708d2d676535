"""A bank's core files and its digest within a token budget, the most useful parts first."""

import json
import re
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from everkept.core.context_text import count_tokens
from everkept.core.text import clip_text
from everkept.errors import InvalidInput
from everkept.families.bank.core_files import (
    MAX_ITEM_CHARACTERS,
    MAX_READ_CHARACTERS,
    CurrentContext,
    Digest,
    RecentDecision,
    parse_moment,
    shorten_text,
)
from everkept.families.bank.markdown_blocks import split_lines
from everkept.families.bank.markdown_sections import (
    MarkdownSection,
    close_blocks,
    find_block_starts,
    list_sections,
    parse_items,
)
from everkept.families.bank.model import ACTIVE, DECISIONS, PATTERNS, PRODUCT, PROGRESS
from everkept.tools.schema import to_json
from everkept.values import Value, replace

ENTRY_LEVEL = 2  # list items below a heading of this level are separate entries
PIECES_PER_TURN = 5  # pieces of one section before the next section's turn
PIECE_SHARE_DIVISOR = 3  # a long piece gets at most a third of the budget
SHORT_PIECE_TOKENS = 60
_MIN_CUT_TOKENS = 24  # tokens or characters; a shorter beginning of a piece is useless
_MAX_CHARACTERS_PER_TOKEN = 8
_SENTENCE_END = re.compile(r"(?<=[.!?…])[ \t]+|(?<=[。！？])|(?<=\n)")
_WORD_END = re.compile(r"(?<=\S)[ \t]")


class _Piece(Value):
    """Lines of a file that are shown or omitted together. `above` are the pieces of its headings."""

    first: int
    end: int
    above: tuple[int, ...]


def count_text_tokens(text: str) -> int:
    """Return the tokens of a text inside JSON."""
    return count_tokens(json.dumps(text, ensure_ascii=False)[1:-1])


def can_fit(text: str, room: int) -> bool:
    # Texts that are much too long are not counted.
    return len(text) <= max(room, 0) * _MAX_CHARACTERS_PER_TOKEN and count_text_tokens(text) <= room


def select_best_part(name: str, text: str, room: int) -> str | None:
    """Return as many of the best pieces as fit, in file order, or None if none does."""
    lines = split_lines(shorten_text(text, max(MAX_READ_CHARACTERS, room * _MAX_CHARACTERS_PER_TOKEN)))
    pieces = _split_pieces(lines, is_log=name == DECISIONS)
    texts = ["".join(lines[piece.first : piece.end]) for piece in pieces]
    shown: dict[int, str] = {}
    left = room
    for at in _rank_pieces(name, pieces, lines):
        headings = [above for above in pieces[at].above if above not in shown]
        before = sum(count_text_tokens(texts[above]) for above in headings)
        most = min(left - before, max(room // PIECE_SHARE_DIVISOR, SHORT_PIECE_TOKENS))
        piece: str | None = texts[at]
        if not can_fit(piece, most):
            is_worth_cutting = not shown or not can_fit(piece, SHORT_PIECE_TOKENS)
            piece = cut_beginning(piece, most) if is_worth_cutting else None
        if piece is None:
            continue
        shown |= {above: texts[above] for above in headings} | {at: piece}
        left -= before + count_text_tokens(piece)
        if left < _MIN_CUT_TOKENS // 2:
            break
    return _join_shown(shown, room)


def cut_beginning(text: str, room: int) -> str | None:
    """Cut the text after a line or sentence, otherwise after a word. Return None if that leaves too little."""
    if room < _MIN_CUT_TOKENS:
        return None
    reachable = text[: room * _MAX_CHARACTERS_PER_TOKEN]
    for ends in (_SENTENCE_END, _WORD_END):
        places = [found.start() for found in ends.finditer(reachable)]
        count = bisect_right(places, 0, key=lambda place: int(not can_fit(_cut_at(text, place), room)))
        if count and places[count - 1] > _MIN_CUT_TOKENS:
            return _cut_at(text, places[count - 1])
    return None


def _cut_at(text: str, place: int) -> str:
    whole = close_blocks(text[:place].rstrip())
    return f"{whole}\n…\n" if whole.endswith(("```", "~~~", "-->")) else f"{whole} …\n"


def _join_shown(shown: dict[int, str], room: int) -> str | None:
    """Join the pieces in file order. Drop the last chosen ones if the total is over the budget."""
    while shown:
        text = "".join(shown[at] for at in sorted(shown))
        if can_fit(text, room):
            return text
        shown.popitem()
    return None


def _split_pieces(lines: Sequence[str], *, is_log: bool) -> list[_Piece]:
    """Split into headings, paragraphs and items. Sections of a log and entries elsewhere stay whole."""
    found = list_sections("".join(lines))
    is_whole = ENTRY_LEVEL if is_log else ENTRY_LEVEL + 1  # level of the sections that stay whole
    marks = {part.heading: part for part in found if part.level <= is_whole}
    entries = _mark_lines_inside(lines, [part for part in found if part.level >= is_whole])
    inner = {item.first for item in parse_items(lines)} | set(find_block_starts(lines))
    starts = {0, *marks, *(at for at in inner if not entries[at])}
    ordered = sorted(starts) if lines else []
    pieces: list[_Piece] = []
    open_ones: list[tuple[int, int]] = []  # the end of a section, and the index of its piece
    for place, (first, end) in enumerate(pairwise([*ordered, len(lines)])):
        while open_ones and open_ones[-1][0] <= first:
            open_ones.pop()
        pieces.append(_Piece(first, end, tuple(above for _, above in open_ones)))
        if first in marks:
            open_ones.append((marks[first].end, place))
    return pieces


def _mark_lines_inside(lines: Sequence[str], parts: Sequence[MarkdownSection]) -> bytearray:
    inside = bytearray(len(lines))
    until = 0
    for part in parts:
        if part.heading >= until:
            until = part.end
            inside[part.heading : until] = b"\1" * (until - part.heading)
    return inside


def _rank_pieces(name: str, pieces: Sequence[_Piece], lines: Sequence[str]) -> list[int]:
    """Order the pieces: sections take turns, and the newest progress entries come first."""
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
        moments = {at: parse_moment(lines[pieces[at].first]) for at in places}
        dated = [at for at in places if moments[at] is not None]
        dated.sort(key=lambda at: str(moments[at]), reverse=True)
    groups: dict[tuple[int, ...], list[int]] = {}
    newest = set(dated)
    for at in places:
        if at not in newest:
            groups.setdefault(pieces[at].above, []).append(at)
    turns = [
        (compute_turn(place), group, at)
        for group, members in enumerate([dated, *groups.values()])
        for place, at in enumerate(members)
    ]
    return [at for _, _, at in sorted(turns, key=lambda turn: turn[:2])]


def compute_turn(place: int) -> int:
    """Return the turn of an item by its place in a list. The first items of all lists have the first turns."""
    return (place + PIECES_PER_TURN - 1) // PIECES_PER_TURN


# The most useful first, with their shares of the budget.
FILE_SHARES = {ACTIVE: 4, PROGRESS: 1, DECISIONS: 1, PRODUCT: 1, PATTERNS: 1}
FILES_BY_USE = tuple(FILE_SHARES)
MIN_FILE_TOKENS = 60  # minimum for a file that is cut; with less, it is omitted
MIN_ITEM_CHARACTERS = 60  # minimum to which a digest's item is cut
_UNCUT_KEYS = ("graphSummary", "systemPatterns")  # several lines, shown whole or not at all
# of a comma next to an item, and of a key before the first one
_SEPARATOR_TOKENS, _KEY_TOKENS = 3, 8

DigestBuilder = Callable[[Digest, Sequence[str]], Any]


class FittedFiles(Value):
    """The texts within the budget, the names of the cut ones, and warnings about missing parts."""

    texts: Mapping[str, str]
    cut: frozenset[str]
    warnings: Sequence[str]


BundleBuilder = Callable[[FittedFiles], Any]


def count_answer_tokens(answer: Any) -> int:
    """Return the tokens of a result as JSON."""
    return count_tokens(json.dumps(to_json(answer), ensure_ascii=False))


def fit_files(texts: Mapping[str, str], build: BundleBuilder, budget: int) -> FittedFiles:
    """Return whole files if their shares allow it, and the best parts of the others."""
    wanted = [name for name in FILES_BY_USE if name in texts]
    needed = count_answer_tokens(build(_build_fitted(wanted, {}, frozenset())))
    if needed > budget:
        raise _build_budget_error(budget, needed)
    sharing = _BudgetDivision(texts, build, budget, wanted)
    names = list(wanted)
    while names:
        fitted = sharing.divide(names)
        if isinstance(fitted, FittedFiles):
            return fitted
        names.remove(fitted)
    return _build_fitted(wanted, {}, frozenset())


class _BudgetDivision:
    """Division of the budget: tokens that a small file does not need go to the others."""

    def __init__(self, texts: Mapping[str, str], build: BundleBuilder, budget: int, wanted: Sequence[str]) -> None:
        self._texts, self._build, self._budget, self._wanted = texts, build, budget, wanted

    def divide(self, names: Sequence[str]) -> FittedFiles | str:
        """Return the fitted files, or the name of a file to omit if there are too many for the budget."""
        cut: frozenset[str] = frozenset()
        while True:
            # A text has the same cost anywhere in the result, so only the frame is counted again.
            empty = _build_fitted(self._wanted, dict.fromkeys(names, ""), cut)
            room = self._budget - count_answer_tokens(self._build(empty))
            shares = self._compute_shares(names, room)
            grown = cut | {name for name in names if not can_fit(self._texts[name], shares[name])}
            if grown == cut:
                break
            cut = grown
        last = next((name for name in reversed(names) if name in cut), names[-1])
        is_too_little = len(names) > 1 and any(shares[name] < MIN_FILE_TOKENS for name in cut)
        return last if is_too_little else self._fill(names, cut, shares) or last

    def _compute_shares(self, names: Sequence[str], room: int) -> dict[str, int]:
        shares: dict[str, int] = {}
        left = list(names)
        while left:
            whole = sum(FILE_SHARES[name] for name in left)
            part = {name: max(room, 0) * FILE_SHARES[name] // whole for name in left}
            small = [name for name in left if can_fit(self._texts[name], part[name])]
            if not small:
                return shares | part
            for name in small:
                shares[name] = count_text_tokens(self._texts[name])
                room -= shares[name]
                left.remove(name)
        return shares

    def _fill(self, names: Sequence[str], cut: frozenset[str], shares: Mapping[str, int]) -> FittedFiles | None:
        parts = {name: self._texts[name] for name in names if name not in cut}
        granted = {name: shares[name] for name in names if name in cut}
        spare = 0
        # Unused tokens go to the next file, and from the last one to the first.
        for name in [*granted, *granted]:
            room = spare + granted[name]
            part = select_best_part(name, self._texts[name], room)
            if part is not None:
                parts[name] = part
            granted[name] = count_text_tokens(parts.get(name, ""))
            spare = room - granted[name]
        shown = {name: parts[name] for name in names if name in parts}
        fitted = _build_fitted(self._wanted, shown, cut & set(shown))
        return fitted if count_answer_tokens(self._build(fitted)) <= self._budget else None


def fit_digest(digest: Digest, build: DigestBuilder, budget: int) -> tuple[Digest, list[str]]:
    """Return the digest within the budget, the most useful items by turns, and a warning about omitted ones."""
    if count_answer_tokens(build(digest, [])) <= budget:
        return digest, []
    kinds = _collect_kinds(digest)
    nothing = build(_select_chosen(digest, kinds, []), [_describe_omitted(kinds, [])])
    room = budget - count_answer_tokens(nothing)
    if room < 0:
        raise _build_budget_error(budget, count_answer_tokens(nothing))
    kinds = _shorten_entries(kinds, min(max(room, MIN_ITEM_CHARACTERS), MAX_ITEM_CHARACTERS))
    chosen: list[tuple[str, int]] = []
    while added := _select_affordable(kinds, chosen, room):
        chosen += added
        room = budget - count_answer_tokens(
            build(_select_chosen(digest, kinds, chosen), [_describe_omitted(kinds, chosen)])
        )
    while True:
        kept, warnings = _select_chosen(digest, kinds, chosen), [_describe_omitted(kinds, chosen)]
        if not chosen or count_answer_tokens(build(kept, warnings)) <= budget:
            return kept, warnings
        chosen.pop()


def _select_affordable(
    kinds: Mapping[str, Sequence[Any]], chosen: Sequence[tuple[str, int]], room: int
) -> list[tuple[str, int]]:
    """Return the remaining items within the budget, the most useful first."""
    known, begun = set(chosen), {kind for kind, _ in chosen}
    rest = [(kind, at) for kind, found in kinds.items() for at in range(len(found))]
    added: list[tuple[str, int]] = []
    for kind, at in sorted(rest, key=lambda entry: compute_turn(entry[1])):
        beside = _SEPARATOR_TOKENS if kind in begun else _KEY_TOKENS
        needed = count_tokens(json.dumps(to_json(kinds[kind][at]), ensure_ascii=False)) + beside
        if (kind, at) not in known and needed <= room:
            added.append((kind, at))
            begun.add(kind)
            room -= needed
    return added


def _shorten_entries(kinds: Mapping[str, Sequence[Any]], most: int) -> dict[str, list[Any]]:
    """Shorten the entries: many short ones are more useful than a few long ones."""
    return {
        kind: list(found) if kind in _UNCUT_KEYS else [_shorten_entry(entry, most) for entry in found]
        for kind, found in kinds.items()
    }


def _shorten_entry(entry: Any, most: int) -> Any:
    if isinstance(entry, RecentDecision):
        return replace(entry, summary=clip_text(entry.summary, most))
    return clip_text(entry, most)


def _build_fitted(wanted: Sequence[str], texts: Mapping[str, str], cut: frozenset[str]) -> FittedFiles:
    warnings: list[str] = []
    if shortened := [name for name in wanted if name in cut]:
        warnings.append(f"Cut to fit maxTokens: {', '.join(shortened)}. Read a whole file with read_memory_bank_file.")
    if missing := [name for name in wanted if name not in texts]:
        warnings.append(f"Omitted to fit maxTokens: {', '.join(missing)}.")
    return FittedFiles(texts, cut, warnings)


def _collect_kinds(digest: Digest) -> dict[str, Sequence[Any]]:
    """Return the digest's items by JSON key, the most useful first."""
    current = digest.current_context
    return {
        "projectOverview": [digest.project_overview] if digest.project_overview else [],
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


def _select_chosen(digest: Digest, kinds: Mapping[str, Sequence[Any]], chosen: Sequence[tuple[str, int]]) -> Digest:
    kept: dict[str, list[Any]] = {kind: [] for kind in kinds}
    for kind, at in sorted(chosen):
        kept[kind].append(kinds[kind][at])
    return replace(
        digest,
        project_overview=next(iter(kept["projectOverview"]), None),
        project_state=next(iter(kept["projectState"]), None),
        current_context=CurrentContext(kept["tasks"], kept["issues"], kept["nextSteps"]),
        also_unfinished=kept["alsoUnfinished"] or None,
        recent_progress=kept["recentProgress"],
        recent_decisions=kept["recentDecisions"],
        system_patterns=next(iter(kept["systemPatterns"]), None),
        graph_summary=next(iter(kept["graphSummary"]), None),
    )


def _describe_omitted(kinds: Mapping[str, Sequence[Any]], chosen: Sequence[tuple[str, int]]) -> str:
    left = {k: len(found) - sum(kind == k for kind, _ in chosen) for k, found in kinds.items()}
    named = ", ".join(f"{count} {kind}" for kind, count in left.items() if count)
    return f"Omitted to fit maxTokens: {named}." if named else "Long items are cut."


def _build_budget_error(budget: int, needed: int) -> InvalidInput:
    return InvalidInput(
        f"`maxTokens` is {budget}; it must be at least {needed}, the size of an empty result.",
        hint="Pass a larger value, or omit maxTokens.",
        argument="maxTokens",
        value=budget,
        needed=needed,
    )
