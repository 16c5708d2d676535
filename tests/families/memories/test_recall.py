from collections import Counter
from typing import Any

import pytest

from assistant import Assistant, CountedChoice, codes
from everkept.core.answers import SectionHit, SectionHits
from everkept.core.ports import SHIPPED_MODEL, Library, RecordStore
from everkept.core.sessions import ToolCall
from everkept.core.times import format_iso
from everkept.errors import BankNotFound, EverkeptError, InvalidInput, StoreDamaged, Unavailable
from everkept.families.memories.recall import is_same_file, split_path
from hash_embedder import HashingEmbedder
from records import batch, memory


class WithoutUser:
    """A library whose user's store cannot be read."""

    def __init__(self, library: Library) -> None:
        self._library = library

    def __getattr__(self, name: str) -> Any:
        return getattr(self._library, name)

    async def open_user_store(self) -> RecordStore:
        raise StoreDamaged("user.db is no database.")


async def fill(assistant: Assistant) -> None:
    await assistant.store("Ports are listed in ports.md", type="semantic", tags=["docs"])
    await assistant.store("Open a port with ufw", type="procedural", importance=0.9)
    await assistant.store("We opened port 22 today", "session", type="episodic", tags=["ssh"])
    await assistant.store("Likes high port numbers", "user", importance=0.2)


@pytest.mark.parametrize(
    ("filters", "count"),
    [
        ({}, 4),
        ({"scope": "project"}, 2),
        ({"scope": ["session", "user"]}, 2),
        ({"scope": []}, 4),
        ({"type": "semantic"}, 2),
        ({"memory_type": ["semantic", "procedural"]}, 3),
        ({"min_importance": 0.5}, 3),
        ({"tags": ["ssh", "docs"]}, 2),
        ({"tags": ["none"]}, 0),
        ({"limit": 1}, 1),
        ({"time_range": {"after": "2100-01-01"}}, 0),
        ({"time_range": {"before": "2000-01-01T00:00:00Z"}}, 0),
        ({"time_range": {"after": "2000-01-01", "before": "2100-01-01"}}, 4),
    ],
)
@pytest.mark.parametrize("strategy", ["keyword", "hybrid"])
async def test_filters_hold_in_every_place(
    assistant: Assistant, filters: dict[str, Any], count: int, strategy: str
) -> None:
    await fill(assistant)
    found = await assistant("recall_memories", query="port", strategy=strategy, **filters)
    assert len(found["memories"]) == count
    assert found["strategy_used"] == strategy
    assert found["query_time_ms"] >= 0


async def test_a_session_sees_its_own_session_memories_alone(assistant: Assistant) -> None:
    await fill(assistant)
    other = assistant.beside("two")
    assert "We opened port 22 today" not in await other.texts("port")
    assert await other.texts("port", scope="session") == []
    assert await other.texts("port", include_forgotten=True, strategy="keyword") != []


async def test_what_is_recalled_is_counted_the_next_time(assistant: Assistant) -> None:
    await fill(assistant)
    assert {m["access_count"] for m in await assistant.recall("port")} == {0}
    assert {m["access_count"] for m in await assistant.recall("port")} == {1}
    store = await assistant.project_store()
    before = await store.get_revision()
    await assistant.recall("port")
    assert await store.get_revision() == before


async def test_a_hit_explains_itself_when_asked(assistant: Assistant) -> None:
    await fill(assistant)
    (silent, *_) = await assistant.recall("open a port")
    assert "why" not in silent
    (found, *_) = await assistant.recall("open a port", explain=True)
    assert sum(found["why"].values()) == pytest.approx(found["relevance_score"], abs=0.001)


async def test_scores_lie_between_nothing_and_one_and_fall(assistant: Assistant) -> None:
    await fill(assistant)
    scores = [m["relevance_score"] for m in await assistant.recall("open port numbers")]
    assert scores == sorted(scores, reverse=True)
    assert all(0 <= score <= 1 for score in scores)


async def test_the_graph_leads_from_an_entity_to_its_memories(assistant: Assistant) -> None:
    entity = {"name": "Gateway", "type": "service", "relationship": "about"}
    await assistant.store("Restarts take a minute", related_entities=[entity])
    found = await assistant("recall_memories", query="Gateway", strategy="graph")
    assert [m["content"] for m in found["memories"]] == ["Restarts take a minute"]
    assert found["strategy_used"] == "graph"


