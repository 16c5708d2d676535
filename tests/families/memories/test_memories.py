import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from assistant import Assistant, CountedChoice, PromptIndexing, codes
from everkept.core.ports import Library
from everkept.core.records import RecordFilter
from everkept.core.sessions import Session
from everkept.core.times import format_iso
from everkept.engines.sqlite.library import SqliteLibrary
from everkept.errors import AmbiguousName, Conflict, InvalidInput, ModelUnavailable, NotFound, Refused
from everkept.families.memories.model import MEMORY, MemoryOptions

API = {"name": "API", "type": "component", "relationship": "about"}


async def test_what_is_stored_is_recalled_with_all_it_was_given(assistant: Assistant) -> None:
    stored = await assistant.store(
        "Deploys run from the release branch",
        type="procedural",
        importance=0.8,
        tags=["deploy", " ci "],
        source={"tool": "editor", "file": "deploy.sh", "conversation_turn": 3},
        author="Ada",
        occurred_at="2023-11-01T10:00:00+02:00",
        pinned=True,
    )
    assert stored["embedding_generated"] is True
    assert stored["embedding"] == "pending"
    assert (stored["scope"], stored["type"]) == ("project", "procedural")
    (found,) = await assistant.recall("how do we deploy")
    assert found["id"] == stored["memory_id"]
    assert found["content"] == "Deploys run from the release branch"
    assert (found["type"], found["scope"], found["importance"]) == ("procedural", "project", 0.8)
    assert found["tags"] == ["deploy", "ci"]
    assert found["source"] == {"tool": "editor", "file": "deploy.sh", "conversation_turn": 3}
    assert (found["author"], found["pinned"]) == ("Ada", True)
    assert found["occurred_at"] == "2023-11-01T08:00:00.000Z"
    assert found["session_id"] == "session:one"


async def test_a_memory_needs_only_its_content(assistant: Assistant) -> None:
    stored = await assistant("store_memory", content="Tests run with pytest")
    assert (stored["type"], stored["scope"]) == ("semantic", "project")
    (found,) = await assistant.recall("which test runner")
    assert (found["id"], found["importance"]) == (stored["memory_id"], 0.5)


async def test_a_memory_that_still_waits_for_its_vector_says_so_again(assistant: Assistant) -> None:
    await assistant.stored("Tests run with pytest")
    assistant.indexing.woken.clear()
    assert (await assistant.store("Tests run with pytest"))["embedding"] == "pending"
    assert "embedding" not in await assistant.store("Tests run with pytest")


async def test_entities_of_a_memory_are_those_of_the_graph(assistant: Assistant) -> None:
    stored = await assistant.store(
        "The API calls the billing service",
        related_entities=[
            API,
            {"name": " api ", "entity_type": "Component", "relation_type": "about"},
            {"name": "Billing", "type": "service", "relationship": "calls"},
        ],
    )
    assert stored["graph_edges_created"] == 2
    store = await assistant.project_store()
    entities = await store.scan(RecordFilter(kinds=("entity",)))
    assert {(e.name, e.type) for e in entities} == {("API", "component"), ("Billing", "service")}


async def test_a_near_duplicate_is_named(assistant: Assistant) -> None:
    first = await assistant.stored("The nightly backup copies the database to cold storage")
    second = await assistant.store("The nightly backup copies our database into cold storage")
    assert codes(second) == ["similar_memory"]
    assert first in second["warnings"][0]["message"]


async def test_a_fact_with_another_value_is_named_as_likely_superseded(assistant: Assistant) -> None:
    await assistant.stored("The API listens on port 8080")
    second = await assistant.store("The API listens on port 9090")
    assert codes(second) == ["likely_superseded"]


async def test_unlike_memories_are_not_named(assistant: Assistant) -> None:
    await assistant.stored("The API listens on port 8080")
    assert codes(await assistant.store("Invoices are sent on Mondays")) == []


async def test_what_was_replaced_before_is_not_named_again(assistant: Assistant) -> None:
    old = await assistant.stored("The API listens on port 8080")
    await assistant.store("Requests now arrive through the gateway", supersedes=old)
    assert codes(await assistant.store("The API listens on port 7070")) == []


