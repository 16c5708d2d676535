from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from conversations import embed, tell
from everkept.core.answers import SearchFinding
from everkept.core.peers import PeerAnswer, PeerAnswers, PeerFault, PeerQuestion
from everkept.core.sessions import Session, ToolCall
from everkept.families.history.merged_results import (
    MIN_PART_SCORE_SHARE,
    TYPE_PARTS,
    build_unified_results,
    group_results,
    merge_results,
    normalize_text,
    remove_unified_duplicates,
)
from everkept.families.history.search_answers import ResultContext, UnifiedAnswer, UnifiedResult, format_unified_answer
from records import DAY_ONE
from unified_search import Everything


def result(name: str, score: float, part: str = "memories", **more: str) -> UnifiedResult:
    """One whose text is its id."""
    return UnifiedResult(
        id=more.pop("id", name),
        type=more.pop("type", "memory"),
        content=name,
        relevance_score=score,
        search_type="semantic",
        found_in=part,
        source=more.pop("source", "local"),
        context=ResultContext(timestamp=more.pop("timestamp", None)),
    )


def ids(results: list[UnifiedResult]) -> list[str]:
    return [found.id for found in results]


def test_the_best_come_first_and_of_equals_the_newest() -> None:
    found = [
        result("old", 0.5, timestamp="2026-01-01"),
        result("best", 0.9),
        result("new", 0.5, timestamp="2026-02-01"),
    ]
    assert ids(merge_results(found, 10)) == ["best", "new", "old"]
    assert ids(merge_results(found, 1)) == ["best"]
    assert merge_results([], 10) == []


def test_one_thing_or_one_text_stands_once_where_it_is_better() -> None:
    found = [
        result("text", 0.4, id="a"),
        result("other", 0.6, id="a"),
        result("Said  twice", 0.5, id="b"),
        result("said twice", 0.7, "bank", id="c"),
    ]
    assert ids(remove_unified_duplicates(found)) == ["c", "a"]
    assert remove_unified_duplicates(found)[1].content == "other"


def test_what_is_kept_here_goes_before_the_same_elsewhere_and_names_it() -> None:
    found = [
        result("said twice", 0.9, id="anna:a", source="peer:anna"),
        result("Said  twice", 0.5, id="b"),
        result("said twice", 0.7, id="bert:a", source="peer:bert"),
        result("elsewhere", 0.4, id="anna:b", source="peer:anna"),
        result("Elsewhere", 0.6, id="bert:b", source="peer:bert"),
    ]
    once = [(one.id, one.also_in) for one in remove_unified_duplicates(found)]
    assert once == [("bert:b", ["peer:anna"]), ("b", ["peer:anna", "peer:bert"])]


def test_the_best_of_each_part_stays_in_the_page_if_it_is_good() -> None:
    many = [result(f"m{number}", 0.9 - number / 100) for number in range(10)]
    found = [
        *many,
        result("good", 0.9 * MIN_PART_SCORE_SHARE, "bank"),
        result("poor", 0.9 * MIN_PART_SCORE_SHARE - 0.1, "graph"),
    ]
    page = merge_results(found, 5)
    assert ids(page) == ["m0", "m1", "m2", "m3", "good"]


def test_a_page_of_single_ones_stays_as_it_is() -> None:
    found = [result("a", 0.9, "one"), result("b", 0.8, "two"), result("c", 0.7, "three")]
    assert ids(merge_results(found, 2)) == ["a", "b"]


def test_groups_have_the_best_of_each_part() -> None:
    found = [result("a", 0.2), result("b", 0.9, "bank"), result("c", 0.7), result("d", 0.1)]
    assert [(group.found_in, ids(group.results)) for group in group_results(found, 2)] == [
        ("bank", ["b"]),
        ("memories", ["c", "a"]),
    ]


RESULTS = st.lists(
    st.builds(
        result,
        st.text(max_size=3),
        st.floats(0, 1),
        st.sampled_from(["memories", "bank", "graph", "code"]),
        source=st.sampled_from(["local", "peer:anna", "peer:bert"]),
    ),
    max_size=20,
)


