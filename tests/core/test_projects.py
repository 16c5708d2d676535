import pytest
from hypothesis import given
from hypothesis import strategies as st

from everkept.core.projects import MAX_PROJECT_NAME_CHARACTERS, RESERVED_NAMES, to_project_name, validate_project_name
from everkept.errors import InvalidInput


@pytest.mark.parametrize(
    "name", ["a", "my project", "Größe 2.0", "日本語", "🎉", "...", "-", "C:", "x" * MAX_PROJECT_NAME_CHARACTERS]
)
def test_a_good_name_comes_back_as_it_is(name: str) -> None:
    assert validate_project_name(name) == name


@pytest.mark.parametrize(
    "name", ["", " ", "\n", " a", "a\t", "a\x00b", "a\x1b", "../x", "a/b", "a\\b", ".", "..", "x" * 101], ids=repr
)
def test_a_bad_name_is_refused_with_its_value(name: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        validate_project_name(name)
    assert caught.value.facts["argument"] == "name"
    assert len(caught.value.facts["value"]) <= MAX_PROJECT_NAME_CHARACTERS + 1


@given(st.text())
def test_a_name_that_is_accepted_could_be_the_name_of_a_file(name: str) -> None:
    try:
        accepted = validate_project_name(name)
    except InvalidInput:
        return
    assert accepted == accepted.strip() != ""
    assert not set(accepted) & set("/\\\0\n\r")
    assert accepted not in {".", ".."}


@given(st.text(max_size=2 * MAX_PROJECT_NAME_CHARACTERS) | st.sampled_from(sorted(RESERVED_NAMES)))
def test_every_folder_has_a_name_that_a_project_can_have(name: str) -> None:
    assert validate_project_name(to_project_name(name))
