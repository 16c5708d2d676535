import json
from pathlib import Path
from typing import Any

import pytest

from accounts import without_id
from everkept.accounts.account_library import GuardedLibrary, format_private_name
from everkept.accounts.accounts import (
    CLOCK_SKEW_MICROSECONDS,
    TRUST_MICROSECONDS,
    UNKNOWN_ACCOUNT,
    Accounts,
    UnknownAccount,
)
from everkept.accounts.grants import TOKEN_NOTES, build_grant_key, create_token, hash_secret, read_rights, revoke_token
from everkept.core.answers import SearchRecord
from everkept.core.ports import Token
from everkept.core.sessions import USER_NOTE_PREFIX, Account, act_as, format_session_prefix
from everkept.core.times import read_clock
from everkept.engines.memory.library import MemoryLibrary
from everkept.errors import Conflict, InvalidInput, NotFound, Refused, StoreUnreachable
from records import DAY_ONE, batch, entity
from standby import standing_by


@pytest.fixture
def library() -> MemoryLibrary:
    return MemoryLibrary()


@pytest.fixture
def accounts(library: MemoryLibrary) -> Accounts:
    return Accounts(library, read_clock)


async def test_a_token_is_an_accounts_the_owners_or_unknown(library: MemoryLibrary, accounts: Accounts) -> None:
    _, owners = await create_token(library, "", read_clock)
    _, annas = await accounts.create_token("Anna", "laptop")
    _, peers = await accounts.create_token("berlin", "", peer=True)
    assert await accounts.find_account(hash_secret(owners)) is None
    assert without_id(await accounts.find_account(hash_secret(annas))) == Account("anna")
    assert without_id(await accounts.find_account(hash_secret(peers))) == Account("berlin", is_peer=True)
    assert await accounts.find_account(hash_secret("evk_else")) is UNKNOWN_ACCOUNT


async def test_a_revoked_token_is_unknown_and_leaves_no_note(library: MemoryLibrary, accounts: Accounts) -> None:
    kept, _ = await accounts.create_token("anna", "")
    token, secret = await accounts.create_token("anna", "")
    await revoke_token(library, token.id)
    assert await accounts.find_account(hash_secret(secret)) is UNKNOWN_ACCOUNT
    assert [user.name for user in (await accounts.map_token_users()).values()] == ["anna"]
    assert list(await accounts.map_token_users()) == [kept.id]


async def test_a_token_that_was_cut_short_lets_nobody_in() -> None:
    class Fails(MemoryLibrary):
        async def add_token(self, token: Token, secret_hash: str) -> None:
            raise StoreUnreachable("gone")

    library = Fails()
    with pytest.raises(StoreUnreachable):
        await Accounts(library, read_clock).create_token("anna", "")
    [key] = await library.list_notes(TOKEN_NOTES)
    assert await Accounts(library, read_clock).find_account(key.removeprefix(TOKEN_NOTES)) is UNKNOWN_ACCOUNT


async def test_a_token_that_is_being_revoked_is_never_the_owners() -> None:
    """Whichever step of it another server sees."""

    class Watched(MemoryLibrary):
        seen: list[Account | UnknownAccount | None]
        secret_hash = ""

        async def set_note(self, key: str, value: str | None) -> None:
            if self.secret_hash:
                self.seen.append(await Accounts(self, read_clock).find_account(self.secret_hash))
            await super().set_note(key, value)

    library = Watched()
    library.seen = []
    accounts = Accounts(library, read_clock)
    token, secret = await accounts.create_token("anna", "")
    library.secret_hash = hash_secret(secret)
    await revoke_token(library, token.id)
    assert library.seen == [UNKNOWN_ACCOUNT]


async def test_a_note_that_arrives_between_two_looks_counts() -> None:
    """A copy of a database takes notes and tokens over while somebody asks."""

    class Arriving(MemoryLibrary):
        later: dict[str, str]

        async def has_token(self, secret_hash: str) -> bool:
            known = await super().has_token(secret_hash)
            for key, value in self.later.items():
                await self.set_note(key, value)
            return known

    library = Arriving()
    library.later = {}
    _, secret = await Accounts(library, read_clock).create_token("anna", "")
    key = TOKEN_NOTES + hash_secret(secret)
    library.later = {key: await library.get_note(key) or ""}
    await library.set_note(key, None)
    assert without_id(await Accounts(library, read_clock).find_account(hash_secret(secret))) == Account("anna")


