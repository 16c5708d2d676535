from assistant import DAY_ONE, Assistant, PromptIndexing
from everkept.core.library import Condition
from everkept.core.ports import Library
from everkept.core.times import format_iso
from everkept.engines.memory.library import MemoryLibrary
from everkept.errors import ModelUnavailable
from everkept.families.memories.model import MEMORY, MemoryOptions
from records import batch, memory


async def test_counts_cover_both_stores_and_all_sessions(assistant: Assistant) -> None:
    entity = {"name": "API", "type": "component", "relationship": "about"}
    await assistant.store("One", related_entities=[entity])
    await assistant.store("Two", "user", type="procedural")
    await assistant.store("Three", "session", type="working")
    await assistant.beside("two").store("Four", "session", type="episodic")
    await assistant("forget_memory", memory_id=await assistant.stored("Five"))
    counts = (await assistant("get_memory_status"))["counts"]
    assert counts == {
        "total": 4,
        "by_scope": {"session": 2, "project": 1, "user": 1},
        "by_type": {"episodic": 1, "semantic": 1, "procedural": 1, "working": 1},
        "forgotten": 1,
        "entities": 1,
        "relationships": 1,
    }


async def test_the_connection_and_the_session_are_described(library: Library) -> None:
    assistant = Assistant(library, options=MemoryOptions(started_at=DAY_ONE - 60_000_000))
    await assistant.store("One", "session")
    await assistant.store("Two", "user")
    await assistant.beside("two").store("Three", "session")
    await assistant("forget_memory", memory_id=await assistant.stored("Four"))
    status = await assistant("get_memory_status")
    connection, condition = status["connection"], library.condition
    assert (connection["status"], connection["engine"]) == ("connected", condition.engine)
    assert (connection["mode"], connection["version"]) == (condition.mode, condition.version)
    assert connection.get("path") == (condition.place or None)
    assert {"since", "reason", "waiting_writes", "writes_set_aside"}.isdisjoint(connection)
    assert connection["uptime_seconds"] >= 60
    session = status["current_session"]
    assert (session["session_id"], session["memories_this_session"]) == ("session:one", 3)
    assert (session["promoted"], session["forgotten"]) == (0, 1)
    assert session["started_at"].startswith("2023-11-14")


async def test_a_database_that_is_away_is_described_with_what_waits_for_it() -> None:
    away = Condition(
        "surreal",
        "remote",
        "degraded",
        place="wss://db.example.com",
        since=DAY_ONE,
        reason="It does not answer.",
        waiting=3,
        set_aside=1,
    )
    status = await Assistant(MemoryLibrary(condition=away))("get_memory_status")
    told = status["connection"]
    assert (told["status"], told["engine"], told["mode"]) == ("degraded", "surreal", "remote")
    assert told["path"] == "wss://db.example.com"
    assert (told["since"], told["reason"]) == (format_iso(DAY_ONE), "It does not answer.")
    assert (told["waiting_writes"], told["writes_set_aside"]) == (3, 1)


async def test_embeddings_are_counted_as_they_follow(assistant: Assistant) -> None:
    await assistant.store("One")
    waiting = await assistant.family.get_memory_status(assistant.call("get_memory_status"))
    assert waiting.storage.embeddings is not None
    assert (waiting.storage.embeddings.stored, waiting.storage.embeddings.pending) == (0, 1)
    storage = (await assistant("get_memory_status"))["storage"]
    assert storage["embeddings"] == {"stored": 1, "pending": 0}
    assert (storage["embedding_model"], storage["embedding_dimensions"]) == ("hashing", 384)


async def test_every_text_that_gets_a_vector_is_counted(library: Library) -> None:
    assistant = Assistant(library, indexing=PromptIndexing(kinds=(MEMORY, "section")))
    await assistant.store("One")
    _, store = await library.open("shop")
    await store.commit(batch(memory("Two", kind="section")))
    storage = (await assistant("get_memory_status"))["storage"]
    assert storage["embeddings"] == {"stored": 2, "pending": 0}


async def test_a_missing_model_is_said(library: Library) -> None:
    fault = ModelUnavailable("model.onnx", "is missing")
    broken = Assistant(library, indexing=PromptIndexing(fault=fault))
    status = await broken("get_memory_status")
    assert status["connection"]["status"] == "degraded"
    assert "model.onnx" in status["storage"]["embeddings"]["problem"]
    without = Assistant(library, indexing=PromptIndexing(embedder=None))
    storage = (await without("get_memory_status"))["storage"]
    assert (storage["embedding_model"], storage["embedding_dimensions"]) == ("none", 0)
