"""A project that is switched off, seen from everywhere: nothing of what it holds is given out."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from conversations import Written, assistant, tell, user
from everkept.app.app import App
from everkept.core.ports import RecordStore
from everkept.core.sessions import Session
from everkept.engines.sqlite.library import SqliteLibrary
from everkept.errors import EverkeptError
from everkept.settings import Settings
from everkept.tools.tool import Effect
from everkept.values import replace
from hook_processes import PATIENCE, Hooks
from worktrees import add_worktree

SECRET = "stripes"  # stands in all that the project holds, and in no question
OTHERS = "crossing"
# Every tool that reads, with questions whose answers would tell it.
QUESTIONS: dict[str, list[dict[str, Any]]] = {
    "recall_memories": [
        {"query": "zebra"},
        {"query": "zebra", "include_forgotten": True, "include_bank": True},
        {"query": "zebra", "as_of": "2099-01-01T00:00:00Z"},
    ],
    "search_knowledge_graph": [{}, {"entity": "zebra"}],
    "get_memory_status": [{}],
    "get_memory_context": [{}, {"task_description": "zebra"}],
    "list_projects": [{}],
    "get_current_project": [{}],
    "search_nodes": [{"query": "zebra"}],
    "open_nodes": [{"names": ["zebra"]}],
    "read_graph": [{}],
    "recall_previous_discussions": [
        {"query": "zebra"},
        {"query": "zebra", "project_filter": "shop"},
        {"query": "zebra", "type": "code", "format": "markdown"},
    ],
    "find_similar_problems": [{"problem_description": "the zebra raises a KeyError"}],
    "search_code_history": [{"query": "zebra"}, {"query": "zebra", "language": "python"}],
    "unified_memory_search": [{"query": "zebra"}, {"query": "what calls zebra()"}],
    "read_conversation": [{"id": "s1"}, {"id": "claude-code:s1"}, {"id": "s1-chunk-1"}],
}
TELL_NO_CONTENTS = {"get_memory_status", "list_projects", "get_current_project"}
OF_BANK: dict[str, dict[str, Any]] = {
    "search_memory_bank": {"query": "zebra"},
    "graph_search": {"query": "zebra"},
    "graph_open_nodes": {"nodes": ["zebra"]},
}
CHANGES: dict[str, dict[str, Any]] = {
    "store_memory": {"content": "More.", "type": "semantic", "scope": "project"},
    "forget_memory": {"memory_id": "memory"},
    "update_memory": {"memory_id": "memory", "content": "Other."},
    "reflect_and_consolidate": {"dry_run": True},
    "promote_memory": {"memory_id": "memory", "target_scope": "user"},
    "tag_memory": {"memory_id": "memory", "add": ["new"]},
    "create_entities": {"entities": [{"name": "horse", "entityType": "animal"}]},
    "add_observations": {"observations": [{"entityName": "zebra", "contents": ["Eats."]}]},
    "create_relations": {"relations": [{"from": "zebra", "to": "zebra", "relationType": "is"}]},
    "delete_entities": {"names": ["zebra"]},
    "delete_observations": {"deletions": [{"entityName": "zebra", "observations": ["Has."]}]},
    "delete_relations": {"relations": [{"from": "zebra", "to": "zebra", "relationType": "is"}]},
}
WHOLE_PROJECTS = {"create_project", "archive_project", "delete_project", "restore_project"}


@dataclass
class Seat:
    """A client of a server, and where it sits."""

    app: App
    session: Session = field(default_factory=lambda: Session(client="test"))

    async def __call__(self, tool: str, **arguments: Any) -> str:
        """The answer or the refusal, as a client sees it."""
        try:
            return str(await self.app.call(self.session, tool, arguments))
        except EverkeptError as error:
            return f"{error.code}: {error}"

    async def asked(self, tool: str, arguments: dict[str, Any]) -> list[str]:
        """Without a name, and by the name of the project where that can be given."""
        known = self.app.tools.get(tool).input_schema["properties"]
        ways = [arguments, {**arguments, "project": "shop"}] if "project" in known else [arguments]
        return [await self(tool, **way) for way in ways]


@dataclass
class Scene:
    """A server in the folder of the project that is switched, and one in another folder."""

    here: Seat
    there: Seat
    turns: list[str]

    @property
    def seats(self) -> list[Seat]:
        moved = Seat(self.there.app, Session(client="test", project="shop"))
        return [self.here, self.there, moved]

    async def switch(self, *, off: bool) -> None:
        await self.here.app.library.set_off("shop", off=off)

    async def store(self) -> RecordStore:
        return (await self.here.app.library.open("shop"))[1]


@pytest.fixture
async def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    for variable in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(variable, str(tmp_path))
    settings = Settings(
        tmp_path / "data", project="auto", embedding_model="none", toolsets="memories,graph,history,bank"
    )
    apps: list[App] = []
    for name in ("shop", "other"):
        (tmp_path / name / ".git").mkdir(parents=True)
        apps.append(App(replace(settings, path=tmp_path / name)))
    here, there = Seat(apps[0]), Seat(apps[1])
    await _fill(here)
    history = await here.app.library.open_history_store()
    code = (Written(f"def zebra():\n    {SECRET}()", "python", "src/zebra.py", ("zebra",)),)
    turns = await tell(
        history,
        "s1",
        user("The zebra raises a KeyError", facets={"problem": True}),
        assistant(f"The zebra is fixed in the {SECRET}.", facets={"fix": True}, code=code),
        user(f"Then paint the {SECRET} of the zebra"),
        project=str(tmp_path / "shop" / "api"),
    )
    await tell(history, "s2", f"The zebra {OTHERS} is painted", project=str(tmp_path / "other"))
    await there("store_memory", content=f"A zebra {OTHERS}", type="semantic", scope="project")
    yield Scene(here, there, turns)
    for app in apps:
        await app.close()


async def _fill(seat: Seat) -> None:
    memory = {"content": f"The zebra has {SECRET}", "type": "semantic", "importance": 0.9}
    zebra = {"name": "zebra", "entityType": "animal", "observations": [f"Has {SECRET}"]}
    paint = {"name": SECRET, "entityType": "paint", "observations": []}
    relation = {"from": "zebra", "to": SECRET, "relationType": "wears"}
    place = seat.app.settings.path
    await seat("store_memory", **memory, scope="project", tags=["todo"])
    await seat("create_entities", entities=[zebra, paint])
    await seat("create_relations", relations=[relation])
    await seat("initialize_memory_bank", path=str(place))
    text = f"# Active Context\n\n## Tasks\n- [ ] Paint the zebra with {SECRET}\n"
    await seat("write_memory_bank_file", filename="active-context.md", content=text)


async def test_every_tool_of_these_families_is_asked(scene: Scene) -> None:
    bank = {tool.name for tool in scene.here.app.tools} - {
        tool.name for tool in App(Settings(Path("nowhere"), embedding_model="none")).tools
    }
    assert OF_BANK.keys() <= bank
    for tool in scene.here.app.tools:
        if tool.name in bank or tool.effect is Effect.SESSION_ONLY:
            continue
        expected = QUESTIONS if tool.effect is Effect.READS else {*CHANGES, *WHOLE_PROJECTS}
        assert tool.name in expected, "add a call of it to QUESTIONS or CHANGES"


@pytest.mark.parametrize("tool", QUESTIONS)
async def test_no_tool_that_reads_gives_it_out(scene: Scene, tool: str) -> None:
    for question in QUESTIONS[tool]:
        before = "".join(await scene.here.asked(tool, question))
        assert (SECRET in before) is (tool not in TELL_NO_CONTENTS), question
    await scene.switch(off=True)
    for seat in scene.seats:
        for question in QUESTIONS[tool]:
            assert SECRET not in "".join(await seat.asked(tool, question)), question
    await scene.switch(off=False)
    after = "".join(await scene.here.asked(tool, QUESTIONS[tool][0]))
    assert (SECRET in after) is (tool not in TELL_NO_CONTENTS)


async def test_what_others_hold_is_given_out_as_before(scene: Scene) -> None:
    await scene.switch(off=True)
    for tool in ("recall_memories", "recall_previous_discussions", "unified_memory_search"):
        assert OTHERS in await scene.there(tool, query="zebra")


async def test_no_id_and_no_cursor_from_before_leads_to_it(scene: Scene) -> None:
    page = await scene.here.app.call(scene.here.session, "read_conversation", {"id": "s1", "limit": 1})
    following = {"id": "s1", "cursor": page.facts["next_cursor"]}
    assert SECRET in await scene.here("read_conversation", **following)
    await scene.switch(off=True)
    for seat in scene.seats:
        for asked in (following, *({"id": turn} for turn in scene.turns)):
            for tool in ("read_conversation", "retrieve_memory_chunk"):
                assert (await seat(tool, **asked)).startswith("project_off")


@pytest.mark.parametrize("tool", OF_BANK)
async def test_the_bank_is_neither_searched_nor_is_its_graph(scene: Scene, tool: str) -> None:
    assert SECRET in await scene.here(tool, **OF_BANK[tool])
    await scene.switch(off=True)
    assert (await scene.here(tool, **OF_BANK[tool])).startswith("project_off")


@pytest.mark.parametrize("tool", CHANGES)
async def test_nothing_is_changed_meanwhile(scene: Scene, tool: str) -> None:
    await scene.switch(off=True)
    store = await scene.store()
    before = await store.get_revision()
    for answer in await scene.here.asked(tool, CHANGES[tool]):
        assert answer.startswith("project_off")
    assert (await scene.there(tool, **CHANGES[tool], project="shop")).startswith("project_off")
    assert await store.get_revision() == before


async def test_no_resource_gives_it_out(scene: Scene) -> None:
    documents = scene.here.app.resources

    async def shown(seat: Seat) -> dict[str, str]:
        found: dict[str, str] = {}
        for info in await seat.app.resources.list_resources(seat.session):
            if info.uri.startswith("memory-bank:"):  # a file of the folder, as it lies there
                continue
            try:
                found[info.uri] = (await seat.app.resources.read(seat.session, info.uri)).text
            except EverkeptError as error:
                found[info.uri] = error.code
        return found

    assert SECRET in str(await shown(scene.here))
    seen = await documents.read_state(scene.here.session, "memory://knowledge-graph")
    await scene.switch(off=True)
    for seat in scene.seats:
        assert SECRET not in str(await shown(seat))
    assert (await shown(scene.there))["memory://projects/shop/knowledge-graph"] == "project_off"
    assert await documents.read_state(scene.here.session, "memory://knowledge-graph") != seen


async def test_what_is_searched_for_in_it_is_not_kept(scene: Scene) -> None:
    await scene.switch(off=True)
    for seat, query in ((scene.here, "asked in the shop"), (scene.there, "asked elsewhere")):
        await seat("recall_previous_discussions", query=query)
        await seat("unified_memory_search", query=query)
    for app in (scene.here.app, scene.there.app):
        await app.close()
    kept = await scene.there.app.history.list_searches(10)
    assert {search.query for search in kept} == {"asked elsewhere"}


async def test_the_dialect_of_the_reference_server_is_refused_too(scene: Scene) -> None:
    settings = replace(scene.here.app.settings, dialect="server-memory", project="shop", toolsets="graph")
    seat = Seat(App(settings))
    asked: list[tuple[str, dict[str, Any]]] = [
        ("read_graph", {}),
        ("search_nodes", {"query": "zebra"}),
        ("open_nodes", {"names": ["zebra"]}),
    ]
    assert all([SECRET in await seat(tool, **arguments) for tool, arguments in asked])
    await scene.switch(off=True)
    for tool, arguments in asked:
        assert (await seat(tool, **arguments)).startswith("project_off")
    await seat.app.close()


@pytest.mark.parametrize("name", ["shop", "tree", "link"])
async def test_no_hook_tells_another_project_of_it(tmp_path: Path, name: str) -> None:
    """Neither of what was said in its folder, nor in a worktree of it, nor behind a link."""
    shop, tree, other = (tmp_path / each for each in ("shop", "tree", "other"))
    (other / ".git").mkdir(parents=True)
    add_worktree(shop, tree)
    (tmp_path / "link").symlink_to(shop)
    library = SqliteLibrary(tmp_path / "data")
    said = "How do we round the zebra invoices?", f"By banker's rounding in the {SECRET} module."
    await tell(await library.open_history_store(), "s1", *said, project=str(tmp_path / name))
    await library.link_workspace(str(shop.resolve()), await library.create("shop", ""))
    await library.create("elsewhere", "")
    hooks = Hooks(tmp_path / "data", other)
    in_it = Hooks(tmp_path / "data", tmp_path / name)
    prompt = "How did we round the zebra invoices before?"
    for off in (False, True):
        await library.set_off("shop", off=off)
        asked = hooks.told(prompt=prompt, session_id=f"asked {off}")
        assert (SECRET in hooks.call("UserPromptSubmit", asked).out) is not off
        begun = in_it.told(session_id=f"begun {off}")
        started = in_it.call("SessionStart", begun, "--project", "elsewhere")
        assert ("zebra invoices" in started.out) is not off
    assert hooks.faults == []
    await library.close()


async def test_while_something_is_off_a_hook_is_as_quick_to_load(tmp_path: Path) -> None:
    (tmp_path / "other" / ".git").mkdir(parents=True)
    library = SqliteLibrary(tmp_path / "data")
    await tell(await library.open_history_store(), "s1", "Zebra invoices", project=str(tmp_path / "shop"))
    await library.link_workspace(str(tmp_path / "shop"), await library.create("shop", ""))
    await library.set_off("shop", off=True)
    await library.close()
    hooks = Hooks(tmp_path / "data", tmp_path / "other")
    process = hooks.run("-X", "importtime", "-m", "everkept", "hook", "UserPromptSubmit")
    told = hooks.told(prompt="How did we round the zebra invoices before?")
    _, said = process.communicate(told.encode(), timeout=PATIENCE)
    loaded = {line.rpartition("|")[2].strip() for line in said.decode().splitlines()}
    assert "everkept.families.history.off_folders" in loaded
    assert loaded.isdisjoint({"asyncio", "logging", "numpy", "everkept.core.ports"})
    assert hooks.faults == []
