import json
from collections import Counter
from pathlib import Path
from typing import Any, NoReturn, cast

import jsonschema
import pytest

from assistant import Assistant, CountedChoice, PromptIndexing, codes
from everkept.core.ports import Library
from everkept.core.records import RecordFilter
from everkept.core.sessions import Session
from everkept.engines.memory.library import MemoryLibrary
from everkept.errors import InvalidInput, NotFound, Unavailable
from everkept.families.memories.model import MemoryOptions
from hash_embedder import BrokenEmbedder

JSON = dict[str, Any]
CONTRACT: dict[str, JSON] = json.loads((Path(__file__).parent / "contract.json").read_text(encoding="utf-8"))
NAMES = [
    "store_memory",
    "recall_memories",
    "search_knowledge_graph",
    "forget_memory",
    "update_memory",
    "reflect_and_consolidate",
    "get_memory_status",
    "get_memory_context",
    "promote_memory",
    "tag_memory",
]
BOTH = ["project_context", "relevant_procedures"]  # sections of the project, and of the user too
ENTITIES = [{"name": "API", "type": "component", "relationship": "about"}]


class WithoutUser:
    """All projects, with a user's store that cannot be read."""

    def __init__(self, library: Library) -> None:
        self._library = library

    def __getattr__(self, name: str) -> Any:
        return getattr(self._library, name)

    async def open_user_store(self) -> NoReturn:
        raise Unavailable("The disk is gone.")


@pytest.fixture
def offered() -> Assistant:
    return Assistant(MemoryLibrary())


def test_the_ten_tools_are_offered_in_a_fixed_order(offered: Assistant) -> None:
    assert [tool.name for tool in offered.tools] == NAMES
    assert set(CONTRACT) == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_the_input_is_the_contracts(offered: Assistant, name: str) -> None:
    ours, theirs = offered.tools.get(name).input_schema, CONTRACT[name]["inputSchema"]
    assert missing(theirs, ours) == []
    needed = ["content"] if name == "store_memory" else theirs.get("required", [])  # its type and scope have defaults
    assert ours.get("required", []) == needed


def missing(theirs: JSON, ours: JSON, path: str = "") -> list[str]:
    """What the contract says of an argument and we do not."""
    lost = [
        f"{path} {key}"
        for key in ("type", "format", "default", "minimum", "maximum")
        if key in theirs and theirs[key] != ours.get(key)
    ]
    lost += [f"{path} {choice}" for choice in theirs.get("enum", []) if choice not in ours["enum"]]
    for name, property_schema in theirs.get("properties", {}).items():
        if name not in ours["properties"]:
            lost.append(f"{path}.{name}")
        else:
            lost += missing(property_schema, ours["properties"][name], f"{path}.{name}")
    if "items" in theirs:
        lost += missing(theirs["items"], ours["items"], f"{path}[]")
    for one, other in zip(theirs.get("oneOf", []), ours.get("oneOf", []), strict=True):
        lost += missing(one, other, path)
    return lost


@pytest.mark.parametrize("name", NAMES)
def test_the_annotations_are_true_to_the_contract(offered: Assistant, name: str) -> None:
    annotations, hints = offered.tools.get(name).annotations, CONTRACT[name]["hints"]
    assert annotations["readOnlyHint"] == hints["readOnly"]
    # Consolidating marks its sources and loses nothing, whatever the contract fears.
    if name != "reflect_and_consolidate":
        assert annotations["destructiveHint"] == hints["destructive"]


async def answers(assistant: Assistant) -> dict[str, JSON]:
    """An answer of every tool with something in it."""
    stored = await assistant.store("The API listens on port 8080", related_entities=ENTITIES)
    of_session = await assistant.stored("We looked at the API", "session", type="episodic")
    memory = {"memory_id": stored["memory_id"]}
    return {
        "store_memory": stored,
        "recall_memories": await assistant("recall_memories", query="API port"),
        "search_knowledge_graph": await assistant("search_knowledge_graph", entity="API"),
        "update_memory": await assistant("update_memory", **memory, importance=0.9),
        "tag_memory": await assistant("tag_memory", **memory, add=["net"]),
        "get_memory_context": await assistant("get_memory_context", task_description="API"),
        "get_memory_status": await assistant("get_memory_status"),
        "reflect_and_consolidate": await assistant("reflect_and_consolidate", dry_run=True),
        "promote_memory": await assistant(
            "promote_memory", memory_id=of_session, target_scope="project", reason="Why not"
        ),
        "forget_memory": await assistant("forget_memory", **memory, reason="Done"),
    }


