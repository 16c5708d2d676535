import re

from everkept.language.question_forms import question_forms
from everkept.retrieval.intent import WAYS


def test_each_form_speaks_for_an_intent_and_has_no_part_left_unwritten() -> None:
    for intent, pattern in question_forms():
        assert intent in WAYS
        assert "…" not in pattern.pattern
        assert not re.search(r"(?<!\(\?P)<(?![!=])", pattern.pattern.replace("(?<", "")), pattern


def test_no_form_fits_nothing() -> None:
    assert [pattern.pattern for _, pattern in question_forms() if pattern.search("")] == []
