from typing import Any

import pytest

from assistant import Assistant, codes
from everkept.core.records import Batch, Insert, Update
from everkept.errors import InvalidInput, NotFound, Unavailable
from everkept.families.memories.lifecycle import MAX_EDITS, finish_supersessions
from everkept.families.memories.model import ENTITIES_LIMIT
from records import batch, memory

API = {"name": "API", "type": "component", "relationship": "about"}


async def test_a_recall_shows_the_newest_version_and_the_older_one_only_if_asked(assistant: Assistant) -> None:
    old = await assistant.stored("The API listens on port 8080", importance=0.9)
    new = await assistant.store("The API listens on port 9090", supersedes=old)
    assert codes(new) == []
    query = "which port does the API listen on"
    assert [memory["id"] for memory in await assistant.recall(query)] == [new["memory_id"]]
    first, second = await assistant.recall(query, include_superseded=True)
    assert (first["id"], second["id"]) == (new["memory_id"], old)
    assert second["superseded_by"] == new["memory_id"]


async def test_a_project_fact_can_supersede_a_user_fact(assistant: Assistant) -> None:
    old = await assistant.stored("Indent with tabs", "user")
    new = await assistant.stored("Indent with four spaces", supersedes=old.removeprefix("memory:"))
    assert [memory["id"] for memory in await assistant.recall("tabs")] == [new]
    by_id = {memory["id"]: memory for memory in await assistant.recall("indent", include_superseded=True)}
    assert by_id[old]["superseded_by"] == new


async def test_a_memory_that_is_there_can_supersede_another(assistant: Assistant) -> None:
    new = await assistant.stored("The API listens on port 9090")
    old = await assistant.stored("The API listens on port 8080")
    again = await assistant.store("The API listens on port 9090", supersedes=old)
    assert again["memory_id"] == new
    by_id = {memory["id"]: memory for memory in await assistant.recall("API port", include_superseded=True)}
    assert by_id[old]["superseded_by"] == new
    await assistant.store("The API listens on port 9090", supersedes=old)


async def test_a_fact_that_holds_again_is_current_once_more(assistant: Assistant) -> None:
    first = await assistant.stored("The API listens on port 8080")
    second = await assistant.stored("The API listens on port 9090", supersedes=first)
    assert codes(await assistant.store("The API listens on port 8080")) == ["superseded_memory"]
    again = await assistant.store("The API listens on port 8080", supersedes=second)
    assert (again["memory_id"], codes(again)) == (first, [])
    by_id = {memory["id"]: memory for memory in await assistant.recall("API port", include_superseded=True)}
    assert by_id[second]["superseded_by"] == first
    assert "superseded_by" not in by_id[first]


async def test_a_question_in_the_words_of_the_old_version_finds_the_new_one(assistant: Assistant) -> None:
    old = await assistant.stored("Deploys run through Jenkins")
    middle = await assistant.stored("Travis ships every release", supersedes=old)
    newest = await assistant.stored("GitHub Actions does all publishing", supersedes=middle)
    found = await assistant.recall("Jenkins deploys", strategy="keyword")
    assert [memory["id"] for memory in found] == [newest]
    await assistant("forget_memory", memory_id=newest)
    assert [memory["id"] for memory in await assistant.recall("Jenkins deploys", strategy="keyword")] == [middle]
    only_old = await assistant.recall("Jenkins deploys", strategy="keyword", type="semantic", tags=["none"])
    assert only_old == []


async def test_a_memory_cannot_supersede_itself_or_nothing(assistant: Assistant) -> None:
    old = await assistant.stored("The API listens on port 8080")
    with pytest.raises(InvalidInput):
        await assistant.store("The API listens on port 8080", supersedes=old)
    with pytest.raises(NotFound):
        await assistant.store("The API listens on port 1", supersedes="memory:none")
    assert await assistant.texts("port") == ["The API listens on port 8080"]


