"""Notes and tokens, however long they are and whoever writes them."""

import asyncio
from random import Random

import pytest

from everkept.core.ports import Token
from everkept.errors import Conflict
from postgres_libraries import Shelf


async def test_a_key_may_be_long_and_is_found_by_any_beginning(shelf: Shelf) -> None:
    library = shelf.library()
    chance = Random(9)
    long = "".join(chance.choice("abcdefghäöü日本") for _ in range(9_000))
    kept = {long: "1", long + "x": "2", long[:-1] + "?": "3"}
    for key, value in kept.items():
        await library.set_note(key, value)
        await library.set_note(key, value)
    assert [await library.get_note(key) for key in kept] == ["1", "2", "3"]
    assert await library.list_notes(long[:150]) == await library.list_notes(long[:250]) == kept
    assert await library.list_notes(long) == {long: "1", long + "x": "2"}
    assert await library.list_notes(long[:250] + "?") == {}
    await library.set_note(long, None)
    assert await library.get_note(long) is None
    assert len(await library.list_notes("")) == 2


@pytest.mark.parametrize("prefix", ["100%", "100_", "a\\b", "'"])
async def test_a_beginning_means_itself(shelf: Shelf, prefix: str) -> None:
    library = shelf.library()
    for key in (f"{prefix}x", "100xx", "aab", "x"):
        await library.set_note(key, "value")
    assert await library.list_notes(prefix) == {f"{prefix}x": "value"}


async def test_of_many_that_write_one_note_at_once_one_is_the_last(shelf: Shelf) -> None:
    libraries = [shelf.library() for _ in range(4)]
    await asyncio.gather(*(libraries[number % 4].set_note("key", str(number)) for number in range(32)))
    assert await libraries[0].get_note("key") in [str(number) for number in range(32)]
    assert shelf.ask("SELECT count(*) FROM notes") == [(1,)]


async def test_a_note_of_few_among_many_is_found_by_the_index(shelf: Shelf) -> None:
    library = shelf.library()
    await library.set_note("account.grant.anna.1", "read")
    shelf.ask(
        "INSERT INTO notes SELECT n, 'account.grant.bob.' || n, 'read' FROM generate_series(1, 20000) AS n RETURNING 1"
    )
    assert await library.list_notes("account.grant.anna.") == {"account.grant.anna.1": "read"}
    plan = shelf.ask("EXPLAIN SELECT key FROM notes WHERE \"left\"(key, 200) ^@ 'account.grant.anna.'")
    assert "notes_key" in str(plan)


async def test_tokens_come_in_the_order_of_their_making(shelf: Shelf) -> None:
    library = shelf.library()
    tokens = [Token(name, "", at) for name, at in (("b", 2), ("Z", 1), ("a", 1), ("ä", 1))]
    for token in tokens:
        await library.add_token(token, f"hash of {token.id}")
    assert [token.id for token in await shelf.library().list_tokens()] == ["Z", "a", "ä", "b"]
    with pytest.raises(Conflict) as caught:
        await library.add_token(Token("a", "again", 3), "another hash")
    assert caught.value.facts["id"] == "a"
