from hypothesis import given
from hypothesis import strategies as st

from everkept.families.gateway.model import (
    LONGEST,
    PassThrough,
    is_name,
    likeliest,
    mended,
    passed_name,
    resolved,
)


def test_a_name_that_is_known_is_meant_as_it_is() -> None:
    assert resolved("notes__search", ["search", "notes__search"]) == "notes__search"


def test_a_prefixed_name_falls_back_to_the_bare_one() -> None:
    assert resolved("episodic-memory__search", ["read", "search"]) == "search"


def test_the_longest_of_several_bare_names_is_meant() -> None:
    assert resolved("mcp__notes__search", ["search", "notes__search"]) == "notes__search"
    assert resolved("a___b", ["b", "_b"]) == "_b"


def test_a_name_that_fits_nothing_is_none() -> None:
    assert resolved("notes__search", ["find"]) is None
    assert resolved("notes__", ["notes"]) is None
    assert resolved("search", ["notes__search"]) is None


@given(st.text("ab_", min_size=1), st.text("ab_", min_size=1))
def test_any_prefix_is_taken_off(prefix: str, name: str) -> None:
    assert resolved(f"{prefix}__{name}", [name]) == name


def test_a_tool_is_passed_through_under_its_name_with_the_prefix() -> None:
    assert passed_name("search", PassThrough()) == "search"
    assert passed_name("search", PassThrough(prefix="notes_")) == "notes_search"


def test_a_new_name_stands_as_it_is() -> None:
    assert passed_name("search", PassThrough("notes_", rename={"search": "find"})) == "find"


def test_hidden_tools_and_those_not_chosen_are_not_offered() -> None:
    assert passed_name("search", PassThrough(hide=("search",))) is None
    assert passed_name("search", PassThrough(only=("read",))) is None
    assert passed_name("read", PassThrough(only=("read",))) == "read"
    assert passed_name("read", PassThrough(only=())) is None


@given(st.text(max_size=200), st.sets(st.text(max_size=5)))
def test_a_mended_name_is_allowed_and_free(name: str, taken: set[str]) -> None:
    first = mended(name, taken)
    second = mended(name, {*taken, first})
    assert is_name(first)
    assert is_name(second)
    assert first not in taken
    assert second not in {*taken, first}


@given(st.from_regex(r"[A-Za-z0-9_.-]{1,128}", fullmatch=True))
def test_a_good_name_needs_no_mending(name: str) -> None:
    assert is_name(name)
    assert mended(name) == name


def test_names_have_a_length_and_an_alphabet() -> None:
    assert not is_name("")
    assert not is_name("a" * (LONGEST + 1))
    assert not is_name("two words")
    assert not is_name("name\n")
    assert not is_name(None)


def test_a_wrong_name_is_compared_with_few_and_short_ones() -> None:
    assert likeliest("serach", ["read", "search"]) == "search"
    assert likeliest("serach", (name for name in ("x" * 200_000, "search"))) == "search"
    assert likeliest("serach", [*(f"tool_{i}" for i in range(500)), "search"]) is None
    assert likeliest("x" * 200_000, ["search"]) is None
