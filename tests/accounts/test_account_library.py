import asyncio
from collections.abc import Awaitable
from functools import partial
from pathlib import Path

import pytest

from everkept.accounts.account_library import GuardedLibrary, format_private_name
from everkept.accounts.accounts import Accounts
from everkept.core.library import Condition
from everkept.core.ports import Library
from everkept.core.projects import Project, Status
from everkept.core.records import RecordFilter
from everkept.core.sessions import Account, act_as
from everkept.core.times import read_clock
from everkept.engines.memory.library import MemoryLibrary
from everkept.errors import Conflict, EverkeptError, InvalidInput, NotFound, ProjectArchived, ReadOnly, Refused
from records import batch, entity, record_ref
from standby import PATIENCE, standing_by

ANNA, BOB, BERLIN = Account("anna"), Account("bob"), Account("berlin", is_peer=True)


@pytest.fixture
async def library(library: Library) -> Library:
    for user in (ANNA, BOB, BERLIN):
        await Accounts(library, read_clock).create_token(user.name, "", peer=user.is_peer)
    return library


@pytest.fixture
def guarded(library: Library) -> GuardedLibrary:
    return GuardedLibrary(library, read_clock)


async def granted(library: Library, name: str, user: Account, access: str) -> None:
    project = next((p for p in await library.list_projects() if p.name == name), None)
    project = project or await library.create(name, "")
    await Accounts(library, read_clock).grant(user.name, project, "write" if access == "write" else "read")


async def names(guarded: Library, account: Account | None) -> list[str]:
    with act_as(account):
        return [project.name for project in await guarded.list_projects()]


async def said_of(work: Awaitable[object]) -> tuple[str, object]:
    with pytest.raises(EverkeptError) as error:
        await work
    return type(error.value).__name__, error.value.to_envelope()


async def test_an_account_sees_what_it_is_granted_and_the_owner_everything(
    library: Library, guarded: GuardedLibrary
) -> None:
    await library.create("secret", "")
    await granted(library, "shop", ANNA, "read")
    assert await names(guarded, ANNA) == ["shop"]
    assert await names(guarded, BOB) == []
    assert await names(guarded, None) == ["secret", "shop"]


async def test_a_revoked_project_is_gone_at_the_next_call(library: Library, guarded: GuardedLibrary) -> None:
    await granted(library, "shop", ANNA, "write")
    with act_as(ANNA):
        await guarded.open("shop")
        await Accounts(library, read_clock).revoke("anna", await library.get_project("shop"))
        with pytest.raises(NotFound):
            await guarded.open("shop")


async def test_a_hidden_project_and_none_at_all_are_told_by_the_same_words(
    library: Library, guarded: GuardedLibrary
) -> None:
    await library.create("secret", "")
    for ask in (
        guarded.get_project,
        guarded.open,
        guarded.archive,
        guarded.restore,
        guarded.delete,
        partial(guarded.set_off, off=True),
    ):
        with act_as(ANNA):
            hidden = await said_of(ask("secret"))
            absent = await said_of(ask("absent"))
        assert str(hidden).replace("secret", "absent") == str(absent)
    assert (await library.get_project("secret")).status == "active"


async def test_a_name_that_a_hidden_project_has_is_free(library: Library, guarded: GuardedLibrary) -> None:
    for taken in ("shop", "shop (anna)", "shop (anna 2)"):
        await library.create(taken, "")
    with act_as(ANNA):
        made = await guarded.create("shop", "mine")
        assert (made.name, made.description) == ("shop", "mine")
        with pytest.raises(Conflict, match='Project "shop" already exists'):
            await guarded.create("shop", "")
    assert await names(guarded, ANNA) == ["shop"]
    assert await names(guarded, BOB) == []


async def test_a_long_name_can_be_had_too(library: Library, guarded: GuardedLibrary) -> None:
    with act_as(ANNA):
        for last in "ab":
            await guarded.create("x" * 99 + last, "")
    assert await names(guarded, ANNA) == ["x" * 99 + "a", "x" * 99 + "b"]