async def test_another_sessions_memory_is_never_named(assistant: Assistant) -> None:
    await assistant.beside("two").stored("The API listens on port 8080", "session")
    assert codes(await assistant.store("The API listens on port 9090")) == []


async def test_without_a_model_memories_are_kept_and_found_by_their_words(library: Library) -> None:
    broken = PromptIndexing(fault=ModelUnavailable("model.onnx", "is missing"))
    for indexing in (PromptIndexing(embedder=None), broken):
        assistant = Assistant(library, indexing=indexing)
        stored = await assistant.store(f"Kept with {len(indexing.woken)} and {indexing.fault}")
        assert stored["embedding_generated"] is False
        assert stored["searchable_by"] == "keyword_only"
        assert "embedding_failed" in codes(stored)
        assert "embedding" not in stored
        assert await assistant.texts("kept")


async def test_a_text_that_gets_no_new_vector_says_why(library: Library) -> None:
    broken = PromptIndexing(fault=ModelUnavailable("model.onnx", "is missing"))
    for indexing in (PromptIndexing(embedder=None), broken):
        assistant = Assistant(library, indexing=indexing)
        memory = await assistant.stored(f"Kept with {indexing.fault}")
        changed = await assistant("update_memory", memory_id=memory, content=f"A {memory}")
        assert changed["re_embedded"] is False
        assert codes(changed) == ["embedding_failed"]
        assert codes(await assistant("update_memory", memory_id=memory, importance=1)) == []


async def test_a_full_session_warns_those_who_ask_and_refuses_hooks(library: Library) -> None:
    options = MemoryOptions(max_per_session=2, time_limit=None)
    assistant = Assistant(library, options=options)
    await assistant.store("Number one", "session")
    await assistant.store("Number two", "user")
    assert codes(await assistant.store("A third thought, rather long")) == ["session_full"]
    hook = {"tool": "hook:PostToolUse"}
    with pytest.raises(Refused):
        await assistant.store("Edited main.py", "session", source=hook)
    assert codes(await assistant.beside("two").store("Edited main.py", source=hook)) == []


async def test_a_full_session_tells_how_many_it_has_stored(library: Library) -> None:
    before = Assistant(library, options=MemoryOptions(max_per_session=100, time_limit=None))
    for number in range(5):
        await before.store(f"Thought number {number}", "session")
    assistant = Assistant(library, options=MemoryOptions(max_per_session=2, time_limit=None))
    for stored in (5, 6):
        warned = await assistant.store(f"One more after {stored}", "user")
        assert f"has stored {stored} memories; its limit is 2." in warned["warnings"][0]["message"]
    with pytest.raises(Refused) as refused:
        await assistant.store("Edited main.py", "session", source={"tool": "hook:PostToolUse"})
    assert (refused.value.facts["stored"], refused.value.facts["limit"]) == (7, 2)


async def test_without_a_session_only_session_memories_need_one(library: Library) -> None:
    assistant = Assistant(library, session=Session(stateful=False))
    with pytest.raises(InvalidInput, match="session_id"):
        await assistant.store("Said in passing", "session")
    await assistant.store("Said in passing", "session", session_id="mine")
    await assistant.store("Said for good", "project")
    assert await assistant.texts("said") == ["Said for good"]
    assert len(await assistant.texts("said", session_id="mine")) == 2
    with pytest.raises(InvalidInput, match="session_id"):
        await assistant.recall("said", scope="session")


async def test_a_session_record_is_made_once_and_says_who_came(assistant: Assistant) -> None:
    await asyncio.gather(*(assistant.store(f"Thought {n}", "session") for n in range(5)))
    store = await assistant.project_store()
    (session,) = await store.scan(RecordFilter(kinds=("session",)))
    assert (session.id, session.facets["client"]) == ("session:one", "test")


async def test_a_session_id_cannot_be_the_id_of_something_else(assistant: Assistant) -> None:
    memory = await assistant.stored("A thought")
    with pytest.raises(InvalidInput, match="session_id"):
        await assistant.store("Another", "session", session_id=memory)


