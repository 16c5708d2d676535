from typing import Any

from assistant import Assistant, codes

API = {"name": "API", "type": "component", "relationship": "about"}


async def test_the_same_text_in_the_same_scope_is_the_memory_that_is_there(assistant: Assistant) -> None:
    first = await assistant.store("Tests run with pytest", tags=["tests"])
    again = await assistant.store("  Tests run with pytest\r\n", tags=["tests", "python"], related_entities=[API])
    assert again["memory_id"] == first["memory_id"]
    assert again["existing"] is True
    assert again["updated"] == ["tags", "related_entities"]
    assert again["graph_edges_created"] == 1
    (found,) = await assistant.recall("pytest")
    assert found["content"] == "Tests run with pytest"
    assert found["tags"] == ["tests", "python"]
    once_more = await assistant.store("Tests run with pytest", tags=["tests"])
    assert once_more["existing"] is True
    assert "updated" not in once_more


async def test_what_a_memory_that_is_there_lacks_is_added_and_named(assistant: Assistant) -> None:
    first = await assistant.stored("Deploys run at noon", importance=0.3)
    again = await assistant.store(
        "Deploys run at noon",
        importance=1,
        pinned=True,
        author="Ada",
        occurred_at="2026-02-01T00:00:00Z",
        source={"file": "deploy.md", "conversation_turn": 3},
    )
    assert again["memory_id"] == first
    assert again["updated"] == ["importance", "pinned", "author", "occurred_at", "source"]
    assert codes(again) == []
    (found,) = await assistant.recall("deploys")
    assert (found["importance"], found["pinned"], found["author"]) == (1, True, "Ada")
    assert found["occurred_at"] == "2026-02-01T00:00:00.000Z"
    assert found["source"] == {"file": "deploy.md", "conversation_turn": 3}


async def test_what_a_memory_that_is_there_has_otherwise_is_kept_and_named(assistant: Assistant) -> None:
    await assistant.stored("Deploys run at noon", author="Ada", importance=0.9)
    again = await assistant.store("Deploys run at noon", type="procedural", author="Bob", importance=0.2)
    assert "updated" not in again
    assert codes(again) == ["kept_as_it_was"]
    assert "type and author" in again["warnings"][0]["message"]
    (found,) = await assistant.recall("deploys")
    assert (found["type"], found["author"], found["importance"]) == ("semantic", "Ada", 0.9)


async def test_a_call_without_an_importance_raises_none(assistant: Assistant) -> None:
    await assistant.stored("Deploys run at noon", importance=0.1)
    assert "updated" not in await assistant.store("Deploys run at noon")
    assert (await assistant.recall("deploys"))[0]["importance"] == 0.1


async def test_a_turn_of_another_conversation_is_not_taken_over(assistant: Assistant) -> None:
    await assistant.stored("Deploys run at noon")
    again = await assistant.beside("two").store(
        "Deploys run at noon", source={"tool": "editor", "conversation_turn": 3}
    )
    assert again["updated"] == ["source"]
    assert (await assistant.recall("deploys"))[0]["source"] == {"tool": "editor"}


async def test_the_same_event_at_another_moment_is_another_event(assistant: Assistant) -> None:
    def event(at: str | None, **more: Any) -> dict[str, Any]:
        return {"type": "episodic", **({"occurred_at": at} if at else {}), **more}

    january, february = "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"
    words = "The nightly deploy failed on the second host"
    first = await assistant.stored(words, **event(january))
    second = await assistant.store(words, **event(february, importance=1, pinned=True))
    assert "existing" not in second
    assert codes(second) == []
    again = await assistant.store(words, **event(january, tags=["ops"]))
    assert (again["memory_id"], again["updated"]) == (first, ["tags"])
    undated = await assistant.stored(words, **event(None))
    assert len({first, second["memory_id"], undated}) == 3
    assert await assistant.stored(words, **event(None)) == undated


async def test_texts_that_differ_in_case_or_inner_blanks_are_two_memories(assistant: Assistant) -> None:
    texts = ["set PATH=/Opt/Bin", "set path=/opt/bin", "set  path=/opt/bin"]
    assert len({await assistant.stored(text) for text in texts}) == 3


async def test_the_same_text_in_another_scope_or_session_is_another_memory(assistant: Assistant) -> None:
    ids = {
        await assistant.stored("Tests run with pytest", "project"),
        await assistant.stored("Tests run with pytest", "user"),
        await assistant.stored("Tests run with pytest", "session"),
        await assistant.beside("two").stored("Tests run with pytest", "session"),
    }
    assert len(ids) == 4


async def test_a_forgotten_text_can_be_stored_anew(assistant: Assistant) -> None:
    first = await assistant.stored("Tests run with pytest")
    await assistant("forget_memory", memory_id=first)
    again = await assistant.store("Tests run with pytest")
    assert again["memory_id"] != first
    assert "existing" not in again
