import pytest

from everkept.accounts.accounts import Accounts
from everkept.accounts.grants import WHOSE, create_token, kind_of, revoke_token
from everkept.core.times import now
from everkept.engines.memory.library import MemoryLibrary
from everkept.errors import NotFound


async def test_a_secret_tells_of_what_kind_it_is() -> None:
    library = MemoryLibrary()
    accounts = Accounts(library, now)
    _, owners = await create_token(library, "", now)
    _, annas = await accounts.create_token("anna", "")
    _, peers = await accounts.create_token("berlin", "", peer=True)
    kinds = [kind_of(secret) for secret in (owners, annas, peers, "else")]
    assert kinds == ["owner", "account", "peer", "owner"]


async def test_a_revocation_that_was_cut_short_is_finished() -> None:
    library = MemoryLibrary()
    token, _ = await Accounts(library, now).create_token("anna", "")
    await library.remove_token(token.id)
    await revoke_token(library, token.id)
    assert await library.notes(WHOSE) == {}
    with pytest.raises(NotFound):
        await revoke_token(library, token.id)


async def test_notes_that_cannot_be_read_are_in_nobodys_way() -> None:
    library = MemoryLibrary()
    token, _ = await create_token(library, "", now)
    for number, nonsense in enumerate(("nonsense", "[]", "{}", "7")):
        await library.set_note(f"{WHOSE}{number}", nonsense)
    await revoke_token(library, token.id)
    assert await library.tokens() == []
