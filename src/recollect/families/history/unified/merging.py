"""One list of what several searches have found, each thing once, and from each its best."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from recollect.core.text import normalised
from recollect.families.history.unified.answers import Group, UnifiedResult
from recollect.retrieval.coverage import coverage
from recollect.retrieval.excerpts import stems

# A search calls the best that it has good, however little that is. How many of the asked words
# are in it tells searches apart: what has none of those that another has keeps this much.
LEAST = 0.6
COMPARED = 3  # of the best of each
GOOD = 0.6  # share of the best score of all, from which the best of a part stays in the page
SAME_TEXT = 2_000  # characters that are compared


def on_one_scale(
    question: str, found: Mapping[str, Sequence[UnifiedResult]]
) -> dict[str, list[UnifiedResult]]:
    """The results of each search with scores that can be compared; their order stays.

    What stands for relations or for words as they were typed is scored by that already.
    """
    asked = stems(question)
    covered = {
        name: max((_coverage(asked, result) for result in _by_meaning(results)), default=0.0)
        for name, results in found.items()
    }
    most = max(covered.values(), default=0.0)
    if not most:
        return {name: list(results) for name, results in found.items()}
    return {
        name: [_scaled(result, LEAST + (1 - LEAST) * covered[name] / most) for result in results]
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
    """Best first, without what has the id or the text of a better one."""
    kept: dict[tuple[str, str], UnifiedResult] = {}
    texts: set[str] = set()
    for result in _ordered(results):
        # One piece of code shows many relations, and has its own text besides.
        key = (result.id, result.content if result.type == "relation" else "")
        text = normalised(result.content[:SAME_TEXT])
        if key not in kept and text not in texts:
            kept[key] = result
            texts.add(text)
    return list(kept.values())


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


def _by_meaning(results: Sequence[UnifiedResult]) -> list[UnifiedResult]:
    return [result for result in results if result.search_type == "semantic"][:COMPARED]


def _coverage(asked: frozenset[str], result: UnifiedResult) -> float:
    return coverage(asked, f"{result.title or ''}\n{result.content}")


def _scaled(result: UnifiedResult, factor: float) -> UnifiedResult:
    if result.search_type != "semantic":
        return result
    return replace(result, relevance_score=round(result.relevance_score * factor, 3))
