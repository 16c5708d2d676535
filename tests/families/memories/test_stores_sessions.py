from typing import cast

import pytest

from assistant import Assistant, Watched
from everkept.core.ports import RecordStore
from everkept.core.records import Batch, Delete, Insert
from everkept.core.sessions import Session, ToolCall
from everkept.errors import InvalidInput, StorageFull
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
    assert session.facets == {"client": "test", "ended_at": at, "recalled": 3, "served": 2}


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
