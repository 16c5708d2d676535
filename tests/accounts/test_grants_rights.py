from accounts import account_called
from everkept.accounts.account_library import GuardedLibrary
from everkept.accounts.accounts import Accounts
from everkept.accounts.grants import read_rights
from everkept.core.sessions import Account, act_as
from everkept.engines.memory.library import MemoryLibrary


async def test_they_are_what_an_account_is_granted_by_now() -> None:
    library = MemoryLibrary(lambda: 7)
    accounts = Accounts(library, lambda: 7)
    assert await read_rights(library, "anna") is None
    await accounts.create_token("anna", "")
    read, write, lost = [await library.create(name, "") for name in ("read", "write", "lost")]
    await accounts.grant("anna", read, "read")
    await accounts.grant("anna", write, "write")
    await accounts.grant("anna", lost, "write")
    await accounts.revoke("anna", lost)
    with act_as(Account("anna")):
        own = await GuardedLibrary(library, lambda: 7).create("own", "")
    rights = await read_rights(library, "anna")
    assert rights is not None
    assert rights.account == await account_called(library, "anna")
    assert rights.writes == {write.id, own.id}
    assert rights.owns == {own.id}
    await accounts.remove_user("anna")
    assert await read_rights(library, "anna") is None


async def test_another_server_has_none() -> None:
    library = MemoryLibrary()
    await Accounts(library, lambda: 7).create_token("berlin", "", peer=True)
    assert await read_rights(library, "berlin") is None
