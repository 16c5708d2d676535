import asyncio
from pathlib import Path
from typing import Any

import pytest

from assistant import Assistant
from everkept.core.ports import RecordStore
from everkept.core.records import Batch, Delete, Insert, RecordFilter, RecordLink, Restore, Update
from everkept.engines.sqlite.library import SqliteLibrary
from everkept.errors import InvalidInput, NotFound, Unavailable
from everkept.families.memories.lifecycle import PAGE_MEMORIES, finish_promotions
from everkept.families.memories.model import DERIVED_FROM, MEMORY, SUPERSEDES
from everkept.values import replace
from records import DAY_ONE

API = {"name": "API", "type": "component", "relationship": "about"}
BILLING = {"name": "Billing", "type": "service", "relationship": "calls"}


async def breaking(batch: Batch) -> None:
    """The process ends before it deletes anything."""
    if any(isinstance(step, Delete) for step in batch.steps):
        raise Unavailable("The process was killed.")


async def crash_in_promotion(assistant: Assistant, memory: str, **more: Any) -> None:
    purge_set = assistant.watched(project=breaking)
    with pytest.raises(Unavailable):
        await purge_set("promote_memory", memory_id=memory, target_scope="user", **more)


async def live(store: RecordStore) -> list[str]:
    return [record.text for record in await store.scan(RecordFilter(kinds=(MEMORY,)))]


async def test_a_session_memory_becomes_the_projects(assistant: Assistant) -> None:
    memory = await assistant.stored("Errors are wrapped", "session", related_entities=[API])
    answer = await assistant("promote_memory", memory_id=memory, target_scope="project", reason="Of use to all")
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
    user = await assistant.library.open_user_store()
    assert (await user.get_accesses([memory]))[memory].count == 1
    assert await live(await assistant.project_store()) == []
    status = await assistant("get_memory_status")
    assert (status["counts"]["total"], status["counts"]["forgotten"]) == (1, 0)
    assert len(await assistant.recall("errors", include_forgotten=True)) == 1


