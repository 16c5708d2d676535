import asyncio
from collections.abc import Sequence
from typing import Any

from everkept.core.fallback_answers import is_selected
from everkept.core.records import Record, RecordFilter
from everkept.families.memories.context import HEADINGS, MAX_RECALLED, gather_candidates
from records import DAY_ONE, memory

DAY = 86_400 * 1_000_000


class Asked:
    """Answers questions about a few memories, and remembers them."""

    def __init__(self, *records: Record) -> None:
        self.records = records
        self.queries: list[tuple[str, tuple[str, ...], tuple[str, ...]]] = []

    async def recall(
        self, query: str, scopes: tuple[str, ...], types: tuple[str, ...], min_importance: float, limit: int
    ) -> list[Record]:
        self.queries.append((query, scopes, types))
        words = set(query.lower().split())
        where = RecordFilter(scopes=scopes, types=types, min_importance=min_importance)
        found = [record for record in self.records if is_selected(record, where)]
        return [r for r in found if words & set(r.text.lower().split())][:limit]

    async def newest(self, where: RecordFilter, limit: int) -> list[Record]:
        found = [record for record in self.records if is_selected(record, where)]
        return sorted(found, key=lambda record: -record.effective_at)[:limit]

    async def gathered(
        self, task: str | None = None, *, files: Sequence[str] = (), sections: Sequence[str] = ()
    ) -> dict[str, list[str]]:
        found = await gather_candidates(self.recall, self.newest, task, files, sections or list(HEADINGS))
        return {section: [r.text for r in records] for section, records in found.items()}


PINNED: dict[str, Any] = {"facets": {"pinned": True}}


async def test_preferences_are_the_users_facts_and_procedures_by_importance() -> None:
    asked = Asked(
        memory("minor", scope="user", importance=0.2),
        memory("major", scope="user", importance=0.9, type="procedural"),
        memory("event", scope="user", type="episodic"),
        memory("pinned", scope="user", importance=0.1, **PINNED),
        memory("project"),
    )
    found = await asked.gathered(sections=["preferences"])
    assert found == {"preferences": ["pinned", "major", "minor"]}


async def test_equally_important_preferences_are_led_by_those_about_the_task() -> None:
    asked = Asked(memory("tea is fine", scope="user", created_at=DAY_ONE + 1), memory("tests use pytest", scope="user"))
    found = await asked.gathered("write tests", sections=["preferences"])
    assert found["preferences"][0] == "tests use pytest"


async def test_project_knowledge_is_what_the_task_and_its_files_are_about() -> None:
    asked = Asked(
        memory("the login token expires"),
        memory("api.py has the routes"),
        memory("unrelated"),
        memory("pinned and unrelated", **PINNED),
        memory("how the login works", type="procedural"),
    )
    found = await asked.gathered("fix login", files=["C:\\work\\src\\api.py", "src/x.py"])
    assert found["project_context"] == ["pinned and unrelated", "the login token expires", "api.py has the routes"]
    assert found["relevant_procedures"] == ["how the login works"]
    assert [query for query, _, _ in asked.queries] == ["fix login api.py x.py"]


async def test_one_search_is_for_every_section_and_asks_for_what_they_show() -> None:
    asked = Asked()
    await asked.gathered("login")
    [(_, scopes, types)] = asked.queries
    assert set(scopes) == {"user", "project"}
    assert set(types) == {"semantic", "procedural", "episodic", "working"}
    asked = Asked()
    await asked.gathered("login", sections=["preferences", "session_history"])
    assert asked.queries == [("login", ("user",), ("semantic", "procedural"))]
    asked = Asked()
    await asked.gathered("login", sections=["session_history"])
    assert asked.queries == []


async def test_what_one_section_shows_is_not_in_the_way_of_another() -> None:
    facts = [memory(f"login {number}") for number in range(MAX_RECALLED + 9)]
    asked = Asked(*facts, memory("login by hand", type="procedural"))
    found = await asked.gathered("login")
    assert found["project_context"] == [fact.text for fact in facts[:MAX_RECALLED]]
    assert found["relevant_procedures"] == ["login by hand"]


async def test_procedures_are_project_knowledge_where_they_have_no_section() -> None:
    asked = Asked(memory("how the login works", type="procedural"))
    found = await asked.gathered("login", sections=["project_context"])
    assert found == {"project_context": ["how the login works"]}


async def test_without_a_task_the_most_important_and_the_newest_are_known() -> None:
    asked = Asked(
        memory("old", created_at=DAY_ONE),
        memory("new", created_at=DAY_ONE + 1),
        memory("vital", created_at=DAY_ONE - DAY, importance=0.9),
    )
    found = await asked.gathered()
    assert found["project_context"] == ["vital", "new", "old"]
    assert asked.queries == []


async def test_the_session_is_told_by_its_newest_events() -> None:
    asked = Asked(
        memory("fact", scope="session", created_at=DAY_ONE + 9),
        memory("first", scope="session", type="episodic"),
        memory("last", scope="session", type="episodic", created_at=DAY_ONE + 1),
    )
    found = await asked.gathered(sections=["session_history"])
    assert found["session_history"] == ["last", "first", "fact"]


async def test_consolidated_memories_come_last() -> None:
    asked = Asked(memory("source", facets={"consolidated": True}, importance=0.9), memory("summary"))
    found = await asked.gathered(sections=["project_context"])
    assert found["project_context"] == ["summary", "source"]


async def test_all_questions_are_asked_at_the_same_time() -> None:
    waiting = 0
    everybody = asyncio.Event()

    async def answer(*_: object) -> list[Record]:
        nonlocal waiting
        waiting += 1
        if waiting == 5:
            everybody.set()
        await everybody.wait()
        return []

    async with asyncio.timeout(60):
        await gather_candidates(answer, answer, "task", [], list(HEADINGS))