async def test_results_have_the_contracts_keys_and_fit_their_schemas(assistant: Assistant) -> None:
    for name, answer in (await answers(assistant)).items():
        assert lacking(CONTRACT[name]["returns"], answer) == [], name
        schema = assistant.tools.get(name).output_schema
        assert schema is not None
        jsonschema.validate(answer, schema)


def lacking(promised: Any, given: Any, path: str = "") -> list[str]:
    """Keys that the contract promises and an answer does not have."""
    if isinstance(promised, list) and promised and isinstance(given, list):
        shape = cast(list[Any], promised)[0]
        return [lost for item in cast(list[Any], given) for lost in lacking(shape, item, path)]
    if not isinstance(promised, dict):
        return []
    lost: list[str] = []
    for key, value in cast(JSON, promised).items():
        if isinstance(value, str) and value.endswith("?"):
            continue
        if not isinstance(given, dict) or key not in given:
            lost.append(f"{path}.{key}")
        else:
            lost += lacking(value, given[key], f"{path}.{key}")
    return lost


async def test_everything_works_on_a_project_that_is_not_made_yet(assistant: Assistant) -> None:
    assert await assistant.recall("anything") == []
    assert (await assistant("search_knowledge_graph"))["entities"] == []
    assert (await assistant("get_memory_status"))["counts"]["total"] == 0
    assert (await assistant("get_memory_context"))["memories_used"] == 0
    reflected = await assistant("reflect_and_consolidate")
    assert reflected["session_stats"]["memories_analyzed"] == 0
    assert await assistant.library.list_projects() == []


async def test_a_project_can_be_named_with_each_call(assistant: Assistant) -> None:
    await assistant.library.create("other", "")
    await assistant.store("Of another project", project="other")
    assert await assistant.texts("project") == []
    assert await assistant.texts("project", project="other") == ["Of another project"]
    with pytest.raises(NotFound):
        await assistant.recall("project", project="nowhere")


async def test_a_session_is_the_configured_one_unless_another_is_given(assistant: Assistant) -> None:
    options = MemoryOptions(time_limit=None, session_id="configured")
    configured = Assistant(assistant.library, options=options)
    await configured.store("Mine", "session")
    await configured.store("Of elsewhere", "session", session_id="elsewhere")
    assert await configured.texts("mine elsewhere") == ["Mine"]
    assert await configured.texts("mine elsewhere", session_id="elsewhere") == ["Of elsewhere"]
    status = await configured("get_memory_status")
    assert status["current_session"]["session_id"] == "configured"


async def test_context_counts_what_it_gives_out(assistant: Assistant) -> None:
    await assistant.store("The API listens on port 8080")
    await assistant.store("Prefers short answers", "user", importance=0.9)
    block = await assistant("get_memory_context", task_description="the API", max_tokens=400)
    assert block["memories_used"] == 2
    assert block["tokens_used"] <= 400
    assert "port 8080" in block["context_block"]
    assert {m["access_count"] for m in await assistant.recall("API answers")} == {1}


async def test_context_has_only_the_sections_asked_for(assistant: Assistant) -> None:
    await assistant.store("The API listens on port 8080")
    await assistant.store("Prefers short answers", "user", importance=0.9)
    block = await assistant("get_memory_context", sections=["preferences"])
    assert "short answers" in block["context_block"]
    assert "8080" not in block["context_block"]
    with pytest.raises(InvalidInput):
        await assistant("get_memory_context", sections=["everything"])
    with pytest.raises(InvalidInput):
        await assistant("get_memory_context", max_tokens=99)


async def test_context_never_shows_another_sessions_memories(assistant: Assistant) -> None:
    await assistant.store("Said in confidence", "session", type="episodic")
    other = await assistant.beside("two")("get_memory_context", task_description="confidence")
    assert "confidence" not in other["context_block"]


