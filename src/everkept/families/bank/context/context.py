"""A bank's core files and its digest inside a token budget: the most useful first."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from everkept.core.text import clipped
from everkept.core.tokens import token_count
from everkept.errors import InvalidInput
from everkept.families.bank.context.digest import LONGEST, CurrentContext, Decided, Digest
from everkept.families.bank.context.pieces import best_part, fits, text_cost, turn_of
from everkept.families.bank.model import ACTIVE, DECISIONS, PATTERNS, PRODUCT, PROGRESS
from everkept.tools.schema import to_json
from everkept.values import Value, replace

# The most useful first, with the shares of the room that they have a right to.
SHARES = {ACTIVE: 4, PROGRESS: 1, DECISIONS: 1, PRODUCT: 1, PATTERNS: 1}
BY_USE = tuple(SHARES)
LEAST = 60  # tokens of a file that is cut; with less, the others have them
SHORTEST = 60  # characters that an item of a digest is cut to where there is little room
_WHOLE = ("graphSummary", "systemPatterns")  # have several lines, and are shown whole or not
_BESIDE, _FIRST = 3, 8  # tokens of a comma beside an item, and of a key before the first one

BuildDigest = Callable[[Digest, Sequence[str]], Any]


class Fitted(Value):
    """The texts that have room, which of them are cut, and sentences about what is missing."""

    texts: Mapping[str, str]
    cut: frozenset[str]
    warnings: Sequence[str]


BuildBundle = Callable[[Fitted], Any]


def cost(answer: Any) -> int:
    """Tokens of an answer as the JSON that a client gets."""
    return token_count(json.dumps(to_json(answer), ensure_ascii=False))


def fitting_files(texts: Mapping[str, str], build: BuildBundle, budget: int) -> Fitted:
    """Whole files where their shares allow it, and the best parts of the others."""
    wanted = [name for name in BY_USE if name in texts]
    needed = cost(build(_fitted(wanted, {}, frozenset())))
    if needed > budget:
        raise _too_small(budget, needed)
    sharing = _Sharing(texts, build, budget, wanted)
    names = list(wanted)
    while names:
        fitted = sharing.among(names)
        if isinstance(fitted, Fitted):
            return fitted
        names.remove(fitted)
    return _fitted(wanted, {}, frozenset())


class _Sharing:
    """How the room is divided: what a small file does not need, the others have."""

    def __init__(
        self, texts: Mapping[str, str], build: BuildBundle, budget: int, wanted: Sequence[str]
    ) -> None:
        self._texts, self._build, self._budget, self._wanted = texts, build, budget, wanted

    def among(self, names: Sequence[str]) -> Fitted | str:
        """The name of the one to leave out where these are too many for the budget."""
        cut: frozenset[str] = frozenset()
        while True:
            # Between quotes a text costs the same wherever it stands: only the frame changes.
            empty = _fitted(self._wanted, dict.fromkeys(names, ""), cut)
            room = self._budget - cost(self._build(empty))
            shares = self._shares(names, room)
            grown = cut | {name for name in names if not fits(self._texts[name], shares[name])}
            if grown == cut:
                break
            cut = grown
        last = next((name for name in reversed(names) if name in cut), names[-1])
        is_too_little = len(names) > 1 and any(shares[name] < LEAST for name in cut)
        return last if is_too_little else self._filled(names, cut, shares) or last

    def _shares(self, names: Sequence[str], room: int) -> dict[str, int]:
        shares: dict[str, int] = {}
        left = list(names)
        while left:
            whole = sum(SHARES[name] for name in left)
            part = {name: max(room, 0) * SHARES[name] // whole for name in left}
            small = [name for name in left if fits(self._texts[name], part[name])]
            if not small:
                return shares | part
            for name in small:
                shares[name] = text_cost(self._texts[name])
                room -= shares[name]
                left.remove(name)
        return shares

    def _filled(
        self, names: Sequence[str], cut: frozenset[str], shares: Mapping[str, int]
    ) -> Fitted | None:
        parts = {name: self._texts[name] for name in names if name not in cut}
        granted = {name: shares[name] for name in names if name in cut}
        spare = 0
        # What one does not use goes to the next, and from the last to the first.
        for name in [*granted, *granted]:
            room = spare + granted[name]
            part = best_part(name, self._texts[name], room)
            if part is not None:
                parts[name] = part
            granted[name] = text_cost(parts.get(name, ""))
            spare = room - granted[name]
        shown = {name: parts[name] for name in names if name in parts}
        fitted = _fitted(self._wanted, shown, cut & set(shown))
        return fitted if cost(self._build(fitted)) <= self._budget else None


def fitting_digest(digest: Digest, build: BuildDigest, budget: int) -> tuple[Digest, list[str]]:
    """The digest with what has room, by turns of what is most useful; and what was left out."""
    if cost(build(digest, [])) <= budget:
        return digest, []
    kinds = _kinds(digest)
    nothing = build(_only(digest, kinds, []), [_omitted(kinds, [])])
    room = budget - cost(nothing)
    if room < 0:
        raise _too_small(budget, cost(nothing))
    kinds = _cut_to(kinds, min(max(room, SHORTEST), LONGEST))
    chosen: list[tuple[str, int]] = []
    while added := _affordable(kinds, chosen, room):
        chosen += added
        room = budget - cost(build(_only(digest, kinds, chosen), [_omitted(kinds, chosen)]))
    while True:
        kept, warnings = _only(digest, kinds, chosen), [_omitted(kinds, chosen)]
        if not chosen or cost(build(kept, warnings)) <= budget:
            return kept, warnings
        chosen.pop()


def _affordable(
    kinds: Mapping[str, Sequence[Any]], chosen: Sequence[tuple[str, int]], room: int
) -> list[tuple[str, int]]:
    """What of the rest there is room for, the most useful first."""
    known, begun = set(chosen), {kind for kind, _ in chosen}
    rest = [(kind, at) for kind, found in kinds.items() for at in range(len(found))]
    added: list[tuple[str, int]] = []
    for kind, at in sorted(rest, key=lambda entry: turn_of(entry[1])):
        beside = _BESIDE if kind in begun else _FIRST
        needed = token_count(json.dumps(to_json(kinds[kind][at]), ensure_ascii=False)) + beside
        if (kind, at) not in known and needed <= room:
            added.append((kind, at))
            begun.add(kind)
            room -= needed
    return added


def _cut_to(kinds: Mapping[str, Sequence[Any]], most: int) -> dict[str, list[Any]]:
    """Many things that are cut tell more than a few in all their length."""
    return {
        kind: list(found) if kind in _WHOLE else [_cut(entry, most) for entry in found]
        for kind, found in kinds.items()
    }


def _cut(entry: Any, most: int) -> Any:
    if isinstance(entry, Decided):
        return replace(entry, summary=clipped(entry.summary, most))
    return clipped(entry, most)


def _fitted(wanted: Sequence[str], texts: Mapping[str, str], cut: frozenset[str]) -> Fitted:
    shortened = [name for name in wanted if name in cut]
    missing = [name for name in wanted if name not in texts]
    warnings = [_are_cut(shortened)] if shortened else []
    return Fitted(texts, cut, [*warnings, *([_left_out(missing)] if missing else [])])


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
    return f"Left out for want of room: {named}." if named else "Long items are cut."


def _are_cut(names: Sequence[str]) -> str:
    return f"Cut to fit maxTokens: {', '.join(names)}; read_memory_bank_file gives all of a file."


def _left_out(names: Sequence[str]) -> str:
    return f"Left out for want of room: {', '.join(names)}."


def _too_small(budget: int, needed: int) -> InvalidInput:
    return InvalidInput(
        f"`maxTokens` is {budget}; the answer without any content takes {needed} already.",
        hint="Give more, or leave it out.",
        argument="maxTokens",
        value=budget,
        needed=needed,
    )
