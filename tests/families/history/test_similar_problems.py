from conversations import assistant, embed, tell, user
from everkept.core.ports import RecordStore
from everkept.families.history.model import DECISION
from everkept.families.history.relevance import QueryContext
from everkept.families.history.similar_problems import (
    MAX_TURNS_TO_CONFIRM,
    MAX_TURNS_TO_FIX,
    SimilarProblems,
    build_problem_query,
    find_similar,
)
from hash_embedder import HashingEmbedder

ERROR = "The checkout raises a TimeoutError in the payment gateway"
PROBLEM, FIX = {"problem": True}, {"fix": True}


async def like(store: RecordStore, text: str = ERROR) -> SimilarProblems:
    await embed(store)
    return await find_similar(store, text, None, QueryContext(HashingEmbedder()))


async def test_the_first_later_turn_that_solves_it_is_the_resolution(store: RecordStore) -> None:
    ids = await tell(
        store,
        "s1",
        assistant("It is fixed now.", facets=FIX),
        user(ERROR, facets=PROBLEM),
        assistant("Let me see."),
        assistant("A longer deadline solved it.", facets=FIX),
        assistant("Another fix of something else.", facets=FIX),
    )
    answer = await like(store)
    assert answer.found.hits[0].record.id == ids[1]
    assert answer.resolutions[ids[1]].id == ids[3]


async def test_where_the_user_says_that_it_is_solved_the_answer_before_tells_how(store: RecordStore) -> None:
    ids = await tell(
        store,
        "s1",
        user(ERROR, facets=PROBLEM),
        assistant("Give the gateway a longer deadline."),
        user("That fixed it.", facets=FIX),
    )
    by_itself = user("A restart fixed it.", facets=FIX)
    [alone, solved] = await tell(store, "s2", user(ERROR, facets=PROBLEM), by_itself)
    resolutions = (await like(store)).resolutions
    assert resolutions[ids[0]].id == ids[1]
    assert resolutions[alone].id == solved


async def test_what_was_solved_comes_before_what_was_not(store: RecordStore) -> None:
    await tell(store, "s1", user(f"{ERROR}!", facets=PROBLEM), "No idea.")
    await tell(store, "s2", user(ERROR, facets=PROBLEM), assistant("Solved.", facets=FIX))
    await tell(store, "s3", user(f"{ERROR}?"), "Hm.")
    await tell(store, "s4", user(ERROR, facets=PROBLEM), "The same text again.")
    hits = (await like(store)).found.hits
    assert "s4" not in [hit.record.session for hit in hits]
    assert [hit.record.session for hit in hits[:3]] == ["s2", "s1", "s3"]
    assert all(0 <= hit.score <= 1 for hit in hits)


async def test_a_word_that_it_works_solves_the_problem_just_before(store: RecordStore) -> None:
    [problem, works] = await tell(
        store, "s1", user(ERROR, facets=PROBLEM), assistant("A longer wait: it runs through now.")
    )
    [far, *_] = await tell(
        store, "s2", user(f"{ERROR}!", facets=PROBLEM), *["So."] * MAX_TURNS_TO_CONFIRM, assistant("It works now.")
    )
    [no_problem, _] = await tell(store, "s3", user(f"{ERROR}?"), assistant("The lift works again."))
    resolutions = (await like(store)).resolutions
    assert resolutions[problem].id == works
    assert not {far, no_problem} & resolutions.keys()


async def test_a_conversation_is_shown_once_with_the_turn_that_names_the_problem(store: RecordStore) -> None:
    ids = await tell(
        store,
        "s1",
        user("The checkout raises a TimeoutError in the payment gateway as I said"),
        user(f"Again: {ERROR} in production", facets=PROBLEM),
    )
    assert [hit.record.id for hit in (await like(store)).found.hits] == [ids[1]]


async def test_one_solution_is_shown_once(store: RecordStore) -> None:
    ids = await tell(
        store,
        "s1",
        user(ERROR, facets=PROBLEM),
        assistant("The TimeoutError of the payment gateway is odd.", facets=PROBLEM),
        assistant("The TimeoutError of the checkout is solved.", facets=FIX),
    )
    answer = await like(store)
    shown = [hit.record.id for hit in answer.found.hits]
    assert shown == [ids[0]]
    assert answer.resolutions[ids[0]].id == ids[2]
    assert ids[2] not in answer.resolutions  # it needs none


async def test_a_solution_long_after_is_another_one(store: RecordStore) -> None:
    [first, *_] = await tell(
        store,
        "s1",
        user(ERROR, facets=PROBLEM),
        *("Something else." for _ in range(MAX_TURNS_TO_FIX)),
        assistant("Solved.", facets=FIX),
    )
    assert first not in (await like(store)).resolutions


async def test_a_fix_belongs_to_a_problem_or_to_what_the_user_just_asked(store: RecordStore) -> None:
    asked, fixed = f"{ERROR}?", assistant("All is fixed.", facets=FIX)
    [near, _, solution] = await tell(store, "s1", user(asked), "So.", fixed)
    [far, *_] = await tell(store, "s2", user(f"{ERROR} too"), *["So."] * MAX_TURNS_TO_CONFIRM, fixed)
    [told, _] = await tell(store, "s3", assistant(f"{ERROR}, I see"), fixed)
    resolutions = (await like(store)).resolutions
    assert resolutions[near].id == solution
    assert not {far, told} & resolutions.keys()


async def test_a_solution_of_another_program_is_not_taken(store: RecordStore) -> None:
    [first, _] = await tell(store, "s1", user(ERROR, facets=PROBLEM), "Hm.")
    await tell(store, "s1", "One", assistant("Solved.", facets=FIX), source="codex")
    assert first not in (await like(store)).resolutions


def test_code_stands_beside_the_description() -> None:
    assert build_problem_query("It fails", None) == "It fails"
    assert build_problem_query("It fails", "  ") == "It fails"
    assert build_problem_query("It fails", " x = 1 ") == "It fails\nx = 1"
    assert "x = 1" in build_problem_query("y" * 5_000, "x = 1")[:1_000]


async def test_a_feature_comes_with_the_turn_that_built_it(store: RecordStore) -> None:
    [wish, built, statement, solved] = await tell(
        store,
        "s1",
        user("Build pagination for the list of comments."),
        assistant("The list of comments has pages of twenty now."),
        user("The pages of comments load slowly."),
        assistant("We decided to fetch the next page of comments early.", type=DECISION),
    )
    assert (await like(store, "pagination for a list of comments")).resolutions[wish].id == built
    assert (await like(store, "slow pages of comments")).resolutions[statement].id == solved