async def test_of_two_who_make_the_same_at_once_one_does(library: Library, guarded: GuardedLibrary) -> None:
    other = GuardedLibrary(library, read_clock)
    with act_as(ANNA):
        made = await asyncio.gather(*(each.create("shop", "") for each in (guarded, other)), return_exceptions=True)
    assert sorted(type(each).__name__ for each in made) == ["Project", "ProjectExists"]
    assert await names(guarded, ANNA) == ["shop"]
    assert len(await Accounts(library, read_clock).list_user_grants("anna")) == 1


async def test_an_own_project_can_be_put_away_brought_back_and_deleted(
    library: Library, guarded: GuardedLibrary
) -> None:
    with act_as(ANNA):
        await guarded.create("shop", "")
        assert (await guarded.archive("shop")).name == "shop"
        assert (await guarded.get_project("shop")).status == "archived"
        with pytest.raises(ProjectArchived, match=r'^Project "shop" is archived'):
            await guarded.open("shop")
        with pytest.raises(Conflict, match=r'^Project "shop" is already archived'):
            await guarded.archive("shop")
        assert (await guarded.restore("shop")).status == "active"
        assert (await guarded.set_off("shop", off=True)).is_off
        await guarded.delete("shop")
    assert await library.list_projects() == []
    assert await Accounts(library, read_clock).list_grants() == []


async def test_only_what_is_ones_own_is_put_away(library: Library, guarded: GuardedLibrary) -> None:
    await granted(library, "shop", ANNA, "write")
    with act_as(ANNA):
        for ask in (guarded.archive, guarded.delete, partial(guarded.set_off, off=True)):
            with pytest.raises(Refused, match="is shared with you"):
                await ask("shop")
    assert [p.status for p in await library.list_projects()] == ["active"]


async def test_a_project_that_is_deleted_takes_its_grants_along(library: Library, guarded: GuardedLibrary) -> None:
    await granted(library, "shop", ANNA, "read")
    await guarded.delete("shop")
    assert await Accounts(library, read_clock).list_grants() == []


async def test_who_may_read_writes_nothing(library: Library, guarded: GuardedLibrary) -> None:
    await granted(library, "shop", ANNA, "read")
    await granted(library, "blog", BERLIN, "read")
    _, kept = await library.open("shop")
    await kept.commit(batch(entity("Ada")))
    with act_as(ANNA):
        _, store = await guarded.open("shop")
        assert [record.id for record in await store.scan(RecordFilter())] == ["Ada"]
        for write in (
            lambda: store.commit(batch(entity("Bea"))),
            lambda: store.purge([record_ref("Ada")]),
            lambda: store.redact([record_ref("Ada")], lambda _, values: values),
        ):
            with pytest.raises(ReadOnly):
                await write()
        await store.note_accesses({"Ada": 2}, 5)
    assert (await kept.get_accesses(["Ada"]))["Ada"].count == 2
    assert await kept.get_revision() == 1


async def test_a_peer_writes_nothing_whatever_it_is_granted(library: Library, guarded: GuardedLibrary) -> None:
    await granted(library, "shop", BERLIN, "read")
    await granted(library, "shop", ANNA, "write")
    with act_as(Account("anna", is_peer=True)):
        _, store = await guarded.open("shop")
        with pytest.raises(ReadOnly):
            await store.commit(batch(entity("Bea")))
        with pytest.raises(ReadOnly):
            await guarded.create("own", "")
    with act_as(BERLIN):
        assert await (await guarded.open_user_store()).scan(RecordFilter()) == []


async def test_who_may_write_signs_what_is_written(library: Library, guarded: GuardedLibrary) -> None:
    await granted(library, "shop", ANNA, "write")
    with act_as(ANNA):
        _, store = await guarded.open("shop")
        await store.commit(batch(entity("Ada"), client="editor 1"))
    _, kept = await library.open("shop")
    assert [change.client for change in await kept.read_changes()] == ["anna (editor 1)"]


async def test_a_store_is_the_same_object_each_time(library: Library, guarded: GuardedLibrary) -> None:
    await granted(library, "shop", ANNA, "read")
    await granted(library, "shop", BOB, "write")
    with act_as(ANNA):
        first, again = (await guarded.open("shop"))[1], (await guarded.open("shop"))[1]
        assert await guarded.open_user_store() is await guarded.open_user_store()
    with act_as(BOB):
        assert (await guarded.open("shop"))[1] is not first
    assert first is again


