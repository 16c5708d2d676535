import pytest

from everkept.core.records import Record
from everkept.families.history.model import DECISION, SAID, TURN
from everkept.families.history.search.deciding import decisions_first, what_is_asked
from everkept.retrieval.profile import Hit


def hit(name: str, score: float, position: int, is_decision: bool = False) -> Hit:
    kind = DECISION if is_decision else SAID
    return Hit(Record(name, TURN, 1, 1, type=kind, parent="c", position=position), score)


@pytest.mark.parametrize(
    ("question", "rest"),
    [
        ("what did we decide about the login", "what did we  about the login"),
        ("parser design decision", "parser design "),
        ("what did we decide?", "what did we decide?"),
        ("the login form", "the login form"),
    ],
)
def test_words_that_ask_for_a_decision_are_not_looked_for(question: str, rest: str) -> None:
    assert what_is_asked(question) == rest


def test_to_whom_asks_for_them_decisions_come_first() -> None:
    hits = [hit("asked", 0.9, 1), hit("decided", 0.7, 9, is_decision=True)]
    first = decisions_first("what did we decide about the login", hits)
    assert [one.record.id for one in first] == ["decided", "asked"]
    assert decisions_first("the login", hits) == hits


def test_a_decision_counts_as_what_led_to_it() -> None:
    hits = [hit("asked", 0.9, 1), hit("decided", 0.2, 3, is_decision=True)]
    assert decisions_first("what did we decide", hits)[0].record.id == "decided"
    later = [hit("decided", 0.2, 0, is_decision=True), hit("asked", 0.9, 1)]
    assert decisions_first("what did we decide", later)[0].record.id == "asked"
