"""What other people's servers have found, as parts of a search over everything."""

from everkept.core.peers import PeerAnswer, source_of
from everkept.core.searching import Finding
from everkept.core.times import iso
from everkept.families.history.search.peer_results import scored
from everkept.families.history.unified.answers import (
    CODE_PIECES,
    CONVERSATIONS,
    UnifiedResult,
    Whereabouts,
)
from everkept.values import replace

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