async def test_a_note_that_cannot_be_read_lets_nobody_in(library: MemoryLibrary, accounts: Accounts) -> None:
    _, secret = await accounts.create_token("anna", "")
    for nonsense in ("", "nonsense", "[]", "{}"):
        await library.set_note(TOKEN_NOTES + hash_secret(secret), nonsense)
        assert await accounts.find_account(hash_secret(secret)) is UNKNOWN_ACCOUNT


async def test_a_name_is_a_persons_or_another_servers(accounts: Accounts) -> None:
    await accounts.create_token("anna", "")
    with pytest.raises(Conflict, match="already exists for a person"):
        await accounts.create_token("anna", "", peer=True)
    assert [(user.name, user.is_peer) for user in await accounts.list_users()] == [("anna", False)]


@pytest.mark.parametrize("given", [{"user": "an na", "label": ""}, {"user": "x", "label": "\n"}])
async def test_bad_names_and_labels_make_nothing(
    library: MemoryLibrary, accounts: Accounts, given: dict[str, Any]
) -> None:
    with pytest.raises(InvalidInput):
        await accounts.create_token(**given)
    assert await library.list_tokens() == []
    assert await library.list_notes("account.") == {}


async def test_a_grant_can_be_changed_and_revoked(library: MemoryLibrary, accounts: Accounts) -> None:
    shop = await library.create("shop", "")
    await accounts.create_token("anna", "")
    first = await accounts.grant("anna", shop, "read")
    second = await accounts.grant("ANNA", shop, "write")
    assert [g.access for g in await accounts.list_user_grants("anna")] == ["write"]
    assert (first.at, first.name) == (second.at, second.name)
    assert await accounts.revoke("anna", shop) == "anna"
    assert await accounts.list_grants() == []
    with pytest.raises(NotFound, match='"anna" has no access'):
        await accounts.revoke("anna", shop)


async def test_grants_of_users_with_like_names_stay_apart(library: MemoryLibrary, accounts: Accounts) -> None:
    for name in ("a", "a.b"):
        await accounts.create_token(name, "")
    await accounts.grant("a.b", await library.create("shop", ""), "read")
    assert await accounts.list_user_grants("a") == []


async def test_what_makes_no_sense_is_not_granted(library: MemoryLibrary, accounts: Accounts) -> None:
    shop = await library.create("shop", "")
    home = await library.create(format_private_name("user", "bob"), "")
    await accounts.create_token("berlin", "", peer=True)
    await accounts.create_token("anna", "")
    with pytest.raises(NotFound, match='User "bob" not found'):
        await accounts.grant("bob", shop, "read")
    with pytest.raises(Refused, match="peers cannot write"):
        await accounts.grant("berlin", shop, "write")
    with pytest.raises(NotFound, match="Project"):
        await accounts.grant("anna", home, "read")
    assert await accounts.list_grants() == []


async def test_a_removed_user_leaves_nothing_of_its_own(library: MemoryLibrary, accounts: Accounts) -> None:
    shop = await library.create("shop", "")
    _, secret = await accounts.create_token("anna", "")
    _, other = await accounts.create_token("bob", "")
    for name in ("anna", "bob"):
        await accounts.grant(name, shop, "read")
        await library.create(format_private_name("user", name), "")
        _, store = await library.open(format_private_name("user", name))
        await store.commit(batch(entity(name)))
    await accounts.remove_user("anna")
    assert await accounts.find_account(hash_secret(secret)) is UNKNOWN_ACCOUNT
    assert without_id(await accounts.find_account(hash_secret(other))) == Account("bob")
    assert [grant.user for grant in await accounts.list_grants()] == ["bob"]
    assert [p.name for p in await library.list_projects()] == [format_private_name("user", "bob"), "shop"]
    assert not [key for key in await library.list_notes("account.") if "anna" in key]
    with pytest.raises(NotFound):
        await accounts.remove_user("anna")


async def test_a_secret_of_an_account_without_its_note_lets_nobody_in(
    library: MemoryLibrary, accounts: Accounts
) -> None:
    _, owners = await create_token(library, "", read_clock)
    _, annas = await accounts.create_token("anna", "")
    _, peers = await accounts.create_token("berlin", "", peer=True)
    assert without_id(await accounts.authenticate(annas)) == Account("anna")
    assert without_id(await accounts.authenticate(peers)) == Account("berlin", is_peer=True)
    for key in await library.list_notes(TOKEN_NOTES):
        await library.set_note(key, None)
    assert await accounts.authenticate(annas) is UNKNOWN_ACCOUNT
    assert await accounts.authenticate(peers) is UNKNOWN_ACCOUNT
    assert await accounts.authenticate(owners) is None