@pytest.mark.parametrize(
    "arguments",
    [
        {"content": "  "},
        {"content": "x" * 100_001},
        {"type": "musical"},
        {"scope": "galaxy"},
        {"importance": 1.1},
        {"importance": -0.1},
        {"tags": ["a\nb"]},
        {"tags": ["x" * 101]},
        {"tags": [str(n) for n in range(51)]},
        {"author": "a\x1bb"},
        {"session_id": "a\nb"},
        {"related_entities": [{"name": "a\tb", "type": "t", "relationship": "r"}]},
        {"related_entities": [{"type": "t", "relationship": "r"}]},
        {"related_entities": ["a\tb"]},
        {"related_entities": [" "]},
        {"related_entities": [API] * 101},
        {"source": {"conversation_turn": 2**60}},
        {"source": {"colour": "red"}},
        {"occurred_at": "yesterday"},
    ],
)
async def test_what_cannot_be_kept_is_refused_and_nothing_is_stored(
    assistant: Assistant, arguments: dict[str, Any]
) -> None:
    fields = {"content": "A thought", "type": "semantic", "scope": "session"}
    with pytest.raises(InvalidInput):
        await assistant("store_memory", **(fields | arguments))
    store = await assistant.project_store()
    assert await store.count_live() == {"link": 0}


async def test_the_fourth_type_and_the_older_argument_are_taken(assistant: Assistant) -> None:
    stored = await assistant("store_memory", content="Now at line 40", memory_type="working", scope="session")
    assert stored["type"] == "working"


async def test_two_processes_that_store_one_text_make_one_memory(tmp_path: Path) -> None:
    libraries = [SqliteLibrary(tmp_path) for _ in range(2)]
    await libraries[0].create("shop", "")
    try:
        assistants = [Assistant(library) for library in libraries]
        answers = await asyncio.gather(
            *(a.store(f"Thought {n // 4}", related_entities=[API]) for n in range(12) for a in assistants)
        )
        assert len({answer["memory_id"] for answer in answers}) == 3
        assert sum("existing" not in answer for answer in answers) == 3
        store = await assistants[0].project_store()
        assert len(await store.scan(RecordFilter(kinds=(MEMORY,)))) == 3
        assert len(await store.scan(RecordFilter(kinds=("entity",)))) == 1
        assert len(await store.scan(RecordFilter(kinds=("session",)))) == 1
    finally:
        for library in libraries:
            await library.close()


async def test_updating_changes_what_is_given_and_nothing_else(assistant: Assistant) -> None:
    memory = await assistant.stored("The API listens on port 8080", tags=["net", "old"])
    changed = await assistant(
        "update_memory",
        memory_id=memory,
        content="The API listens on port 9090",
        importance=0.9,
        tags={"add": ["port"], "remove": ["old"]},
        metadata={"checked": True},
        related_entities={"add": [API]},
        pinned=True,
    )
    assert changed == {
        "memory_id": memory,
        "updated_fields": ["content", "importance", "tags", "metadata", "pinned", "related_entities"],
        "re_embedded": True,
        "version": 2,
    }
    (found,) = await assistant.recall("API port 9090")
    assert found["content"] == "The API listens on port 9090"
    assert (found["importance"], found["tags"]) == (0.9, ["net", "port"])
    assert (found["metadata"], found["pinned"]) == ({"checked": True}, True)


async def test_an_update_that_changes_nothing_keeps_the_version(assistant: Assistant) -> None:
    memory = await assistant.stored("A thought", importance=0.5, tags=["a"])
    same = await assistant("update_memory", memory_id=memory, importance=0.5, tags=["a"])
    assert (same["updated_fields"], same["version"], same["re_embedded"]) == ([], 1, False)
    with pytest.raises(InvalidInput):
        await assistant("update_memory", memory_id=memory)


async def test_a_plain_list_of_tags_replaces_them(assistant: Assistant) -> None:
    memory = await assistant.stored("A thought", tags=["a", "b"])
    await assistant("update_memory", memory_id=memory, tags=["c"])
    assert (await assistant.recall("thought"))[0]["tags"] == ["c"]


