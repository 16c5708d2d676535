import re

from everkept.language.question_forms import list_question_forms
from everkept.retrieval.intent import SEARCH_TYPES


def test_each_form_speaks_for_an_intent_and_has_no_part_left_unwritten() -> None:
    for intent, pattern in list_question_forms():
        assert intent in SEARCH_TYPES
        assert "…" not in pattern.pattern
        assert not re.search(r"(?<!\(\?P)<(?![!=])", pattern.pattern.replace("(?<", "")), pattern


def test_no_form_fits_nothing() -> None:
    assert [pattern.pattern for _, pattern in list_question_forms() if pattern.search("")] == []
