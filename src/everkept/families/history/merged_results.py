"""Results of several searches and servers in one list: comparable, each thing once, and named."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import cast

from everkept.core.answers import Finding
from everkept.core.context_text import readable
from everkept.core.peers import (
    MOST_RESULTS,
    SAID_TYPES,
    SHARE,
    Asked,
    PeerAnswer,
    PeerQuestion,
    source_of,
)
from everkept.core.text import normalised
from everkept.core.times import iso, parsed
from everkept.families.history.relevance import BLOCK, asks_for_decisions, bucket_of
from everkept.families.history.search_answers import (
    CODE_PIECES,
    CONVERSATIONS,
    LOCAL,
    Context,
    Group,
    MemoryResult,
    ResultType,
    UnifiedResult,
    Whereabouts,
)
from everkept.families.history.search_filters import last_part, projects_meant
from everkept.families.history.search_results import highlights
from everkept.families.history.searches import Answered, Kind, good, topics_of
from everkept.language.telling_words import stems
from everkept.retrieval.excerpts import coverage
from everkept.tools.tool import Warned
from everkept.values import Value, replace

# A search calls the best that it has good, however little that is. How many of the asked words
# are in it tells searches apart: what has none of those that another has keeps this much.
LEAST = 0.6
COMPARED = 3  # of the best of each


def shares(question: str, texts: Mapping[str, Sequence[str]]) -> dict[str, float]:
    """What the scores of each search count, given the texts of its best."""
    asked = stems(question)
    covered = {
        name: max((coverage(asked, text) for text in best[:COMPARED]), default=0.0)
        for name, best in texts.items()
    }
    most = max(covered.values(), default=0.0)
    if not most:
        return dict.fromkeys(texts, 1.0)
    return {name: LEAST + (1 - LEAST) * share / most for name, share in covered.items()}


def compared_text(title: str | None, content: str) -> str:
    return f"{title or ''}\n{content}"


NO_PEERS = Warned(
    "no_peers",
    "No other server was asked: none is configured, or only the owner may ask. This one was "
    "searched.",
)
PARTIAL = "peer_partial"  # code of what a server says that it could not look at
SAME_TEXT = 2_000  # characters that are compared
TYPES: dict[Kind, tuple[str, ...]] = {
    "all": SAID_TYPES,
    "conversation": ("conversation", "decision"),
    "code": ("code",),
    "decision": ("decision",),
}


class Meant(Value):
    """What a search was narrowed to, and how many it gives."""

    query: str
    kind: Kind
    limit: int
    project: str | None = None
    after: int | None = None
    before: int | None = None

    @property
    def question(self) -> PeerQuestion:
        """Where they are narrowed here, more are asked for."""
        is_narrow = self.project is not None or self.after is not None
        most = MOST_RESULTS if is_narrow else self.limit
        return PeerQuestion(self.query, TYPES[self.kind], most)


def warnings_of(asked: Asked) -> list[Warned]:
    """One for each server that did not answer, or not fully."""
    if not asked.is_anybody:
        return [NO_PEERS]
    partial = [
        Warned(PARTIAL, f'The peer "{answer.peer}" says: {" ".join(answer.notices)}')
        for answer in asked.answers
        if answer.notices
    ]
    return [*(Warned(fault.code, fault.message) for fault in asked.faults), *partial]


def joined(own: Answered, asked: Asked, meant: Meant) -> Answered:
    """Our own answer with what others have found that it means, and with what failed."""
    warnings = (*own.warnings, *warnings_of(asked))
    found = {answer.peer: _results(answer, meant) for answer in asked.answers}
    results = _merged(own.results, {peer: some for peer, some in found.items() if some}, meant)
    if results is None:
        return replace(own, warnings=warnings)
    spoken = [result.content for result in good(results) if result.type != "code"]
    return replace(own, results=results, topics=topics_of(spoken, meant.query), warnings=warnings)


def each_once(results: Iterable[MemoryResult]) -> list[MemoryResult]:
    """Of others, without what has the text of an earlier one, which then names both sources."""
    kept: list[MemoryResult] = []
    places: dict[str, int] = {}
    for result in results:
        text = same_text(result.content)
        # What is our own is told apart already: a turn and its code may have one text.
        place = None if result.source == LOCAL else places.get(text)
        if place is None:
            places.setdefault(text, len(kept))
            kept.append(result)
        else:
            first = kept[place]
            named = also_in(first.source, first.also_in, result.source)
            kept[place] = replace(first, also_in=named)
    return kept


def also_in(source: str, known: Sequence[str] | None, more: str) -> list[str] | None:
    """The sources beside the first one, with one more of them."""
    others = dict.fromkeys([*(known or ()), more])
    others.pop(source, None)
    return list(others) or None


def same_text(content: str) -> str:
    """What is equal for texts that say the same."""
    return normalised(readable(content[:SAME_TEXT]))


def _results(answer: PeerAnswer, meant: Meant) -> list[MemoryResult]:
    """Those that are meant: a server need not have kept to what it was asked for."""
    found = [finding for finding in answer.findings if _fits(finding, meant)]
    if meant.project is not None:
        known = {finding.project for finding in found if finding.project}
        wanted = projects_meant(meant.project, known) or projects_meant(
            last_part(meant.project), known
        )
        found = [finding for finding in found if finding.project in wanted]
    return [_result(answer.peer, finding, meant) for finding in found]


def _fits(finding: Finding, meant: Meant) -> bool:
    at = finding.at
    return (
        at is not None
        and finding.type in TYPES[meant.kind]
        and (meant.after is None or at >= meant.after)
        and (meant.before is None or at <= meant.before)
    )


def _result(peer: str, finding: Finding, meant: Meant) -> MemoryResult:
    kind = "conversation" if meant.kind == "conversation" else finding.type
    context = Context(
        session_id="",
        project_path=finding.project or "",
        timestamp=iso(finding.at or 0),
        participants=[],
    )
    return MemoryResult(
        id=finding.id,
        type=cast(ResultType, kind),
        content=finding.content,
        context=context,
        relevance_score=finding.score,
        source=source_of(peer),
        highlights=highlights(finding.content, meant.query),
        title=finding.title,
    )


def _merged(
    own: Sequence[MemoryResult], foreign: Mapping[str, Sequence[MemoryResult]], meant: Meant
) -> list[MemoryResult] | None:
    """The best of all in the order in which they are shown; None where nobody else has any."""
    if not foreign:
        return None
    everybody = {LOCAL: own, **foreign}
    best_first = {name: sorted(some, key=_badness) for name, some in everybody.items()}
    share = shares(
        meant.query,
        {
            name: [compared_text(one.title, one.content) for one in some]
            for name, some in best_first.items()
        },
    )
    scaled = [
        replace(one, relevance_score=scored(one.relevance_score, share[name], one.source))
        for name, some in best_first.items()
        for one in some
    ]
    # By score among the others, so that of one text the best one speaks for all.
    scaled.sort(key=lambda one: (one.source != LOCAL, _badness(one)))
    best = sorted(each_once(scaled), key=_badness)[: meant.limit]
    return _in_order(best, prefers_decisions=asks_for_decisions(meant.query))


def scored(score: float, share: float, source: str) -> float:
    """On the scale that all share; what others have counts a little less."""
    return round(score * share * (1.0 if source == LOCAL else SHARE), 3)


def _badness(result: MemoryResult) -> float:
    return -result.relevance_score


def _in_order(results: Sequence[MemoryResult], *, prefers_decisions: bool) -> list[MemoryResult]:
    """As our own are shown: ten by ten, and the newest first where scores are about the same."""

    def place(one: MemoryResult) -> tuple[int, bool, int, float]:
        preferred = prefers_decisions and one.type == "decision"
        at = parsed(one.context.timestamp)
        return -bucket_of(one.relevance_score), not preferred, -at, _badness(one)

    blocks = (results[start : start + BLOCK] for start in range(0, len(results), BLOCK))
    return [one for block in blocks for one in sorted(block, key=place)]


GOOD = 0.6  # share of the best score of all, from which the best of a part stays in the page


def on_one_scale(
    question: str, found: Mapping[str, Sequence[UnifiedResult]]
) -> dict[str, list[UnifiedResult]]:
    """The results of each search with scores that can be compared; their order stays.

    What stands for relations or for words as they were typed is scored by that already.
    """
    texts = {
        name: [compared_text(one.title, one.content) for one in results if _is_by_meaning(one)]
        for name, results in found.items()
    }
    share = shares(question, texts)
    return {
        name: [_scaled(result, share[name]) for result in results]
        for name, results in found.items()
    }


def merged(results: Sequence[UnifiedResult], limit: int) -> list[UnifiedResult]:
    """The best first. The best of each part that found anything good is among them."""
    ranked = unified_once(results)
    page = ranked[:limit]
    for best in _best_of_each(ranked):
        if best in page or best.relevance_score < GOOD * ranked[0].relevance_score:
            continue
        weakest = _weakest_of_many(page)
        if weakest is None:
            break
        page.remove(weakest)
        page.append(best)
    return _ordered(page)


def grouped(results: Sequence[UnifiedResult], limit: int) -> list[Group]:
    """What each part has found, at most so many of each."""
    groups: dict[str, list[UnifiedResult]] = {}
    for result in unified_once(results):
        groups.setdefault(result.found_in, []).append(result)
    return [Group(name, found[:limit]) for name, found in groups.items()]


def unified_once(results: Sequence[UnifiedResult]) -> list[UnifiedResult]:
    """Best first, without what has the id or the text of a better one.

    What is kept here too goes before what another server has, which is named beside it.
    """
    kept: dict[tuple[str, str], UnifiedResult] = {}
    texts: dict[str, tuple[str, str]] = {}
    for result in sorted(_ordered(results), key=lambda result: result.source != LOCAL):
        # One piece of code shows many relations, and has its own text besides.
        key = (result.id, result.content if result.type == "relation" else "")
        text = same_text(result.content)
        known = key if key in kept else texts.get(text)
        if known is None:
            kept[key] = result
            texts[text] = key
        else:
            kept[known] = _with_source(kept[known], result.source)
    return _ordered(list(kept.values()))


def _with_source(result: UnifiedResult, source: str) -> UnifiedResult:
    known = result.also_in or []
    if source == result.source or source in known:
        return result
    return replace(result, also_in=[*known, source])


def _ordered(results: Sequence[UnifiedResult]) -> list[UnifiedResult]:
    newest_first = sorted(results, key=lambda result: result.context.timestamp or "", reverse=True)
    return sorted(newest_first, key=lambda result: -result.relevance_score)


def _best_of_each(ranked: Sequence[UnifiedResult]) -> Iterator[UnifiedResult]:
    seen: set[str] = set()
    for result in ranked:
        if result.found_in not in seen:
            seen.add(result.found_in)
            yield result


def _weakest_of_many(page: Sequence[UnifiedResult]) -> UnifiedResult | None:
    """The last one that is not the only one of its part."""
    parts = [result.found_in for result in page]
    many = [result for result in reversed(page) if parts.count(result.found_in) > 1]
    return min(many, key=lambda result: result.relevance_score, default=None)


def _is_by_meaning(result: UnifiedResult) -> bool:
    return result.search_type == "semantic"


def _scaled(result: UnifiedResult, factor: float) -> UnifiedResult:
    if not _is_by_meaning(result):
        return result
    return replace(result, relevance_score=round(result.relevance_score * factor, 3))


# Where each type of result is found, as this machine's own searches call it.
PARTS = {
    "conversation": CONVERSATIONS,
    "decision": CONVERSATIONS,
    "code": CODE_PIECES,
    "memory": "memories",
    "entity": "graph",
    "relation": "graph",
}


def results_of(answer: PeerAnswer) -> list[UnifiedResult]:
    return [_unified_result(answer.peer, finding) for finding in answer.findings]


def counted(result: UnifiedResult) -> UnifiedResult:
    """What others have counts a little less than what is kept here."""
    score = scored(result.relevance_score, 1.0, result.source)
    return replace(result, relevance_score=score)


def _unified_result(peer: str, finding: Finding) -> UnifiedResult:
    return UnifiedResult(
        id=finding.id,
        type=finding.type,
        content=finding.content,
        relevance_score=finding.score,
        search_type=finding.search_type,
        found_in=PARTS[finding.type],
        source=source_of(peer),
        context=Whereabouts(finding.project, None if finding.at is None else iso(finding.at)),
        title=finding.title,
    )
