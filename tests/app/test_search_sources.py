from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from assistant import Assistant, Time
from bank_search import Searched, searched_in
from everkept.accounts.project_rule import ProjectRule
from everkept.app.search_sources import NAME_SCORE, BankFinder, GraphFinder, MemoryFinder
from everkept.core.answers import Finder, SearchFinding, SearchType
from everkept.core.ports import Library
from everkept.core.sessions import Session, ToolCall
from everkept.errors import NotFound
from everkept.families.graph.toolset import GraphTools
from everkept.tools.tool import Toolset

MEANING: tuple[SearchType, ...] = ("semantic",)
RELATIONS: tuple[SearchType, ...] = ("graph", "semantic")


def call(session: str = "one") -> ToolCall:
    return ToolCall(Session(client="test", id=session), "unified_memory_search")


async def found(
    finder: Finder, query: str, ways: tuple[SearchType, ...] = MEANING, limit: int = 10
) -> list[SearchFinding]:
    return (await finder.find(call(), query, ways, limit)).hits


def memories_of(assistant: Assistant) -> MemoryFinder:
    return MemoryFinder(assistant.family, assistant.choice, assistant.library)


async def test_memories_of_the_session_the_project_and_the_user_are_found(library: Library) -> None:
    mine = Assistant(library)
    other = mine.beside("two")
    for assistant, text in ((mine, "session tabs rule"), (other, "secret tabs rule")):
        await assistant.store(text, "session")
    await mine.store("project tabs rule")
    await mine.store("user tabs rule", "user")
    hits = await found(memories_of(mine), "tabs rule")
    assert {hit.content for hit in hits} == {"session tabs rule", "project tabs rule", "user tabs rule"}
    assert {(hit.type, hit.search_type) for hit in hits} == {("memory", "semantic")}
    assert all(hit.at is not None for hit in hits)
    assert mine.accesses.counts.total() == 3


async def test_a_memory_is_no_better_found_because_it_is_important(library: Library) -> None:
    assistant = Assistant(library)
    await assistant.store("the cache is flushed at midnight", importance=0.1)
    await assistant.store("the invoice numbers start at one", importance=1.0)
    await assistant.indexing.catch_up()
    hits = await found(memories_of(assistant), "when is the cache flushed")
    assert hits[0].content == "the cache is flushed at midnight"
    assert hits[0].score > 0.8
    assert all(0 <= hit.score <= 1 for hit in hits)


async def test_memories_found_by_words_alone_say_so(library: Library) -> None:
    assistant = Assistant(library)
    assistant.indexing.embedder = None
    await assistant.store("tabs")
    (hit,) = await found(memories_of(assistant), "tabs")
    assert hit.search_type == "keyword"


async def test_the_stamp_of_memories_changes_with_them_and_with_the_session(library: Library) -> None:
    assistant = Assistant(library)
    await assistant.store("tabs")
    finder = memories_of(assistant)
    before = await finder.get_stamp(call())
    assert await finder.get_stamp(call()) == before
    assert await finder.get_stamp(call("two")) != before
    await assistant.store("spaces")
    after = await finder.get_stamp(call())
    assert after != before
    await assistant.store("for everybody", "user")
    assert await finder.get_stamp(call()) != after


class Graphs:
    """A graph that an assistant writes, and its finder."""

    def __init__(self, library: Library, project: str = "shop") -> None:
        self.choice = ProjectRule(library, configured=project)
        self.tools = Toolset(GraphTools(library, self.choice, Time()).list_tools())
        self.finder = GraphFinder(self.choice, library)

    async def __call__(self, tool: str, **arguments: Any) -> None:
        await self.tools.get(tool).run(ToolCall(Session(), tool), arguments)

    async def entity(self, name: str, *observations: str, kind: str = "service") -> None:
        made = {"name": name, "entity_type": kind, "observations": list(observations)}
        await self("create_entities", entities=[made])

    async def relation(self, source: str, verb: str, target: str) -> None:
        made = {"from": source, "to": target, "relation_type": verb}
        await self("create_relations", relations=[made])


@pytest.fixture
async def graph(library: Library) -> Graphs:
    graph = Graphs(library)
    await graph.entity("Billing", "sends invoices at midnight", "is written in Go")
    await graph.entity("Postgres", "keeps the invoices", kind="database")
    await graph.entity("Frontend", "shows a dark theme")
    await graph.relation("Billing", "stores_in", "Postgres")
    return graph


async def test_entities_are_found_with_their_observations(graph: Graphs) -> None:
    best, other = await found(graph.finder, "who sends paid invoices")
    assert (best.title, best.type, best.search_type) == ("Billing", "entity", "graph")
    assert best.content == "Billing (service)\n- sends invoices at midnight\n- is written in Go"
    assert other.title == "Postgres"
    assert best.score > other.score > 0


async def test_an_entity_is_nearly_sure_if_the_question_asks_for_nothing_more(graph: Graphs) -> None:
    best = (await found(graph.finder, "who is Billing"))[0]
    assert (best.title, best.score) == ("Billing", NAME_SCORE)
    mentioned = (await found(graph.finder, "what did we decide about the deploy of Billing"))[0]
    assert mentioned.title == "Billing"
    assert mentioned.score < 0.2


