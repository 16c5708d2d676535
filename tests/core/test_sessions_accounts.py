import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everkept.core.sessions import (
    NAME_LIMIT,
    Account,
    acting,
    acting_as,
    checked_account_name,
    signed,
    signer_of,
)
from everkept.errors import InvalidInput

ANNA = Account("anna")


async def test_what_is_begun_for_an_account_is_done_for_it() -> None:
    async def seen() -> Account | None:
        return acting()

    with acting_as(ANNA):
        task = asyncio.create_task(seen())
        with acting_as(None):
            own = asyncio.create_task(seen())
    assert acting() is None
    assert (await task, await own) == (ANNA, None)


def test_an_account_signs_with_the_program_that_it_uses() -> None:
    assert signed("editor 1") == "editor 1"
    with acting_as(ANNA):
        assert (signed("editor 1"), signed("")) == ("anna (editor 1)", "anna")
        assert signer_of(signed("editor\n(1)")) == "anna"
    assert [signer_of(name) for name in ("", "editor 1", "command line", "anna")] == [None] * 4


@pytest.mark.parametrize(
    ("given_name", "kept"), [("anna", "anna"), (" Anna.B-2_c ", "anna.b-2_c"), ("7", "7")]
)
def test_names_are_kept_in_small_letters(given_name: str, kept: str) -> None:
    assert checked_account_name(given_name) == kept


@pytest.mark.parametrize(
    "name", ["", " ", "an na", "a/b", "ä", "a" * (NAME_LIMIT + 1), "a\x00", "a\nb"]
)
def test_other_names_are_refused_with_what_would_do(name: str) -> None:
    with pytest.raises(InvalidInput, match="is no name of a user") as refused:
        checked_account_name(name)
    assert refused.value.hint is not None


@given(st.text())
def test_a_name_is_one_of_few_letters_or_refused(name: str) -> None:
    try:
        kept = checked_account_name(name)
    except InvalidInput:
        return
    assert kept == checked_account_name(kept)
    assert "/" not in kept
    assert kept.isascii()
