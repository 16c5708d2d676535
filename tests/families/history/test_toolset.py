import json
from collections.abc import Sequence
from datetime import timedelta, timezone
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest

from assistant import PromptIndexing, codes
from conversations import DAY, SHOP, Historian, Moment, Written, assistant, embed, tell, user
from everkept.core.ports import RecordStore
from everkept.core.sessions import ToolCall
from everkept.engines.memory.library import MemoryLibrary
from everkept.errors import InvalidInput
from everkept.families.history.model import DECISION, HistoryOptions
from everkept.families.history.search_answers import CACHE_MICROSECONDS
from hash_embedder import BrokenEmbedder, HashingEmbedder
from records import DAY_ONE

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

NAMES = [
    "recall_previous_discussions",
    "find_similar_problems",
    "search_code_history",
    "unified_memory_search",
    "read_conversation",
]
BLOG = "/home/ann/blog"


@pytest.fixture
def library() -> MemoryLibrary:
    return MemoryLibrary()


@pytest.fixture
async def store(library: MemoryLibrary) -> RecordStore:
    """Two projects: a shop with a problem that was solved, and a blog with a decision."""
    store = await library.open_history_store()
    await tell(
        store,
        "s1",
        user("The login form raises a KeyError about the session token", facets={"problem": True}),
        assistant("I look at the handler of the login form first."),
        assistant(
            "The session token was read before it was set. Fixed it by moving the check.",
            facets={"fix": True, "files": ["src/login.py"], "tools": ["Edit"]},
            code=(Written("def login(form):\n    check(form)", "python", "src/login.py"),),
        ),
        user("Thanks, that works."),
        title="Login form",
    )
    await tell(
        store,
        "s2",
        user("Which database should the blog use?"),
        assistant("We decided to use SQLite instead of Postgres.", type=DECISION),
        project=BLOG,
        at=DAY_ONE - 40 * DAY,
    )
    await embed(store)
    return store


@pytest.fixture
def historian(library: MemoryLibrary, store: RecordStore) -> Historian:
    return Historian(library, Moment())


def ids(answer: dict[str, Any]) -> list[str]:
    return [result["id"] for result in answer["results"]]


async def test_the_tools_are_these_five(historian: Historian) -> None:
    assert [tool.name for tool in historian.tools] == NAMES


async def test_all_tools_only_read(historian: Historian) -> None:
    assert all(tool.annotations["readOnlyHint"] for tool in historian.tools)


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("recall_previous_discussions", {"query": "login form"}),
        ("recall_previous_discussions", {"query": "nothing of that kind", "time_range": "today"}),
        ("find_similar_problems", {"problem_description": "KeyError in the login form"}),
        ("search_code_history", {"query": "login"}),
        ("unified_memory_search", {"query": "login form"}),
        ("unified_memory_search", {"query": "login", "options": {"merge_results": False}}),
        ("read_conversation", {"id": "s1"}),
    ],
)
async def test_answers_are_as_their_schema_says(historian: Historian, tool: str, arguments: dict[str, Any]) -> None:
    for form in ("json", "markdown"):
        result = await historian.result(tool, format=form, **arguments)
        jsonschema.validate(result.facts, historian.tools.get(tool).output_schema or False)
        written = json.dumps(result.facts, ensure_ascii=False, separators=(",", ":"))
        assert (result.text == written) == (form == "json")


async def test_a_discussion_is_found_with_what_stands_around_it(historian: Historian) -> None:
    answer = await historian("recall_previous_discussions", query="KeyError of the session token")
    best = answer["results"][0]
    assert best["content"] == "The login form raises a KeyError about the session token"
    assert best["type"] == "conversation"
    assert best["source"] == "local"
    assert best["title"] == "Login form"
    assert best["highlights"] == ["The login form raises a **KeyError** about the **session** **token**"]
    assert best["context"] == {
        "session_id": "s1",
        "project_path": SHOP,
        "timestamp": "2023-11-14T22:13:20.000Z",
        "participants": ["user", "assistant"],
        "author": "user",
        "program": "claude-code",
        "after": "I look at the handler of the login form first.",
    }
    assert answer["summary"].startswith(f"I found {len(answer['results'])} relevant discussions")
    assert answer["stats"]["total_results"] == len(answer["results"])
    assert answer["stats"]["sources"] == {"local": len(answer["results"])}
    assert answer["stats"]["time_range"]["oldest"] <= answer["stats"]["time_range"]["newest"]


@pytest.mark.parametrize(
    ("kind", "types"), [("decision", {"decision"}), ("code", {"code"}), ("conversation", {"conversation"})]
)
async def test_a_type_narrows_what_is_found(historian: Historian, kind: str, types: set[str]) -> None:
    query = "decided to use SQLite for the login form"
    answer = await historian("recall_previous_discussions", query=query, type=kind)
    assert {result["type"] for result in answer["results"]} == types


