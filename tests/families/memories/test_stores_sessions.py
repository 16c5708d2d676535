from typing import cast

import pytest

from assistant import Assistant, Watched
from everkept.core.ports import RecordStore
from everkept.core.records import Batch, Delete, Insert
from everkept.core.sessions import Call, Session
from everkept.errors import InvalidInput, StorageFull
from everkept.families.memories.model import Options
from everkept.families.memories.stores import (
    MOST_SESSIONS,
    Use,
    Uses,
    close_session,
    required_session,
    session_of,
)
from records import entity


def call(*, stateful: bool = True) -> Call:
    return Call(Session(id="abc", stateful=stateful), "test")


def test_a_session_is_given_or_configured_or_the_clients() -> None:
    configured = Options(session_id="configured")
    assert session_of(call(), " given ", configured) == "given"
    assert session_of(call(), None, configured) == "configured"
    assert session_of(call(), None, Options()) == "session:abc"
    assert session_of(call(stateful=False), None, Options()) is None
    assert required_session(call(), None, Options()) == "session:abc"
    with pytest.raises(InvalidInput):
        required_session(call(stateful=False), None, Options())


async def test_a_closed_session_knows_what_it_came_to(assistant: Assistant) -> None:
    await assistant.store("The login page fails", "session", type="episodic")
    await assistant.store("The login page needs a key")
    store = await assistant.project_store()
    at = assistant.clock()
    assert await close_session(store, "session:one", at, Use(3, {"a", "b"}))
    (session,) = await store.get(["session:one"])
    assert "2 memories" in session.text
    assert session.facets == {"client": "test", "ended_at": at, "recalled": 3, "served": 2}


async def test_closing_again_changes_nothing_unless_something_was_stored(
    assistant: Assistant,
) -> None:
    await assistant.store("The login page fails", "session")
    store = await assistant.project_store()
    assert await close_session(store, "session:one", assistant.clock())
    before = await store.revision()
    assert not await close_session(store, "session:one", assistant.clock())
    assert await store.revision() == before
    await assistant.store("It works again", "session")
    assert await close_session(store, "session:one", assistant.clock())


async def test_a_session_that_stored_nothing_leaves_nothing(assistant: Assistant) -> None:
    store = await assistant.project_store()
    assert not await close_session(store, "session:none", assistant.clock())
    made = await assistant.choice.to_write(Call(assistant.session, "test"), None)
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
    uses = Uses()
    uses.recalled("first", ["a", "b"])
    uses.recalled("first", ["b", "c"])
    uses.recalled(None, ["z"])
    assert uses.of("first") == Use(2, {"a", "b", "c"})
    assert uses.of("unknown") == Use()
    for number in range(MOST_SESSIONS):
        uses.recalled(str(number), [])
    assert uses.of("first") == Use()


async def test_an_archived_project_does_not_take_the_others_summaries_away(
    assistant: Assistant,
) -> None:
    for project in ("shop", "other"):
        await assistant.library.create(project, "")
        await assistant.store("The login page fails", "session", project=project)
    _, other = await assistant.library.open("other")
    await assistant.library.archive("shop")
    await assistant.family.uses.close(assistant.clock())
    (session,) = await other.get(["session:one"])
    assert "1 memory" in session.text


async def test_a_store_that_cannot_be_written_leaves_the_others_theirs(
    assistant: Assistant,
) -> None:
    await assistant.store("The login page fails", "session")
    store = await assistant.project_store()

    async def failing(_batch: Batch) -> None:
        raise StorageFull("The disk is full.")

    uses = Uses()
    broken = [cast(RecordStore, Watched(store, failing)) for _ in range(8)]
    uses.of("session:one").stores |= {*broken, store}
    await uses.close(assistant.clock())
    (session,) = await store.get(["session:one"])
    assert "1 memory" in session.text
