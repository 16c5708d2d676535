"""Past conversations of projects that are switched off, to whoever asks for them."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from everkept.core.ports import Library
from everkept.core.records import Where
from everkept.engines.memory.library import MemoryLibrary
from everkept.engines.sqlite.library import SqliteLibrary
from everkept.errors import NotFound, ProjectOff
from everkept.families.history.model import CODE, CONVERSATION, SYMBOL, TURN, HistoryOptions
from everkept.families.history.search.reachable import reachable
from telling import SHOP, Historian, Moment, Written, assistant, embed, tell, user

BLOG = "/home/ann/blog"
ASKED: list[tuple[str, dict[str, Any]]] = [
    ("recall_previous_discussions", {"query": "zebra"}),
    ("recall_previous_discussions", {"query": "zebra", "project_filter": SHOP}),
    ("recall_previous_discussions", {"query": "zebra", "type": "code"}),
    ("find_similar_problems", {"problem_description": "zebra raises a KeyError"}),
    ("search_code_history", {"query": "zebra"}),
    ("search_code_history", {"query": "zebra", "language": "python"}),
    ("unified_memory_search", {"query": "zebra"}),
    ("unified_memory_search", {"query": "what calls zebra()"}),
]


@pytest.fixture(params=["memory", "sqlite"])
async def library(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Library]:
    library = MemoryLibrary() if request.param == "memory" else SqliteLibrary(tmp_path)
    store = await library.history()
    code = (Written("def zebra():\n    stripes()", "python", "src/zebra.py", ("zebra",)),)
    await tell(
        store,
        "s1",
        user("The zebra raises a KeyError", facets={"problem": True}),
        assistant("The zebra is fixed in the stripes.", facets={"fix": True}, code=code),
        project=f"{SHOP}/api",
    )
    await tell(store, "s2", user("The zebra crossing of the blog is painted"), project=BLOG)
    await embed(store)
    await library.assign_workspace(SHOP, await library.create("shop", ""))
    yield library
    await library.close()


@pytest.mark.parametrize(("tool", "arguments"), ASKED)
async def test_what_is_off_is_left_out_and_comes_back(
    library: Library, tool: str, arguments: dict[str, Any]
) -> None:
    historian = Historian(library, Moment())
    before = str(await historian(tool, **arguments))
    assert "stripes" in before
    await library.switch("shop", off=True)
    meanwhile = str(await historian(tool, **arguments))
    assert "stripes" not in meanwhile
    assert "crossing" in meanwhile or "crossing" not in before
    await library.switch("shop", off=False)
    assert "stripes" in str(await historian(tool, **arguments))


async def test_a_conversation_that_is_off_cannot_be_read(library: Library) -> None:
    historian = Historian(library, Moment())
    assert (await historian("read_conversation", id="s1"))["turns"]
    await library.switch("shop", off=True)
    for name in ("s1", "claude-code:s1", "s1-chunk-1"):
        with pytest.raises(ProjectOff, match='"shop" is switched off'):
            await historian("read_conversation", id=name)
    with pytest.raises(NotFound):
        await historian("read_conversation", id="s3")
    assert (await historian("read_conversation", id="s2"))["turns"]


async def test_nothing_is_left_out_where_nothing_is_off(library: Library) -> None:
    past = await reachable(library, HistoryOptions())
    assert past.store is await library.history()
    await library.create("elsewhere", "")
    await library.switch("elsewhere", off=True)
    assert (await reachable(library, HistoryOptions())).store is past.store


async def test_all_ways_to_ask_leave_it_out(library: Library) -> None:
    await library.switch("shop", off=True)
    past = await reachable(library, HistoryOptions())
    assert past.hidden == {f"{SHOP}/api"}
    every = Where(kinds=(CONVERSATION, TURN, CODE, SYMBOL))
    store = past.store
    assert {record.scope for record in await store.scan(every)} == {BLOG}
    assert await store.how_many(every) == 2
    assert {tally.scope for tally in await store.tally((TURN,))} == {BLOG}
    assert len(await store.containing("zebra", Where(kinds=(TURN,)), 10)) == 1
    hidden = Where(kinds=(TURN,), scopes=(f"{SHOP}/api",))
    assert await store.scan(hidden) == []
    assert await store.how_many(hidden) == 0
    full = await library.history()
    ids = [record.id for record in await full.scan(hidden)]
    assert len(ids) == 2
    assert await store.get(ids) == []


async def test_a_folder_that_the_project_knows_by_another_name_is_off_too(
    library: Library,
) -> None:
    await library.switch("shop", off=True)
    past = await reachable(library, HistoryOptions(workspace={BLOG: SHOP}.get))
    assert past.hidden == {BLOG, f"{SHOP}/api"}
    assert await past.store.scan(Where(kinds=(TURN,))) == []


async def test_each_folder_is_looked_at_once_for_all_calls(library: Library) -> None:
    looked_at: list[str] = []

    def workspace(folder: str) -> str | None:
        looked_at.append(folder)
        return SHOP if folder == BLOG else None

    await library.switch("shop", off=True)
    options = HistoryOptions(workspace=workspace)
    for _ in range(3):
        assert (await reachable(library, options)).hidden == {BLOG, f"{SHOP}/api"}
    assert sorted(looked_at) == [BLOG, f"{SHOP}/api"]
    await library.switch("shop", off=False)
    assert (await reachable(library, options)).hidden == frozenset()


async def test_what_is_said_in_a_new_folder_is_hidden_as_well(library: Library) -> None:
    await library.switch("shop", off=True)
    assert (await reachable(library, HistoryOptions())).hidden == {f"{SHOP}/api"}
    await tell(await library.history(), "s3", "A zebra on the web", project=f"{SHOP}/web")
    assert (await reachable(library, HistoryOptions())).hidden == {f"{SHOP}/api", f"{SHOP}/web"}


async def test_a_stamp_tells_that_a_project_was_switched(library: Library) -> None:
    before = await (await reachable(library, HistoryOptions())).stamp()
    await library.switch("shop", off=True)
    assert await (await reachable(library, HistoryOptions())).stamp() != before


async def test_nobody_is_told_to_import_what_is_only_off(library: Library) -> None:
    await library.assign_workspace(BLOG, await library.create("blog", ""))
    for name in ("shop", "blog"):
        await library.switch(name, off=True)
    historian = Historian(library, Moment())
    for tool in ("recall_previous_discussions", "unified_memory_search"):
        answer = await historian(tool, query="zebra")
        assert answer["results"] == []
        assert "import" not in str(answer.get("warnings"))
