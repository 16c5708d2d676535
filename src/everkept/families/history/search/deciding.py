"""Questions about what was decided: the decisions come first."""

import re
from collections.abc import Sequence

from everkept.families.history.model import DECISION
from everkept.language.telling_words import stems
from everkept.retrieval.profile import Hit
from everkept.values import replace

UNDECIDED = 0.7  # what a turn that decides nothing counts, to whom asks for a decision
LED_TO = 0.95  # of the score of what led to a decision, that it has at least
BEFORE = 3  # turns before a decision that may have led to it

_DECIDING = re.compile(
    r"\b(?:decid|decision|choose|chose|agree|settle|go with|went with|why (?:did|do) we)",
    re.IGNORECASE,
)
_DECIDED = re.compile(
    r"\b(?:decided?|agreed?|settled?|decisions?)\b"
    r"(?=\W*$|\s+(?:about|on|upon|for|to|between|against)\b)",
    re.IGNORECASE,
)


def what_is_asked(question: str) -> str:
    """Without the words that ask for a decision: every decision has them, whatever it is about."""
    if not _DECIDING.search(question):
        return question
    rest = _DECIDED.sub("", question)
    return rest if stems(rest) else question


def asks_for_decisions(question: str) -> bool:
    return bool(_DECIDING.search(question))


def decisions_first(question: str, hits: Sequence[Hit]) -> list[Hit]:
    """Best first. The question that led to a decision is worded like that of who asks for it, so
    that a decision counts as much as what stands just before it."""
    if asks_for_decisions(question):
        hits = [_judged(hit, hits) for hit in hits]
    return sorted(hits, key=lambda hit: (-hit.score, -hit.record.at, hit.record.id))


def _judged(hit: Hit, hits: Sequence[Hit]) -> Hit:
    record = hit.record
    if record.type != DECISION:
        return replace(hit, score=UNDECIDED * hit.score)
    led = [
        other.score
        for other in hits
        if other.record.parent == record.parent
        and 0 < (record.position or 0) - (other.record.position or 0) <= BEFORE
    ]
    return replace(hit, score=max(hit.score, LED_TO * max(led, default=0.0)))