async def test_an_accounts_token_of_the_older_form_is_the_accounts(library: MemoryLibrary, accounts: Accounts) -> None:
    token, secret = await create_token(library, "", read_clock)
    note = json.dumps({"user": "anna", "token": token.id, "peer": False})
    await library.set_note(TOKEN_NOTES + hash_secret(secret), note)
    await library.set_note(USER_NOTE_PREFIX + "anna", json.dumps({"created_at": 7, "peer": False}))
    assert without_id(await accounts.authenticate(secret)) == Account("anna")


async def test_a_name_that_was_known_never_becomes_that_of_another_project(
    library: MemoryLibrary, accounts: Accounts
) -> None:
    await accounts.create_token("anna", "")
    shop = await library.create("shop", "")
    assert (await accounts.grant("anna", shop, "read")).name == "shop"
    await accounts.revoke("anna", shop)
    await library.delete("shop")
    another = await library.create("shop", "")
    assert (await accounts.grant("anna", another, "read")).name == "shop (2)"
    await accounts.revoke("anna", another)
    assert (await accounts.grant("anna", another, "write")).name == "shop (2)"


async def test_an_own_project_is_not_taken_away(library: MemoryLibrary, accounts: Accounts) -> None:
    await accounts.create_token("anna", "")
    with act_as(Account("anna")):
        await GuardedLibrary(library, read_clock).create("shop", "")
    with pytest.raises(Refused, match="belongs to anna"):
        await accounts.revoke("anna", await library.get_project("shop (anna)"))
    assert [grant.access for grant in await accounts.list_grants()] == ["own"]


async def test_a_removal_that_was_cut_short_is_finished(library: MemoryLibrary, accounts: Accounts) -> None:
    token, secret = await accounts.create_token("anna", "")
    await library.remove_token(token.id)
    await library.set_note(build_grant_key("anna", "x"), "nonsense")
    await accounts.remove_user("anna")
    assert await library.list_notes("account.") == {}
    assert await accounts.authenticate(secret) is UNKNOWN_ACCOUNT


async def test_notes_about_users_that_cannot_be_read_are_in_nobodys_way(
    library: MemoryLibrary, accounts: Accounts
) -> None:
    await library.set_note(USER_NOTE_PREFIX + "anna", '{"created_at": "x"}')
    await library.set_note(TOKEN_NOTES + "hash", "{}")
    await library.set_note(build_grant_key("anna", "x"), '{"access": "read", "at": "y"}')
    assert [(user.name, user.created_at) for user in await accounts.list_users()] == [("anna", 0)]
    assert await accounts.map_token_users() == {}
    assert [grant.at for grant in await accounts.list_user_grants("anna")] == [0]


async def test_what_a_removed_user_asked_is_forgotten(library: MemoryLibrary, accounts: Accounts) -> None:
    await accounts.create_token("anna", "")
    whose = (None, format_session_prefix("anna") + "s1", format_session_prefix("anna.b"), "s2")
    asked = [SearchRecord(at, "tool", f"q{at}", 0, 1.0, session) for at, session in enumerate(whose)]
    await library.add_searches(asked)
    before = await library.list_searches()
    await accounts.remove_user("anna")
    assert await library.list_searches() == [search for search in before if search.query != "q1"]


async def test_a_copy_is_believed_about_accounts_for_a_day(tmp_path: Path) -> None:
    at = DAY_ONE
    async with standing_by(tmp_path, clock=lambda: at) as standing:
        accounts = Accounts(standing.library, lambda: at)
        _, owners = await create_token(standing.library, "", read_clock)
        _, annas = await accounts.create_token("anna", "")
        _, peers = await accounts.create_token("berlin", "", peer=True)
        await standing.followed()
        at += 10 * TRUST_MICROSECONDS
        assert without_id(await accounts.authenticate(annas)) == Account("anna")  # the database itself says so
        at = DAY_ONE + TRUST_MICROSECONDS
        await standing.goes()
        assert without_id(await accounts.authenticate(annas)) == Account("anna")
        at += 1
        for secret in (annas, peers):
            with pytest.raises(StoreUnreachable, match="Cannot check this token") as error:
                await accounts.authenticate(secret)
            assert "line" not in str(error.value)  # nor where the database is
        assert await accounts.authenticate(owners) is None
        assert await accounts.authenticate("evku_else") is UNKNOWN_ACCOUNT
        await standing.returns()
        assert without_id(await accounts.authenticate(annas)) == Account("anna")


