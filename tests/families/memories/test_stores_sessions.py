from typing import Any, cast

import pytest

from assistant import DAY_ONE, Assistant, Time, Watched
from everkept.core.ports import Library, RecordStore
from everkept.core.records import Batch, Delete, Insert
from everkept.core.sessions import Session, ToolCall
from everkept.core.times import format_iso
from everkept.errors import InvalidInput, NotFound, StorageFull
from everkept.families.memories.memory_documents import read_session_document
from everkept.families.memories.model import MemoryOptions
from everkept.families.memories.stores import (
    MAX_SESSIONS,
    SessionUse,
    SessionUses,
    close_session,
    get_session_id,
    require_session_id,
)
from records import entity

HOUR = 3_600 * 1_000_000


def call(*, stateful: bool = True) -> ToolCall:
    return ToolCall(Session(id="abc", stateful=stateful), "test")


def test_a_session_is_given_or_configured_or_the_clients() -> None:
    configured = MemoryOptions(session_id="configured")
    assert get_session_id(call(), " given ", configured) == "given"
    assert get_session_id(call(), None, configured) == "configured"
    assert get_session_id(call(), None, MemoryOptions()) == "session:abc"
    assert get_session_id(call(stateful=False), None, MemoryOptions()) is None
    assert require_session_id(call(), None, MemoryOptions()) == "session:abc"
    with pytest.raises(InvalidInput):
        require_session_id(call(stateful=False), None, MemoryOptions())


async def test_a_closed_session_knows_what_it_came_to(assistant: Assistant) -> None:
    await assistant.store("The login page fails", "session", type="episodic")
    await assistant.store("The login page needs a key")
    store = await assistant.project_store()
    at = assistant.clock()
    assert await close_session(store, "session:one", at, SessionUse(3, {"a", "b"}))
    (session,) = await store.get(["session:one"])
    assert "2 memories" in session.text
    expected = {"client": "test", "started_at": DAY_ONE, "ended_at": at, "recalled": 3, "served": 2}
    assert session.facets == expected


async def test_closing_again_changes_nothing_unless_something_was_stored(assistant: Assistant) -> None:
    await assistant.store("The login page fails", "session")
    store = await assistant.project_store()
    assert await close_session(store, "session:one", assistant.clock())
    before = await store.get_revision()
    assert not await close_session(store, "session:one", assistant.clock())
    assert await store.get_revision() == before
    await assistant.store("It works again", "session")
    assert await close_session(store, "session:one", assistant.clock())


async def test_a_session_that_stored_nothing_leaves_nothing(assistant: Assistant) -> None:
    store = await assistant.project_store()
    assert not await close_session(store, "session:none", assistant.clock())
    made = await assistant.choice.open_to_write(ToolCall(assistant.session, "test"), None)
    await made.commit(Batch((Insert(entity("thing")),), assistant.clock(), "test"))
    assert not await close_session(made, "thing", assistant.clock())


async def test_an_undone_session_is_brought_back_by_the_next_memory(assistant: Assistant) -> None:
    await assistant.store("A thought", "session")
    store = await assistant.project_store()
    (session,) = await store.get(["session:one"])
    await store.commit(Batch((Delete(session.ref),), assistant.clock(), "test"))
    await assistant.store("Another thought", "session")
    assert len(await store.get(["session:one"])) == 1


def test_uses_are_counted_by_session_and_the_oldest_are_dropped() -> None:
    uses = SessionUses()
    uses.count_recall("first", ["a", "b"])
    uses.count_recall("first", ["b", "c"])
    uses.count_recall(None, ["z"])
    assert uses.get_use("first") == SessionUse(2, {"a", "b", "c"})
    assert uses.get_use("unknown") == SessionUse()
    for number in range(MAX_SESSIONS):
        uses.count_recall(str(number), [])
    assert uses.get_use("first") == SessionUse()


async def read_status(assistant: Assistant, **more: Any) -> dict[str, Any]:
    return (await assistant("get_memory_status", **more))["current_session"]


