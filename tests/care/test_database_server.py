from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path

import pytest

from everkept.app.engines import find_standby
from everkept.care import database_server as module
from everkept.care.database_server import (
    MAX_SHOWN_CHARACTERS,
    JournalWrite,
    discard_write,
    list_journal_writes,
    retry_write,
)
from everkept.core.ports import Token
from everkept.core.projects import Project
from everkept.core.records import Delete, Ref, Update
from everkept.core.times import format_iso
from everkept.engines.sqlite.library import SqliteLibrary
from everkept.engines.standby import journal_acts
from everkept.engines.standby.journal import Journal
from everkept.errors import NotFound, Refused
from everkept.settings import Settings, read_settings
from everkept.values import replace
from records import DAY_ONE, batch, entity, memory

SHOP = Project("id-shop", "shop", "", "active", DAY_ONE, DAY_ONE)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    place = {"data_dir": tmp_path, "database_url": "ws://127.0.0.1:1"}
    return read_settings({**place, "config": "none"}, {})


@pytest.fixture
async def journal(settings: Settings) -> AsyncGenerator[Journal, None]:
    """What a server writes that found the database away."""
    standby = find_standby(settings)
    assert standby is not None
    standby.folder.mkdir(parents=True)
    found = Journal(standby.journal)
    yield found
    await found.close()


def made_in(folder: Path) -> list[Path]:
    return [*folder.iterdir()]


async def known_here(settings: Settings, project: Project) -> None:
    standby = find_standby(settings)
    assert standby is not None
    replica = SqliteLibrary(standby.replica)
    await replica.create(project.name, "", project_id=project.id)
    await replica.close()


async def test_where_nothing_ever_waited_the_list_is_empty_and_nothing_is_made(
    settings: Settings, tmp_path: Path
) -> None:
    assert await list_journal_writes(settings) == []
    assert made_in(tmp_path) == []


async def test_a_write_is_told_with_its_store_its_time_and_its_beginning(settings: Settings, journal: Journal) -> None:
    await known_here(settings, SHOP)
    steps = batch(memory("Logins  are\nlimited"), entity("Ada"), at=DAY_ONE)
    number = await journal.append(journal_acts.Commit(journal_acts.format_store_name(SHOP.id), steps))
    [found] = await list_journal_writes(settings)
    told = f"{steps.tool}: 2 steps"
    assert found == JournalWrite(number, told, "shop", format_iso(DAY_ONE), content="Logins are limited; Ada")


async def test_of_a_long_text_the_beginning_is_shown(settings: Settings, journal: Journal) -> None:
    await journal.append(journal_acts.Commit(journal_acts.USER_STORE, batch(memory("word " * 500))))
    changed = batch(Update("some id", {"text": "another text"}, 1))
    await journal.append(journal_acts.Commit(journal_acts.HISTORY_STORE, changed))
    first, second = await list_journal_writes(settings)
    assert first.content is not None
    assert len(first.content) <= MAX_SHOWN_CHARACTERS
    assert (first.store, second.store, second.content) == ("user", "history", "another text")


async def test_a_project_without_a_copy_here_is_told_by_its_id(settings: Settings, journal: Journal) -> None:
    await journal.append(journal_acts.Commit(journal_acts.format_store_name("id-other"), batch(entity("Ada"))))
    [found] = await list_journal_writes(settings)
    assert found.store == journal_acts.format_store_name("id-other")


@pytest.mark.parametrize(
    ("act", "told"),
    [
        (journal_acts.CreateProject(SHOP), "create project shop"),
        (journal_acts.ArchiveProject("id", "shop"), "archive project shop"),
        (journal_acts.RestoreProject("id", "shop"), "restore project shop"),
        (journal_acts.SwitchProject("id", "shop", True, DAY_ONE), "switch project shop off"),
        (journal_acts.SwitchProject("id", "shop", False, DAY_ONE), "switch project shop on"),
        (journal_acts.AssignWorkspace("/work/shop", "id"), "assign folder /work/shop"),
        (journal_acts.MoveWorkspace("/work/shop", "id"), "assign folder /work/shop"),
        (journal_acts.MoveWorkspace("/work/shop", None), "release folder /work/shop"),
        (journal_acts.SetNote("a key", "a value"), "set note a key"),
        (journal_acts.AddToken(Token("t1", "laptop", DAY_ONE), "hash"), "add token laptop"),
        (journal_acts.RemoveToken("t1"), "remove token t1"),
    ],
)
async def test_what_is_no_commit_is_told_in_words(
    settings: Settings, journal: Journal, act: journal_acts.Act, told: str
) -> None:
    number = await journal.append(act)
    assert await list_journal_writes(settings) == [JournalWrite(number, told)]


