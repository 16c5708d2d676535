import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from recollect.app.app import App
from recollect.core.accounts import USERS, Account
from recollect.core.sessions import Session
from recollect.settings import Settings

Run = Callable[..., Any]


def test_without_any_it_is_said_how_one_is_made(recollect: Run) -> None:
    assert "recollect token --user NAME" in recollect("account", "list").out
    assert recollect("account", "list", "--json").json == {"accounts": []}


def test_users_are_listed_with_what_they_see(recollect: Run) -> None:
    recollect("create-project", "shop")
    recollect("token", "--user", "anna")
    recollect("token", "--peer", "berlin")
    recollect("grant", "shop", "--user", "anna", "--access", "write")
    lines = recollect("account", "list").out.splitlines()
    assert lines[0].startswith("anna  user since ")
    assert lines[1] == "  write  shop"
    assert lines[2].startswith("berlin  another server since ")


def test_a_removal_that_was_cut_short_is_told(recollect: Run, tmp_path: Path) -> None:
    async def begin() -> None:
        app = App(Settings(tmp_path / "data", embedding_model="none"))
        note = json.loads(await app.library.note(USERS + "anna") or "")
        await app.library.set_note(USERS + "anna", json.dumps({**note, "leaving": True}))
        await app.close()

    recollect("token", "--user", "anna")
    assert "being removed" not in recollect("account", "list").out
    asyncio.run(begin())
    assert "; being removed, to be finished" in recollect("account", "list").out
    recollect("account", "remove", "anna", "--yes")
    assert recollect("account", "list", "--json").json == {"accounts": []}


def test_a_removed_user_is_gone_with_the_tokens(recollect: Run) -> None:
    recollect("token", "--user", "anna")
    kept = recollect("token", "--json").json["id"]
    refused = recollect("account", "remove", "anna")
    assert refused.status == 2
    assert "--yes" in refused.err
    assert recollect("account", "remove", "Anna", "--yes").out == "Removed anna.\n"
    assert [token["id"] for token in recollect("token", "list", "--json").json["tokens"]] == [kept]
    assert recollect("account", "list", "--json").json == {"accounts": []}
    again = recollect("account", "remove", "anna", "--yes")
    assert (again.status, "not found" in again.err) == (2, True)


def test_the_projects_of_a_removed_user_are_named_and_the_owners(
    recollect: Run, tmp_path: Path
) -> None:
    async def make() -> None:
        app = App(Settings(tmp_path / "data", embedding_model="none"))
        session = Session(account=Account("anna"))
        for name in ("shop", "blog"):
            await app.call(session, "create_project", {"name": name})
        await app.close()

    recollect("create-project", "shop")
    recollect("token", "--user", "anna")
    asyncio.run(make())
    recollect("grant", "shop", "--user", "anna")
    removed = recollect("account", "remove", "anna", "--yes").out
    assert removed == "Removed anna.\nYours from now on: blog (anna), shop (anna).\n"
    assert recollect("switch-project", "blog (anna)").status == 0
    recollect("token", "--user", "anna")  # another one of that name has none of it
    assert recollect("account", "list", "--json").json["accounts"][0]["projects"] == []