async def test_a_cursor_leads_through_all_matches(library: MemoryLibrary, store: RecordStore) -> None:
    await tell(store, "s3", *(f"Remark {number} on the checkout page" for number in range(25)))
    await embed(store)
    historian = Historian(library, Moment())
    seen: list[str] = []
    cursor: str | None = None
    for shown in ("showing 10", "showing 11 to 20", "showing 21 to 25"):
        more = {"cursor": cursor} if cursor else {}
        answer = await historian("recall_previous_discussions", query="remark on the checkout page", **more)
        assert answer["stats"]["total_results"] == 25
        assert answer["stats"]["sources"] == {"local": 25}
        assert f'25 relevant discussions about "remark on the checkout page", {shown}' in answer["summary"]
        seen += ids(answer)
        cursor = answer.get("next_cursor")
    assert cursor is None
    assert len(set(seen)) == 25


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("search_code_history", {"query": "checkout"}),
        ("recall_previous_discussions", {"query": "another question"}),
        ("recall_previous_discussions", {"query": "remark", "include_peers": True}),
    ],
)
async def test_a_cursor_belongs_to_its_question(
    library: MemoryLibrary, store: RecordStore, tool: str, arguments: dict[str, Any]
) -> None:
    await tell(store, "s3", *(f"Remark {number} on the checkout page" for number in range(25)))
    historian = Historian(library, Moment())
    cursor = (await historian("recall_previous_discussions", query="remark"))["next_cursor"]
    with pytest.raises(InvalidInput) as refused:
        await historian(tool, cursor=cursor, **arguments)
    assert refused.value.facts["argument"] == "cursor"


async def test_code_that_nobody_wrote_is_no_new_topic_if_it_was_talked_about(historian: Historian) -> None:
    summary = (await historian("search_code_history", query="Postgres database"))["summary"]
    assert "new topic" not in summary
    assert "recall_previous_discussions" in summary
    assert "new topic" in (await historian("search_code_history", query="kubernetes"))["summary"]


async def test_a_result_has_one_type_whatever_is_asked_for(historian: Historian) -> None:
    query = "SQLite instead of Postgres for the login form"
    types = {
        kind: {
            (result["id"], result["type"])
            for result in (await historian("recall_previous_discussions", query=query, type=kind))["results"]
        }
        for kind in ("all", "conversation", "decision", "code")
    }
    assert {kind for _, kind in types["conversation"]} == {"conversation"}
    assert {kind for _, kind in types["decision"]} == {"decision"}
    assert dict(types["all"]).items() <= dict(types["conversation"] | types["decision"] | types["code"]).items()


@pytest.mark.parametrize(("project", "found"), [("blog", True), (BLOG, True), ("shop-api", False), ("ann", True)])
async def test_a_project_narrows_what_is_found(historian: Historian, project: str, found: bool) -> None:
    answer = await historian("recall_previous_discussions", query="SQLite Postgres database", project_filter=project)
    places = {result["context"]["project_path"] for result in answer["results"]}
    assert (BLOG in places) == found


async def test_a_project_that_is_not_known_is_a_warning_that_names_the_nearest(historian: Historian) -> None:
    answer = await historian("recall_previous_discussions", query="SQLite", project_filter="shop-aip")
    assert answer["results"] == []
    assert codes(answer) == ["unknown_project"]
    assert SHOP in answer["warnings"][0]["message"]


@pytest.mark.parametrize(
    ("days", "time_range", "found"),
    [
        (0.01, "today", True),
        (1.5, "today", False),
        (6.9, "week", True),
        (7.1, "week", False),
        (29, "month", True),
        (33, "month", False),
        (500, "all", True),
    ],
)
async def test_a_time_range_narrows_what_is_found(
    library: MemoryLibrary, store: RecordStore, days: float, time_range: str, found: bool
) -> None:
    historian = Historian(library, Moment(DAY_ONE + int(days * DAY)))
    answer = await historian("recall_previous_discussions", query="KeyError login", time_range=time_range)
    assert bool(answer["results"]) == found


