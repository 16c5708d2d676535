"""The session, compared with the SDK's own session in SQLite."""

# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false, reportUnknownMemberType=false

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from agents import (
    Agent,
    OpenAIResponsesModel,
    Runner,
    SessionSettings,
    SQLiteSession,
    function_tool,
    set_tracing_disabled,
)
from agents.memory import Session
from openai import AsyncOpenAI

from everkept import AsyncMemory
from everkept.integrations.openai_agents import EverkeptSession
from stand_in_models import serve_replies

set_tracing_disabled(True)
ITEMS: list[Any] = [
    {"role": "user", "content": "How do we deploy?"},
    {"id": "item_1", "type": "function_call", "call_id": "call_1", "name": "look", "arguments": '{"at": "ü"}'},
    {"type": "function_call_output", "call_id": "call_1", "output": "on Fridays"},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "On Fridays.", "x": None}]},
    {"role": "user", "content": "How do we deploy?"},
]


@pytest.fixture
async def memory(tmp_path: Path) -> AsyncIterator[AsyncMemory]:
    async with AsyncMemory.open(project="agents", data_dir=tmp_path / "data", embedding_model="none") as opened:
        yield opened


@pytest.fixture(params=["everkept", "sqlite"])
def session(request: pytest.FixtureRequest, memory: AsyncMemory) -> Any:
    return EverkeptSession("one", memory) if request.param == "everkept" else SQLiteSession("one")


async def test_items_come_back_unchanged_and_in_order(session: Any) -> None:
    assert isinstance(session, Session)
    await session.add_items(ITEMS[:3])
    await session.add_items([])
    await session.add_items(ITEMS[3:])
    assert await session.get_items() == ITEMS
    assert [[*item] for item in await session.get_items()] == [[*item] for item in ITEMS]
    assert await session.get_items(limit=2) == ITEMS[-2:]
    assert await session.get_items(limit=0) == []
    assert await session.get_items(limit=99) == ITEMS


async def test_the_newest_item_is_removed_exactly_once(session: Any) -> None:
    await session.add_items(ITEMS)
    assert await session.pop_item() == ITEMS[-1]
    assert await session.get_items() == ITEMS[:-1]
    await session.add_items(ITEMS[:1])
    assert [await session.pop_item() for _ in range(6)] == [ITEMS[0], *reversed(ITEMS[:-1]), None]


async def test_a_cleared_session_can_be_used_again(session: Any) -> None:
    await session.add_items(ITEMS)
    await session.clear_session()
    assert await session.get_items() == []
    assert await session.pop_item() is None
    await session.add_items(ITEMS[:2])
    assert await session.get_items() == ITEMS[:2]


async def test_sessions_are_apart_and_outlive_the_program(memory: AsyncMemory, tmp_path: Path) -> None:
    one, two = EverkeptSession("one", memory), EverkeptSession("two", memory, settings=SessionSettings(limit=1))
    await one.add_items(ITEMS)
    await two.add_items(ITEMS[1:3])
    await one.clear_session()
    await memory.close()
    async with AsyncMemory.open(project="agents", data_dir=tmp_path / "data", embedding_model="none") as again:
        assert await EverkeptSession("one", again).get_items() == []
        assert await EverkeptSession("two", again).get_items() == ITEMS[1:3]
    assert two.session_settings is not None


async def test_a_limit_of_the_settings_counts_without_another_one(memory: AsyncMemory) -> None:
    session = EverkeptSession("one", memory, settings=SessionSettings(limit=2))
    await session.add_items(ITEMS)
    assert await session.get_items() == ITEMS[-2:]
    assert await session.get_items(4) == ITEMS[-4:]


async def test_each_of_several_removals_gets_another_item(memory: AsyncMemory) -> None:
    session = EverkeptSession("one", memory)
    await session.add_items([{"role": "user", "content": str(number)} for number in range(10)])
    removed = await asyncio.gather(*(EverkeptSession("one", memory).pop_item() for _ in range(12)))
    assert sorted(each["content"] for each in removed if each is not None) == [str(number) for number in range(10)]


async def test_what_was_said_is_found_across_sessions(memory: AsyncMemory) -> None:
    await EverkeptSession("one", memory).add_items(ITEMS)
    found = await memory.documents.search(("openai-agents",), "fridays")
    assert [each.namespace for each in found] == [("openai-agents", "one")]


async def test_an_agent_continues_its_conversation(memory: AsyncMemory) -> None:
    @function_tool
    def look(at: str) -> str:
        """Look something up."""
        return f"seen {at}"

    session = EverkeptSession("one", memory)
    with serve_replies(("look", {"at": "calendar"}), "On Fridays.", "As I said.") as model:
        async with AsyncOpenAI(api_key="none", base_url=model.url) as client:
            agent = Agent("Helper", model=OpenAIResponsesModel("stand-in", client), tools=[look])
            await Runner.run(agent, "How do we deploy?", session=session)
            answer = await Runner.run(agent, "Again?", session=session)
    assert answer.final_output == "As I said."
    told = str(model.requests[2]["input"])
    assert all(part in told for part in ("How do we deploy?", "seen calendar", "On Fridays.", "Again?"))
    assert len(await session.get_items()) == 6


def test_the_example_continues_in_a_later_run(run_example: Any) -> None:
    printed, _ = run_example("openai_agents_session.py", "I live in Lisbon", replies=["Noted."])
    assert printed == "Noted.\n"
    _, [request] = run_example("openai_agents_session.py", "Which city do I live in?", replies=["Lisbon"])
    assert "I live in Lisbon" in str(request["input"])


def test_the_example_of_the_page_runs(run_page: Any) -> None:
    assert run_page("OpenAI Agents", replies=["Lisbon"])[0] == "Lisbon\n"
