import pytest

from everkept.accounts.accounts import Accounts
from everkept.accounts.grants import TOKEN_NOTES, create_token, get_token_kind, revoke_token
from everkept.core.times import read_clock
from everkept.engines.memory.library import MemoryLibrary
from everkept.errors import NotFound


async def test_a_secret_tells_of_what_kind_it_is() -> None:
    library = MemoryLibrary()
    accounts = Accounts(library, read_clock)
    _, owners = await create_token(library, "", read_clock)
    _, annas = await accounts.create_token("anna", "")
    _, peers = await accounts.create_token("berlin", "", peer=True)
    kinds = [get_token_kind(secret) for secret in (owners, annas, peers, "else")]
    assert kinds == ["owner", "account", "peer", "owner"]


async def test_a_revocation_that_was_cut_short_is_finished() -> None:
    library = MemoryLibrary()
    token, _ = await Accounts(library, read_clock).create_token("anna", "")
    await library.remove_token(token.id)
    await revoke_token(library, token.id)
    assert await library.list_notes(TOKEN_NOTES) == {}
    with pytest.raises(NotFound):
        await revoke_token(library, token.id)


async def test_notes_that_cannot_be_read_are_in_nobodys_way() -> None:
    library = MemoryLibrary()
    token, _ = await create_token(library, "", read_clock)
    for number, nonsense in enumerate(("nonsense", "[]", "{}", "7")):
        await library.set_note(f"{TOKEN_NOTES}{number}", nonsense)
    await revoke_token(library, token.id)
    assert await library.list_tokens() == []
