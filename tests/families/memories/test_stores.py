from typing import Any

import pytest

from assistant import Assistant, CountedChoice
from everkept.core.records import Batch
from everkept.core.sessions import Session
from everkept.errors import NotFound
from everkept.families.memories.model import MemoryOptions

API = {"name": "API", "type": "component", "relationship": "about"}


@pytest.mark.parametrize(
    ("tool", "more"),
    [
        ("forget_memory", {}),
        ("update_memory", {"importance": 1}),
        ("tag_memory", {"add": ["a"]}),
        ("promote_memory", {"target_scope": "user"}),
    ],
)
async def test_an_unknown_id_is_refused_with_the_way_to_find_one(
    assistant: Assistant, tool: str, more: dict[str, Any]
) -> None:
    with pytest.raises(NotFound) as caught:
        await assistant(tool, memory_id="memory:01ARZ3NDEKTSV4RRFFQ69G5FAV", **more)
    assert "recall_memories" in str(caught.value)


async def test_ids_are_taken_without_their_prefix(assistant: Assistant) -> None:
    memory = await assistant.stored("A thought", "session")
    tagged = await assistant("tag_memory", memory_id=memory.removeprefix("memory:"), add=["a"])
    assert tagged == {"memory_id": memory, "tags": ["a"]}


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("get_memory_context", {"task_description": "the login"}),
        ("recall_memories", {"query": "the login"}),
        ("search_knowledge_graph", {"entity": "API"}),
        ("store_memory", {"content": "New", "type": "semantic", "scope": "project"}),
    ],
)
async def test_a_call_finds_its_project_once(assistant: Assistant, tool: str, arguments: dict[str, Any]) -> None:
    await assistant.store("The login is slow", related_entities=[API])
    choice = CountedChoice(assistant.library)
    counted = Assistant(assistant.library, clock=assistant.clock, choice=choice)
    await counted(tool, **arguments)
    choice.begin()
    await counted(tool, **(arguments | ({"content": "Newer"} if "content" in arguments else {})))
    assert choice.resolved == 1


async def test_a_project_that_a_call_makes_is_the_one_that_it_reads_then(assistant: Assistant) -> None:
    old = await assistant.stored("Indent with tabs", "user")
    new = await assistant.stored("Indent with spaces", supersedes=old)
    by_id = {memory["id"]: memory for memory in await assistant.recall("indent", include_superseded=True)}
    assert by_id[old]["superseded_by"] == new


BY_ID: list[tuple[str, dict[str, Any]]] = [
    ("forget_memory", {}),
    ("update_memory", {"content": "Overwritten"}),
    ("tag_memory", {"add": ["a"]}),
    ("promote_memory", {"target_scope": "user"}),
]


@pytest.mark.parametrize(("tool", "more"), BY_ID)
async def test_another_sessions_memory_is_as_if_it_were_not_there(
    assistant: Assistant, tool: str, more: dict[str, Any]
) -> None:
    memory = await assistant.stored("Said in confidence", "session")
    with pytest.raises(NotFound) as caught:
        await assistant.beside("two")(tool, memory_id=memory, **more)
    with pytest.raises(NotFound) as missing:
        await assistant(tool, memory_id="memory:none", **more)
    assert str(caught.value).replace(memory, "") == str(missing.value).replace("memory:none", "")
    assert await assistant.texts("confidence") == ["Said in confidence"]


async def test_another_sessions_memory_cannot_be_superseded(assistant: Assistant) -> None:
    memory = await assistant.stored("Said in confidence", "session")
    with pytest.raises(NotFound):
        await assistant.beside("two").store("Said aloud", supersedes=memory)
    assert await assistant.texts("said") == ["Said in confidence"]
    one = Session(client="test", stateful=False)
    stateless = Assistant(assistant.library, session=one, clock=assistant.clock)
    await stateless.store("Said aloud", "session", session_id="session:one", supersedes=memory)
    with pytest.raises(NotFound):
        await stateless.store("Said again", "session", session_id="elsewhere", supersedes=memory)


async def test_another_sessions_forgotten_memory_stays_unknown(assistant: Assistant) -> None:
    memory = await assistant.stored("Said in confidence", "session")
    await assistant("forget_memory", memory_id=memory, reason="Private")
    with pytest.raises(NotFound, match="not found"):
        await assistant.beside("two")("forget_memory", memory_id=memory)


@pytest.mark.parametrize(("tool", "more"), BY_ID)
async def test_who_belongs_to_no_session_reaches_all_memories(
    assistant: Assistant, tool: str, more: dict[str, Any]
) -> None:
    options = MemoryOptions(time_limit=None, session_id="of the environment")
    for session, chosen in ((Session(stateful=False), assistant.options), (Session(is_conversation=False), options)):
        memory = await assistant.stored(f"Said in confidence to {session.stateful}", "session")
        outside = Assistant(assistant.library, session=session, clock=assistant.clock, options=chosen)
        more = {key: f"{value} {memory}" if key == "content" else value for key, value in more.items()}
        assert (await outside(tool, memory_id=memory, **more))["memory_id"] == memory


async def test_a_change_follows_a_memory_that_is_promoted_meanwhile(assistant: Assistant) -> None:
    memory = await assistant.stored("A thought")
    done = False

    async def promote(_batch: Batch) -> None:
        nonlocal done
        if not done:
            done = True
            await assistant("promote_memory", memory_id=memory, target_scope="user")

    changing = assistant.watched(project=promote)
    tagged = await changing("tag_memory", memory_id=memory, add=["a"])
    assert tagged["tags"] == ["a"]
    (found,) = await assistant.recall("thought")
    assert (found["scope"], found["tags"]) == ("user", ["a"])