async def test_of_what_a_copy_lacks_nobody_is_told_that_there_is_none(tmp_path: Path) -> None:
    async with standing_by(tmp_path) as standing:
        accounts = Accounts(standing.library, read_clock)
        await standing.goes()
        for asked in (
            accounts.look_up(standing.library.get_project("shop")),
            accounts.get_user("anna"),
            accounts.remove_user("anna"),
        ):
            with pytest.raises(StoreUnreachable, match="The line is cut") as error:
                await asked
            assert "Accounts and grants cannot change" in str(error.value)
        await standing.returns()
        with pytest.raises(NotFound):
            await accounts.look_up(standing.library.get_project("shop"))


async def test_a_grant_that_only_the_database_may_have_is_not_said_to_be_missing(tmp_path: Path) -> None:
    async with standing_by(tmp_path) as standing:
        accounts = Accounts(standing.library, read_clock)
        shop = await standing.library.create("shop", "")
        await accounts.create_token("anna", "")
        await standing.followed()
        await standing.goes()
        with pytest.raises(StoreUnreachable):
            await accounts.revoke("anna", shop)


async def test_a_token_is_that_of_one_account_and_no_namesake(library: MemoryLibrary, accounts: Accounts) -> None:
    _, secret = await accounts.create_token("anna", "")
    await library.set_note(USER_NOTE_PREFIX + "anna", None)  # as a token that is made during a removal
    assert await accounts.authenticate(secret) is UNKNOWN_ACCOUNT
    _, another = await accounts.create_token("anna", "")
    assert await accounts.authenticate(secret) is UNKNOWN_ACCOUNT
    assert without_id(await accounts.authenticate(another)) == Account("anna")


async def test_whoever_is_being_removed_comes_in_no_more_until_the_removal_is_finished() -> None:
    class Fails(MemoryLibrary):
        fails = True

        async def remove_token(self, token_id: str) -> bool:
            if self.fails:
                raise StoreUnreachable("gone")
            return await super().remove_token(token_id)

    library = Fails()
    accounts = Accounts(library, read_clock)
    _, secret = await accounts.create_token("anna", "")
    with pytest.raises(StoreUnreachable):
        await accounts.remove_user("anna")
    assert await accounts.authenticate(secret) is UNKNOWN_ACCOUNT
    assert await read_rights(library, "anna") is None
    for change in (accounts.create_token("anna", ""), accounts.grant("anna", await library.create("shop", ""), "read")):
        with pytest.raises(Conflict, match="is being removed") as error:
            await change
        assert "everkept account remove anna" in str(error.value.hint)
    library.fails = False
    await accounts.remove_user("anna")
    assert await library.list_notes("account.") == {}
    _, another = await accounts.create_token("anna", "")
    assert without_id(await accounts.authenticate(another)) == Account("anna")


async def test_who_gets_a_name_finds_nothing_that_came_after_the_removal_of_another(
    library: MemoryLibrary, accounts: Accounts
) -> None:
    await accounts.create_token("anna", "")
    await accounts.remove_user("anna")
    shop = await library.create("shop", "")
    for home in ("user", "history"):
        await library.create(format_private_name(home, "anna"), "")
    await library.set_note(build_grant_key("anna", shop.id), '{"access": "write", "name": "shop"}')
    await accounts.create_token("anna", "")
    assert [project.name for project in await library.list_projects()] == ["shop"]
    assert await accounts.list_grants() == []
    await library.create(format_private_name("user", "anna"), "")
    await accounts.create_token("anna", "")  # another of the same account
    assert len(await library.list_projects()) == 2


async def test_a_copy_that_seems_to_be_of_tomorrow_is_not_believed(tmp_path: Path) -> None:
    at = DAY_ONE
    async with standing_by(tmp_path, clock=lambda: at) as standing:
        accounts = Accounts(standing.library, lambda: at)
        _, secret = await accounts.create_token("anna", "")
        await standing.followed()
        await standing.goes()
        at = DAY_ONE - CLOCK_SKEW_MICROSECONDS
        assert without_id(await accounts.authenticate(secret)) == Account("anna")
        at -= 1
        with pytest.raises(StoreUnreachable, match="Cannot check this token"):
            await accounts.authenticate(secret)
