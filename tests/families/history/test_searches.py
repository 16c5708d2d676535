import pytest

from conversations import DAY, MINUTE, Written, assistant, embed, tell, user
from everkept.core.ports import RecordStore
from everkept.families.history import search_results
from everkept.families.history.model import DECISION
from everkept.families.history.relevance import QueryContext
from everkept.families.history.searches import TimeRangeName, find_solved_problems, recall_discussions, search_code
from hash_embedder import HashingEmbedder
from records import DAY_ONE

NOW = DAY_ONE + 100 * DAY


@pytest.mark.parametrize(("time_range", "found"), [("today", 1), ("week", 1), ("month", 1), ("all", 2)])
async def test_a_turn_that_is_dated_in_the_future_is_in_no_time_range(
    store: RecordStore, time_range: TimeRangeName, found: int
) -> None:
    await tell(store, "s1", "The login form of tomorrow", at=DAY_ONE + DAY)
    await tell(store, "s2", "The login form of now", at=DAY_ONE)
    asking = QueryContext(now=DAY_ONE + MINUTE // 2)
    answer = await recall_discussions(store, "login form", "all", None, time_range, 10, asking)
    assert len(answer.results) == found


ASKING = QueryContext(HashingEmbedder(), DAY_ONE + 100 * DAY)


async def test_nothing_behind_a_filter_is_no_new_topic(store: RecordStore) -> None:
    code = (Written("def login(): ..."),)
    await tell(store, "s1", assistant("The login form", code=code), project="/a/shop")
    await tell(store, "s2", "Something else", project="/a/game")
    answer = await recall_discussions(store, "login form", "all", "game", "week", 10, ASKING)
    told = answer.to_result("login form", ASKING.now).summary
    assert "in project `game` from the last seven days. A search without the filter" in told
    unknown = await recall_discussions(store, "login form", "all", "nowhere", "all", 10, ASKING)
    assert "in project `nowhere`" in unknown.to_result("login form", ASKING.now).summary
    cobol = await search_code(store, "login", "cobol", 10, ASKING, with_context=False)
    assert "in cobol." in cobol.to_result("login", ASKING.now).summary
    anywhere = await recall_discussions(store, "kubernetes", "all", None, "all", 10, ASKING)
    assert "might be a new topic" in anywhere.to_result("kubernetes", ASKING.now).summary


async def test_to_whom_asks_what_was_decided_the_decision_comes_first(store: RecordStore) -> None:
    await tell(
        store,
        "s1",
        user("Which cache do we take for the product list?"),
        assistant("Redis or a dictionary in the process."),
        user("Fine, let's go with Redis.", type=DECISION),
        assistant("The cache of the product list is built."),
    )
    await embed(store)
    question = "what did we decide about the cache of the product list"
    answer = await recall_discussions(store, question, "all", None, "all", 10, ASKING)
    assert answer.results[0].type == "decision"
    assert answer.results[0].content == "Fine, let's go with Redis."


async def test_a_file_that_is_asked_for_is_a_word_of_the_question(store: RecordStore) -> None:
    code = (Written("for row in rows: pass", file="src/ledger.py"),)
    await tell(store, "s1", assistant("Done as you said", code=code))
    await embed(store)
    answer = await search_code(store, "ledger.py", None, 10, ASKING, with_context=False)
    assert answer.to_result("ledger.py", ASKING.now).summary.startswith("I found 1 piece of code about")


async def test_problems_with_a_solution_come_first_among_equals(store: RecordStore) -> None:
    error = "The checkout raises a TimeoutError in the payment gateway"
    facets = {"problem": True}
    await tell(store, "s1", user(error, facets=facets), assistant("Solved.", facets={"fix": True}))
    await tell(store, "s2", user(f"{error}!", facets=facets), "No idea.", at=DAY_ONE + DAY)
    await embed(store)
    results = (await find_solved_problems(store, error, None, 10, ASKING)).results
    assert [result.context.session_id for result in results] == ["s1", "s2"]


async def test_a_result_tells_its_branch_and_program(store: RecordStore) -> None:
    code = (Written("def login(): ..."),)
    said = assistant("Done as you said", code=code, facets={"branch": "main"})
    await tell(store, "s1", said)
    [result] = (await search_code(store, "login", None, 10, ASKING, with_context=True)).results
    assert (result.context.branch, result.context.program) == ("main", "claude-code")


async def test_no_more_results_are_dressed_than_are_wanted(store: RecordStore, monkeypatch: pytest.MonkeyPatch) -> None:
    dressed: list[str] = []
    make = search_results.find_highlights

    def noted(text: str, query: str) -> list[str]:
        dressed.append(text)
        return make(text, query)

    monkeypatch.setattr(search_results, "find_highlights", noted)
    await tell(store, "s1", *(f"The login form, part {number}" for number in range(40)))
    await embed(store)
    answer = await recall_discussions(store, "login form", "all", None, "all", 10, ASKING)
    assert [result.content for result in answer.results] == dressed
    assert len(dressed) == 10