async def test_everybody_has_a_home_that_is_made_at_the_first_write(library: Library, guarded: GuardedLibrary) -> None:
    for account in (ANNA, BOB):
        with act_as(account):
            for home in (await guarded.open_user_store(), await guarded.open_history_store()):
                assert (await home.scan(RecordFilter()), await home.get_revision()) == ([], 0)
    assert await library.list_projects() == []
    with act_as(ANNA):
        await (await guarded.open_user_store()).commit(batch(entity("Ada")))
        assert [r.id for r in await (await guarded.open_user_store()).scan(RecordFilter())] == ["Ada"]
    with act_as(BOB):
        assert await (await guarded.open_user_store()).scan(RecordFilter()) == []
    assert await (await guarded.open_user_store()).scan(RecordFilter()) == []


async def test_nobody_lists_opens_or_makes_a_home_by_its_name(library: Library, guarded: GuardedLibrary) -> None:
    home = format_private_name("user", "anna")
    with act_as(ANNA):
        await (await guarded.open_user_store()).commit(batch(entity("Ada")))
    for account in (None, ANNA, BOB):
        assert await names(guarded, account) == []
        with act_as(account):
            for ask in (guarded.get_project, guarded.open, guarded.delete):
                with pytest.raises(NotFound):
                    await ask(home)
            for name in (home, format_private_name("history", "nobody"), "@history"):
                with pytest.raises(InvalidInput, match="is reserved"):
                    await guarded.create(name, "")
    assert [project.name for project in await library.list_projects()] == [home]


async def test_no_name_that_an_account_chooses_becomes_a_home(library: Library, guarded: GuardedLibrary) -> None:
    with act_as(ANNA):
        for name in ("@user (bob)x", "@user" + " " * 90 + "x", "@history  "[:9] + "x"):
            await guarded.create(name, "")
    assert len(await names(guarded, None)) == 3


async def test_a_folder_has_a_project_for_each_account(library: Library, guarded: GuardedLibrary) -> None:
    owners = await library.create("shop", "")
    await library.link_workspace("/srv/shop", owners)
    with act_as(ANNA):
        assert await guarded.find_workspace_project("/srv/shop") is None
        made = await guarded.create("shop", "")
        assert (await guarded.link_workspace("/srv/shop", made)).id == made.id
        found = await guarded.find_workspace_project("/srv/shop")
        assert found is not None
        assert (found.id, found.name) == (made.id, "shop")
    with act_as(BOB):
        assert await guarded.find_workspace_project("/srv/shop") is None
    await granted(library, "shop", BOB, "read")
    with act_as(BOB):
        found = await guarded.find_workspace_project("/srv/shop")
        assert found is not None
        assert found.id == owners.id


async def test_what_is_the_owners_is_refused_to_accounts(library: Library, guarded: GuardedLibrary) -> None:
    project = await library.create("shop", "")
    with act_as(ANNA):
        for ask in (
            lambda: guarded.get_note("lease.vectors"),
            lambda: guarded.set_note("x", "y"),
            lambda: guarded.list_notes("account."),
            guarded.list_searches,
            guarded.forget_searches,
            lambda: guarded.add_searches([]),
            guarded.list_usage,
            lambda: guarded.add_usage([]),
            guarded.list_tokens,
            lambda: guarded.remove_token("x"),
            lambda: guarded.has_token("x"),
            guarded.read_catalog_data,
            lambda: guarded.get_store(project),
            lambda: guarded.list_workspaces(project),
        ):
            with pytest.raises(Refused, match="Only the server's owner"):
                await ask()
        assert await guarded.list_off_periods() == []
    assert len(await guarded.list_tokens()) == 3


def test_an_account_is_not_told_where_everything_is_or_what_waits() -> None:
    whole = Condition("surreal", "remote", "degraded", "2.3", "ws://db:8000", since=7, reason="no", waiting=4)
    guarded = GuardedLibrary(MemoryLibrary(condition=whole), read_clock)
    assert guarded.condition == whole
    with act_as(ANNA):
        assert guarded.condition == Condition("surreal", "remote", "degraded", "2.3", since=7)