async def test_a_damaged_user_store_does_not_hide_the_project(assistant: Assistant) -> None:
    await assistant.store("Ports are listed in ports.md")
    broken = Assistant(WithoutUser(assistant.library))  # pyright: ignore[reportArgumentType]
    found = await broken("recall_memories", query="ports")
    assert len(found["memories"]) == 1
    assert found["warnings"][0]["code"] == "user_scope_unavailable"
    with pytest.raises(StoreDamaged):
        await broken.recall("ports", scope="user")


async def test_as_of_a_time_before_anything_was_stored_there_is_nothing(assistant: Assistant) -> None:
    before = format_iso(assistant.clock.at)
    await fill(assistant)
    assert await assistant.texts("port", as_of=before) == []
    assert len(await assistant.texts("port", as_of=format_iso(assistant.clock.at))) == 4


async def test_a_memory_forgotten_since_was_known_then(assistant: Assistant) -> None:
    memory = await assistant.stored("Open a port with ufw")
    then = format_iso(assistant.clock.at)
    assistant.clock.pass_days(1)
    await assistant("forget_memory", memory_id=memory)
    assert await assistant.texts("port") == []
    assert await assistant.texts("port", as_of=then) == ["Open a port with ufw"]


async def test_a_memory_promoted_since_is_found_where_it_was_then(assistant: Assistant) -> None:
    memory = await assistant.stored("Open a port with ufw")
    then = format_iso(assistant.clock.at)
    assistant.clock.pass_days(1)
    await assistant("promote_memory", memory_id=memory, target_scope="user")
    assert [m["id"] for m in await assistant.recall("port", as_of=then)] == [memory]


@pytest.mark.parametrize("query", ["", " \n "])
async def test_a_recall_without_a_query_is_an_error(assistant: Assistant, query: str) -> None:
    await fill(assistant)
    with pytest.raises(InvalidInput, match="`query` is empty") as refused:
        await assistant.recall(query)
    assert refused.value.hint


@pytest.mark.parametrize("query", ["***", '"', "NOT", "a" * 10_000, "'; DROP TABLE"])
async def test_no_text_of_a_query_is_an_error_but_one_that_is_too_long(assistant: Assistant, query: str) -> None:
    await fill(assistant)
    await assistant.recall(query)
    with pytest.raises(InvalidInput):
        await assistant.recall(query, limit=51)
    with pytest.raises(InvalidInput):
        await assistant.recall("x" * 10_001)


class Shelves:
    """A memory bank that answers, or does not."""

    def __init__(self, answer: SectionHits | EverkeptError) -> None:
        self._answer = answer

    async def find_sections(self, call: ToolCall, query: str, limit: int) -> SectionHits:
        if isinstance(self._answer, EverkeptError):
            raise self._answer
        return SectionHits(self._answer.hits[:limit], self._answer.notices)


SECTION = SectionHit("progress.md", 7, "- Ports are closed", 0.5, "memory-bank://progress.md", "Update History")


async def test_the_memory_bank_is_searched_where_it_is_wanted(library: Library) -> None:
    assistant = Assistant(library, bank=Shelves(SectionHits([SECTION], ["notes.md is late."])))
    await fill(assistant)
    answer = await assistant("recall_memories", query="port", include_bank=True)
    assert answer["bank"] == [
        {
            "file": "progress.md",
            "heading": "Update History",
            "line": 7,
            "text": "- Ports are closed",
            "score": 0.5,
            "uri": "memory-bank://progress.md",
        }
    ]
    assert len(answer["memories"]) == 4
    assert answer["warnings"] == [{"code": "partial_results", "message": "notes.md is late."}]
    assert "bank" not in await assistant("recall_memories", query="port")


@pytest.mark.parametrize(
    ("bank", "code"),
    [
        (None, "no_memory_bank"),
        (Shelves(BankNotFound("/nowhere")), "no_memory_bank"),
        (Shelves(Unavailable("The host is down.")), "memory_bank_unavailable"),
    ],
)
async def test_a_bank_that_cannot_be_searched_hides_no_memories(
    library: Library, bank: Shelves | None, code: str
) -> None:
    assistant = Assistant(library, bank=bank)
    await fill(assistant)
    answer = await assistant("recall_memories", query="port", include_bank=True)
    assert answer["bank"] == []
    assert len(answer["memories"]) == 4
    assert codes(answer) == [code]


