import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everkept.core.sessions import (
    MAX_NAME_CHARACTERS,
    Account,
    act_as,
    find_signer,
    format_signature,
    get_acting_account,
    validate_account_name,
)
from everkept.errors import InvalidInput

ANNA = Account("anna")


async def test_what_is_begun_for_an_account_is_done_for_it() -> None:
    async def seen() -> Account | None:
        return get_acting_account()

    with act_as(ANNA):
        task = asyncio.create_task(seen())
        with act_as(None):
            own = asyncio.create_task(seen())
    assert get_acting_account() is None
    assert (await task, await own) == (ANNA, None)


def test_an_account_signs_with_the_program_that_it_uses() -> None:
    assert format_signature("editor 1") == "editor 1"
    with act_as(ANNA):
        assert (format_signature("editor 1"), format_signature("")) == ("anna (editor 1)", "anna")
        assert find_signer(format_signature("editor\n(1)")) == "anna"
    assert [find_signer(name) for name in ("", "editor 1", "command line", "anna")] == [None] * 4


@pytest.mark.parametrize(("given_name", "kept"), [("anna", "anna"), (" Anna.B-2_c ", "anna.b-2_c"), ("7", "7")])
def test_names_are_kept_in_small_letters(given_name: str, kept: str) -> None:
    assert validate_account_name(given_name) == kept


@pytest.mark.parametrize("name", ["", " ", "an na", "a/b", "ä", "a" * (MAX_NAME_CHARACTERS + 1), "a\x00", "a\nb"])
def test_other_names_are_refused_with_what_would_do(name: str) -> None:
    with pytest.raises(InvalidInput, match="is not a valid user name") as refused:
        validate_account_name(name)
    assert refused.value.hint is not None


@given(st.text())
def test_a_name_is_one_of_few_letters_or_refused(name: str) -> None:
    try:
        kept = validate_account_name(name)
    except InvalidInput:
        return
    assert kept == validate_account_name(kept)
    assert "/" not in kept
    assert kept.isascii()
