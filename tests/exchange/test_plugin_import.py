"""What the surrealdb-memory plugin stored, taken over from a folder and from a server."""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from everkept.core.ports import RecordStore
from everkept.core.records import Delete, RecordFilter, Update
from everkept.core.times import format_iso, read_clock
from everkept.engines.memory.library import MemoryLibrary
from everkept.engines.memory.store import MemoryStore
from everkept.exchange.plugin_database import PluginPlace, find_plugin_place, open_plugin_database
from everkept.exchange.plugin_import import PluginImport, PluginTarget, import_plugin
from everkept.settings import read_settings
from plugin_databases import change_folder, fill, make_folder, read_files
from records import batch
from surreal_server import CORES, PASSWORD, USER, fresh_namespace, shared

OLD, LATER = "2025-03-04T05:06:07.000Z", "2025-04-04T05:06:07.000Z"
ALL = RecordFilter(deleted=None)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(tmp_path_factory.mktemp("plugin") / "data")


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "plugin"))


class Home:
    """A project and the user's store, into which everything is imported."""

    def __init__(self, project: RecordStore, user: RecordStore) -> None:
        self.project, self.user = project, user
        self.others: dict[str, RecordStore] = {}
        self.folders: dict[str, str] = {}

    async def take(self, place: Path | PluginPlace, **options: Any) -> PluginImport:
        found = place if isinstance(place, PluginPlace) else find_plugin_place(read_settings({}, {}), {}, str(place))
        report = options.pop("report", lambda *_: None)
        async with open_plugin_database(found) as database:
            target = PluginTarget(self.user, {"default": self.project, **self.others}, "default", self.folders)
            return await import_plugin(database, target, read_clock, report, **options)

    async def texts(self) -> dict[str, str]:
        found = [*await self.project.scan(RecordFilter()), *await self.user.scan(RecordFilter())]
        return {record.id: record.text or record.name or "" for record in found}


@pytest.fixture
async def home() -> AsyncIterator[Home]:
    library = MemoryLibrary()
    await library.create("default", "")
    _, project = await library.open("default")
    yield Home(project, await library.open_user_store())
    await library.close()


async def test_every_row_is_taken_over_with_its_id_and_its_times(home: Home, folder: Path) -> None:
    steps: list[tuple[int, int]] = []
    taken = await home.take(folder, report=lambda *step: steps.append(step))
    assert (taken.memories, taken.entities, taken.sessions, taken.links) == (6, 2, 1, 5)
    assert (taken.left_out, [row.id for row in taken.unreadable]) == (0, ["memory:empty"])
    assert steps == sorted(steps)
    assert steps[-1] == (14, 14)
    [fact] = await home.project.get(["memory:01JNFACT"])
    assert (fact.text, fact.type, fact.scope, fact.importance) == (
        "The shop serves green tea",
        "semantic",
        "project",
        0.8,
    )
    assert fact.tags == ("decision", "tea")
    assert fact.facets["source"] == {"tool": "Edit", "file": "src/tea.py"}
    assert fact.facets["metadata"] == {"nested": {"deep": 1}}
    assert fact.facets["imported"] == {"from": "surrealdb-memory", "version": 3}
    assert (format_iso(fact.created_at), format_iso(fact.updated_at)) == (OLD, LATER)
    assert (await home.project.get_accesses([fact.id]))[fact.id].count == 5
    [event] = await home.project.get(["memory:01JNEVENT"])
    assert (event.scope, event.session, event.facets["consolidated"]) == ("session", "session:s1", True)
    [session] = await home.project.get(["session:s1"])
    assert (session.kind, session.text, session.facets["path"]) == ("session", "Chose tea", "/work/shop")
    [preference] = await home.user.get(["memory:01JNUSER"])
    assert (preference.scope, preference.type) == ("user", "procedural")


