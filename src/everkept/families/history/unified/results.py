"""One list of what several searches and servers have found, each thing once."""

from collections.abc import Iterator, Mapping, Sequence

from everkept.core.peers import PeerAnswer, source_of
from everkept.core.search_ports import Finding
from everkept.core.times import iso
from everkept.families.history.search.answers import LOCAL
from everkept.families.history.search.peer_results import compared_text, same_text, scored, shares
from everkept.families.history.unified.answers import (
    CODE_PIECES,
    CONVERSATIONS,
    Group,
    UnifiedResult,
    Whereabouts,
)
from everkept.values import replace

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
    ranked = each_once(results)
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
    for result in each_once(results):
        groups.setdefault(result.found_in, []).append(result)
    return [Group(name, found[:limit]) for name, found in groups.items()]


def each_once(results: Sequence[UnifiedResult]) -> list[UnifiedResult]:
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
    return [_result(answer.peer, finding) for finding in answer.findings]


def counted(result: UnifiedResult) -> UnifiedResult:
    """What others have counts a little less than what is kept here."""
    score = scored(result.relevance_score, 1.0, result.source)
    return replace(result, relevance_score=score)


def _result(peer: str, finding: Finding) -> UnifiedResult:
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
