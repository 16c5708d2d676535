from typing import Any

import pytest

from everkept.core.ports import Library
from everkept.core.records import Where
from everkept.errors import InvalidInput
from everkept.families.memories.masking import Masking
from everkept.families.memories.model import Options, RelatedEntity, Source
from remembering import Assistant, codes

KEY = "AKIAIOSFODNN7EXAMPLE"
API = {"name": "API", "type": "component", "relationship": "about"}


def test_secrets_are_masked_wherever_they_stand() -> None:
    masking = Masking(enabled=True)
    values = {"a": KEY, "b": [{"c": f"key {KEY}"}], "d": 3, "password": "correct-horse-9-staple"}
    masked = masking.object(values)
    assert KEY not in str(masked)
    assert "horse" not in str(masked)
    assert masked["d"] == 3
    assert [warning.code for warning in masking.warnings()] == ["secret_masked"]


def test_what_is_no_secret_stays_and_needs_no_warning() -> None:
    masking = Masking(enabled=True)
    values = {"note": "Port 8080", "list": ["a", 1, None]}
    assert masking.object(values) == values
    assert masking.text("Nothing to hide") == "Nothing to hide"
    assert masking.warnings() == []


def test_masking_that_is_switched_off_touches_nothing() -> None:
    masking = Masking(enabled=False)
    assert masking.text(KEY) == KEY
    assert masking.object({"a": KEY}) == {"a": KEY}
    assert masking.warnings() == []


def test_names_of_values_are_masked_apart_from_the_values() -> None:
    masking = Masking(enabled=True)
    masked = masking.object({KEY: "Port 8080", "note": "kept"})
    assert KEY not in str(masked)
    assert sorted(masked.values()) == ["Port 8080", "kept"]
    assert len(masking.warnings()) == 1


def test_sources_and_entities_are_masked_field_by_field() -> None:
    masking = Masking(enabled=True)
    source = masking.source(Source(f"tool {KEY}", "https://bob:s3cret-pw@host/a", 3))
    assert KEY not in str(source)
    assert "s3cret" not in str(source)
    assert source.conversation_turn == 3
    (entity,) = masking.entities([RelatedEntity(f"a {KEY}", f"b {KEY}", f"c {KEY}")])
    assert KEY not in str(entity)
    assert entity.name.startswith("a [masked")
    assert masking.source(Source()) == Source()


def test_an_id_with_a_secret_is_refused_and_not_repeated() -> None:
    with pytest.raises(InvalidInput) as caught:
        Masking(enabled=True).check_id(f"session {KEY}", "session_id")
    assert KEY not in str(caught.value.envelope())
    Masking(enabled=True).check_id("session:0b6f4f1d2a7d4c3f9a3e1f2b3c4d5e6f", "session_id")
    Masking(enabled=False).check_id(KEY, "session_id")


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
    for store in (await assistant.project_store(), await assistant.library.user()):
        records = await store.scan(Where(deleted=None))
        links = await store.scan_links(deleted=None)
        refs = [thing.ref for thing in (*records, *links)]
        told.append(str((records, links, await store.history(refs))))
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
    stored = await assistant(
        "store_memory", **({"content": "A thought", "type": "semantic"} | field), scope=scope
    )
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
    assert KEY not in str(caught.value.envelope())
    assert KEY not in await everything_stored(assistant)


async def test_masking_can_be_switched_off(library: Library) -> None:
    assistant = Assistant(library, options=Options(mask_secrets=False, time_limit=None))
    await assistant.store("The key is AKIAIOSFODNN7EXAMPLE")
    assert await assistant.texts("key") == ["The key is AKIAIOSFODNN7EXAMPLE"]
