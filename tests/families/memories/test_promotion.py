from typing import Any, cast

import pytest

from recollect.core.ports import ProjectChoice, RecordStore
from recollect.core.records import Batch, Change, Delete, Where
from recollect.core.sessions import Call
from recollect.errors import InvalidInput, Unavailable
from recollect.families.memories.model import MEMORY
from recollect.families.memories.promotion import finish_promotions
from remembering import Assistant

API = {"name": "API", "type": "component", "relationship": "about"}


class Breaking:
    """A store whose process ends before it deletes anything."""

    def __init__(self, store: RecordStore) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def commit(self, batch: Batch) -> Change:
        if any(isinstance(step, Delete) for step in batch.steps):
            raise Unavailable("The process was killed.")
        return await self._store.commit(batch)


class BreakingChoice:
    """Which project is meant, with a store that breaks."""

    def __init__(self, assistant: Assistant) -> None:
        self._choice = assistant.choice

    def __getattr__(self, name: str) -> Any:
        return getattr(self._choice, name)

    async def to_read(self, call: Call, name: str | None) -> Any:
        return Breaking(await self._choice.to_read(call, name))


async def crash_in_promotion(assistant: Assistant, memory: str) -> None:
    choice = cast(ProjectChoice, BreakingChoice(assistant))
    doomed = Assistant(assistant.library, clock=assistant.clock, choice=choice)
    with pytest.raises(Unavailable):
        await doomed("promote_memory", memory_id=memory, target_scope="user")


async def live(store: RecordStore) -> list[str]:
    return [record.text for record in await store.scan(Where(kinds=(MEMORY,)))]


async def test_a_session_memory_becomes_the_projects(assistant: Assistant) -> None:
    memory = await assistant.stored("Errors are wrapped", "session", related_entities=[API])
    answer = await assistant(
        "promote_memory", memory_id=memory, target_scope="project", reason="Of use to all"
    )
    assert answer == {
        "memory_id": memory,
        "previous_scope": "session",
        "new_scope": "project",
        "reason": "Of use to all",
    }
    (found,) = await assistant.beside("two").recall("errors")
    assert (found["id"], found["scope"]) == (memory, "project")
    assert "session_id" not in found


async def test_a_memory_becomes_the_users_with_all_it_had(assistant: Assistant) -> None:
    memory = await assistant.stored(
        "Errors are wrapped", importance=0.9, tags=["style"], related_entities=[API], pinned=True
    )
    await assistant.recall("errors")
    promoted = await assistant("promote_memory", memory_id=memory, target_scope="user")
    assert promoted["memory_id"] == memory
    elsewhere = Assistant(assistant.library, project="other")
    (found,) = await elsewhere.recall("errors")
    assert (found["id"], found["scope"], found["tags"]) == (memory, "user", ["style"])
    assert (found["importance"], found["pinned"]) == (0.9, True)
    walked = await elsewhere("search_knowledge_graph", entity="API")
    assert [m["id"] for m in walked["memories"]] == [memory]
    user = await assistant.library.user()
    assert (await user.accesses([memory]))[memory].count == 1
    assert await live(await assistant.project_store()) == []
    status = await assistant("get_memory_status")
    assert (status["counts"]["total"], status["counts"]["forgotten"]) == (1, 0)
    assert len(await assistant.recall("errors", include_forgotten=True)) == 1


@pytest.mark.parametrize("scope", ["project", "user"])
async def test_a_text_that_the_target_has_is_merged_into_it(
    assistant: Assistant, scope: str
) -> None:
    there = await assistant.stored("Errors are wrapped", scope, importance=0.2, tags=["a"])
    memory = await assistant.stored(
        "errors are wrapped", "session", importance=0.7, tags=["b"], related_entities=[API]
    )
    answer = await assistant("promote_memory", memory_id=memory, target_scope=scope)
    assert (answer["memory_id"], answer["merged"]) == (there, True)
    (found,) = await assistant.recall("errors")
    assert (found["id"], found["importance"], found["tags"]) == (there, 0.7, ["a", "b"])
    walked = await assistant("search_knowledge_graph", entity="API")
    assert [m["id"] for m in walked["memories"]] == [there]


async def test_only_a_broader_scope_is_a_promotion(assistant: Assistant) -> None:
    of_project = await assistant.stored("Of the project")
    of_user = await assistant.stored("Of the user", "user")
    for memory, target in ((of_project, "project"), (of_user, "project"), (of_user, "user")):
        with pytest.raises(InvalidInput) as caught:
            await assistant("promote_memory", memory_id=memory, target_scope=target)
        assert caught.value.facts["argument"] == "target_scope"


async def test_a_crash_inside_a_promotion_loses_nothing_and_is_settled_later(
    assistant: Assistant,
) -> None:
    memory = await assistant.stored("Errors are wrapped", related_entities=[API])
    await crash_in_promotion(assistant, memory)
    project, user = await assistant.project_store(), await assistant.library.user()
    assert await live(project) == await live(user) == ["Errors are wrapped"]
    (found,) = await assistant.recall("errors")
    assert (found["id"], found["scope"]) == (memory, "user")
    assert await finish_promotions(project, user, assistant.clock) == 1
    assert (await live(project), await live(user)) == ([], ["Errors are wrapped"])
    assert await finish_promotions(project, user, assistant.clock) == 0


async def test_a_crash_inside_a_merging_promotion_is_settled_too(assistant: Assistant) -> None:
    kept = await assistant.stored("Errors are wrapped", "user")
    memory = await assistant.stored("Errors are wrapped")
    await crash_in_promotion(assistant, memory)
    project, user = await assistant.project_store(), await assistant.library.user()
    assert await finish_promotions(project, user, assistant.clock) == 1
    assert [m["id"] for m in await assistant.recall("errors")] == [kept]


async def test_a_promotion_that_a_crash_cut_short_can_be_done_again(assistant: Assistant) -> None:
    memory = await assistant.stored("Errors are wrapped")
    await crash_in_promotion(assistant, memory)
    again = {"memory_id": memory, "target_scope": "user"}
    done = await assistant("promote_memory", **again)
    assert done == {"memory_id": memory, "previous_scope": "project", "new_scope": "user"}
    assert await live(await assistant.project_store()) == []
    with pytest.raises(InvalidInput):
        await assistant("promote_memory", **again)


async def test_whoever_changes_the_memory_first_settles_what_a_crash_left(
    assistant: Assistant,
) -> None:
    memory = await assistant.stored("Errors are wrapped")
    await crash_in_promotion(assistant, memory)
    await assistant("forget_memory", memory_id=memory)
    assert await assistant.texts("errors") == []
    assert await live(await assistant.project_store()) == []


async def test_a_memory_that_was_forgotten_as_the_users_can_be_promoted_again(
    assistant: Assistant,
) -> None:
    memory = await assistant.stored("Errors are wrapped")
    await crash_in_promotion(assistant, memory)
    user = await assistant.library.user()
    await user.commit(
        Batch((Delete((await user.get([memory]))[0].ref),), assistant.clock(), "test")
    )
    again = await assistant("promote_memory", memory_id=memory, target_scope="user")
    assert again["memory_id"] == memory
    assert [m["scope"] for m in await assistant.recall("errors")] == ["user"]
