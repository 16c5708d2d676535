import pytest
from hypothesis import given
from hypothesis import strategies as st

from everkept.families.gateway.file_values import TakenPaths, join_path, split_path

keys = st.text(st.sampled_from("ab.\\\n"), min_size=1, max_size=4)
paths = st.lists(keys, min_size=1, max_size=4)


@given(paths)
def test_keys_that_were_joined_are_split_again(path: list[str]) -> None:
    assert split_path(join_path(path)) == tuple(path)


@given(st.text(st.sampled_from("ab.\\"), max_size=8))
def test_a_text_is_a_path_written_in_one_way_or_none(text: str) -> None:
    path = split_path(text)
    assert path is None or join_path(path) == text


@pytest.mark.parametrize("text", ["", ".", "a.", ".a", "a..b", "\\", "a\\", "a\\b", "a\\\\\\"])
def test_empty_keys_and_stray_backslashes_are_no_path(text: str) -> None:
    assert split_path(text) is None


def test_paths_meet_where_one_leads_to_the_other() -> None:
    taken = TakenPaths()
    taken.add(("a", "b"), 3)
    taken.add(("c",), 4)
    assert taken.find_conflict(("a",)) == ("a", "b")
    assert taken.find_conflict(("a", "b")) == ("a", "b")
    assert taken.find_conflict(("c", "d", "e")) == ("c",)
    assert taken.find_conflict(("a", "x")) is None
    assert taken.find_conflict(("b",)) is None
    assert taken.lines == {("a", "b"): 3, ("c",): 4}