@given(RESULTS, st.integers(1, 8))
def test_a_page_is_in_order_without_doubles_and_has_the_best(found: list[UnifiedResult], limit: int) -> None:
    page = merge_results(found, limit)
    scores = [one.relevance_score for one in page]
    assert scores == sorted(scores, reverse=True)
    assert len(page) == min(limit, len(remove_unified_duplicates(found)))
    assert remove_unified_duplicates(page) == page
    if page:
        assert page[0] == remove_unified_duplicates(found)[0]


@given(RESULTS)
def test_nobody_who_has_something_is_left_out(found: list[UnifiedResult]) -> None:
    def named(results: list[UnifiedResult]) -> set[tuple[str, str]]:
        return {
            (normalize_text(one.content), source) for one in results for source in (one.source, *(one.also_in or ()))
        }

    assert named(remove_unified_duplicates(found)) == named(found)
    own = {normalize_text(one.content) for one in found if one.source == "local"}
    shown = {normalize_text(one.content) for one in remove_unified_duplicates(found) if one.source != "local"}
    assert not own & shown


@dataclass
class Neighbours:
    """Others who have an answer ready."""

    asked: PeerAnswers
    questions: list[PeerQuestion] = field(default_factory=list[PeerQuestion])

    async def ask(self, question: PeerQuestion) -> PeerAnswers:
        self.questions.append(question)
        return self.asked


def finding(content: str, kind: str = "conversation", **more: str) -> SearchFinding:
    way = "graph" if kind == "entity" else "semantic"
    return SearchFinding(f"anna:{content}", kind, content, 0.9, way, at=DAY_ONE, project="shop", **more)


async def search(everything: Everything, query: str, peers: Neighbours) -> UnifiedAnswer:
    await embed(await everything.store(), everything.indexing.embedder)
    call = ToolCall(Session(), "unified_memory_search")
    return await everything.unified().search(call, query, peers=peers)


async def test_others_are_asked_and_named(everything: Everything) -> None:
    await tell(await everything.store(), "s1", "The flaky login test is fixed")
    anna = PeerAnswer("anna", (finding("The flaky login waits for Redis", title="Login"), finding("Login", "entity")))
    peers = Neighbours(PeerAnswers([anna], [PeerFault("bert", "peer_timed_out", "Without bert.")]))
    answer = await search(everything, "flaky login", peers)
    assert [question.query for question in peers.questions] == ["flaky login"]
    sources = {each.content: each.source for each in answer.results}
    assert sources["The flaky login test is fixed"] == "local"
    assert sources["The flaky login waits for Redis"] == "peer:anna"
    assert [each.code for each in answer.warnings or ()] == ["peer_timed_out"]
    assert "the peer anna" in answer.explanation
    assert not any("anna:" in suggestion for suggestion in answer.suggestions)
    shown = format_unified_answer(answer, "flaky login", DAY_ONE)
    assert "from the peer anna" in shown
    assert "View full context](anna:" not in shown


async def test_what_is_here_too_is_shown_once_with_both(everything: Everything) -> None:
    await tell(await everything.store(), "s1", "The flaky login test is fixed")
    anna = PeerAnswer("anna", (finding("the flaky  login test is fixed"),))
    answer = await search(everything, "flaky login", Neighbours(PeerAnswers([anna])))
    [only] = answer.results
    assert (only.source, only.also_in) == ("local", ["peer:anna"])
    assert "also the peer anna" in format_unified_answer(answer, "flaky login", DAY_ONE)


async def test_where_nobody_can_be_asked_that_is_told(everything: Everything) -> None:
    await tell(await everything.store(), "s1", "The flaky login test is fixed")
    answer = await search(everything, "login", Neighbours(PeerAnswers(is_anybody=False)))
    assert [each.code for each in answer.warnings or ()] == ["no_peers"]
    assert len(answer.results) == 1


def test_every_type_has_its_part() -> None:
    found = [finding("x", kind) for kind in TYPE_PARTS]
    results = build_unified_results(PeerAnswer("anna", tuple(found)))
    assert [each.found_in for each in results] == list(TYPE_PARTS.values())
    assert {each.context.project_path for each in results} == {"shop"}
