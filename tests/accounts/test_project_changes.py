"""Deleted projects of accounts: each restores its own, under its own names."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from everkept.app.app import App
from everkept.core.sessions import Account, Session, act_as
from everkept.errors import InvalidInput, NotFound, ProjectExists, Refused
from everkept.settings import read_settings
from hash_embedder import HashingEmbedder
from tool_calls import Client

ADA = {"name": "Ada", "entity_type": "person"}


class Team:
    def __init__(self, app: App) -> None:
        self.app = app
        self.owner = Client(app, Session(client="editor"))
        self.anna = Client(app, Session(client="editor", account=Account("anna")))
        self.ben = Client(app, Session(client="editor", account=Account("ben")))


@pytest.fixture
async def team(tmp_path: Path) -> AsyncIterator[Team]:
    app = App(read_settings({"data_dir": tmp_path, "transport": "http"}, {}), embedder=HashingEmbedder())
    for name in ("anna", "ben"):
        await app.accounts.create_token(name, "")
    team = Team(app)
    await team.anna("create_project", name="diary")
    await team.anna("create_entities", entities=[ADA], project="diary")
    await app.accounts.grant("ben", await app.library.get_project("diary (anna)"), "write")
    yield team
    await app.close()


async def names(who: Client) -> list[str]:
    return [each["name"] for each in (await who("list_projects", status="all"))["projects"]]


async def trash(who: Client) -> list[str]:
    return [each["name"] for each in (await who("list_projects")).get("trash", [])]


async def test_an_account_restores_its_project_with_all_grants(team: Team) -> None:
    [shared] = await names(team.ben)
    await team.anna("delete_project", name="diary")
    assert (await names(team.anna), await names(team.ben), await names(team.owner)) == ([], [], [])
    assert (await trash(team.anna), await trash(team.ben), await trash(team.owner)) == (["diary"], [], ["diary (anna)"])
    with pytest.raises(NotFound):
        await team.ben("restore_project", name=shared)
    assert (await team.anna("restore_project", name="diary"))["name"] == "diary"
    assert await team.anna.names("Ada", project="diary") == ["Ada"]
    assert await team.ben.names("Ada", project=shared) == ["Ada"]


async def test_who_a_project_is_shared_with_cannot_delete_it(team: Team) -> None:
    [shared] = await names(team.ben)
    with pytest.raises(Refused):
        await team.ben("delete_project", name=shared)
    assert await trash(team.owner) == []


async def test_an_account_uses_the_name_of_its_deleted_project_again(team: Team) -> None:
    await team.anna("delete_project", name="diary")
    second = await team.anna("create_project", name="diary")
    with pytest.raises(ProjectExists):
        await team.anna("restore_project", name="diary")
    restored = await team.anna("restore_project", name="diary", new_name="first diary")
    assert await names(team.anna) == ["diary", "first diary"]
    assert restored["id"] != second["id"]
    assert await team.anna.names("Ada", project="first diary") == ["Ada"]
    assert await team.anna.names("Ada", project="diary") == []
    await team.anna("delete_project", name="first diary")
    for bad in ("@user", "@trash 1", "a/b", ""):
        with pytest.raises(InvalidInput):
            await team.anna("restore_project", name="first diary", new_name=bad)
    assert await trash(team.anna) == ["first diary"]


async def test_the_owner_restores_and_undoes_what_an_account_deleted(team: Team) -> None:
    await team.anna("delete_project", name="diary")
    [newest, *_] = await team.app.change_log.list_entries(None, 5)
    assert (newest.change.client, newest.summary) == ("anna (editor)", 'Deleted project "diary (anna)"')
    await team.app.change_log.undo(None, None, "command line", or_user=True)
    assert await names(team.anna) == ["diary"]
    await team.anna("delete_project", name="diary")
    await team.owner("restore_project", name="diary (anna)")
    assert await team.anna.names("Ada", project="diary") == ["Ada"]


async def test_a_purge_ends_the_grants(team: Team) -> None:
    await team.anna("delete_project", name="diary")
    [deleted] = await team.app.project_changes.list_trash()
    await team.app.project_changes.purge(deleted)
    assert (await trash(team.anna), await trash(team.owner)) == ([], [])
    assert await team.app.accounts.list_user_grants("ben") == []
    await team.anna("create_project", name="diary")
    assert await names(team.anna) == ["diary"]


async def test_changes_of_projects_of_others_are_hidden_and_cannot_be_undone(team: Team) -> None:
    """A change of a whole project is in the log under its name, and its undo would delete the project."""
    await team.owner("create_project", name="secret plan")
    [shared] = await names(team.ben)
    for who in (team.ben.session.account, Account("eve")):
        with act_as(who):
            listed = await team.app.change_log.list_entries(None, 50)
            assert not [each for each in listed if each.event is not None]
            for reference in ("secret plan:p1", "diary (anna):p1", f"{shared}:p1", "diary:p1"):
                with pytest.raises(NotFound):
                    await team.app.change_log.undo(reference, None, "editor")
    assert sorted(await names(team.owner)) == ["diary (anna)", "secret plan"]


async def test_an_account_undoes_changes_of_its_own_project_under_its_own_name(team: Team) -> None:
    await team.anna("delete_project", name="diary")
    with act_as(team.anna.session.account):
        [deletion, creation] = [each for each in await team.app.change_log.list_entries(None, 50) if each.event]
        assert (deletion.summary, creation.summary) == ('Deleted project "diary"', 'Created project "diary"')
        undone = await team.app.change_log.undo(deletion.reference, None, "editor")
        assert undone.effect == 'Restored project "diary" from the trash'
        await team.app.change_log.undo("diary:p1", None, "editor")
    assert await trash(team.anna) == ["diary"]