async def test_a_name_stays_that_of_its_project_when_another_is_deleted(
    library: Library, guarded: GuardedLibrary
) -> None:
    with act_as(ANNA):
        await guarded.create("shop", "")
    await granted(library, "shop", ANNA, "write")
    assert await names(guarded, ANNA) == ["shop", "shop (2)"]
    with act_as(ANNA):
        await guarded.delete("shop")
        with pytest.raises(NotFound):
            await guarded.open("shop")
        assert (await guarded.open("shop (2)"))[0].name == "shop (2)"
        await guarded.create("shop", "")
        await guarded.delete("shop")
    assert await names(guarded, ANNA) == ["shop (2)"]
    ended = [v for v in (await library.list_notes("account.grant.anna/")).values() if "none" in v]
    assert len(ended) == 1


async def test_a_workspace_of_a_former_user_of_that_name_is_replaced(library: Library, guarded: GuardedLibrary) -> None:
    with act_as(ANNA):
        first = await guarded.create("shop", "")
        await guarded.link_workspace("/srv/shop", first)
    accounts = Accounts(library, read_clock)
    await accounts.remove_user("anna")
    await accounts.create_token("anna", "")
    with act_as(ANNA):
        assert await guarded.find_workspace_project("/srv/shop") is None
        second = await guarded.create("shop", "")
        assert (await guarded.link_workspace("/srv/shop", second)).id == second.id
        third = await guarded.create("other", "")
        assert (await guarded.link_workspace("/srv/shop", third)).id == second.id
        found = await guarded.find_workspace_project("/srv/shop")
    assert found is not None
    assert found.id == second.id
    assert await guarded.list_workspaces(await guarded.get_project("shop (anna 2)")) == []


async def test_a_call_looks_at_what_it_names_and_not_at_all_projects() -> None:
    class Counting(MemoryLibrary):
        listings = 0

        async def list_projects(self, status: Status | None = None) -> list[Project]:
            self.listings += 1
            return await super().list_projects(status)

    library = Counting()
    guarded = GuardedLibrary(library, read_clock)
    await Accounts(library, read_clock).create_token("anna", "")
    await granted(library, "shop", ANNA, "write")
    await library.link_workspace("/srv/shop", await library.get_project("shop"))
    with act_as(ANNA):
        await guarded.open("shop")
        library.listings = 0
        await guarded.open("shop")
        assert await guarded.find_workspace_project("/srv/shop") is not None
        assert library.listings == 0
    await guarded.delete("shop")
    await library.create("shop", "")
    with act_as(ANNA), pytest.raises(NotFound):
        await guarded.open("shop")


async def test_while_the_database_is_away_an_account_makes_no_project_and_is_told_so(tmp_path: Path) -> None:
    async with standing_by(tmp_path) as standing:
        await Accounts(standing.library, read_clock).create_token("anna", "")
        await standing.followed()
        await standing.goes()
        guarded = GuardedLibrary(standing.library, read_clock)
        with act_as(ANNA):
            with pytest.raises(Refused, match="Cannot create a project while") as error:
                await guarded.create("website", "")
            assert (error.value.retry_possible, error.value.degraded) == (True, True)
            await (await guarded.open_user_store()).commit(batch(entity("Ada")))
            assert len(await (await guarded.open_user_store()).scan(RecordFilter())) == 1


async def test_a_project_whose_making_got_no_answer_is_made_once_by_the_next_try(tmp_path: Path) -> None:
    async with standing_by(tmp_path) as standing:
        accounts = Accounts(standing.library, read_clock)
        await accounts.create_token("anna", "")
        await standing.followed()
        guarded = GuardedLibrary(standing.library, read_clock)
        standing.line.breaks_in("WriteNote")
        with act_as(ANNA):
            with pytest.raises(Refused, match="Cannot create a project while") as error:
                await standing.time.rushes(guarded.create("website", ""), PATIENCE)
            assert "Nothing was stored" not in str(error.value)
            await standing.returns()
            made = await guarded.create("website", "")
        [grant] = await accounts.list_grants()
        assert (grant.project_id, grant.access, grant.name) == (made.id, "own", "website")
