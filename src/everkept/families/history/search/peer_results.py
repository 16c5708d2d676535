"""Results of other people's servers among our own: filtered, comparable, each once, and named."""

from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from everkept.core.data_fence import readable
from everkept.core.peers import (
    MOST_RESULTS,
    SAID_TYPES,
    SHARE,
    Asked,
    PeerAnswer,
    PeerQuestion,
    source_of,
)
from everkept.core.search_ports import Finding
from everkept.core.text import normalised
from everkept.core.times import iso, parsed
from everkept.families.history.search.answers import LOCAL, Context, MemoryResult, ResultType
from everkept.families.history.search.filters import last_part, projects_meant
from everkept.families.history.search.presentation import highlights
from everkept.families.history.search.ranking import BLOCK, asks_for_decisions, bucket_of
from everkept.families.history.search.searches import Answered, Kind, good, topics_of
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
