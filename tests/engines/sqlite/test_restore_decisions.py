import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from accounts import without_id
from data_folders import backed_up, everything, filled, restored, statement
from everkept.accounts.account_library import format_private_name
from everkept.accounts.accounts import UNKNOWN_ACCOUNT, Accounts
from everkept.accounts.grants import Grant
from everkept.care.backup import restore_project
from everkept.core.ports import Token
from everkept.core.projects import OffPeriod
from everkept.core.sessions import Account
from everkept.core.times import read_clock
from everkept.engines.sqlite.care import SqliteCare
from everkept.engines.sqlite.library import SqliteLibrary
from records import DAY_ONE

T = TypeVar("T")

SHOP = "/work/shop"


@pytest.fixture
def file(data: Path, tmp_path: Path) -> Path:
    backed_up(data, tmp_path / "copy.zip")
    return tmp_path / "copy.zip"


class Hours:
    """A clock that is an hour later at each look."""

    def __init__(self) -> None:
        self.hours = 0

    def __call__(self) -> int:
        self.hours += 1
        return at(self.hours)


def at(hour: int) -> int:
    return DAY_ONE + hour * 3_600_000_000


def done(folder: Path, work: Callable[[SqliteLibrary], Awaitable[T]]) -> T:
    async def run() -> T:
        library = SqliteLibrary(folder, clock=Hours())
        try:
            return await work(library)
        finally:
            await library.close()

    return asyncio.run(run())


def off(folder: Path) -> list[str]:
    return sorted(project.name for project in done(folder, lambda lib: lib.list_projects()) if project.is_off)


def silences(folder: Path) -> list[OffPeriod]:
    return done(folder, lambda lib: lib.list_off_periods())


def test_what_was_switched_off_since_is_off(data: Path, file: Path) -> None:
    done(data, lambda lib: lib.set_off("shop", off=True))
    outcome = restored(data, file, replace=True)
    assert outcome.off == ("shop",)
    assert off(data) == ["shop"]
    assert silences(data) == [OffPeriod(SHOP, at(1))]


def test_the_times_that_it_was_off_are_known_still(data: Path, file: Path) -> None:
    async def twice(library: SqliteLibrary) -> None:
        for is_off in (True, False, True, False):
            await library.set_off("shop", off=is_off)
        project = await library.get_project("shop")
        await library.link_workspace("/work/later", project)

    done(data, twice)
    restored(data, file, replace=True)
    assert off(data) == []
    assert {*silences(data)} == {
        OffPeriod(folder, since, until)
        for folder in (SHOP, "/work/later")
        for since, until in ((at(1), at(2)), (at(3), at(4)))
    }


def test_what_was_off_in_the_backup_and_is_on_now_is_on(data: Path, tmp_path: Path) -> None:
    done(data, lambda lib: lib.set_off("shop", off=True))
    backed_up(data, tmp_path / "copy.zip")
    done(data, lambda lib: lib.set_off("shop", off=False))
    restored(data, tmp_path / "copy.zip", replace=True)
    assert off(data) == []
    assert [(each.folder, each.since) for each in silences(data)] == [(SHOP, at(1))]


def test_what_was_off_in_the_backup_is_off_where_nobody_knows_better(data: Path, tmp_path: Path) -> None:
    done(data, lambda lib: lib.set_off("shop", off=True))
    backed_up(data, tmp_path / "copy.zip")
    statement(data / "_meta.db", "DELETE FROM notes")
    restored(data, tmp_path / "copy.zip", replace=True)
    assert off(data) == ["shop"]
    elsewhere = tmp_path / "elsewhere"
    assert restore_project(SqliteCare(elsewhere), tmp_path / "copy.zip", "shop", read_clock) == ("shop", True)
    assert off(elsewhere) == ["shop"]


def test_a_project_made_since_that_is_off_stays_without_its_content(data: Path, file: Path) -> None:
    filled(data, "secret")
    done(data, lambda lib: lib.set_off("secret", off=True))
    before = done(data, lambda lib: lib.get_project("secret"))
    restored(data, file, replace=True)
    assert done(data, lambda lib: lib.get_project("secret")).off_since == before.off_since
    found = everything(data)
    assert found["stores"]["secret"]["records"] == {}
    assert found["workspaces"]["secret"] == ["/work/secret"]
    assert silences(data) == [OffPeriod("/work/secret", at(1))]