@pytest.mark.parametrize("scope", ["project", "user"])
async def test_a_text_that_the_target_has_is_merged_into_it(assistant: Assistant, scope: str) -> None:
    there = await assistant.stored("Errors are wrapped", scope, importance=0.2, tags=["a"])
    memory = await assistant.stored(
        "Errors are wrapped\n", "session", importance=0.7, tags=["b"], related_entities=[API]
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


async def test_a_crash_inside_a_promotion_loses_nothing_and_is_settled_later(assistant: Assistant) -> None:
    memory = await assistant.stored("Errors are wrapped", related_entities=[API])
    await crash_in_promotion(assistant, memory)
    project, user = await assistant.project_store(), await assistant.library.open_user_store()
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
    project, user = await assistant.project_store(), await assistant.library.open_user_store()
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


async def test_whoever_changes_the_memory_first_settles_what_a_crash_left(assistant: Assistant) -> None:
    memory = await assistant.stored("Errors are wrapped")
    await crash_in_promotion(assistant, memory)
    await assistant("forget_memory", memory_id=memory)
    assert await assistant.texts("errors") == []
    assert await live(await assistant.project_store()) == []


async def test_a_memory_that_was_forgotten_as_the_users_can_be_promoted_again(assistant: Assistant) -> None:
    memory = await assistant.stored("Errors are wrapped")
    await crash_in_promotion(assistant, memory)
    user = await assistant.library.open_user_store()
    await user.commit(Batch((Delete((await user.get([memory]))[0].ref),), assistant.clock(), "test"))
    again = await assistant("promote_memory", memory_id=memory, target_scope="user")
    assert again["memory_id"] == memory
    assert [m["scope"] for m in await assistant.recall("errors")] == ["user"]


async def changes_while_it_is_copied(assistant: Assistant, memory: str) -> Assistant:
    """One who promotes, while another changes the memory right before the copy is committed."""
    other = assistant.beside("two")
    done = False

    async def change(_batch: Batch) -> None:
        nonlocal done
        if not done:
            done = True
            await other(
                "update_memory",
                memory_id=memory,
                content="Errors are logged",
                tags={"add": ["new"]},
                metadata={"checked": True},
                related_entities={"add": [BILLING], "remove": ["API"]},
            )

    return assistant.watched(user=change)


async def test_a_change_that_comes_between_reading_and_copying_is_kept(assistant: Assistant) -> None:
    memory = await assistant.stored("Errors are wrapped", tags=["old"], related_entities=[API])
    promoting = await changes_while_it_is_copied(assistant, memory)
    answer = await promoting("promote_memory", memory_id=memory, target_scope="user")
    assert answer["memory_id"] == memory
    (found,) = await assistant.recall("errors")
    assert (found["content"], found["scope"]) == ("Errors are logged", "user")
    assert (found["tags"], found["metadata"]) == (["old", "new"], {"checked": True})
    walked = await assistant("search_knowledge_graph", entity="Billing")
    assert [m["id"] for m in walked["memories"]] == [memory]
    assert (await assistant("search_knowledge_graph", entity="API"))["memories"] == []
    assert await live(await assistant.project_store()) == []


async def test_a_change_of_links_alone_that_comes_between_is_kept_too(assistant: Assistant) -> None:
    memory = await assistant.stored("Errors are wrapped")
    other = assistant.beside("two")
    done = False

    async def change(batch: Batch) -> None:
        nonlocal done
        if not done and any(isinstance(step, Insert) for step in batch.steps):
            done = True
            await other("update_memory", memory_id=memory, related_entities={"add": [API]})

    promoting = assistant.watched(user=change)
    await promoting("promote_memory", memory_id=memory, target_scope="user")
    walked = await assistant("search_knowledge_graph", entity="API")
    assert [(m["id"], m["scope"]) for m in walked["memories"]] == [(memory, "user")]


async def test_changes_on_both_sides_of_a_move_are_all_kept(assistant: Assistant) -> None:
    memory = await assistant.stored("Errors are wrapped", importance=0.2)
    project, user = await assistant.project_store(), await assistant.library.open_user_store()
    await crash_in_promotion(assistant, memory)
    [source], [copy] = await project.get([memory]), await user.get([memory])
    # Both were planned before anybody saw that the memory stands in two places.
    here = Update(memory, {"text": "Errors are logged", "tags": ("a",)}, source.version)
    facets = {**copy.facets, "pinned": True}
    there = Update(memory, {"importance": 0.9, "facets": facets}, copy.version)
    await project.commit(Batch((here,), assistant.clock(), "update_memory"))
    await user.commit(Batch((there,), assistant.clock(), "update_memory"))
    assert await finish_promotions(project, user, assistant.clock) == 1
    (found,) = await assistant.recall("errors")
    assert (found["content"], found["tags"]) == ("Errors are logged", ["a"])
    assert (found["importance"], found["pinned"]) == (0.9, True)
    assert await live(project) == []


async def test_whatever_two_processes_have_acknowledged_survives_a_promotion(tmp_path: Path) -> None:
    libraries = [SqliteLibrary(tmp_path) for _ in range(2)]
    await libraries[0].create("shop", "")
    try:
        one, two = (Assistant(library) for library in libraries)
        for number in range(10):
            memory = await one.stored(f"Errors of part {number} are wrapped", tags=["first"])
            *tagged, _ = await asyncio.gather(
                *(two("tag_memory", memory_id=memory, add=[f"tag {n}"]) for n in range(4)),
                one("promote_memory", memory_id=memory, target_scope="user"),
            )
            assert len(tagged) == 4
            (kept,) = await (await libraries[0].open_user_store()).get([memory])
            assert set(kept.tags) == {"first", *(f"tag {n}" for n in range(4))}
        assert await live(await one.project_store()) == []
    finally:
        for library in libraries:
            await library.close()


async def test_what_changed_after_a_crash_is_carried_over_before_it_is_settled(assistant: Assistant) -> None:
    there = await assistant.stored("Errors are wrapped", "user")
    memory = await assistant.stored("Errors are wrapped")
    await crash_in_promotion(assistant, memory)
    await assistant("update_memory", memory_id=memory, content="Errors are logged")
    project, user = await assistant.project_store(), await assistant.library.open_user_store()
    assert await finish_promotions(project, user, assistant.clock) == 1
    assert await live(project) == []
    kept = {record.id: record.text for record in await user.scan(RecordFilter(kinds=(MEMORY,)))}
    assert kept == {there: "Errors are wrapped", memory: "Errors are logged"}


async def test_changes_of_both_copies_stay_when_a_promotion_is_finished(assistant: Assistant) -> None:
    memory = await assistant.stored("Errors are wrapped", tags=["old", "dropped"])
    await crash_in_promotion(assistant, memory)
    project, user = await assistant.project_store(), await assistant.library.open_user_store()
    for store, values in ((project, {"tags": ("old", "here")}), (user, {"tags": ("old", "dropped", "there")})):
        [record] = await store.get([memory])
        await store.commit(Batch((Update(memory, values, record.version),), assistant.clock(), "test"))
    assert await finish_promotions(project, user, assistant.clock) == 1
    [kept] = await user.get([memory])
    assert kept.tags == ("old", "there", "here")


async def test_an_unfinished_merge_into_an_old_memory_is_found_however_many_came_since(assistant: Assistant) -> None:
    kept = await assistant.stored("Errors are wrapped", "user")
    memory = await assistant.stored("Errors are wrapped")
    await crash_in_promotion(assistant, memory)
    project, user = await assistant.project_store(), await assistant.library.open_user_store()
    [twin] = await user.get([kept])
    many = [replace(twin, id=f"memory:later-{n}", name_key=f"key {n}", facets={}) for n in range(PAGE_MEMORIES)]
    await user.commit(Batch(tuple(Insert(record) for record in many), assistant.clock(), "test"))
    assert await finish_promotions(project, user, assistant.clock) == 1
    assert await project.get([memory]) == []


async def test_a_promotion_that_was_taken_back_is_not_finished_again(assistant: Assistant) -> None:
    await assistant.stored("Errors are wrapped", "user")
    memory = await assistant.stored("Errors are wrapped")
    project, user = await assistant.project_store(), await assistant.library.open_user_store()
    [before] = await project.get([memory])
    await assistant("promote_memory", memory_id=memory, target_scope="user")
    [buried] = await project.get([memory], include_deleted=True)
    back = Update(memory, {"scope": before.scope, "facets": before.facets}, buried.version)
    await project.commit(Batch((Restore(buried.ref), back), assistant.clock(), "undo"))
    assert await finish_promotions(project, user, assistant.clock) == 0
    assert await live(project) == ["Errors are wrapped"]


@pytest.mark.parametrize("scope", ["project", "user"])
async def test_the_id_of_a_merged_memory_means_the_one_it_became(assistant: Assistant, scope: str) -> None:
    there = await assistant.stored("Errors are wrapped", scope)
    memory = await assistant.stored("Errors are wrapped", "session")
    await assistant("promote_memory", memory_id=memory, target_scope=scope)
    tagged = await assistant("tag_memory", memory_id=memory, add=["a"])
    assert (tagged["memory_id"], tagged["tags"]) == (there, ["a"])
    forgotten = await assistant("forget_memory", memory_id=memory, reason="Wrong")
    assert forgotten["memory_id"] == there
    assert await assistant("forget_memory", memory_id=memory) == forgotten
    with pytest.raises(NotFound, match="forgotten"):
        await assistant("tag_memory", memory_id=memory, add=["b"])


@pytest.mark.parametrize("scope", ["project", "user"])
async def test_a_merged_memory_keeps_to_the_limit_of_tags_and_says_so(assistant: Assistant, scope: str) -> None:
    first = [f"first {n}" for n in range(40)]
    second = [f"second {n}" for n in range(40)]
    await assistant.stored("Errors are wrapped", scope, tags=first)
    memory = await assistant.stored("Errors are wrapped", "session", tags=second)
    answer = await assistant("promote_memory", memory_id=memory, target_scope=scope)
    assert [warning["code"] for warning in answer["warnings"]] == ["tags_left_out"]
    assert "second 39" in answer["warnings"][0]["message"]
    swapped = await assistant("tag_memory", memory_id=memory, add=["new"], remove=["first 0"])
    assert swapped["tags"] == [*first[1:], *second[:10], "new"]


async def link(assistant: Assistant, store: RecordStore, *ends: tuple[str, str, str]) -> None:
    steps = tuple(Insert(RecordLink(f"link {ends}", source, verb, target, DAY_ONE)) for source, verb, target in ends)
    await store.commit(Batch(steps, assistant.clock(), "test"))


async def test_links_between_memories_go_with_a_merge(assistant: Assistant) -> None:
    there = await assistant.stored("Errors are wrapped")
    memory = await assistant.stored("Errors are wrapped", "session")
    source = await assistant.stored("An error was lost", type="episodic")
    summary = await assistant.stored("All about errors")
    store = await assistant.project_store()
    await link(assistant, store, (memory, DERIVED_FROM, source))
    await link(assistant, store, (summary, DERIVED_FROM, memory))
    await assistant("promote_memory", memory_id=memory, target_scope="project")
    found = {(x.source, x.verb, x.target) for x in await store.find_links([there])}
    assert found == {(there, DERIVED_FROM, source), (summary, DERIVED_FROM, there)}


async def test_a_summary_that_leaves_its_sources_still_names_them(assistant: Assistant) -> None:
    one = await assistant.stored("An error was lost", type="episodic")
    two = await assistant.stored("Another error was lost", type="episodic")
    old = await assistant.stored("Errors are dropped")
    summary = await assistant.stored("Errors get lost", supersedes=old)
    store, user = await assistant.project_store(), await assistant.library.open_user_store()
    await link(assistant, store, (summary, DERIVED_FROM, one))
    await link(assistant, store, (summary, DERIVED_FROM, two))
    await assistant("promote_memory", memory_id=one, target_scope="user")
    [left] = await store.get([summary])
    assert left.facets[DERIVED_FROM] == [one]
    await assistant("promote_memory", memory_id=summary, target_scope="user")
    [kept] = await user.get([summary])
    assert kept.facets[DERIVED_FROM] == sorted([one, two])
    assert kept.facets[SUPERSEDES] == old
    await assistant("promote_memory", memory_id=two, target_scope="user")
    [kept] = await user.get([summary])
    assert kept.facets[DERIVED_FROM] == sorted([one, two])


async def test_links_between_memories_go_along_where_both_ends_do(assistant: Assistant) -> None:
    old = await assistant.stored("Errors are dropped")
    new = await assistant.stored("Errors are wrapped", supersedes=old)
    for memory in (old, new):
        await assistant("promote_memory", memory_id=memory, target_scope="user")
    user = await assistant.library.open_user_store()
    assert [(x.source, x.verb, x.target) for x in await user.find_links([new])] == [(new, SUPERSEDES, old)]


async def test_an_event_keeps_its_moment_and_meets_only_its_own_twin(assistant: Assistant) -> None:
    event = {"type": "episodic", "occurred_at": "2026-01-01T00:00:00Z"}
    later = {"type": "episodic", "occurred_at": "2026-02-01T00:00:00Z"}
    there = await assistant.stored("Deploy failed", "user", **event)
    same = await assistant.stored("Deploy failed", **event)
    other = await assistant.stored("Deploy failed", **later)
    merged = await assistant("promote_memory", memory_id=same, target_scope="user")
    assert (merged["memory_id"], merged["merged"]) == (there, True)
    moved = await assistant("promote_memory", memory_id=other, target_scope="user")
    assert moved["memory_id"] == other
    assert "merged" not in moved


async def test_a_memory_that_came_back_as_another_text_is_promoted_as_it_is_now(assistant: Assistant) -> None:
    memory = await assistant.stored("Errors are wrapped", author="Ada")
    await crash_in_promotion(assistant, memory)
    user = await assistant.library.open_user_store()
    [copy] = await user.get([memory])
    await user.commit(Batch((Delete(copy.ref),), assistant.clock(), "test"))
    await assistant("update_memory", memory_id=memory, content="Errors are logged")
    await assistant("promote_memory", memory_id=memory, target_scope="user")
    again = await assistant.store("Errors are logged", "user")
    assert (again["memory_id"], again["existing"]) == (memory, True)


async def test_a_secret_in_the_reason_is_masked_and_named(assistant: Assistant) -> None:
    for scope in ("project", "user"):
        memory = await assistant.stored(f"For the {scope}", "session")
        answer = await assistant(
            "promote_memory", memory_id=memory, target_scope=scope, reason="As AKIAIOSFODNN7EXAMPLE says"
        )
        assert [warning["code"] for warning in answer["warnings"]] == ["secret_masked"]
        assert "AKIA" not in answer["reason"]
    for store in (await assistant.project_store(), await assistant.library.open_user_store()):
        assert "AKIA" not in str(await store.scan(RecordFilter(deleted=None)))
