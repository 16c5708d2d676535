from hypothesis import given
from hypothesis import strategies as st

from everkept.accounts.grants import (
    Grant,
    build_grant_key,
    build_grants_prefix,
    encode_grant,
    map_shown_names,
    parse_grants,
)
from everkept.core.projects import Project

names = st.sampled_from(("shop", "shop (2)", "blog"))


def project(number: int) -> Project:
    return Project(str(number), f"kept {number}", "", "active", 0, 0)


def granted(number: int, name: str) -> Grant:
    return Grant("anna", str(number), "read", name, number)


def test_a_grant_is_read_as_it_was_written() -> None:
    grant = Grant("anna.b", "id/with", "write", "shop", 7)
    assert parse_grants({build_grant_key("anna.b", "id/with"): encode_grant(grant)}) == [grant]


def test_no_user_has_the_beginning_of_another_ones_keys() -> None:
    assert not build_grant_key("anna.b", "id").startswith(build_grants_prefix("anna"))


def test_what_cannot_be_read_grants_nothing() -> None:
    notes = {
        build_grant_key("anna", "1"): "nonsense",
        build_grant_key("anna", "2"): '{"access": "all", "name": "x", "at": 1}',
        build_grant_key("anna", "3"): "[]",
    }
    assert parse_grants(notes) == []


def test_of_two_that_wish_for_a_name_the_older_has_it() -> None:
    shown = map_shown_names([granted(1, "shop"), granted(2, "shop")], [project(2), project(1)])
    assert {name: each.id for name, (_, each) in shown.items()} == {"shop": "1", "shop (2)": "2"}


def test_a_project_that_is_gone_keeps_no_name() -> None:
    shown = map_shown_names([granted(1, "shop"), granted(2, "shop")], [project(2)])
    assert list(shown) == ["shop"]


@given(st.lists(names, max_size=8), names)
def test_a_later_grant_changes_no_name_that_is_in_use(wished: list[str], later: str) -> None:
    grants = [granted(number, name) for number, name in enumerate(wished)]
    projects = [project(number) for number in range(len(wished) + 1)]
    before = map_shown_names(grants, projects)
    after = map_shown_names([*grants, granted(len(wished), later)], projects)
    assert len(before) == len(wished)
    assert before.items() <= after.items()
    assert len(after) == len(wished) + 1