async def test_what_a_session_stored_stays_counted_after_a_promotion_or_a_forgetting(assistant: Assistant) -> None:
    ids = [await assistant.stored(f"Thought {number} of many", "session") for number in range(5)]
    await assistant("promote_memory", memory_id=ids[0], target_scope="project")
    await assistant("promote_memory", memory_id=ids[1], target_scope="user")
    await assistant("forget_memory", memory_id=ids[2])
    await assistant.store("Thought 3 of many")
    await assistant("promote_memory", memory_id=ids[3], target_scope="project")  # becomes the one that is there
    status = await read_status(assistant)
    assert (status["memories_this_session"], status["promoted"], status["forgotten"]) == (6, 3, 1)
    for memory in await assistant.recall("thought"):
        assert memory.get("session_id") == ("session:one" if memory["id"] not in ids[:4] else None)
    await assistant.family.uses.close(assistant.clock())
    summary = (await read_status(assistant))["summary"]
    assert summary.startswith("6 memories (6 semantic), 3 promoted, 1 forgotten.")
    stores = (await assistant.project_store(), await assistant.library.open_user_store())
    text = await read_session_document(stores, "session:one", None, SessionUse())
    assert "**Memories stored:** 6 (6 semantic) | 3 promoted | 1 forgotten" in text


async def test_a_resumed_session_keeps_its_start_and_its_recalls(library: Library) -> None:
    def resume(hours: int) -> Assistant:
        options = MemoryOptions(session_id="resumed", started_at=DAY_ONE + hours * HOUR)
        return Assistant(library, options=options, clock=Time(DAY_ONE + hours * HOUR + HOUR // 2))

    first = resume(1)
    await first.store("The login page fails", "session")
    await first.recall("login")
    began = (await read_status(first))["started_at"]
    assert began == format_iso(DAY_ONE + HOUR)
    await first.family.uses.close(first.clock())
    second = resume(3)
    status = await read_status(second)
    assert (status["started_at"], status["memories_this_session"]) == (began, 1)
    assert status["ended_at"] < format_iso(DAY_ONE + 2 * HOUR)
    assert status["summary"].startswith("1 memory")
    await second.recall("login")
    await second.store("It works again", "session")
    await second.family.uses.close(second.clock())
    (record,) = await (await second.project_store()).get(["resumed"])
    assert (record.facets["recalled"], record.facets["served"]) == (2, 2)
    stores = (await second.project_store(), await library.open_user_store())
    text = await read_session_document(stores, "resumed", DAY_ONE + 3 * HOUR, SessionUse())
    assert f"Started: {began[:10]} {began[11:16]}" in text
    assert "**Memories recalled:** 2 queries" in text


async def test_the_summary_of_another_session_can_be_read(assistant: Assistant) -> None:
    other = assistant.beside("two")
    await other.store("The login page fails", "session")
    await other.family.uses.close(assistant.clock())
    status = await read_status(assistant, session_id="session:two")
    assert (status["session_id"], status["memories_this_session"]) == ("session:two", 1)
    assert status["summary"].startswith("1 memory")
    assert "summary" not in await read_status(assistant)
    with pytest.raises(NotFound):
        await assistant("get_memory_status", session_id="session:none")


async def test_a_session_is_as_old_as_its_first_process(library: Library) -> None:
    hook = Assistant(library, clock=Time(DAY_ONE + HOUR), options=MemoryOptions())
    await hook.store("Stored by a hook", "session", session_id="shared")
    served = MemoryOptions(session_id="shared", started_at=DAY_ONE)
    server = Assistant(library, clock=Time(DAY_ONE + 2 * HOUR), options=served)
    await server.store("Stored by a server", "session")
    later = Assistant(library, clock=Time(DAY_ONE + 9 * HOUR), options=MemoryOptions(session_id="shared"))
    assert (await read_status(later))["started_at"] == format_iso(DAY_ONE)


async def test_an_archived_project_does_not_take_the_others_summaries_away(assistant: Assistant) -> None:
    for project in ("shop", "other"):
        await assistant.library.create(project, "")
        await assistant.store("The login page fails", "session", project=project)
    _, other = await assistant.library.open("other")
    await assistant.library.archive("shop")
    await assistant.family.uses.close(assistant.clock())
    (session,) = await other.get(["session:one"])
    assert "1 memory" in session.text


async def test_a_store_that_cannot_be_written_leaves_the_others_theirs(assistant: Assistant) -> None:
    await assistant.store("The login page fails", "session")
    store = await assistant.project_store()

    async def failing(_batch: Batch) -> None:
        raise StorageFull("The disk is full.")

    uses = SessionUses()
    broken = [cast(RecordStore, Watched(store, failing)) for _ in range(8)]
    uses.get_use("session:one").stores |= {*broken, store}
    await uses.close(assistant.clock())
    (session,) = await store.get(["session:one"])
    assert "1 memory" in session.text