async def test_a_stated_relation_is_found_whatever_the_question_is_taken_for(graph: Graphs) -> None:
    assert (await found(graph.finder, "where does Billing store invoices"))[0].content == "Billing stores_in Postgres"


async def test_relations_are_found_where_the_graph_is_asked(graph: Graphs) -> None:
    hits = await found(graph.finder, "what depends on Postgres", RELATIONS)
    relation = next(hit for hit in hits if hit.type == "relation")
    assert relation.content == "Billing stores_in Postgres"
    assert {hit.search_type for hit in hits} == {"graph"}
    scores = [hit.score for hit in hits]
    assert scores == sorted(scores, reverse=True)
    assert len(await found(graph.finder, "Postgres Billing", RELATIONS, limit=2)) == 2
    assert "relation" not in {hit.type for hit in await found(graph.finder, "Postgres")}


async def test_the_relation_that_a_question_states_comes_first(graph: Graphs) -> None:
    await graph.entity("Orders DB", "is the database that everything depends on", kind="database")
    await graph.relation("Billing", "depends_on", "Orders DB")
    await graph.relation("Orders DB", "depends_on", "Postgres")
    for question, relation in (
        ("what depends on Orders DB?", "Billing depends_on Orders DB"),
        ("What does Orders DB depend on", "Orders DB depends_on Postgres"),
        ("what is stored in Postgres", "Billing stores_in Postgres"),
    ):
        assert (await found(graph.finder, question, RELATIONS))[0].content == relation


async def test_without_a_project_the_graph_has_nothing_and_that_is_no_error(library: Library) -> None:
    finder = GraphFinder(ProjectRule(library), library)
    assert await found(finder, "anything", RELATIONS) == []
    assert await finder.get_stamp(call()) == await finder.get_stamp(call())


async def test_the_stamp_of_the_graph_changes_with_it(graph: Graphs) -> None:
    before = await graph.finder.get_stamp(call())
    assert await graph.finder.get_stamp(call()) == before
    await graph.entity("Mailer")
    assert await graph.finder.get_stamp(call()) != before


@pytest.fixture
async def searched(tmp_path: Path) -> AsyncIterator[Searched]:
    async with searched_in(tmp_path / "home") as searched:
        yield searched


def bank_of(searched: Searched) -> BankFinder:
    return BankFinder(searched.sections, searched.at.banks, searched.at.records)


async def test_sections_of_the_bank_are_found(searched: Searched) -> None:
    await searched.at.bank.files.write(
        "techContext.md", b"# Tech\n\n## Caching\n\nRedis keeps sessions.\n\n## Build\n\nuv.\n"
    )
    await searched("warm up")
    hits = (await bank_of(searched).find(searched.at.call("x"), "redis sessions", MEANING, 5)).hits
    assert (hits[0].type, hits[0].search_type) == ("section", "semantic")
    assert "Redis keeps sessions." in hits[0].content
    assert hits[0].id.startswith("techContext.md:")
    assert hits[0].title == "techContext.md: Tech > Caching"


async def test_where_there_is_no_bank_nothing_is_found_and_that_is_no_error(searched: Searched) -> None:
    asked = ToolCall(Session(bank=f"{searched.at.bank.address}-gone"), "x")
    finder = bank_of(searched)
    with pytest.raises(NotFound):
        await searched.at.banks.require_bank(asked)
    assert (await finder.find(asked, "redis", MEANING, 5)).hits == []
    assert await finder.get_stamp(asked) is None


async def test_the_stamp_of_the_bank_changes_with_its_files(searched: Searched) -> None:
    await searched.at.bank.files.write("techContext.md", b"# Tech\n")
    await searched("warm up")
    finder, asked = bank_of(searched), searched.at.call("x")
    before = await finder.get_stamp(asked)
    assert await finder.get_stamp(asked) == before
    await searched.at.bank.files.write("techContext.md", b"# Tech, and more\n")
    assert await finder.get_stamp(asked) != before


async def test_with_all_projects_each_result_names_its_project(library: Library, graph: Graphs) -> None:
    other = Graphs(library, "blog")
    await other.entity("Comments", "are stored in Postgres")
    await Assistant(library, project="blog").store("Postgres is backed up at night")
    at_home = await graph.finder.find(call(), "Comments", MEANING, 10)
    everywhere = await graph.finder.find(call(), "Comments", MEANING, 10, all_projects=True)
    assert (at_home.hits, [(hit.title, hit.project) for hit in everywhere.hits]) == ([], [("Comments", "blog")])
    memories = await memories_of(Assistant(library)).find(call(), "Postgres backed up", MEANING, 10, all_projects=True)
    assert [(hit.content, hit.project) for hit in memories.hits] == [("Postgres is backed up at night", "blog")]


async def test_a_hint_at_another_project_is_no_partial_result(library: Library) -> None:
    await Assistant(library, project="blog").store("Postgres is backed up at night")
    found = await memories_of(Assistant(library)).find(call(), "when is Postgres backed up", MEANING, 10)
    assert (found.hits, found.notices) == ([], [])
    assert '"blog"' in found.hints[0]