async def test_metadata_is_merged_and_pins_can_be_taken_out(assistant: Assistant) -> None:
    memory = await assistant.stored("A thought", pinned=True)
    await assistant("update_memory", memory_id=memory, metadata={"a": 1, "b": {"c": [1]}})
    await assistant("update_memory", memory_id=memory, metadata={"a": 2}, pinned=False)
    more = await assistant("update_memory", memory_id=memory, metadata={"a": 2}, pinned=False)
    assert more["updated_fields"] == []
    (found,) = await assistant.recall("thought")
    assert found["metadata"] == {"a": 2, "b": {"c": [1]}}
    assert "pinned" not in found


async def test_metadata_keeps_to_its_limit_over_many_updates(assistant: Assistant) -> None:
    memory = await assistant.stored("A thought")
    await assistant("update_memory", memory_id=memory, metadata={"a": "x" * 15_000})
    with pytest.raises(InvalidInput) as caught:
        await assistant("update_memory", memory_id=memory, metadata={"b": "y" * 15_000})
    assert caught.value.facts["argument"] == "metadata"
    await assistant("update_memory", memory_id=memory, metadata={"a": "short", "b": "y" * 15_000})
    (found,) = await assistant.recall("thought")
    assert found["metadata"] == {"a": "short", "b": "y" * 15_000}


async def test_empty_metadata_changes_nothing(assistant: Assistant) -> None:
    memory = await assistant.stored("A thought")
    same = await assistant("update_memory", memory_id=memory, metadata={})
    assert (same["updated_fields"], same["version"]) == ([], 1)


async def test_a_change_of_entities_is_a_new_version(assistant: Assistant) -> None:
    memory = await assistant.stored("A thought")
    changed = await assistant("update_memory", memory_id=memory, related_entities={"add": [API]})
    assert (changed["updated_fields"], changed["version"]) == (["related_entities"], 2)
    again = await assistant("update_memory", memory_id=memory, related_entities={"add": [API]})
    assert (again["updated_fields"], again["version"]) == ([], 2)


async def test_entity_links_can_be_taken_away_by_name(assistant: Assistant) -> None:
    memory = await assistant.stored("A thought", related_entities=[API])
    for names in (["Unknown"], ["api (service)"]):
        kept = await assistant("update_memory", memory_id=memory, related_entities={"remove": names})
        assert kept["updated_fields"] == []
    gone = await assistant("update_memory", memory_id=memory, related_entities={"remove": ["api (Component)"]})
    assert gone["updated_fields"] == ["related_entities"]
    store = await assistant.project_store()
    assert await store.find_links([memory]) == []


async def test_two_memories_cannot_come_to_have_one_text(assistant: Assistant) -> None:
    first = await assistant.stored("A thought")
    second = await assistant.stored("Something else")
    with pytest.raises(Conflict) as caught:
        await assistant("update_memory", memory_id=second, content=" A thought ")
    assert caught.value.facts["memory_id"] == first
    spelled = await assistant("update_memory", memory_id=first, content="A Thought")
    assert spelled["updated_fields"] == ["content"]


async def test_an_update_keeps_the_former_version_for_whoever_asks_as_of_then(assistant: Assistant) -> None:
    memory = await assistant.stored("The API listens on port 8080")
    then = assistant.clock.at
    assistant.clock.pass_days(1)
    await assistant("update_memory", memory_id=memory, content="The API listens on port 9090")
    (before,) = await assistant.recall("API port", as_of=format_iso(then))
    assert before["content"] == "The API listens on port 8080"
    (after,) = await assistant.recall("API port")
    assert after["content"] == "The API listens on port 9090"


async def test_tags_are_added_and_removed(assistant: Assistant) -> None:
    memory = await assistant.stored("A thought", tags=["a"])
    tagged = await assistant("tag_memory", memory_id=memory, add=["b", " c "], remove=["a"])
    assert tagged == {"memory_id": memory, "tags": ["b", "c"]}
    assert (await assistant("tag_memory", memory_id=memory, tags=["d"]))["tags"] == ["b", "c", "d"]
    with pytest.raises(InvalidInput):
        await assistant("tag_memory", memory_id=memory, add=[str(n) for n in range(50)])