async def test_what_is_forgotten_meanwhile_does_not_fail_what_replaces_it(assistant: Assistant) -> None:
    for scope in ("project", "user"):
        old = await assistant.stored("The API listens on port 8080", scope)

        async def forget(batch: Batch, old: str = old) -> None:
            if any(isinstance(step, Insert) for step in batch.steps):
                await assistant("forget_memory", memory_id=old)

        storing = assistant.watched(project=forget)
        new = await storing.store(f"Port 9090 for the {scope}", supersedes=old)
        assert "existing" not in new
        assert await assistant.texts("port 8080") == [f"Port 9090 for the {scope}"]
        await assistant("forget_memory", memory_id=new["memory_id"])


async def crash_before_marking(assistant: Assistant, old: str, content: str, scope: str, **more: Any) -> str:
    """The process ends once the new fact is there, before the old one says so."""

    async def breaking(batch: Batch) -> None:
        if any(isinstance(step, Update) and step.id == old for step in batch.steps):
            raise Unavailable("The process was killed.")

    purge_set = assistant.watched(project=breaking, user=breaking)
    with pytest.raises(Unavailable):
        await purge_set.store(content, scope, supersedes=old, **more)
    return next(m["id"] for m in await assistant.recall(content) if m["content"] == content)


@pytest.mark.parametrize(("old_scope", "new_scope"), [("user", "project"), ("project", "user")])
async def test_a_mark_that_a_crash_left_out_is_made_later(assistant: Assistant, old_scope: str, new_scope: str) -> None:
    old = await assistant.stored("Indent with tabs", old_scope)
    new = await crash_before_marking(assistant, old, "Indent with spaces", new_scope)
    project, user = await assistant.project_store(), await assistant.library.open_user_store()
    assert await finish_supersessions(project, user, assistant.clock) == 1
    assert [memory["id"] for memory in await assistant.recall("tabs")] == [new]
    by_id = {memory["id"]: memory for memory in await assistant.recall("indent", include_superseded=True)}
    assert by_id[old]["superseded_by"] == new
    assert await finish_supersessions(project, user, assistant.clock) == 0


async def test_a_fact_about_as_much_as_it_may_be_is_finished_too(assistant: Assistant) -> None:
    about = [API | {"name": f"API {number}"} for number in range(ENTITIES_LIMIT)]
    old = await assistant.stored("Indent with tabs", "user")
    await crash_before_marking(assistant, old, "Indent with spaces", "project", related_entities=about)
    project, user = await assistant.project_store(), await assistant.library.open_user_store()
    assert await finish_supersessions(project, user, assistant.clock) == 1


async def test_what_came_in_bulk_is_not_looked_at(assistant: Assistant) -> None:
    """It came in as it was: no crash has cut short that one of it replaces another."""
    old = await assistant.stored("Indent with tabs", "user")
    await assistant.store("Tea is ready")
    project, user = await assistant.project_store(), await assistant.library.open_user_store()
    claims = [memory(f"memory:{i}", facets={"supersedes": old}) for i in range(MAX_EDITS + 1)]
    await project.commit(batch(*claims))
    assert await finish_supersessions(project, user, assistant.clock) == 0


async def test_a_fact_that_holds_again_is_not_marked_by_the_one_that_it_replaced(assistant: Assistant) -> None:
    first = await assistant.stored("Indent with tabs", "user")
    second = await assistant.stored("Indent with spaces", supersedes=first)
    await assistant.store("Indent with tabs", "user", supersedes=second)
    project, user = await assistant.project_store(), await assistant.library.open_user_store()
    assert await finish_supersessions(project, user, assistant.clock) == 0
    by_id = {memory["id"]: memory for memory in await assistant.recall("indent")}
    assert "superseded_by" not in by_id[first]


async def test_a_fact_that_is_stored_again_makes_up_for_a_crash(assistant: Assistant) -> None:
    old = await assistant.stored("Indent with tabs", "user")
    new = await crash_before_marking(assistant, old, "Indent with spaces", "project")
    again = await assistant.store("Indent with spaces", supersedes=old)
    assert again["memory_id"] == new
    assert [memory["id"] for memory in await assistant.recall("tabs")] == [new]
    by_id = {memory["id"]: memory for memory in await assistant.recall("indent", include_superseded=True)}
    assert by_id[old]["superseded_by"] == new
