"""What scoring costs; how well records fit is held by the contracts of all engines."""

import sys
from types import FrameType

from everkept.core.records import Weights
from everkept.engines.postgres.search import Scorer
from everkept.language.words import AnyOf, WordPhrase

TSVECTORS = ["'@1':4 'kettl':1B,3B 'tea':2B 'water':4B", "'@1':2 'offic':1B 'tea':2B"]


def scored(*words: str) -> tuple[list[float | None], int]:
    """The scores, and how many functions were called for them."""
    phrases = [WordPhrase((word,)) for word in words]
    scorer = Scorer(AnyOf(tuple(phrases)), dict.fromkeys(phrases, 1.0), Weights())
    calls = 0

    def note(_frame: FrameType, event: str, _called: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(note)
    try:
        scores = scorer.score_all(TSVECTORS)
    finally:
        sys.setprofile(None)
    return scores, calls


def test_a_word_that_no_record_has_costs_no_call() -> None:
    few = scored("tea", "kettle")
    many = scored("tea", "kettle", *(f"nowhere{number}" for number in range(200)))
    assert many == few
    assert None not in few[0]


def test_two_words_with_one_stem_both_count() -> None:
    [one, _], _ = scored("kettle")
    [both, _], _ = scored("kettle", "kettles")
    assert one is not None
    assert both == 2 * one
