from hypothesis import given
from hypothesis import strategies as st

from everkept.families.gateway.model import (
    MAX_NAME_CHARACTERS,
    PassThrough,
    find_likeliest,
    find_passed_name,
    fix_name,
    is_name,
    resolve_name,
)


def test_a_name_that_is_known_is_meant_as_it_is() -> None:
    assert resolve_name("notes__search", ["search", "notes__search"]) == "notes__search"


def test_a_prefixed_name_falls_back_to_the_bare_one() -> None:
    assert resolve_name("episodic-memory__search", ["read", "search"]) == "search"


def test_the_longest_of_several_bare_names_is_meant() -> None:
    assert resolve_name("mcp__notes__search", ["search", "notes__search"]) == "notes__search"
    assert resolve_name("a___b", ["b", "_b"]) == "_b"


def test_a_name_that_fits_nothing_is_none() -> None:
    assert resolve_name("notes__search", ["find"]) is None
    assert resolve_name("notes__", ["notes"]) is None
    assert resolve_name("search", ["notes__search"]) is None


@given(st.text("ab_", min_size=1), st.text("ab_", min_size=1))
def test_any_prefix_is_taken_off(prefix: str, name: str) -> None:
    assert resolve_name(f"{prefix}__{name}", [name]) == name


def test_a_tool_is_passed_through_under_its_name_with_the_prefix() -> None:
    assert find_passed_name("search", PassThrough()) == "search"
    assert find_passed_name("search", PassThrough(prefix="notes_")) == "notes_search"


def test_a_new_name_stands_as_it_is() -> None:
    assert find_passed_name("search", PassThrough("notes_", rename={"search": "find"})) == "find"


def test_hidden_tools_and_those_not_chosen_are_not_offered() -> None:
    assert find_passed_name("search", PassThrough(hide=("search",))) is None
    assert find_passed_name("search", PassThrough(only=("read",))) is None
    assert find_passed_name("read", PassThrough(only=("read",))) == "read"
    assert find_passed_name("read", PassThrough(only=())) is None


@given(st.text(max_size=200), st.sets(st.text(max_size=5)))
def test_a_mended_name_is_allowed_and_free(name: str, taken: set[str]) -> None:
    first = fix_name(name, taken)
    second = fix_name(name, {*taken, first})
    assert is_name(first)
    assert is_name(second)
    assert first not in taken
    assert second not in {*taken, first}


@given(st.from_regex(r"[A-Za-z0-9_.-]{1,128}", fullmatch=True))
def test_a_good_name_needs_no_mending(name: str) -> None:
    assert is_name(name)
    assert fix_name(name) == name


def test_names_have_a_length_and_an_alphabet() -> None:
    assert not is_name("")
    assert not is_name("a" * (MAX_NAME_CHARACTERS + 1))
    assert not is_name("two words")
    assert not is_name("name\n")
    assert not is_name(None)


def test_a_wrong_name_is_compared_with_few_and_short_ones() -> None:
    assert find_likeliest("serach", ["read", "search"]) == "search"
    assert find_likeliest("serach", (name for name in ("x" * 200_000, "search"))) == "search"
    assert find_likeliest("serach", [*(f"tool_{i}" for i in range(500)), "search"]) is None
    assert find_likeliest("x" * 200_000, ["search"]) is None
