import json
from collections.abc import AsyncIterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from everkept.app.app import App
from everkept.core.projects import USER_PROJECT
from everkept.core.sessions import Session
from everkept.jobs.graph_files import FOLDER_MISSING, IN_OTHER_PROJECT, ON_OTHER_MACHINE, GraphMirrors, MirrorResult
from everkept.settings import read_settings
from processes import acting


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "shop"
    (folder / "memory-bank").mkdir(parents=True)
    return folder


@pytest.fixture
async def app(home: Path, tmp_path: Path) -> AsyncIterator[App]:
    app = opened(home, tmp_path)
    yield app
    await app.close()


def opened(home: Path, tmp_path: Path, **more: Any) -> App:
    flags: dict[str, Any] = {"data_dir": tmp_path / "data", "path": home, "toolsets": "all"}
    return App(read_settings(flags | {"project": "auto", "embedding_model": "none"} | more, {}))


def mirrors(app: App) -> GraphMirrors:
    assert app.graph_mirrors is not None
    return app.graph_mirrors


async def upsert(app: App, name: str) -> None:
    await app.call(Session(), "graph_upsert_entity", {"name": name, "entityType": "thing"})


async def project(app: App) -> str:
    [only] = await app.library.list_projects()
    return only.name


def names(home: Path) -> list[str]:
    log = (home / "memory-bank" / "graph" / "graph.jsonl").read_text(encoding="utf-8")
    return [json.loads(line)["entity"]["name"] for line in log.splitlines()[1:]]


async def test_programs_that_write_at_once_lose_nothing_and_tell_nothing_twice(
    app: App, home: Path, tmp_path: Path
) -> None:
    await upsert(app, "first")
    each = 25
    with ExitStack() as running:
        actors = [
            running.enter_context(acting("mirror_actors:write_entities", tmp_path / "data", home, toolsets, who, each))
            for who, toolsets in (("a", "bank"), ("b", "bank"), ("c", "graph"))
        ]
        for actor in actors:
            assert actor.hear() == "ready"
        for actor in actors:
            actor.tell()
        for number in range(each):
            await upsert(app, f"d {number}")
        for actor in actors:
            assert actor.finish() == [[]]
    settled = await mirrors(app).update_files(await project(app), Session())
    assert settled == MirrorResult([str(home / "memory-bank")])
    wanted = ["first", *(f"{who} {number}" for who in "abcd" for number in range(each))]
    assert sorted(names(home)) == sorted(wanted)


async def test_the_bank_of_the_session_follows_though_it_never_had_a_file(app: App, home: Path) -> None:
    store = await app.call(Session(), "create_entities", {"entities": [{"name": "Ada", "entity_type": "person"}]})
    assert store.facts
    settled = await mirrors(app).update_files(await project(app), Session())
    assert settled.done == [str(home / "memory-bank")]
    assert names(home) == ["Ada"]


async def test_where_the_project_is_named_the_bank_at_hand_is_none_of_its(app: App, home: Path, tmp_path: Path) -> None:
    await app.library.create("other", "")
    named = opened(home, tmp_path, project="other")
    assert await mirrors(named).update_files("other", Session()) == MirrorResult()
    await named.close()
    assert list((home / "memory-bank").iterdir()) == []


async def test_banks_that_cannot_be_reached_are_left_with_the_reason(app: App, home: Path) -> None:
    await upsert(app, "Ada")
    name = await project(app)
    [(key, note)] = (await app.library.list_notes("bank graph ")).items()
    for address in ("ssh://me@host.invalid/shop/memory-bank", str(home / "gone" / "memory-bank")):
        await app.library.set_note(f"bank graph {address}", note)
    (home / "moved" / "memory-bank").mkdir(parents=True)
    await app.library.set_note(f"bank graph {home / 'moved' / 'memory-bank'}", note)
    settled = await mirrors(app).update_files(name, Session())
    assert settled.done == [key.removeprefix("bank graph ")]
    assert sorted(settled.left.values()) == sorted([ON_OTHER_MACHINE, FOLDER_MISSING, IN_OTHER_PROJECT])
    assert list((home / "moved" / "memory-bank").iterdir()) == []


async def test_what_belongs_to_no_project_has_no_files(app: App) -> None:
    assert await mirrors(app).update_files(USER_PROJECT, Session()) == MirrorResult()
    assert await mirrors(app).update_files("nowhere", Session()) == MirrorResult()


async def test_without_a_bank_there_are_no_mirrors(home: Path, tmp_path: Path) -> None:
    app = opened(home, tmp_path, toolsets="graph")
    assert app.graph_mirrors is None
    await app.close()
