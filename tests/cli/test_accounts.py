import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from everkept.app.app import App
from everkept.core.sessions import USER_NOTE_PREFIX, Account, Session
from everkept.settings import Settings

Run = Callable[..., Any]


def test_without_any_it_is_said_how_one_is_made(everkept: Run) -> None:
    assert "everkept token --user NAME" in everkept("account", "list").out
    assert everkept("account", "list", "--json").json == {"accounts": []}


def test_users_are_listed_with_what_they_see(everkept: Run) -> None:
    everkept("create-project", "shop")
    everkept("token", "--user", "anna")
    everkept("token", "--peer", "berlin")
    everkept("grant", "shop", "--user", "anna", "--access", "write")
    lines = everkept("account", "list").out.splitlines()
    assert lines[0].startswith("anna  user since ")
    assert lines[1] == "  write  shop"
    assert lines[2].startswith("berlin  another server since ")


def test_a_removal_that_was_cut_short_is_told(everkept: Run, tmp_path: Path) -> None:
    async def begin() -> None:
        app = App(Settings(tmp_path / "data", embedding_model="none"))
        note = json.loads(await app.library.get_note(USER_NOTE_PREFIX + "anna") or "")
        await app.library.set_note(USER_NOTE_PREFIX + "anna", json.dumps({**note, "leaving": True}))
        await app.close()

    everkept("token", "--user", "anna")
    assert "being removed" not in everkept("account", "list").out
    asyncio.run(begin())
    assert "; removal not finished" in everkept("account", "list").out
    everkept("account", "remove", "anna", "--yes")
    assert everkept("account", "list", "--json").json == {"accounts": []}


def test_a_removed_user_is_gone_with_the_tokens(everkept: Run) -> None:
    everkept("token", "--user", "anna")
    kept = everkept("token", "--json").json["id"]
    refused = everkept("account", "remove", "anna")
    assert refused.status == 2
    assert "--yes" in refused.err
    assert everkept("account", "remove", "Anna", "--yes").out == "Removed anna.\n"
    assert [token["id"] for token in everkept("token", "list", "--json").json["tokens"]] == [kept]
    assert everkept("account", "list", "--json").json == {"accounts": []}
    again = everkept("account", "remove", "anna", "--yes")
    assert (again.status, "not found" in again.err) == (2, True)


def test_the_projects_of_a_removed_user_are_named_and_the_owners(everkept: Run, tmp_path: Path) -> None:
    async def make() -> None:
        app = App(Settings(tmp_path / "data", embedding_model="none"))
        session = Session(account=Account("anna"))
        for name in ("shop", "blog"):
            await app.call(session, "create_project", {"name": name})
        await app.close()

    everkept("create-project", "shop")
    everkept("token", "--user", "anna")
    asyncio.run(make())
    everkept("grant", "shop", "--user", "anna")
    removed = everkept("account", "remove", "anna", "--yes").out
    assert removed == "Removed anna.\nYou now own blog (anna), shop (anna).\n"
    assert everkept("switch-project", "blog (anna)").status == 0
    everkept("token", "--user", "anna")  # another one of that name has none of it
    assert everkept("account", "list", "--json").json["accounts"][0]["projects"] == []
