"""What accounts wrote while the database was away, as they may write it when it is back."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from accounts import account_called
from everkept.accounts.account_library import GuardedLibrary, format_private_name
from everkept.accounts.accounts import Accounts
from everkept.accounts.grants import read_rights
from everkept.core.answers import SearchRecord
from everkept.core.projects import Project
from everkept.core.records import RecordFilter
from everkept.core.sessions import Account, act_as
from everkept.engines.memory.library import MemoryLibrary
from everkept.engines.standby.journal import Journal
from everkept.engines.standby.journal_acts import (
    HISTORY_STORE,
    USER_STORE,
    Act,
    ArchiveProject,
    AssignWorkspace,
    Commit,
    CreateProject,
    RestoreProject,
    SetNote,
    SwitchProject,
    format_store_name,
)
from everkept.engines.standby.replay import ReplayResult, replay
from everkept.errors import NotFound
from journal_replay import project
from records import DAY_ONE, batch, entity, note
from standby import Standing, standing_by


@pytest.fixture
async def standing(tmp_path: Path) -> AsyncIterator[Standing]:
    """With a project that Anna may write in, all of it copied."""
    async with standing_by(tmp_path) as standing:
        shop = await standing.library.create("shop", "")
        accounts = Accounts(standing.library, standing.clock)
        await accounts.create_token("anna", "")
        await accounts.grant("anna", shop, "write")
        await standing.followed()
        yield standing


async def in_database(standing: Standing, name: str = "shop") -> list[str]:
    return [record.id for record in await (await standing.stored(name)).scan(RecordFilter())]


async def anna(standing: Standing) -> Account:
    """As the server knows her that takes her writes."""
    return await account_called(standing.library, "anna")


async def write(standing: Standing, record_id: str, *, as_account: bool = True) -> None:
    guarded = GuardedLibrary(standing.library, standing.clock)
    with act_as(await anna(standing) if as_account else None):
        _, store = await guarded.open("shop")
        await store.commit(batch(entity(record_id), at=standing.clock()))


async def write_own(standing: Standing, record_id: str) -> None:
    with act_as(await anna(standing)):
        store = await GuardedLibrary(standing.library, standing.clock).open_user_store()
        await store.commit(batch(entity(record_id), at=standing.clock()))


def elsewhere(standing: Standing) -> Accounts:
    """Who may do what, as somebody changes it at another server."""
    return Accounts(standing.database, standing.clock)


async def reasons(standing: Standing) -> list[tuple[str | None, str]]:
    return [(each.account, each.reason) for each in await standing.journal.list_rejected()]


async def test_what_an_account_writes_that_may_still_write_it_is_brought_over(standing: Standing) -> None:
    await standing.goes()
    await write(standing, "first")
    await write_own(standing, "own")  # the first that is hers alone: its store is made for it
    await write(standing, "second")
    await standing.returns()
    assert await in_database(standing) == ["first", "second"]
    assert await in_database(standing, format_private_name("user", "anna")) == ["own"]
    assert await reasons(standing) == []


async def test_what_a_removed_account_writes_is_set_aside_and_the_rest_goes_on(standing: Standing) -> None:
    await standing.goes()
    await write(standing, "hers")
    await write(standing, "owners", as_account=False)
    await write_own(standing, "own")
    await elsewhere(standing).remove_user("anna")
    await standing.returns()
    assert await in_database(standing) == ["owners"]
    with pytest.raises(NotFound):
        await standing.database.open(format_private_name("user", "anna"))
    assert await reasons(standing) == [("anna", "Account anna was removed.")] * 3


@pytest.mark.parametrize("becomes", ["read", "none"])
async def test_what_is_written_without_a_grant_is_set_aside_until_there_is_one_again(
    standing: Standing, becomes: str
) -> None:
    await standing.goes()
    await write(standing, "hers")
    shop = await standing.database.get_project("shop")
    if becomes == "read":
        await elsewhere(standing).grant("anna", shop, "read")
    else:
        await elsewhere(standing).revoke("anna", shop)
    await standing.returns()
    assert await in_database(standing) == []
    [aside] = await standing.journal.list_rejected()
    assert "can no longer write to" in aside.reason
    await elsewhere(standing).grant("anna", shop, "write")
    await standing.journal.retry_rejected(aside.seq)
    await replay(standing.journal, standing.database, on_progress=lambda *_: None, rights_of=read_rights)
    assert await in_database(standing) == ["hers"]
    assert await reasons(standing) == []


async def test_another_account_of_the_same_name_gets_nothing_of_the_first(standing: Standing) -> None:
    await standing.goes()
    await write(standing, "hers")
    await write_own(standing, "own")
    await elsewhere(standing).remove_user("anna")
    await elsewhere(standing).create_token("anna", "")
    await elsewhere(standing).grant("anna", await standing.database.get_project("shop"), "write")
    await standing.returns()
    assert await in_database(standing) == []
    assert {"another account has its name" in reason for _, reason in await reasons(standing)} == {True}


async def test_what_a_removed_account_writes_later_is_not_its_namesakes(standing: Standing) -> None:
    here = Accounts(standing.library, standing.clock)
    _, secret = await here.create_token("anna", "phone")
    await standing.followed()
    await standing.goes()
    await elsewhere(standing).remove_user("anna")
    await elsewhere(standing).create_token("anna", "")
    await elsewhere(standing).grant("anna", await standing.database.get_project("shop"), "write")
    first = await here.authenticate(secret)  # this server has not heard of it
    assert isinstance(first, Account)
    guarded = GuardedLibrary(standing.library, standing.clock)
    with act_as(first):
        for store in ((await guarded.open("shop"))[1], await guarded.open_user_store()):
            await store.commit(batch(entity("hers"), at=standing.clock()))
    await standing.returns()
    assert await in_database(standing) == []
    with pytest.raises(NotFound):
        await standing.database.open(format_private_name("user", "anna"))
    assert {"another account has its name" in reason for _, reason in await reasons(standing)} == {True}


async def test_no_clock_decides_who_wrote_something(standing: Standing) -> None:
    ahead = Accounts(standing.library, lambda: standing.clock() + 60_000_000)
    await ahead.create_token("ben", "")
    await ahead.grant("ben", await standing.library.get_project("shop"), "write")
    await standing.followed()
    await standing.goes()
    with act_as(await account_called(standing.library, "ben")):
        _, store = await GuardedLibrary(standing.library, standing.clock).open("shop")
        await store.commit(batch(entity("bens"), at=standing.clock()))
    await standing.returns()
    assert await in_database(standing) == ["bens"]
    assert await reasons(standing) == []


class Removing(MemoryLibrary):
    """Where somebody is removed, something happens before their searches are looked at."""

    async def happens(self) -> None: ...

    async def list_searches(self, *, session: str | None = None, limit: int = 100) -> list[SearchRecord]:
        await self.happens()
        return await super().list_searches(session=session, limit=limit)


async def test_what_comes_in_the_midst_of_a_removal_is_set_aside(tmp_path: Path) -> None:
    database = Removing(lambda: DAY_ONE)
    async with standing_by(tmp_path, database) as standing:
        await Accounts(standing.library, standing.clock).create_token("anna", "")
        await standing.followed()
        await standing.goes()
        await write_own(standing, "own")
        database.happens = standing.returns
        await elsewhere(standing).remove_user("anna")
        with pytest.raises(NotFound):
            await database.open(format_private_name("user", "anna"))
        assert len(await reasons(standing)) == 2


async def test_the_reason_names_no_text_of_an_account(journal: Journal) -> None:
    library = MemoryLibrary()
    await Accounts(library, lambda: DAY_ONE).create_token("anna", "")
    home = await library.create(format_private_name("user", "anna"), "")
    orphan = Commit(format_store_name(home.id), batch(note("a private name", "an orphan")))
    anna = await account_called(library, "anna")
    await journal.append(orphan, account="anna", account_id=anna.id)
    await journal.append(Commit(USER_STORE, batch(note("the owner's name", "an orphan"))))
    await replay(journal, library, on_progress=lambda *_: None, rights_of=read_rights)
    hers, owners = [each.reason for each in await journal.list_rejected()]
    assert hers == "The database rejected it: conflict."
    assert "the owner's name" in owners


OWN = project("website (anna)", "own-id")
SHARED = project("shop", "shared-id")
ANNAS = project(format_private_name("user", "anna"), "home-id")
BENS = project(format_private_name("user", "ben"), "bens-id")


def commit(to: Project) -> Commit:
    return Commit(format_store_name(to.id), batch(entity("Ada")))


@pytest.mark.parametrize(
    ("act", "may"),
    [
        (commit(OWN), True),
        (commit(SHARED), True),
        (commit(ANNAS), True),
        (commit(BENS), False),
        (Commit(USER_STORE, batch(entity("Ada"))), False),
        (Commit(HISTORY_STORE, batch(entity("Ada"))), False),
        (ArchiveProject(OWN.id, OWN.name), True),
        (ArchiveProject(SHARED.id, SHARED.name), False),
        (RestoreProject(OWN.id, OWN.name), True),
        (SwitchProject(SHARED.id, SHARED.name, True, DAY_ONE), False),
        (SwitchProject(OWN.id, OWN.name, True, DAY_ONE), True),
        (AssignWorkspace("account:anna:/x", OWN.id), True),
        (AssignWorkspace("/x", SHARED.id), False),
        (CreateProject(project(format_private_name("history", "anna"), "new-id")), True),
        (CreateProject(project(format_private_name("history", "ben"), "new-id")), False),
        (CreateProject(project("another", "new-id")), False),
        (ArchiveProject(ANNAS.id, ANNAS.name), False),
        (SetNote("key", "value"), False),
    ],
)
async def test_an_act_needs_the_right_to_it(journal: Journal, act: Act, may: bool) -> None:
    library = MemoryLibrary(lambda: DAY_ONE)
    accounts = Accounts(library, lambda: DAY_ONE)
    await accounts.create_token("anna", "")
    for each in (OWN, SHARED, ANNAS, BENS):
        await library.create(each.name, "", project_id=each.id)
    await accounts.grant("anna", SHARED, "write")
    await library.set_note(f"account.grant.anna/{OWN.id}", '{"access": "own", "name": "website"}')
    anna = await account_called(library, "anna")
    await journal.append(act, account="anna", account_id=anna.id)
    done = await replay(journal, library, on_progress=lambda *_: None, rights_of=read_rights)
    assert done == (ReplayResult(1, 0) if may else ReplayResult(0, 1))


async def test_where_nobody_knows_of_accounts_nothing_of_them_is_made(journal: Journal) -> None:
    await journal.append(Commit(USER_STORE, batch(entity("Ada"))), account="anna")
    assert await replay(journal, MemoryLibrary(), on_progress=lambda *_: None) == ReplayResult(0, 1)


async def test_two_calls_at_once_are_each_written_by_their_own(standing: Standing) -> None:
    await standing.goes()
    await asyncio.gather(write(standing, "hers"), write(standing, "owners", as_account=False), write_own(standing, "x"))
    by_id = {
        step.item.id: entry.account
        for entry in await standing.journal.list_pending()
        if isinstance(entry.act, Commit)
        for step in entry.act.batch.steps
    }
    assert by_id == {"hers": "anna", "owners": None, "x": "anna"}