async def test_a_recall_asks_a_store_each_thing_once(assistant: Assistant) -> None:
    for number in range(3):
        await assistant.store(f"Tea number {number} is ready")
    choice = CountedChoice(assistant.library)
    counted = Assistant(assistant.library, clock=assistant.clock, choice=choice)
    found = await counted("recall_memories", query="ready tea")
    assert len(found["memories"]) == 3
    assert choice.asked == Counter(list_authors=1, match=1, find_near=1, get=1)
    assert counted.accesses.asked == 1
    assert set(counted.accesses.counts.values()) == {1}
    again = await counted.recall("ready tea")
    assert [memory["access_count"] for memory in again] == [1, 1, 1]


async def test_recall_selects_memories_by_their_relationship_to_an_entity(assistant: Assistant) -> None:
    entity = {"name": "Shop API", "type": "service"}
    await assistant.store("Port 80 is open", related_entities=[{**entity, "relationship": "describes"}])
    await assistant.store("Port 443 is chosen", "user", related_entities=[{**entity, "relationship": "Decides"}])
    gone = await assistant.stored("Port 22 is chosen", related_entities=[{**entity, "relationship": "decides"}])
    await assistant("forget_memory", memory_id=gone)
    for strategy in ("keyword", "hybrid", "graph"):
        wanted = {"query": "port of the Shop API", "relationship_type": "decides", "strategy": strategy}
        found = await assistant("recall_memories", **wanted, explain=True)
        assert [memory["content"] for memory in found["memories"]] == ["Port 443 is chosen"]
        assert found["memories"][0]["related_entities"] == [{**entity, "relationship": "Decides"}]
    found = await assistant("recall_memories", query="port", relationship_type="decides", include_forgotten=True)
    assert {memory["content"] for memory in found["memories"]} == {"Port 443 is chosen", "Port 22 is chosen"}
    assert "related_entities" not in found["memories"][0]


async def test_a_relationship_that_no_memory_has_recalls_nothing(assistant: Assistant) -> None:
    await fill(assistant)
    found = await assistant("recall_memories", query="port", relationship_type="paints")
    assert (found["memories"], found["total_matched"], codes(found)) == ([], 0, ["no_such_relationship"])


def from_file(path: str) -> dict[str, Any]:
    return {"source": {"file": path}}


@pytest.mark.parametrize("strategy", ["keyword", "hybrid"])
@pytest.mark.parametrize(
    "query",
    ["login.py", "what do we know of src/auth/login.py?", "fix /home/ada/shop/src/auth/login.py", r"src\auth\login.py"],
)
async def test_a_file_in_a_query_finds_the_memories_of_that_file(
    assistant: Assistant, query: str, strategy: str
) -> None:
    await assistant.store("Tokens expire after an hour", **from_file("src/auth/login.py"))
    await assistant.store("Carts are emptied at night", **from_file("src/cart.py"))
    found = await assistant("recall_memories", query=query, strategy=strategy)
    assert found["memories"][0]["content"] == "Tokens expire after an hour"


async def test_the_file_that_a_known_memory_gains_finds_it(assistant: Assistant) -> None:
    await assistant.store("Tokens expire after an hour")
    await assistant.store("Tokens expire after an hour", **from_file("src/auth/login.py"))
    assert await assistant.texts("login.py", strategy="keyword") == ["Tokens expire after an hour"]


def test_paths_are_the_same_file_if_one_starts_further_down() -> None:
    for other in ("src/a.py", "./src/A.py", r"C:\work\src\a.py", "a.py"):
        assert is_same_file(split_path("src/a.py"), split_path(other))
    for other in ("lib/a.py", "src/a.py/b", "aa.py", ""):
        assert not is_same_file(split_path("src/a.py"), split_path(other))