def test_a_project_made_since_that_is_on_goes_and_what_was_unsaid_stays_so(data: Path, file: Path) -> None:
    filled(data, "secret")
    done(data, lambda lib: lib.set_off("secret", off=True))
    done(data, lambda lib: lib.set_off("secret", off=False))
    [known] = silences(data)
    restored(data, file, replace=True)
    assert silences(data) == [known]
    assert {name for _, name, _, _ in everything(data)["projects"]} == {"shop", "old"}


def test_whoever_gets_the_folder_of_what_is_off_is_off(data: Path, file: Path) -> None:
    async def begin_anew(library: SqliteLibrary) -> None:
        await library.delete("shop")
        await library.link_workspace(SHOP, await library.create("new shop", ""))
        await library.set_off("new shop", off=True)

    done(data, begin_anew)
    restored(data, file, replace=True)
    assert off(data) == ["shop"]
    assert {name for _, name, _, _ in everything(data)["projects"]} == {"shop", "old"}
    assert len(silences(data)) == 2  # of the one that was, and of the one that is


def test_what_was_off_when_it_was_deleted_comes_back_off(data: Path, file: Path) -> None:
    async def leave(library: SqliteLibrary) -> None:
        await library.set_off("shop", off=True)
        await library.delete("shop")

    done(data, leave)
    [known] = silences(data)
    assert restore_project(SqliteCare(data), file, "shop", read_clock) == ("shop", True)
    restored(data, file, replace=True)
    assert off(data) == ["shop"]
    first, second = silences(data)
    assert first == known
    assert second.until is None


def test_a_project_that_is_deleted_for_good_stays_silent(data: Path, file: Path) -> None:
    filled(data, "secret")

    async def leave(library: SqliteLibrary) -> None:
        await library.set_off("secret", off=True)
        await library.delete("secret")

    done(data, leave)
    known = silences(data)
    restored(data, file, replace=True)
    assert off(data) == []
    assert silences(data) == known


def test_one_that_is_off_comes_back_beside_itself_as_off(data: Path, file: Path) -> None:
    done(data, lambda lib: lib.set_off("shop", off=True))
    assert restore_project(SqliteCare(data), file, "shop", read_clock) == ("shop-2", True)
    assert off(data) == ["shop", "shop-2"]
    done(data, lambda lib: lib.set_off("shop", off=False))
    assert restore_project(SqliteCare(data), file, "shop", read_clock) == ("shop-3", False)


async def add_token(library: SqliteLibrary, name: str) -> None:
    await library.add_token(Token(name, name, DAY_ONE), f"hash of {name}")


def test_tokens_are_those_of_now(data: Path, tmp_path: Path) -> None:
    done(data, lambda lib: add_token(lib, "revoked"))
    backed_up(data, tmp_path / "copy.zip")
    done(data, lambda lib: lib.remove_token("revoked"))
    done(data, lambda lib: add_token(lib, "new"))
    restored(data, tmp_path / "copy.zip", replace=True)
    assert [token.id for token in done(data, lambda lib: lib.list_tokens())] == ["new"]
    assert done(data, lambda lib: lib.has_token("hash of new"))


NONE: list[str] = []


@pytest.mark.parametrize(("with_access", "wanted"), [(False, (NONE, ["own"])), (True, (["old"], ["old"]))])
def test_the_tokens_of_a_backup_are_restored_only_with_access(
    data: Path, tmp_path: Path, *, with_access: bool, wanted: tuple[list[str], list[str]]
) -> None:
    done(data, lambda lib: add_token(lib, "old"))
    backed_up(data, tmp_path / "copy.zip")
    empty, own = tmp_path / "empty", tmp_path / "own"
    done(own, lambda lib: add_token(lib, "own"))
    for folder, tokens in zip((empty, own), wanted, strict=True):
        outcome = restored(folder, tmp_path / "copy.zip", with_access=with_access)
        assert [token.id for token in done(folder, lambda lib: lib.list_tokens())] == tokens
        assert outcome.omitted == (int(not with_access), 0, 0)