async def test_today_begins_at_midnight_where_the_user_is(library: MemoryLibrary, store: RecordStore) -> None:
    """DAY_ONE is 22:13 in Greenwich: two hours later that is yesterday there, and today here."""
    for hours, found in ((0, False), (-3, True)):
        options = HistoryOptions(time_limit=None, zone=timezone(timedelta(hours=hours)))
        historian = Historian(library, Moment(DAY_ONE + DAY // 12), options=options)
        answer = await historian("recall_previous_discussions", query="KeyError login", time_range="today")
        assert bool(answer["results"]) == found


async def test_peers_that_are_not_there_are_a_warning(historian: Historian) -> None:
    answer = await historian("recall_previous_discussions", query="login", include_peers=True)
    assert codes(answer) == ["no_peers"]
    assert answer["results"]


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("recall_previous_discussions", {"query": "x"}),
        ("recall_previous_discussions", {"query": "x", "project_filter": "y"}),
        ("find_similar_problems", {"problem_description": "x"}),
        ("search_code_history", {"query": "x", "language": "python"}),
    ],
)
async def test_before_anything_is_imported_the_answer_says_how(tool: str, arguments: dict[str, Any]) -> None:
    answer = await Historian(MemoryLibrary(), Moment())(tool, **arguments)
    assert codes(answer) == ["no_history"]
    assert "everkept import history" in answer["warnings"][0]["message"]


@pytest.mark.parametrize("embedder", [None, "broken"])
async def test_without_a_model_words_are_searched(
    library: MemoryLibrary, store: RecordStore, embedder: str | None
) -> None:
    indexing = PromptIndexing(embedder=BrokenEmbedder() if embedder else None)
    historian = Historian(library, Moment(), indexing=indexing)
    answer = await historian("recall_previous_discussions", query="KeyError")
    assert "KeyError" in answer["results"][0]["content"]
    assert codes(answer) == (["partial_results"] if embedder else [])


async def test_a_similar_problem_comes_with_what_solved_it(historian: Historian) -> None:
    answer = await historian(
        "find_similar_problems", problem_description="KeyError: session token", code_context="def login(form): ..."
    )
    best = answer["results"][0]
    assert "raises a KeyError" in best["content"]
    assert best["resolution"]["content"].startswith("The session token was read before")
    assert best["resolution"]["id"] not in ids(answer)
    assert answer["summary"].startswith("I found")


async def test_code_is_found_with_its_language_file_and_conversation(historian: Historian) -> None:
    answer = await historian("search_code_history", query="login form", language="py")
    [found] = answer["results"]
    assert found["type"] == "code"
    assert (found["language"], found["file"]) == ("python", "src/login.py")
    assert found["context"]["before"] == "I look at the handler of the login form first."
    assert found["context"]["said"].startswith("The session token")
    assert found["context"]["after"] == "Thanks, that works."
    bare = await historian("search_code_history", query="login form", include_context=False)
    assert not {"before", "after", "said"} & bare["results"][0]["context"].keys()


async def test_code_stands_by_its_score_and_not_by_its_age(historian: Historian, store: RecordStore) -> None:
    query = "retry the webhook with slow backoff and jitter when the server of the partner is busy"
    written = [Written(f"await sleep({number})") for number in range(4)]
    for day, code in enumerate(written):
        said = " ".join(query.split()[day:])
        await tell(store, f"retry {day}", assistant(said, code=(code,)), at=DAY_ONE + day * DAY)
    await embed(store)
    answer = await historian("search_code_history", query=query)
    assert [result["content"] for result in answer["results"][:4]] == [code.text for code in written]