async def test_forgetting_is_soft_and_a_second_time_changes_nothing(assistant: Assistant) -> None:
    memory = await assistant.stored("The old framework is in use")
    answer = await assistant("forget_memory", memory_id=memory, reason="We moved on")
    assert answer == {"memory_id": memory, "status": "forgotten", "reason": "We moved on"}
    assert await assistant("forget_memory", memory_id=memory, reason="Again") == answer
    assert await assistant.texts("framework") == []
    (found,) = await assistant.recall("framework", include_forgotten=True)
    assert (found["id"], found["forgotten"]) == (memory, True)
    assert found["forgotten_reason"] == "We moved on"


async def test_a_forgotten_memory_is_not_changed(assistant: Assistant) -> None:
    memory = await assistant.stored("A thought")
    await assistant("forget_memory", memory_id=memory)
    with pytest.raises(NotFound, match="forgotten"):
        await assistant("tag_memory", memory_id=memory, add=["a"])


async def test_concurrent_changes_to_one_memory_are_all_kept(assistant: Assistant) -> None:
    memory = await assistant.stored("A thought")
    await asyncio.gather(*(assistant("tag_memory", memory_id=memory, add=[f"tag {n}"]) for n in range(8)))
    assert len((await assistant.recall("thought"))[0]["tags"]) == 8


async def test_a_new_memory_takes_one_question_for_each_thing_it_rests_on(assistant: Assistant) -> None:
    await assistant.store("The API has a port", related_entities=[API], session_id="s")
    choice = CountedChoice(assistant.library)
    counted = Assistant(assistant.library, clock=assistant.clock, choice=choice)
    await counted.store("The login is slow", related_entities=[API], session_id="s")
    await counted.indexing.catch_up()
    choice.begin()
    # Too short a text to be like another.
    made = await counted.store("Deployments hang", related_entities=[API], session_id="s")
    assert made["graph_edges_created"] == 1
    assert choice.asked == Counter(scan=1, get=1, commit=1)
    assert choice.given["scan"] == choice.given["get"] == 1


async def test_plain_names_of_entities_are_enough(assistant: Assistant) -> None:
    known = {"name": "Shop API", "type": "service", "relationship": "uses"}
    await assistant.store("The Shop API uses Redis", related_entities=[known])
    for scope in ("project", "user"):
        memory_id = await assistant.stored(f"A {scope} note", scope, related_entities=["shop api", "Ledger"])
        await assistant("update_memory", memory_id=memory_id, related_entities={"add": [{"name": "Queue"}]})
    found = await assistant("recall_memories", query="note", explain=True)
    for memory in found["memories"]:
        linked = [(each["name"], each["type"], each["relationship"]) for each in memory.get("related_entities", [])]
        if linked != [("Shop API", "service", "uses")]:
            assert linked == [
                ("Shop API", "service", "about"),
                ("Ledger", "unknown", "about"),
                ("Queue", "unknown", "about"),
            ]
    ledger = {"name": "Ledger", "type": "service", "relationship": "describes"}
    await assistant.store("The ledger is a service", related_entities=[ledger, "Ledger"])
    walked = await assistant("search_knowledge_graph", entity="Ledger")
    assert ("Ledger", "service") in {(each["name"], each["type"]) for each in walked["entities"]}


async def test_a_plain_name_of_two_entities_is_refused(assistant: Assistant) -> None:
    for kind in ("service", "team"):
        entity = {"name": "Shop", "type": kind, "relationship": "describes"}
        await assistant.store(f"The {kind}", related_entities=[entity])
    with pytest.raises(AmbiguousName):
        await assistant.store("Which one?", related_entities=["Shop"])
    assert await assistant.recall("Which one") == []
    await assistant.store("This one", related_entities=["Shop (team)"])
    found = await assistant("recall_memories", query="This one", explain=True)
    assert found["memories"][0]["related_entities"] == [{"name": "Shop", "type": "team", "relationship": "about"}]