async def test_memories_of_the_files_in_context_come_first(assistant: Assistant) -> None:
    for number in range(5):
        await assistant.store(f"Login form rule {number} is important", importance=1)
    await assistant.store("Tokens expire after an hour", importance=0.1, **from_file("src/auth/login.py"))
    await assistant.store("Another login.py", importance=0.9, **from_file("old/login.py"))
    await assistant.store("Renew tokens by hand", type="procedural", **from_file("src/auth/login.py"))
    await assistant.store("Dislikes long logins", "user", importance=0.1, **from_file("src/auth/login.py"))
    await assistant.store("Looked at it", "session", type="semantic", **from_file("src/auth/login.py"))
    await assistant.store("Tests failed", "session", type="episodic")
    await assistant.store("Prefers tabs", "user", importance=1)
    files = ["/home/ada/shop/src/auth/login.py"]
    answer = await assistant("get_memory_context", task_description="fix the login form", files_in_context=files)
    lines = answer["context_block"].splitlines()
    firsts = [lines[i + 1].partition(" (")[0] for i, line in enumerate(lines) if line.startswith("### ")]
    assert firsts == [
        "- Dislikes long logins",
        "- Tokens expire after an hour",
        "- Looked at it",
        "- Renew tokens by hand",
    ]
    without = await assistant("get_memory_context", task_description="paint the wall", files_in_context=["none.py"])
    assert "Looked at it" in without["context_block"]


async def test_a_total_below_the_number_of_matches_is_called_a_lower_bound(assistant: Assistant) -> None:
    await fill(assistant)
    store = await assistant.project_store()
    await store.commit(batch(*(memory(f"port {number}", scope="project") for number in range(150))))
    found = await assistant("recall_memories", query="port")
    assert (found["total_matched"] >= 100, found["total_is_lower_bound"]) == (True, True)
    assert "total_is_lower_bound" not in await assistant("recall_memories", query="port", tags=["none"])


async def test_an_unrelated_question_gets_nothing_but_the_nearest_memory(assistant: Assistant) -> None:
    await assistant.store("This workspace installs packages with pnpm", importance=1.0)
    await assistant.indexing.catch_up()
    found = await assistant("recall_memories", query="favourite pizza topping with extra cheese", strategy="vector")
    assert (found["memories"], found["total_matched"]) == ([], 0)
    (warning,) = found["warnings"]
    assert warning["code"] == "nothing_fits"
    assert "This workspace installs packages with pnpm" in warning["message"]


async def test_the_nearest_memory_is_shown_in_its_newest_version(assistant: Assistant) -> None:
    old = await assistant.stored("This workspace installs packages with npm")
    await assistant("store_memory", content="Everything is built by pnpm", type="semantic", supersedes=old)
    await assistant.indexing.catch_up()
    for everything, nearest in ((False, "Everything is built by pnpm"), (True, "installs packages with npm")):
        found = await assistant(
            "recall_memories", query="favourite wooden workspaces", strategy="vector", include_superseded=everything
        )
        (warning,) = found["warnings"]
        assert nearest in warning["message"]


class ShippedEmbedder(HashingEmbedder):
    name = SHIPPED_MODEL


async def test_a_question_in_another_language_is_answered_by_words_with_a_warning(assistant: Assistant) -> None:
    await assistant.store("Rechnungen werden zehn Jahre aufbewahrt.")
    for embedder, query, told in (
        (ShippedEmbedder(), "Wie lange werden die Rechnungen aufbewahrt?", ["other_language"]),
        (ShippedEmbedder(), "Rechnungen", []),
        (HashingEmbedder(), "Wie lange werden die Rechnungen aufbewahrt?", []),
    ):
        assistant.indexing.embedder = embedder
        await assistant.indexing.catch_up()
        found = await assistant("recall_memories", query=query)
        assert (len(found["memories"]), codes(found)) == (1, told)


async def test_importance_lifts_nothing_irrelevant(assistant: Assistant) -> None:
    await assistant.store("The nightly backup goes to the second disk", importance=0.0)
    await assistant.store("Pizza of the nightly crew is ordered by Ben", importance=1.0)
    await assistant.indexing.catch_up()
    first, *others = await assistant.recall("where does the nightly backup go")
    assert first["content"].startswith("The nightly backup")
    assert all(memory["relevance_score"] < first["relevance_score"] / 2 for memory in others)


async def test_memories_that_say_the_same_are_one_with_a_count(assistant: Assistant) -> None:
    await assistant.store("All services log JSON to standard output")
    await assistant.store("All services log JSON to standard output.")
    await assistant.store("Services all log JSON, to standard output", "user")
    await assistant.store("All services log JSON to standard error")
    same, other = await assistant.recall("what do services log to standard output", strategy="keyword")
    assert (same["duplicates"], other.get("duplicates")) == (2, None)
