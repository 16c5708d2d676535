from hypothesis import given, settings
from hypothesis import strategies as st

from everkept.families.memories.likeness import select_central_sentences


def summary(*texts: str, most: int = 3, length: int = 200) -> str:
    return select_central_sentences(texts, [1.0] * len(texts), {}, most=most, length=length)


def test_what_the_texts_share_comes_before_what_one_of_them_says() -> None:
    told = summary(
        "Lunch was late. The token refresh failed.",
        "The token refresh uses the wrong key.",
        "Fixed the token refresh.",
        most=2,
    )
    assert "token refresh" in told
    assert "Lunch" not in told


def test_nothing_is_said_twice() -> None:
    told = summary("The cache is flushed on deploy.", "On deploy the cache is flushed.")
    assert told == "The cache is flushed on deploy."


def test_sentences_keep_the_order_of_the_texts() -> None:
    assert summary("First the schema changed.", "Then the schema was reverted for the client.") == (
        "First the schema changed. Then the schema was reverted for the client."
    )


def test_sentences_without_an_end_get_one_when_they_are_joined() -> None:
    assert summary("redis cache flushed", "redis keys renamed") == ("redis cache flushed. redis keys renamed.")


def test_code_stays_whole_and_on_its_own_lines() -> None:
    code = "```\nmake build\nmake test\n```"
    assert summary("Run the build.", f"The build needs:\n{code}", length=300).endswith(f"\n{code}")


def test_a_text_that_is_too_long_is_clipped() -> None:
    told = summary("word " * 200, length=50)
    assert len(told) == 50
    assert told.endswith("…")


@settings(deadline=None)
@given(st.lists(st.text(), min_size=1, max_size=6), st.integers(1, 5), st.integers(20, 300))
def test_a_summary_keeps_its_length(texts: list[str], most: int, length: int) -> None:
    assert len(summary(*texts, most=most, length=length)) <= length


def test_a_question_is_kept_only_where_nothing_is_stated() -> None:
    assert summary("Is the cache warm?", "The cache is warm now.") == "The cache is warm now."
    assert summary("Is the cache warm?") == "Is the cache warm?"
