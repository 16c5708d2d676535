import pytest
from hypothesis import given
from hypothesis import strategies as st

from everkept.core.records import Record
from everkept.families.memories.likeness import LikenessKind, classify_likeness
from everkept.values import replace
from records import memory


def judged(new: Record, old: Record) -> LikenessKind | None:
    return classify_likeness(new.text, new.type or "", old)


@pytest.mark.parametrize(
    ("old", "new", "verdict"),
    [
        ("The API listens on port 8080", "The API listens on port 9090", "superseded"),
        ("We use PostgreSQL 14 for orders", "We use PostgreSQL 15 for orders", "superseded"),
        ("The staging database runs on MySQL", "The staging database runs on Oracle", "superseded"),
        ("Invoices are sent by mail on Mondays", "Invoices are sent by mail on Mondays!", "similar"),
        ("The nightly backup copies data to S3", "Our nightly backup copies the data to S3", "similar"),
        ("Alice likes green tea a lot", "Bob likes black coffee a lot", None),
        ("Ada wrote the parser and its tests", "Bob wrote the parser and its tests", None),
        ("Short one", "Short two", None),
        ("", "", None),
    ],
)
def test_texts_are_compared_by_their_words(old: str, new: str, verdict: str | None) -> None:
    assert judged(memory(new), memory(old)) == verdict


def test_two_events_are_two_events_however_alike_they_are() -> None:
    old = memory("Deployed build 1412 to staging", type="episodic")
    assert judged(memory("Deployed build 1413 to staging", type="episodic"), old) is None


@given(st.text(max_size=200), st.text(max_size=200))
def test_likeness_goes_both_ways_and_never_fails(one: str, other: str) -> None:
    first, second = memory(one), memory(other)
    assert judged(first, second) == judged(second, first)


@given(st.text(max_size=200))
def test_a_text_never_supersedes_itself(text: str) -> None:
    assert judged(memory(text), replace(memory(text), id="other")) != "superseded"
