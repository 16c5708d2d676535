"""The memory service, compared with the one that ADK keeps in memory."""

# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from google.adk.cli.service_registry import ServiceRegistry, _register_services_from_yaml_config
from google.adk.events import Event
from google.adk.memory import InMemoryMemoryService
from google.adk.memory.memory_entry import MemoryEntry
from google.adk.sessions import Session
from google.genai.types import Content, Part

from everkept import AsyncMemory
from everkept.integrations.google_adk import EverkeptMemoryService
from stand_in_models import QUOTE

SHOP_ADA = {"app_name": "shop", "user_id": "ada"}


def event(id: str, *texts: str, author: str = "user") -> Event:
    content = Content(role=author, parts=[Part(text=text) for text in texts])
    return Event(id=id, author=author, timestamp=1.7e9, content=content)


def session(*events: Event, app: str = "shop", user: str = "ada", id: str = "s1") -> Session:
    return Session(id=id, app_name=app, user_id=user, events=[*events])


@pytest.fixture
async def memory(tmp_path: Path) -> AsyncIterator[AsyncMemory]:
    async with AsyncMemory.open(project="agents", data_dir=tmp_path / "data", embedding_model="none") as opened:
        yield opened


@pytest.fixture(params=["everkept", "in memory"])
def service(request: pytest.FixtureRequest, memory: AsyncMemory) -> Any:
    return EverkeptMemoryService(memory) if request.param == "everkept" else InMemoryMemoryService()


async def find(service: Any, query: str, app: str = "shop", user: str = "ada") -> list[str]:
    found = await service.search_memory(app_name=app, user_id=user, query=query)
    return sorted(each.id for each in found.memories)


async def test_what_was_said_is_found_with_author_and_time(service: Any) -> None:
    await service.add_session_to_memory(
        session(event("e1", "Orders are in PostgreSQL"), event("e2", "Fine", author="model"))
    )
    [entry] = (await service.search_memory(**SHOP_ADA, query="postgresql orders")).memories
    assert (entry.id, entry.author) == ("e1", "user")
    assert entry.content == Content(role="user", parts=[Part(text="Orders are in PostgreSQL")])
    assert entry.timestamp.startswith("2023-11-1")
    assert await find(service, "quinquereme") == []


async def test_a_secret_in_what_was_said_is_masked(memory: AsyncMemory) -> None:
    service, token = EverkeptMemoryService(memory), "gh" + "p_" + "aB3dE6gH9jK2mN5pQ8rS1tU4vW7xY0zA3c"
    await service.add_session_to_memory(session(event("e1", f"CI uses {token} daily")))
    [entry] = (await service.search_memory(**SHOP_ADA, query="CI uses daily")).memories
    assert entry.content.parts[0].text == "CI uses [masked: github token] daily"


async def test_an_event_is_stored_once_however_often_it_is_added(service: Any) -> None:
    first = event("e1", "Orders are in PostgreSQL")
    await service.add_session_to_memory(session(first))
    await service.add_session_to_memory(session(first, event("e2", "Orders are large")))
    await service.add_events_to_memory(**SHOP_ADA, events=[first, event("e3", "Orders end")], session_id="s1")
    assert await find(service, "orders") == ["e1", "e2", "e3"]


async def test_memories_of_one_user_are_not_shown_to_another(service: Any) -> None:
    await service.add_session_to_memory(session(event("e1", "tea for ada")))
    await service.add_session_to_memory(session(event("e1", "tea for bob"), user="bob"))
    await service.add_session_to_memory(session(event("e1", "tea elsewhere"), app="shop/ada"))
    found = await service.search_memory(**SHOP_ADA, query="tea")
    assert [each.content.parts[0].text for each in found.memories] == ["tea for ada"]
    assert await find(service, "tea", user="eve") == []


async def test_a_deleted_memory_does_not_return(service: Any) -> None:
    await service.add_session_to_memory(session(event("e1", "tea"), event("e2", "tea too")))
    await service.delete_memory(**SHOP_ADA, memory_id="e1")
    await service.delete_memory(**SHOP_ADA, memory_id="unknown")
    await service.delete_memory(**SHOP_ADA)
    await service.add_session_to_memory(session(event("e1", "tea"), event("e2", "tea too")))
    await service.add_events_to_memory(**SHOP_ADA, events=[event("e1", "tea")], session_id="s1")
    assert await find(service, "tea e1") == ["e2"]


async def test_events_without_text_are_skipped(service: Any) -> None:
    bare = Event(id="e1", author="model", content=None)
    await service.add_session_to_memory(session(bare, event("e2"), event("e3", "tea")))
    assert await find(service, "tea") == ["e3"]


async def test_memories_can_be_added_and_outlive_the_program(memory: AsyncMemory, tmp_path: Path) -> None:
    entry = MemoryEntry(
        content=Content(parts=[Part(text="hmm", thought=True), Part(text="She likes tea")]),
        custom_metadata={"kind": "preference"},
    )
    await EverkeptMemoryService(memory).add_memory(**SHOP_ADA, memories=[entry], custom_metadata={"by": "hand"})
    await memory.close()
    async with AsyncMemory.open(project="agents", data_dir=tmp_path / "data", embedding_model="none") as again:
        service = EverkeptMemoryService(again)
        [found] = (await service.search_memory(**SHOP_ADA, query="tea")).memories
        assert found.content == Content(parts=[Part(text="She likes tea")])
        assert found.custom_metadata == {"kind": "preference", "by": "hand"}
        assert (await service.search_memory(**SHOP_ADA, query=" ")).memories == []


async def test_the_best_results_are_as_many_as_asked_for(memory: AsyncMemory) -> None:
    service = EverkeptMemoryService(memory, max_results=3)
    await service.add_session_to_memory(session(*(event(f"e{number}", f"tea {number}") for number in range(9))))
    assert len(await find(service, "tea")) == 3


async def test_a_services_file_opens_it_by_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVERKEPT_DATA_DIR", str(tmp_path / "data"))
    registry = ServiceRegistry()
    opened = "everkept.integrations.google_adk.open_memory_service"
    declared = {"services": [{"scheme": "everkept", "type": "memory", "class": opened}]}
    _register_services_from_yaml_config(declared, registry)
    service = registry.create_memory_service("everkept://agents", agents_dir=str(tmp_path))
    assert isinstance(service, EverkeptMemoryService)
    await service.add_session_to_memory(session(event("e1", "tea")))
    async with AsyncMemory.open(project="agents", data_dir=tmp_path / "data") as memory:
        assert await find(EverkeptMemoryService(memory), "tea") == ["e1"]


def test_the_example_remembers_an_earlier_session(run_example: Any) -> None:
    printed, _ = run_example("google_adk_memory.py", "I live in Lisbon", replies=["Noted."])
    assert printed == "Noted.\n"
    asking = [("load_memory", {"query": "city where the user lives"}), QUOTE]
    printed, _ = run_example("google_adk_memory.py", "Which city do I live in?", replies=asking)
    assert "I live in Lisbon" in printed


def test_the_example_of_the_page_runs(run_page: Any) -> None:
    printed, _ = run_page("Google ADK", replies=[("load_memory", {"query": "city"}), "Lisbon"])
    assert printed == "Lisbon\n"
