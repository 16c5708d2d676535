import pytest

from everkept.language.spellings import (
    MAX_JOINED_CHARACTERS,
    join_segments,
    list_compounds,
    list_other_spellings,
    split_parts,
    split_segments,
)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("see node.js, or foo_bar-baz!", ["see", "node.js", "or", "foo_bar-baz"]),
        ("don't __init__ -x", ["don't", "init", "x"]),
        ("emoji1f389 emojis", ["emojis"]),
        ("...", []),
    ],
)
def test_words_keep_what_joins_their_segments(text: str, found: list[str]) -> None:
    assert list_compounds(text) == found


@pytest.mark.parametrize(
    ("compound", "parts"),
    [
        ("word", ["word"]),
        ("getUserName", ["get", "User", "Name"]),
        ("HTTPServer2", ["HTTP", "Server", "2"]),
        ("foo_barBaz", ["foo", "bar", "Baz"]),
        ("größeÄnderung", ["größeÄnderung"]),
        ("deadbeef12", ["deadbeef12"]),
        ("a1b2c3d4", ["a1b2c3d4"]),
    ],
)
def test_a_compound_breaks_at_its_humps_and_digits(compound: str, parts: list[str]) -> None:
    assert split_parts(split_segments(compound)) == parts


@pytest.mark.parametrize(
    ("compound", "word"),
    [
        ("foo-bar", "foobar"),
        ("2024-05-01", "20240501"),
        ("1.2.3", None),
        ("word", None),
        (f"{'x' * MAX_JOINED_CHARACTERS}-y", None),
    ],
)
def test_a_compound_may_be_written_in_one(compound: str, word: str | None) -> None:
    assert join_segments(compound, split_segments(compound)) == word


def test_each_other_way_comes_once_and_in_its_order() -> None:
    text = "foo-bar getName plain foo-bar foo_bar v1.2"
    assert list(list_other_spellings(text)) == ["foobar", "get Name", "v 1 2", "v12"]
