"""Results of several searches and servers in one list, with comparable scores and without duplicates."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import cast

from everkept.core.answers import SearchFinding
from everkept.core.context_text import sanitize_text
from everkept.core.peers import (
    HISTORY_TYPES,
    MAX_RESULTS,
    PEER_SCORE_FACTOR,
    PeerAnswer,
    PeerAnswers,
    PeerQuestion,
    format_source,
)
from everkept.core.text import compute_name_key
from everkept.core.times import format_iso, parse_time
from everkept.families.history.relevance import BLOCK_RESULTS, get_bucket, is_decision_question
from everkept.families.history.search_answers import (
    CODE_PART,
    CONVERSATIONS_PART,
    LOCAL_SOURCE,
    MemoryResult,
    ResultContext,
    ResultGroup,
    ResultType,
    TurnContext,
    UnifiedResult,
)
from everkept.families.history.search_results import find_highlights
from everkept.families.history.search_summary import extract_topics
from everkept.families.history.searches import HistoryAnswer, SearchKind, get_folder_name, match_projects, select_good
from everkept.language.telling_words import list_stems
from everkept.retrieval.excerpts import compute_coverage
from everkept.tools.tool import ToolWarning
from everkept.values import Value, replace

# Each search gives its best result a good score, however poor it is. The share of matching words makes searches
# comparable. A search without matching words keeps this share.
MIN_SHARE = 0.6
COMPARED_RESULTS = 3  # best results of each search


def compute_shares(question: str, texts: Mapping[str, Sequence[str]]) -> dict[str, float]:
    """Return the factor for the scores of each search, from the texts of its best results."""
    asked = list_stems(question)
    covered = {
        name: max((compute_coverage(asked, text) for text in best[:COMPARED_RESULTS]), default=0.0)
        for name, best in texts.items()
    }
    most = max(covered.values(), default=0.0)
    if not most:
        return dict.fromkeys(texts, 1.0)
    return {name: MIN_SHARE + (1 - MIN_SHARE) * share / most for name, share in covered.items()}


def join_title(title: str | None, content: str) -> str:
    return f"{title or ''}\n{content}"


NO_PEERS_WARNING = ToolWarning(
    "no_peers", "Searched this server only: no peers are configured, or your account cannot use them."
)
PARTIAL_CODE = "peer_partial"  # code of the warnings that a peer reports
COMPARED_CHARACTERS = 2_000  # length of the compared beginning
KIND_TYPES: dict[SearchKind, tuple[str, ...]] = {
    "all": HISTORY_TYPES,
    "conversation": ("conversation",),
    "code": ("code",),
    "decision": ("decision",),
}


class SearchFilter(Value):
    query: str
    kind: SearchKind
    limit: int
    project: str | None = None
    after: int | None = None
    before: int | None = None

    @property
    def peer_question(self) -> PeerQuestion:
        """Return the question for peers. Ask for more results if they are filtered here."""
        is_narrow = self.project is not None or self.after is not None
        most = MAX_RESULTS if is_narrow else self.limit
        return PeerQuestion(self.query, KIND_TYPES[self.kind], most)


def list_peer_warnings(asked: PeerAnswers) -> list[ToolWarning]:
    """Return a warning for each server that did not answer, or not completely."""
    if not asked.is_anybody:
        return [NO_PEERS_WARNING]
    partial = [
        ToolWarning(PARTIAL_CODE, f'Peer "{answer.peer}": {" ".join(answer.notices)}')
        for answer in asked.answers
        if answer.notices
    ]
    return [*(ToolWarning(fault.code, fault.message) for fault in asked.faults), *partial]


def merge_peer_answers(own: HistoryAnswer, asked: PeerAnswers, meant: SearchFilter) -> HistoryAnswer:
    """Return the local answer with the matching results and warnings of other servers."""
    warnings = (*own.warnings, *list_peer_warnings(asked))
    found = {answer.peer: _select_peer_results(answer, meant) for answer in asked.answers}
    results = _merge_peer_results(own.results, {peer: some for peer, some in found.items() if some}, meant)
    if results is None:
        return replace(own, warnings=warnings)
    spoken = [result.content for result in select_good(results) if result.type != "code"]
    return replace(
        own,
        results=results,
        topics=extract_topics(spoken, meant.query),
        warnings=warnings,
        of_peers={format_source(peer): len(some) for peer, some in found.items() if some},
    )


def remove_duplicates(results: Iterable[MemoryResult]) -> list[MemoryResult]:
    """Drop results of other servers whose text occurs before. The first one names both sources."""
    kept: list[MemoryResult] = []
    places: dict[str, int] = {}
    for result in results:
        text = normalize_text(result.content)
        # Local results are already distinct, although a turn and its code may have the same text.
        place = None if result.source == LOCAL_SOURCE else places.get(text)
        if place is None:
            places.setdefault(text, len(kept))
            kept.append(result)
        else:
            first = kept[place]
            named = add_source(first.source, first.also_in, result.source)
            kept[place] = replace(first, also_in=named)
    return kept


def add_source(source: str, known: Sequence[str] | None, more: str) -> list[str] | None:
    """Return the sources other than the first one, with `more` added."""
    others = dict.fromkeys([*(known or ()), more])
    others.pop(source, None)
    return list(others) or None


def normalize_text(content: str) -> str:
    """Return a key that is the same for equal texts."""
    return compute_name_key(sanitize_text(content[:COMPARED_CHARACTERS]))


def _select_peer_results(answer: PeerAnswer, meant: SearchFilter) -> list[MemoryResult]:
    """Return the results that match the filter, because a server may ignore it."""
    found = [finding for finding in answer.findings if _matches_filter(finding, meant)]
    if meant.project is not None:
        known = {finding.project for finding in found if finding.project}
        wanted = match_projects(meant.project, known) or match_projects(get_folder_name(meant.project), known)
        found = [finding for finding in found if finding.project in wanted]
    return [_build_peer_result(answer.peer, finding, meant) for finding in found]


def _matches_filter(finding: SearchFinding, meant: SearchFilter) -> bool:
    at = finding.at
    return (
        at is not None
        and finding.type in KIND_TYPES[meant.kind]
        and (meant.after is None or at >= meant.after)
        and (meant.before is None or at <= meant.before)
    )


def _build_peer_result(peer: str, finding: SearchFinding, meant: SearchFilter) -> MemoryResult:
    context = TurnContext(
        session_id="", project_path=finding.project or "", timestamp=format_iso(finding.at or 0), participants=[]
    )
    return MemoryResult(
        id=finding.id,
        type=cast(ResultType, finding.type),
        content=finding.content,
        context=context,
        relevance_score=finding.score,
        source=format_source(peer),
        highlights=find_highlights(finding.content, meant.query),
        title=finding.title,
    )


def _merge_peer_results(
    own: Sequence[MemoryResult], foreign: Mapping[str, Sequence[MemoryResult]], meant: SearchFilter
) -> list[MemoryResult] | None:
    """Return the best results in display order, or None if the other servers have none."""
    if not foreign:
        return None
    everybody = {LOCAL_SOURCE: own, **foreign}
    best_first = {name: sorted(some, key=_get_sort_score) for name, some in everybody.items()}
    share = compute_shares(
        meant.query, {name: [join_title(one.title, one.content) for one in some] for name, some in best_first.items()}
    )
    scaled = [
        replace(one, relevance_score=scale_score(one.relevance_score, share[name], one.source))
        for name, some in best_first.items()
        for one in some
    ]
    # Sorted by score among the other servers, so that the best of equal texts stays.
    scaled.sort(key=lambda one: (one.source != LOCAL_SOURCE, _get_sort_score(one)))
    best = sorted(remove_duplicates(scaled), key=_get_sort_score)[: meant.limit]
    return _sort_for_display(best, prefers_decisions=is_decision_question(meant.query))


def scale_score(score: float, share: float, source: str) -> float:
    """Return the score on the common scale. Results of other servers count a little less."""
    return round(score * share * (1.0 if source == LOCAL_SOURCE else PEER_SCORE_FACTOR), 3)


def _get_sort_score(result: MemoryResult) -> float:
    return -result.relevance_score


def _sort_for_display(results: Sequence[MemoryResult], *, prefers_decisions: bool) -> list[MemoryResult]:
    """Sort like local results: in blocks of ten, with similar scores newest first."""

    def place(one: MemoryResult) -> tuple[int, bool, int, float]:
        preferred = prefers_decisions and one.type == "decision"
        at = parse_time(one.context.timestamp)
        return -get_bucket(one.relevance_score), not preferred, -at, _get_sort_score(one)

    blocks = (results[start : start + BLOCK_RESULTS] for start in range(0, len(results), BLOCK_RESULTS))
    return [one for block in blocks for one in sorted(block, key=place)]


MIN_PART_SCORE_SHARE = 0.6  # share of the best score from which the best result of a part stays on the page


def merge_results(results: Sequence[UnifiedResult], limit: int) -> list[UnifiedResult]:
    """Return the best results first, including the best of each part with good results."""
    ranked = remove_unified_duplicates(results)
    page = ranked[:limit]
    for best in _iter_best_of_parts(ranked):
        if best in page or best.relevance_score < MIN_PART_SCORE_SHARE * ranked[0].relevance_score:
            continue
        weakest = _find_replaceable(page)
        if weakest is None:
            break
        page.remove(weakest)
        page.append(best)
    return _sort_by_score(page)


def group_results(results: Sequence[UnifiedResult], limit: int) -> list[ResultGroup]:
    """Return the results by part, at most `limit` of each."""
    groups: dict[str, list[UnifiedResult]] = {}
    for result in remove_unified_duplicates(results):
        groups.setdefault(result.found_in, []).append(result)
    return [ResultGroup(name, found[:limit]) for name, found in groups.items()]


def remove_unified_duplicates(results: Sequence[UnifiedResult]) -> list[UnifiedResult]:
    """Drop results with the id or text of a better one. Local results win, and name the other servers."""
    kept: dict[str, UnifiedResult] = {}
    texts: dict[str, str] = {}
    for result in sorted(_sort_by_score(results), key=lambda result: result.source != LOCAL_SOURCE):
        text = normalize_text(result.content)
        known = result.id if result.id in kept else texts.get(text)
        if known is None:
            kept[result.id] = result
            texts[text] = result.id
        else:
            first = kept[known]
            kept[known] = replace(first, also_in=add_source(first.source, first.also_in, result.source))
    return _sort_by_score(list(kept.values()))


def _sort_by_score(results: Sequence[UnifiedResult]) -> list[UnifiedResult]:
    newest_first = sorted(results, key=lambda result: result.context.timestamp or "", reverse=True)
    return sorted(newest_first, key=lambda result: -result.relevance_score)


def _iter_best_of_parts(ranked: Sequence[UnifiedResult]) -> Iterator[UnifiedResult]:
    seen: set[str] = set()
    for result in ranked:
        if result.found_in not in seen:
            seen.add(result.found_in)
            yield result


def _find_replaceable(page: Sequence[UnifiedResult]) -> UnifiedResult | None:
    """Return the weakest result that is not the only one of its part."""
    parts = [result.found_in for result in page]
    many = [result for result in reversed(page) if parts.count(result.found_in) > 1]
    return min(many, key=lambda result: result.relevance_score, default=None)


# The part that each type of result belongs to.
TYPE_PARTS = {
    "conversation": CONVERSATIONS_PART,
    "decision": CONVERSATIONS_PART,
    "code": CODE_PART,
    "memory": "memories",
    "entity": "graph",
    "relation": "graph",
}


def build_unified_results(answer: PeerAnswer) -> list[UnifiedResult]:
    return [_build_unified_result(answer.peer, finding) for finding in answer.findings]


def discount_peer_score(result: UnifiedResult) -> UnifiedResult:
    """Reduce the score if the result is from another server."""
    score = scale_score(result.relevance_score, 1.0, result.source)
    return replace(result, relevance_score=score)


def _build_unified_result(peer: str, finding: SearchFinding) -> UnifiedResult:
    return UnifiedResult(
        id=finding.id,
        type=finding.type,
        content=finding.content,
        relevance_score=finding.score,
        search_type=finding.search_type,
        found_in=TYPE_PARTS[finding.type],
        source=format_source(peer),
        context=ResultContext(finding.project, None if finding.at is None else format_iso(finding.at)),
        title=finding.title,
    )