async def test_context_says_what_could_not_be_searched(assistant: Assistant) -> None:
    await assistant.store("The API listens on port 8080")
    whole = await assistant("get_memory_context", task_description="the API")
    assert "warnings" not in whole
    indexing = PromptIndexing(embedder=BrokenEmbedder())
    broken = Assistant(assistant.library, indexing=indexing)
    block = await broken("get_memory_context", task_description="the API")
    assert "port 8080" in block["context_block"]
    told = await broken("recall_memories", query="the API")
    assert block["warnings"] == told["warnings"]
    jsonschema.validate(block, broken.tools.get("get_memory_context").output_schema or {})


async def test_context_says_that_the_users_memories_are_missing(assistant: Assistant) -> None:
    await assistant.store("The API listens on port 8080")
    alone = Assistant(cast(Library, WithoutUser(assistant.library)))
    block = await alone(
        "get_memory_context", task_description="the API", sections=["project_context", "relevant_procedures"]
    )
    assert "port 8080" in block["context_block"]
    assert codes(block) == ["user_scope_unavailable"]


async def test_consolidating_writes_once_and_a_dry_run_nothing(assistant: Assistant) -> None:
    for text in (
        "The login page failed with error 500 after the deploy",
        "The login page failed again with error 500 after a second deploy",
        "The login page error 500 after the deploy came from a missing key",
    ):
        await assistant.store(text, "session", type="episodic")
    planned = await assistant("reflect_and_consolidate", dry_run=True)
    assert planned["session_stats"]["memories_analyzed"] == 3
    assert len(await assistant.recall("login", scope="project")) == 0
    written = await assistant("reflect_and_consolidate")
    assert written["consolidated_memories"] == planned["consolidated_memories"]
    assert len(await assistant.recall("login", scope="project")) == 1
    again = await assistant("reflect_and_consolidate")
    assert again["consolidated_memories"] == []
    sources = await assistant.recall("login", scope="session")
    assert all(memory["consolidated"] for memory in sources)


async def test_a_connection_without_sessions_must_say_which_to_consolidate(assistant: Assistant) -> None:
    stateless = Assistant(assistant.library, session=Session(stateful=False))
    with pytest.raises(InvalidInput, match="session_id"):
        await stateless("reflect_and_consolidate")
    await stateless("reflect_and_consolidate", session_id="mine")
    assert "current_session" not in await stateless("get_memory_status")


async def test_a_session_that_never_stored_anything_is_said_to_be_unknown(assistant: Assistant) -> None:
    unknown = await assistant("reflect_and_consolidate", session_id="sesion:one")
    assert codes(unknown) == ["unknown_session"]
    assert '"sesion:one"' in unknown["warnings"][0]["message"]
    await assistant("forget_memory", memory_id=await assistant.stored("Said here", "session"))
    assert codes(await assistant("reflect_and_consolidate", session_id="session:one")) == []
    assert codes(await assistant("reflect_and_consolidate")) == []


async def test_a_single_value_that_is_not_allowed_is_reported_by_its_own_name(assistant: Assistant) -> None:
    for name, one, many in (("scope", "galaxy", ["user", "galaxy"]), ("type", "odd", ["semantic", "odd"])):
        with pytest.raises(InvalidInput) as single:
            await assistant("recall_memories", query="x", **{name: one})
        assert single.value.facts["argument"] == name
        with pytest.raises(InvalidInput) as listed:
            await assistant("recall_memories", query="x", **{name: many})
        assert listed.value.facts["argument"] == f"{name}[1]"


async def test_a_context_block_takes_one_search_and_few_scans(assistant: Assistant) -> None:
    for scope in ("project", "user"):
        await assistant.store(f"The login of the {scope} is slow", scope)
        await assistant.store(f"Restart the login of the {scope}", scope, type="procedural")
    choice = CountedChoice(assistant.library)
    counted = Assistant(assistant.library, clock=assistant.clock, choice=choice)
    made = await counted("get_memory_context", task_description="the slow login")
    assert made["memories_used"] == 4
    # One scan for what is pinned, and one for the session.
    assert choice.asked == Counter(list_authors=1, match=1, find_near=1, get=1, scan=2)


KEY = "AKIAIOSFODNN7EXAMPLE"
API = {"name": "API", "type": "component", "relationship": "about"}


