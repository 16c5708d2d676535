import pytest
from hypothesis import given
from hypothesis import strategies as st

from everkept.families.bank import search_tools
from everkept.families.bank.markdown_sections import split_lines
from everkept.families.bank.search_tools import MAX_CONTENT_CHARACTERS, Needle, find_lines

TEXT = "First line\nSecond LINE here\n\nlast line"


def lines(text: str | bytes, query: str, *, case_sensitive: bool = False) -> list[int]:
    data = text.encode() if isinstance(text, str) else text
    needle = Needle(query, case_sensitive=case_sensitive)
    return [found.line for found in find_lines(data, needle, 1_000)]


def test_lines_come_trimmed_with_those_around_them() -> None:
    (found,) = find_lines(b"before\r\n   the match  \r\nafter\r\n", Needle("match", case_sensitive=True), 9)
    assert (found.line, found.content) == (2, "the match")
    assert found.context == "before\n   the match\nafter"


@pytest.mark.parametrize(
    ("query", "case_sensitive", "expected"),
    [
        ("line", False, [1, 2, 4]),
        ("line", True, [1, 4]),
        ("LINE", True, [2]),
        ("first line", False, [1]),
        (".*", False, []),
        ("line\nsecond", False, [1]),
        ("line\r\nsecond", False, [1]),
        ("line\nsecond", True, []),
        ("here\n\nlast", False, [2]),
        ("line\nlast", False, []),
    ],
)
def test_the_text_is_found_word_for_word(query: str, case_sensitive: bool, expected: list[int]) -> None:
    assert lines(TEXT, query, case_sensitive=case_sensitive) == expected


def test_case_does_not_count_in_any_script() -> None:
    assert lines("ÜBER DEN FLUSS\nΟΔΟΣ\nİstanbul", "über den") == [1]
    assert lines("x\nΟΔΟΣ", "οδος") == [2]
    assert lines("x\nΟΔΟΣΑ", "ΔΟΣ") == [2]


def test_bytes_that_are_no_text_do_not_hide_a_line() -> None:
    assert lines(b"\xfe\xfd broken\nfound here \xff\n", "found") == [2]
    assert lines("\ufefffirst", "first") == [1]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-32"])
def test_a_mark_at_the_beginning_tells_the_encoding(encoding: str) -> None:
    mark = "\ufeff" if encoding.endswith("be") else ""
    text = mark + "a line\n" * 200_000 + "Ċ and found"
    assert lines(text.encode(encoding), "found") == [200_001]


@given(st.text(alphabet="abKk\u212aß\n", max_size=30), st.text("abkKß", min_size=1, max_size=3))
def test_a_line_is_found_whatever_stands_around_it(text: str, query: str) -> None:
    expected = [at for at, line in enumerate(text.split("\n"), 1) if query.lower() in line.lower()]
    assert lines(text, query) == expected


def test_old_line_ends_count() -> None:
    assert lines("a\rb match\rc\nd match", "match") == [2, 4]


def test_no_more_lines_are_given_than_asked_for() -> None:
    found = list(find_lines(b"x\n" * 100, Needle("x", case_sensitive=True), 3))
    assert [each.line for each in found] == [1, 2, 3]


def test_a_long_line_is_shown_around_the_match() -> None:
    data = ("a" * 5_000 + "NEEDLE" + "b" * 5_000).encode()
    (found,) = find_lines(data, Needle("needle", case_sensitive=False), 9)
    assert "NEEDLE" in found.content
    assert found.content.startswith("…")
    assert found.content.endswith("…")
    assert len(found.content) <= MAX_CONTENT_CHARACTERS + 2


@given(
    st.lists(st.text(alphabet="abÄ \r", max_size=12), max_size=40),
    st.text(alphabet="abä\n", min_size=1, max_size=4).map(str.strip).filter(bool),
    st.integers(min_value=1, max_value=40),
)
def test_blocks_change_nothing(texts: list[str], query: str, block: int) -> None:
    data = "\n".join(texts).encode()
    needle = Needle(query, case_sensitive=False)
    whole = list(find_lines(data, needle, 1_000))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search_tools, "BLOCK_BYTES", block)
        assert list(find_lines(data, needle, 1_000)) == whole


@given(
    st.text(alphabet="ab\n\r\x0b\x85\u2028", max_size=30),
    st.text(alphabet="ab\n", min_size=1, max_size=4).map(str.strip).filter(bool),
)
def test_lines_are_counted_as_everywhere_in_a_bank(text: str, query: str) -> None:
    told = ["".join(split_lines(text)[at:]) for at in range(len(split_lines(text)))]
    plain = [rest.replace("\r\n", "\n").replace("\r", "\n") for rest in told]
    expected = [number for number, rest in enumerate(plain, 1) if 0 <= rest.find(query) < len(rest.partition("\n")[0])]
    assert lines(text, query) == expected


def test_a_text_over_several_lines_is_shown_by_its_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_tools, "BLOCK_BYTES", 1)
    data = b"above\r\n  one TWO\r\nthree\r\nbelow\r\n"
    (found,) = find_lines(data, Needle("two\nthree\nbel", case_sensitive=False), 9)
    assert (found.line, found.content) == (2, "one TWO")
    assert found.context == "above\n  one TWO\nthree"