async def test_a_language_that_no_code_is_in_is_a_warning_that_names_those_there_are(historian: Historian) -> None:
    answer = await historian("search_code_history", query="login", language="rust")
    assert answer["results"] == []
    assert codes(answer) == ["unknown_language"]
    assert "python" in answer["warnings"][0]["message"]


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("recall_previous_discussions", {"query": " "}),
        ("recall_previous_discussions", {"query": "x", "limit": 0}),
        ("recall_previous_discussions", {"query": "x", "limit": 51}),
        ("recall_previous_discussions", {"query": "x", "type": "memory"}),
        ("recall_previous_discussions", {"query": "x", "time_range": "year"}),
        ("recall_previous_discussions", {"query": "x", "format": "html"}),
        ("recall_previous_discussions", {"query": "x", "project_filter": " "}),
        ("search_code_history", {"query": "x", "language": ""}),
        ("unified_memory_search", {"query": "x", "options": {"limit": 99}}),
        ("read_conversation", {"id": "s1", "limit": 101}),
        ("read_conversation", {"id": "s1", "cursor": "nonsense"}),
        ("read_conversation", {}),
    ],
)
async def test_bad_arguments_are_refused(historian: Historian, tool: str, arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        await historian(tool, **arguments)
    assert historian.book.noted == []


async def test_a_search_is_noted_without_its_secrets(historian: Historian) -> None:
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0" * 2
    answer = await historian(
        "recall_previous_discussions", query=f"login with {secret}", type="conversation", project_filter=f"/x/{secret}"
    )
    [noted] = historian.book.noted
    assert noted.tool == "recall_previous_discussions"
    assert "login" in noted.query
    assert secret not in noted.query
    assert noted.results == len(answer["results"])
    assert noted.filters == {
        "type": "conversation",
        "project_filter": "/x/[masked: github token]",
        "time_range": "all",
        "limit": 10,
    }
    assert noted.session == f"session:{historian.session.id}"


async def test_every_search_is_noted_those_from_the_cache_too(historian: Historian) -> None:
    for _ in range(2):
        await historian("recall_previous_discussions", query="login")
        await historian("unified_memory_search", query="login")
    assert [search.tool for search in historian.book.noted] == [
        "recall_previous_discussions",
        "unified_memory_search",
    ] * 2


@pytest.mark.parametrize("tool", ["recall_previous_discussions", "unified_memory_search"])
async def test_what_is_told_meanwhile_is_found_at_once(historian: Historian, store: RecordStore, tool: str) -> None:
    query = "the colour of the checkout button"
    before = await historian(tool, query=query)
    [told, _] = await tell(store, "s3", "The colour of the checkout button is green.", "Good.")
    answer = await historian(tool, query=query)
    assert told not in ids(before)
    assert told in ids(answer)


class CountingEmbedder(HashingEmbedder):
    """Counts the questions that it was asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def embed(self, texts: Sequence[str]) -> "NDArray[np.float32]":
        self.asked += texts
        return await super().embed(texts)


@pytest.mark.parametrize("tool", ["recall_previous_discussions", "unified_memory_search"])
async def test_a_question_that_is_asked_again_is_not_searched_again(
    library: MemoryLibrary, store: RecordStore, tool: str
) -> None:
    model, clock = CountingEmbedder(), Moment()
    historian = Historian(library, clock, indexing=PromptIndexing(embedder=model))
    first = await historian(tool, query="login")
    searched = len(model.asked)
    assert await historian(tool, query=" login ") == first
    assert len(model.asked) == searched
    for changed in ({"query": "Login"}, {"query": "login"}):
        await historian(tool, **changed)
        clock.at += DAY  # and what yesterday was is another day now
    assert len(model.asked) > searched + 1


async def test_an_answer_is_worded_anew_for_who_asks_again(library: MemoryLibrary, store: RecordStore) -> None:
    clock = Moment()
    historian = Historian(library, clock)
    query = "KeyError about the session token of the login form"
    await historian("recall_previous_discussions", query=query)
    clock.at += CACHE_MICROSECONDS
    result = await historian.result("recall_previous_discussions", query=f" {query} ", format="markdown")
    assert result.text.startswith("I found")
    assert "1 day ago" in result.text


async def test_a_week_ends_with_each_moment_for_a_kept_answer_too(library: MemoryLibrary, store: RecordStore) -> None:
    clock = Moment(DAY_ONE + 7 * DAY - CACHE_MICROSECONDS // 2)
    historian = Historian(library, clock)

    async def found() -> bool:
        answer = await historian("recall_previous_discussions", query="KeyError raises", time_range="week")
        return any("KeyError" in result["content"] for result in answer["results"])

    assert await found()
    clock.at += CACHE_MICROSECONDS - 1
    await found()  # which keeps the answer alive
    clock.at += CACHE_MICROSECONDS - 1
    assert not await found()


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("search_memory", "recall_previous_discussions"),
        ("find_past_conversations", "recall_previous_discussions"),
        ("retrieve_memory_chunk", "read_conversation"),
    ],
)
async def test_other_names_are_taken_and_not_listed(historian: Historian, alias: str, name: str) -> None:
    assert historian.tools.get(alias).name == name
    assert alias not in [tool.name for tool in historian.tools]


async def test_a_chunk_alone_is_read_by_its_old_name_and_arguments(historian: Historian, store: RecordStore) -> None:
    found = await historian("search_memory", query="KeyError")
    chunk = found["results"][0]["id"]
    alone = await historian("retrieve_memory_chunk", chunk_id=chunk, include_adjacent=False)
    assert [turn["id"] for turn in alone["turns"]] == [chunk]
    assert alone == await historian("retrieve_memory_chunk", chunk_id="s1-chunk-0")
    around = await historian("retrieve_memory_chunk", chunk_id=chunk)
    assert len(around["turns"]) == 4


@pytest.mark.parametrize(
    ("tool", "argument"),
    [
        ("recall_previous_discussions", "query"),
        ("find_similar_problems", "problem_description"),
        ("search_code_history", "query"),
    ],
)
async def test_a_search_asks_once_whether_its_project_is_off(
    library: MemoryLibrary, store: RecordStore, tool: str, argument: str
) -> None:
    asked: list[str] = []

    async def off(call: ToolCall) -> str:
        asked.append(call.tool)
        return "shop"

    historian = Historian(library, Moment(), options=HistoryOptions(time_limit=None, switched_off=off))
    assert "project_off" in codes(await historian(tool, **{argument: "login form"}))
    assert asked == [tool]
    assert historian.book.noted == []
