import asyncio
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from account_worlds import ANNA, ENTITIES, HOMES, PROJECTS, SECRET, URIS, WORDS, Step, World, repeatable, steps
from everkept.app.app import App
from everkept.core.records import RecordFilter
from everkept.core.sessions import act_as
from everkept.engines.memory.library import MemoryLibrary
from everkept.settings import read_settings
from everkept.tools.tool import Tool
from examples import examples

# Nothing of the data folder is used: the library is in memory.
NOWHERE = Path(tempfile.gettempdir()) / "everkept-accounts"

SEARCHING = (
    "recall_memories",
    "search_nodes",
    "recall_previous_discussions",
    "search_code_history",
    "unified_memory_search",
)
LOOKING = ("read_graph", "get_memory_status", "get_memory_context", "search_knowledge_graph")

accesses = st.sampled_from(("none", "read", "write"))
grants = st.fixed_dictionaries({"shop": accesses, "blog": accesses})


def offered() -> list[Tool]:
    app = App(read_settings({"data_dir": NOWHERE, "transport": "http"}, {}), library=MemoryLibrary())
    with act_as(ANNA):
        return list(app.tools)


async def ids_in(world: World) -> list[str]:
    """Of everything that there is, whoever has it."""
    library = world.app.library
    opened = [(await library.open(p.name))[1] for p in await library.list_projects()]
    stores = [await library.open_user_store(), await library.open_history_store(), *opened]
    return [record.id for store in stores for record in await store.scan(RecordFilter())]


async def all_ids(given_grants: Mapping[str, str]) -> list[str]:
    with repeatable():
        world = World(NOWHERE, given_grants, has_others=True)
        await world.begin()
        found = await ids_in(world)
        await world.close()
    return [*found[::7], "talk", "turn", "code"]


async def told_in(made: Sequence[Step], given_grants: Mapping[str, str], *, has_others: bool) -> list[str]:
    with repeatable():
        world = World(NOWHERE, given_grants, has_others=has_others)
        await world.begin()
        told: list[str] = []
        for step in made:
            await world.others_do(step)
            told.append(await world.anna_does(step))
        await world.close()
    return told


TOOLS = offered()
IDS = asyncio.run(all_ids(dict.fromkeys(PROJECTS[:2], "none")))


@settings(max_examples=examples(40))
@given(made=st.lists(steps(TOOLS, IDS), min_size=1, max_size=25), granted=grants)
def test_whatever_others_have_and_do_an_account_is_told_the_same(made: list[Step], granted: dict[str, str]) -> None:
    there = asyncio.run(told_in(made, granted, has_others=True))
    absent = asyncio.run(told_in(made, granted, has_others=False))
    for step, one, other in zip(made, there, absent, strict=True):
        assert one == other, step
    assert SECRET not in "".join(there)


async def test_no_word_of_what_is_hidden_is_told_whatever_is_asked() -> None:
    queries = [{"query": word} for word in WORDS]
    asked: list[Step] = [
        *(("recall_memories", query | {"all_projects": True}) for query in queries),
        *(("unified_memory_search", query | {"options": {"all_projects": True}}) for query in queries),
        *((tool, query) for tool in SEARCHING for query in queries),
        *(("get_memory_context", {"task_description": word}) for word in WORDS),
        *(("find_similar_problems", {"problem_description": word}) for word in WORDS),
        *(("read_conversation", {"id": name}) for name in IDS),
        *(("search_knowledge_graph", {"entity": name}) for name in ENTITIES),
        *((tool, {"project": name}) for tool in LOOKING for name in (*PROJECTS, *HOMES)),
        *(("resources/read", {"uri": uri}) for uri in URIS),
        *((tool, {"status": "all"}) for tool in ("list_projects", "resources/list")),
    ]
    told = await told_in(asked, {"shop": "none", "blog": "none"}, has_others=True)
    assert [step for step, each in zip(asked, told, strict=True) if SECRET in each] == []


async def test_what_is_granted_is_found() -> None:
    asked: list[Step] = [("read_graph", {"project": name}) for name in ("shop", "blog")]
    for access in ("read", "write"):
        shop, blog = await told_in(asked, {"shop": access, "blog": "none"}, has_others=True)
        assert "granted redis" in shop
        assert blog.startswith("NotFound")
