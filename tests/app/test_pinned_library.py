"""A server that is pinned to one project, and arguments that name another."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from everkept.app.app import App
from everkept.core.sessions import Account, Session
from everkept.errors import EverkeptError, InvalidInput, NotFound, Refused
from everkept.settings import read_settings
from hash_embedder import HashingEmbedder
from peer_servers import household
from tool_calls import Client


@pytest.fixture
async def folder(tmp_path: Path) -> Path:
    """Two projects with a secret each, and one that belongs to an account."""
    app = App(read_settings({"data_dir": tmp_path, "transport": "http"}, {}), embedder=HashingEmbedder())
    owner, anna = _clients(app)
    await app.accounts.create_token("anna", "")
    for name in ("shop", "bank"):
        await owner("create_project", name=name)
        entity = {"name": f"Secret of {name}", "entity_type": "x", "observations": [f"{name} hides a quokka"]}
        await owner("create_entities", entities=[entity], project=name)
        await owner("store_memory", content=f"The {name} hides a quokka", project=name)
        await app.accounts.grant("anna", await app.library.get_project(name), "write")
    await anna("create_project", name="diary")
    await anna("store_memory", content="The diary hides a quokka", project="diary")
    await app.close()
    return tmp_path


@pytest.fixture
async def pinned(folder: Path) -> AsyncIterator[App]:
    settings = read_settings({"data_dir": folder, "transport": "http", "only_project": "shop"}, {})
    app = App(settings, embedder=HashingEmbedder())
    yield app
    await app.close()


def _clients(app: App) -> tuple[Client, Client]:
    return Client(app, Session(client="editor")), Client(app, Session(client="editor", account=Account("anna")))


async def test_no_argument_reaches_another_project(pinned: App) -> None:
    for who in _clients(pinned):
        for name in ("bank", "diary", "diary (anna)"):
            calls: dict[str, dict[str, Any]] = {
                "recall_memories": {"query": "quokka", "project": name},
                "read_graph": {"project": name},
                "search_nodes": {"query": "quokka", "project": name},
                "store_memory": {"content": "More of it", "project": name},
                "switch_project": {"name": name},
                "archive_project": {"name": name},
                "restore_project": {"name": name},
                "delete_project": {"name": name},
            }
            for tool, arguments in calls.items():
                with pytest.raises(NotFound):
                    await who(tool, **arguments)
        with pytest.raises(EverkeptError):
            await pinned.resources.read(who.session, "memory://graph/bank")
        assert [each["name"] for each in (await who("list_projects"))["projects"]] == ["shop"]
        with pytest.raises(Refused, match="serves only"):
            await who("create_project", name="another")
        for tool in ("recall_memories", "unified_memory_search"):
            found = str(await who(tool, query="quokka hides"))
            assert "shop" in found
            assert "bank" not in found
            assert "diary" not in found


async def test_its_own_project_works_without_an_argument(pinned: App) -> None:
    owner, anna = _clients(pinned)
    for who in (owner, anna):
        await who("store_memory", content="Tests run with tox")
        assert await who.names("quokka") == ["Secret of shop"]
        await who("store_memory", content="Prefers tea", scope="user")
        assert "Prefers tea" in str(await who("recall_memories", query="tea", scope="user"))


async def test_a_project_that_is_missing_is_created_at_the_first_write(tmp_path: Path) -> None:
    settings = read_settings({"data_dir": tmp_path, "only_project": "new"}, {}, folder=tmp_path)
    app = App(settings, embedder=HashingEmbedder())
    await Client(app)("store_memory", content="Tests run with tox")
    assert [project.name for project in await app.library.list_projects()] == ["new"]
    await app.close()


@pytest.mark.parametrize("more", [{"project": "bank"}, {"toolsets": "all"}, {"toolsets": "memories,bank"}])
def test_settings_that_reach_further_are_refused(tmp_path: Path, more: dict[str, str]) -> None:
    with pytest.raises(InvalidInput, match="only-project"):
        read_settings({"data_dir": tmp_path, "only_project": "shop", **more}, {}, folder=tmp_path)


@pytest.mark.parametrize("project", [None, "auto", "shop"])
def test_it_is_the_project_of_every_call(tmp_path: Path, project: str | None) -> None:
    flags = {"data_dir": tmp_path, "only_project": "shop", "project": project}
    assert read_settings(flags, {}, folder=tmp_path).project == "shop"


async def test_conversations_of_other_folders_are_not_found(tmp_path: Path) -> None:
    home = await household(tmp_path)
    folders = [str(tmp_path / name) for name in ("shop", "diary")]
    calls: list[tuple[str, dict[str, Any]]] = [
        ("recall_previous_discussions", {"query": "checkout"}),
        ("find_past_conversations", {"query": "checkout"}),
        ("unified_memory_search", {"query": "checkout"}),
        *(("recall_previous_discussions", {"query": "checkout", "project_filter": place}) for place in folders),
    ]

    async def ask_all(**more: str) -> list[str]:
        settings = read_settings({"data_dir": home.data, "transport": "http", "embedding_model": "none", **more}, {})
        app = App(settings)
        try:
            return [json.dumps((await Client(app)(tool, **arguments))["results"]) for tool, arguments in calls]
        finally:
            await app.close()

    whole, pinned = await ask_all(), await ask_all(only_project="shop")
    for known, shown in zip(whole, pinned, strict=True):
        assert folders[1] not in shown
        assert (folders[0] in known) <= (folders[0] in shown)
    assert folders[1] in "".join(whole)
    assert folders[0] in "".join(pinned)
