from everkept.families.history.unified.conversations import as_typed
from everkept.retrieval.intent import Entities


def test_names_are_looked_for_as_they_were_typed_and_else_all_words() -> None:
    assert as_typed(Entities(("parse_query",), ("a.py",), ("cache",))) == '"parse_query" OR "a.py"'
    assert as_typed(Entities(concepts=("retry logic", "cache"))) == '"retry logic" AND "cache"'
    assert as_typed(Entities()) is None


def test_a_quote_in_a_name_ends_no_phrase() -> None:
    assert as_typed(Entities(concepts=('say "hi"',))) == '"say  hi "'