async def test_all_are_told_however_many_wait(
    settings: Settings, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PAGE_ENTRIES", 2)
    numbers = [await journal.append(journal_acts.SetNote(f"note {n}", "")) for n in range(5)]
    assert [each.number for each in await list_journal_writes(settings)] == numbers


async def test_those_that_are_set_aside_come_first_with_their_reason(settings: Settings, journal: Journal) -> None:
    first, second = [await journal.append(journal_acts.SetNote(key, "")) for key in "ab"]
    await journal.reject(second, "It is gone.")
    found = await list_journal_writes(settings)
    assert [(each.number, each.reason) for each in found] == [(second, "It is gone."), (first, None)]


async def test_one_that_is_tried_again_is_the_last_and_has_another_number(settings: Settings, journal: Journal) -> None:
    first, second = [await journal.append(journal_acts.SetNote(key, "")) for key in "ab"]
    await journal.reject(first, "It is gone.")
    again = await retry_write(settings, first)
    assert [(e.number, e.what) for e in await list_journal_writes(settings)] == [
        (second, "set note b"),
        (again, "set note a"),
    ]


async def test_one_that_is_given_up_is_gone(settings: Settings, journal: Journal) -> None:
    number = await journal.append(journal_acts.SetNote("a", ""))
    await journal.reject(number, "It is gone.")
    await discard_write(settings, number)
    assert await list_journal_writes(settings) == []


@pytest.mark.parametrize("decide", [retry_write, discard_write])
async def test_only_what_is_set_aside_is_decided_on(
    settings: Settings, journal: Journal, decide: Callable[..., Awaitable[object]]
) -> None:
    with pytest.raises(NotFound):  # there is no journal yet
        await decide(settings, 1)
    number = await journal.append(journal_acts.SetNote("a", ""))
    for other in (number, number + 1):
        with pytest.raises(NotFound):
            await decide(settings, other)
    assert [each.number for each in await list_journal_writes(settings)] == [number]


@pytest.mark.parametrize("flags", [{}, {"engine": "surreal"}])
async def test_what_cannot_be_away_has_no_journal(tmp_path: Path, flags: dict[str, str]) -> None:
    settings = read_settings({"data_dir": tmp_path, "config": "none", **flags}, {})
    with pytest.raises(Refused):
        await list_journal_writes(settings)
    with pytest.raises(Refused):
        await retry_write(settings, 1)
    assert made_in(tmp_path) == []


async def test_a_step_without_a_text_has_none_to_show(settings: Settings, journal: Journal) -> None:
    await journal.append(journal_acts.Commit(journal_acts.USER_STORE, batch(Delete(Ref("record", "x")))))
    [found] = await list_journal_writes(settings)
    assert found.content is None


async def test_of_what_an_account_wrote_no_text_is_shown(settings: Settings, journal: Journal) -> None:
    await known_here(settings, SHOP)
    await known_here(settings, replace(SHOP, id="id-home", name="@user (anna)"))
    steps = batch(memory("a private thought"), tool="store_memory")
    aside = await journal.append(journal_acts.Commit(journal_acts.format_store_name(SHOP.id), steps), account="anna")
    await journal.reject(aside, "Account anna was removed.")
    await journal.append(journal_acts.Commit(journal_acts.format_store_name("id-home"), steps), account="anna")
    await journal.append(journal_acts.Commit(journal_acts.format_store_name("id-home"), steps))
    home = replace(SHOP, name="@history (anna)")
    await journal.append(journal_acts.CreateProject(home), account="anna")
    told = await list_journal_writes(settings)
    assert "private" not in str(told)
    assert "@" not in str(told)
    assert [(each.account, each.store) for each in told[:3]] == [
        ("anna", "shop"),
        ("anna", "the user scope of anna"),
        ("anna", "the user scope of anna"),
    ]
    assert {(each.what, each.at) for each in told[:3]} == {("store_memory: 1 step", format_iso(steps.at))}
    assert (told[3].what, told[3].account) == ("create the history scope of anna", "anna")
    assert told[0].reason == "Account anna was removed."