async def test_entities_and_all_kinds_of_links_are_taken_over(home: Home, folder: Path) -> None:
    await home.take(folder)
    names = {record.id: record.name or record.id for record in await home.project.scan(ALL)}
    links = {(names[x.source], x.verb, names[x.target]): x for x in await home.project.scan_links(deleted=False)}
    assert set(links) == {
        ("memory:01JNFACT", "uses", "Tea Pot"),
        ("Tea Pot", "pours_into", "Cup"),
        ("memory:01JNSUM", "derived_from", "memory:01JNEVENT"),
    }
    assert links["Tea Pot", "pours_into", "Cup"].facets == {"weight": 2.5}
    [pot] = await home.project.scan(RecordFilter(kinds=("entity",), name_keys=("tea pot",)))
    assert (pot.type, pot.facets["metadata"], format_iso(pot.created_at)) == ("component", {"owner": "Ada"}, OLD)
    [liked] = await home.user.scan_links(deleted=False)
    [cup] = await home.user.get([liked.target])
    assert (liked.source, liked.verb, cup.name) == ("memory:01JNUSER", "likes", "Cup")


async def test_what_was_forgotten_there_is_forgotten_here_with_its_reason_and_links(home: Home, folder: Path) -> None:
    await home.take(folder)
    assert "memory:01JNGONE" not in await home.texts()
    [gone] = await home.project.get(["memory:01JNGONE"], include_deleted=True)
    assert gone.facets["forgotten_reason"] == "Moved to tea"
    assert [link.verb for link in await home.project.scan_links(deleted=None) if link.source == gone.id] == ["used"]


async def test_a_second_run_adds_nothing(home: Home, folder: Path) -> None:
    await home.take(folder)
    before = await home.project.get_revision(), await home.user.get_revision()
    again = await home.take(folder)
    assert (again.memories, again.entities, again.sessions, again.links, again.updated) == (0, 0, 0, 0, 0)
    assert (await home.project.get_revision(), await home.user.get_revision()) == before
    assert (await home.project.get_accesses(["memory:01JNFACT"]))["memory:01JNFACT"].count == 5


async def test_what_the_plugin_changes_later_comes_too_and_what_was_changed_here_stays(
    home: Home, folder: Path
) -> None:
    await home.take(folder)
    [event] = await home.project.get(["memory:01JNEVENT"])
    await home.project.commit(batch(Update(event.id, {"importance": 1.0}, event.version, read_clock())))
    [preference] = await home.user.get(["memory:01JNUSER"])
    await home.user.commit(batch(Delete(preference.ref)))
    await change_folder(
        folder,
        "CREATE memory:01JNNEW SET content = 'Now with milk', type = 'semantic', scope = 'project'",
        "UPDATE memory:01JNFACT SET content = 'The shop serves black tea', updated_at = time::now()",
        "UPDATE memory:01JNSUM SET forgotten = true, forgotten_at = time::now()",
        "UPDATE memory:01JNEVENT SET importance = 0.1, updated_at = d'2025-05-04T00:00:00Z'",
    )
    again = await home.take(folder)
    assert (again.memories, again.updated, again.older, again.forgotten) == (1, 2, 1, 1)
    texts = await home.texts()
    assert texts["memory:01JNFACT"] == "The shop serves black tea"
    assert "memory:01JNNEW" in texts
    assert {"memory:01JNSUM", "memory:01JNUSER"}.isdisjoint(texts)
    assert (await home.project.get([event.id]))[0].importance == 1.0


async def test_a_memory_that_was_promoted_here_is_not_stored_twice(home: Home, folder: Path) -> None:
    await home.take(folder)
    await change_folder(folder, "UPDATE memory:01JNFACT SET scope = 'user', updated_at = time::now()")
    again = await home.take(folder)
    assert again.memories == 0
    assert await home.user.get(["memory:01JNFACT"], include_deleted=True) == []