async def test_secrets_are_masked_before_storing(assistant: Assistant) -> None:
    stored = await assistant.store("The key is AKIAIOSFODNN7EXAMPLE, said Ada")
    assert codes(stored) == ["secret_masked"]
    (found,) = await assistant.recall("key")
    assert "AKIAIOSFODNN7EXAMPLE" not in found["content"]
    changed = await assistant(
        "update_memory",
        memory_id=stored["memory_id"],
        metadata={"password": "hunter2-is-not-enough", "notes": [{"by": "Ada"}]},
    )
    assert codes(changed) == ["secret_masked"]
    (found,) = await assistant.recall("key")
    assert "hunter2" not in str(found["metadata"])
    assert found["metadata"]["notes"] == [{"by": "Ada"}]


async def everything_stored(assistant: Assistant) -> str:
    """All that both stores hold and held."""
    told: list[str] = []
    for store in (await assistant.project_store(), await assistant.library.open_user_store()):
        records = await store.scan(RecordFilter(deleted=None))
        links = await store.scan_links(deleted=None)
        refs = [thing.ref for thing in (*records, *links)]
        told.append(str((records, links, await store.read_history(refs))))
    return "".join(told)


@pytest.mark.parametrize(
    "field",
    [
        {"content": f"The key is {KEY}"},
        {"tags": ["a", KEY]},
        {"author": f"Ada {KEY}"},
        {"source": {"tool": KEY}},
        {"source": {"file": f"https://bob:{KEY}@host/a"}},
        {"related_entities": [API | {"name": f"The {KEY}"}]},
        {"related_entities": [API | {"type": KEY}]},
        {"related_entities": [API | {"relationship": KEY}]},
    ],
)
@pytest.mark.parametrize("scope", ["project", "user"])
async def test_a_secret_is_masked_in_whatever_is_stored(
    assistant: Assistant, field: dict[str, Any], scope: str
) -> None:
    stored = await assistant("store_memory", **({"content": "A thought", "type": "semantic"} | field), scope=scope)
    assert codes(stored) == ["secret_masked"]
    told = await everything_stored(assistant)
    assert KEY not in told
    assert "[masked: " in told


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("update_memory", {"content": f"The key is {KEY}"}),
        ("update_memory", {"tags": [KEY]}),
        ("update_memory", {"tags": {"add": [KEY]}}),
        ("update_memory", {"metadata": {"note": [{"key": KEY}]}}),
        ("update_memory", {"metadata": {f"of {KEY}": "Port 8080"}}),
        ("update_memory", {"related_entities": {"add": [API | {"name": KEY}]}}),
        ("tag_memory", {"add": [KEY]}),
        ("forget_memory", {"reason": f"It held {KEY}"}),
        ("promote_memory", {"target_scope": "user", "reason": f"It held {KEY}"}),
    ],
)
async def test_a_secret_is_masked_in_whatever_is_changed(
    assistant: Assistant, tool: str, arguments: dict[str, Any]
) -> None:
    memory = await assistant.stored("A thought", tags=["a"])
    assert codes(await assistant(tool, memory_id=memory, **arguments)) == ["secret_masked"]
    told = await everything_stored(assistant)
    assert KEY not in told
    assert "[masked: " in told


async def test_a_masked_name_of_metadata_leaves_its_value_alone(assistant: Assistant) -> None:
    memory = await assistant.stored("A thought")
    await assistant("update_memory", memory_id=memory, metadata={f"of {KEY}": "Port 8080"})
    (found,) = await assistant.recall("thought")
    assert list(found["metadata"].values()) == ["Port 8080"]


async def test_a_session_id_with_a_secret_is_refused(assistant: Assistant) -> None:
    with pytest.raises(InvalidInput) as caught:
        await assistant.store("A thought", "session", session_id=f"of {KEY}")
    assert KEY not in str(caught.value.to_envelope())
    assert KEY not in await everything_stored(assistant)


async def test_masking_can_be_switched_off(library: Library) -> None:
    assistant = Assistant(library, options=MemoryOptions(mask_secrets=False, time_limit=None))
    await assistant.store("The key is AKIAIOSFODNN7EXAMPLE")
    assert await assistant.texts("key") == ["The key is AKIAIOSFODNN7EXAMPLE"]