def test_where_the_list_is_damaged_no_token_of_the_backup_is_valid(data: Path, tmp_path: Path) -> None:
    done(data, lambda lib: add_token(lib, "planted"))
    backed_up(data, tmp_path / "copy.zip")
    (data / "_meta.db").write_bytes(b"scribbled over")
    assert restored(data, tmp_path / "copy.zip", replace=True).omitted.tokens == 1
    assert done(data, lambda lib: lib.list_tokens()) == []


def test_folders_left_out_of_past_conversations_are_those_of_both(data: Path, tmp_path: Path) -> None:
    done(data, lambda lib: lib.set_note("history.excluded /before", "1"))
    backed_up(data, tmp_path / "copy.zip")
    done(data, lambda lib: lib.set_note("history.excluded /before", None))
    done(data, lambda lib: lib.set_note("history.excluded /since", "2"))
    restored(data, tmp_path / "copy.zip", replace=True)
    notes = done(data, lambda lib: lib.list_notes("history.excluded "))
    assert {*notes} == {"history.excluded /before", "history.excluded /since"}


def test_where_the_list_is_damaged_that_is_told(data: Path, file: Path) -> None:
    (data / "_meta.db").write_bytes(b"scribbled over")
    assert restored(data, file, replace=True).decisions_lost
    assert not restored(data, file, replace=True, safety=file.with_name("2.zip")).decisions_lost


def test_accounts_and_grants_are_those_of_now_as_tokens_are(data: Path, tmp_path: Path) -> None:
    async def before(library: SqliteLibrary) -> str:
        accounts = Accounts(library, read_clock)
        await accounts.create_token("anna", "")
        await accounts.grant("anna", await library.get_project("shop"), "write")
        return (await accounts.create_token("carl", ""))[1]

    async def since(library: SqliteLibrary) -> str:
        accounts = Accounts(library, read_clock)
        await accounts.revoke("anna", await library.get_project("shop"))
        await accounts.remove_user("carl")
        return (await accounts.create_token("bob", ""))[1]

    async def found(library: SqliteLibrary) -> tuple[list[str], list[Grant], list[object]]:
        accounts = Accounts(library, read_clock)
        users = [user.name for user in await accounts.list_users()]
        comers = [without_id(await accounts.authenticate(secret)) for secret in (carls, bobs)]
        return users, await accounts.list_grants(), list(comers)

    carls = done(data, before)
    backed_up(data, tmp_path / "copy.zip")
    bobs = done(data, since)
    restored(data, tmp_path / "copy.zip", replace=True)
    assert done(data, found) == (["anna", "bob"], [], [UNKNOWN_ACCOUNT, Account("bob")])


@pytest.mark.parametrize("with_access", [False, True])
def test_the_accounts_of_a_backup_are_restored_only_with_access(
    data: Path, tmp_path: Path, *, with_access: bool
) -> None:
    async def before(library: SqliteLibrary) -> str:
        return (await Accounts(library, read_clock).create_token("anna", ""))[1]

    secret = done(data, before)
    backed_up(data, tmp_path / "copy.zip")
    elsewhere = tmp_path / "elsewhere"
    outcome = restored(elsewhere, tmp_path / "copy.zip", with_access=with_access)
    comer = done(elsewhere, lambda lib: Accounts(lib, read_clock).authenticate(secret))
    assert without_id(comer) == (Account("anna") if with_access else UNKNOWN_ACCOUNT)
    assert outcome.omitted == ((0, 0, 0) if with_access else (1, 1, 0))


@pytest.mark.parametrize("is_same", [True, False])
def test_what_is_an_accounts_alone_comes_back_to_that_one_and_no_namesake(
    data: Path, tmp_path: Path, is_same: bool
) -> None:
    async def before(library: SqliteLibrary) -> None:
        await Accounts(library, read_clock).create_token("anna", "")
        await library.create(format_private_name("user", "anna"), "")

    async def since(library: SqliteLibrary) -> None:
        if not is_same:
            await Accounts(library, read_clock).remove_user("anna")
        await Accounts(library, read_clock).create_token("anna", "")

    done(data, before)
    backed_up(data, tmp_path / "copy.zip")
    done(data, since)
    restored(data, tmp_path / "copy.zip", replace=True)
    names = [project.name for project in done(data, lambda lib: lib.list_projects())]
    assert (format_private_name("user", "anna") in names) == is_same