async def test_memories_of_a_session_go_to_the_project_of_its_folder_with_their_entities(
    home: Home, folder: Path
) -> None:
    shop = MemoryStore()
    home.others, home.folders = {"shop": shop}, {"/work/shop": "shop"}
    await change_folder(
        folder,
        "CREATE memory:01JNSHOP SET content = 'Cups are blue', type = 'semantic', scope = 'project', session_id = 's1'",
        "RELATE memory:01JNSHOP->memory_entity->entity:cup SET relationship = 'colors'",
        "CREATE entity:kettle SET name = 'Kettle', type = 'component'",
        "CREATE entity:tap SET name = 'Tap', type = 'part'",
        "RELATE entity:kettle->relates_to->entity:tap SET relationship = 'fills_from'",
        "RELATE entity:tap->relates_to->entity:tea SET relationship = 'near'",
    )
    taken = await home.take(folder)
    assert (taken.memories, taken.projects, taken.left_out) == (7, ["default", "shop"], 1)
    [summary] = await home.project.get(["memory:01JNSUM"])
    assert summary.facets["imported"]["derived_from"] == ["memory:01JNEVENT"]
    there = {record.id: record.name or record.id for record in await shop.scan(ALL)}
    assert set(there.values()) == {"session:s1", "memory:01JNEVENT", "memory:01JNSHOP", "Cup", "Tea Pot"}
    links = {(there[x.source], x.verb, there[x.target]) for x in await shop.scan_links(deleted=False)}
    assert links == {("memory:01JNSHOP", "colors", "Cup"), ("Tea Pot", "pours_into", "Cup")}
    here = await home.texts()
    assert {"Tea Pot", "Kettle", "Tap", "The shop serves green tea"} <= set(here.values())
    verbs = {link.verb for link in await home.project.scan_links(deleted=False)}
    assert {"uses", "pours_into", "near", "fills_from"} <= verbs
    assert {"memory:01JNEVENT", "memory:01JNSHOP", "session:s1"}.isdisjoint(here)
    again = await home.take(folder)
    assert (again.memories, again.entities, again.links, again.updated) == (0, 0, 0, 0)
    home.others, home.folders = {}, {}


async def test_an_interrupted_run_goes_on_where_it_stopped(home: Home, folder: Path) -> None:
    def stop(done: int, _total: int) -> None:
        if done >= 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await home.take(folder, report=stop)
    assert "memory:01JNFACT" not in await home.texts()
    rest = await home.take(folder)
    assert (rest.memories, rest.links) == (6, 5)
    once = await home.texts()
    await home.take(folder)
    assert await home.texts() == once


async def test_a_dry_run_tells_the_same_and_writes_nothing(home: Home, folder: Path) -> None:
    dry = await home.take(folder, dry_run=True)
    assert (dry.memories, dry.entities, dry.links) == (6, 2, 5)
    assert await home.texts() == {}
    assert await home.project.get_revision() == await home.user.get_revision() == 0
    await home.take(folder)
    assert (await home.take(folder, dry_run=True)).memories == 0


async def test_secrets_are_masked_unless_that_is_turned_off(home: Home, folder: Path) -> None:
    taken = await home.take(folder)
    assert taken.masked == ["anthropic key"]
    [masked] = await home.project.get(["memory:01JNKEY"])
    assert "sk-ant" not in masked.text


async def test_the_same_text_that_is_here_already_gets_the_links(home: Home, folder: Path) -> None:
    await home.take(folder)
    [fact] = await home.project.get(["memory:01JNFACT"])
    await change_folder(
        folder,
        f"CREATE memory:twin SET content = '{fact.text}', type = 'semantic', scope = 'project', tags = ['more']",
        "RELATE memory:twin->memory_entity->entity:cup SET relationship = 'fills'",
    )
    again = await home.take(folder)
    assert (again.memories, again.updated, again.links) == (0, 1, 1)
    assert "more" in (await home.project.get([fact.id]))[0].tags


async def test_the_folder_stays_as_it_is_and_no_copy_is_left(
    home: Home, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private = tmp_path / "private"
    private.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(private))
    before = read_files(folder)
    await home.take(folder)
    assert read_files(folder) == before
    assert list(private.iterdir()) == []


async def test_a_folder_whose_last_write_is_not_whole_is_read_up_to_it(home: Home, folder: Path) -> None:
    [log] = (folder / "clog").iterdir()
    log.write_bytes(log.read_bytes()[:-7])
    taken = await home.take(folder)
    assert (taken.memories, taken.links) == (6, 4)  # the last row was a link


@pytest.mark.parametrize("core", CORES)
async def test_a_server_is_read_like_a_folder(home: Home, core: int, monkeypatch: pytest.MonkeyPatch) -> None:
    server, namespace = shared(core), fresh_namespace()
    connection = server.connection(namespace)
    await fill(connection, indexes=core == 2)
    monkeypatch.setenv("EVERKEPT_DATABASE_PASSWORD", PASSWORD)
    place = find_plugin_place(read_settings(), {"database_user": USER}, server.url, namespace=namespace)
    taken = await home.take(place)
    assert (taken.memories, taken.entities, taken.links) == (6, 2, 5)
    assert (await home.take(place)).memories == 0
    await connection.close()
