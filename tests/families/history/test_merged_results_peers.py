from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conversations import DAY
from everkept.core.answers import SearchFinding
from everkept.core.peers import MAX_RESULTS, PEER_SCORE_FACTOR, PeerAnswer, PeerAnswers, PeerFault
from everkept.core.times import format_iso
from everkept.families.history.merged_results import (
    MIN_SHARE,
    NO_PEERS_WARNING,
    SearchFilter,
    add_source,
    compute_shares,
    list_peer_warnings,
    merge_peer_answers,
    normalize_text,
    remove_duplicates,
)
from everkept.families.history.search_answers import LOCAL_SOURCE, MemoryResult, TurnContext
from everkept.families.history.searches import HistoryAnswer
from everkept.tools.tool import ToolWarning
from records import DAY_ONE

WORDS = st.lists(st.sampled_from(["login", "flaky", "test", "blue", "page"]), max_size=6)


def test_the_search_that_has_the_asked_words_counts_in_full() -> None:
    counted = compute_shares("flaky login", {"a": ["the flaky login"], "b": ["a blue page"], "c": []})
    assert counted == {"a": 1.0, "b": MIN_SHARE, "c": MIN_SHARE}


def test_where_nobody_has_a_word_all_count_the_same() -> None:
    assert compute_shares("flaky login", {"a": ["a blue page"], "b": []}) == {"a": 1.0, "b": 1.0}


@given(st.dictionaries(st.text(max_size=2), st.lists(WORDS.map(" ".join), max_size=3)), WORDS)
def test_shares_lie_between_the_least_and_all_and_somebody_has_all(
    texts: dict[str, list[str]], asked: list[str]
) -> None:
    counted = compute_shares(" ".join(asked), texts)
    assert counted.keys() == texts.keys()
    assert all(MIN_SHARE <= share <= 1 for share in counted.values())
    assert not counted or max(counted.values()) == 1


MEANT = SearchFilter("flaky login", "all", 10)


def own(content: str, score: float = 0.5, *, at: int = DAY_ONE, **more: Any) -> MemoryResult:
    plain: dict[str, Any] = {"type": "conversation", "source": LOCAL_SOURCE, "highlights": []} | more
    context = TurnContext("s1", "/home/ann/shop", format_iso(at), ["user"])
    return MemoryResult(f"turn_{content}", content=content, context=context, relevance_score=score, **plain)


def foreign(content: str, score: float = 0.5, **more: Any) -> SearchFinding:
    plain: dict[str, Any] = {"type": "conversation", "project": "shop", "at": DAY_ONE} | more
    return SearchFinding(id=f"anna:turn_{content}", content=content, score=score, search_type="semantic", **plain)


def answers(**findings: list[SearchFinding]) -> PeerAnswers:
    return PeerAnswers([PeerAnswer(peer, tuple(some)) for peer, some in findings.items()])


def test_what_others_have_stands_among_our_own_and_counts_a_little_less() -> None:
    told = merge_peer_answers(
        HistoryAnswer([own("flaky login here", 0.5)]),
        answers(anna=[foreign("flaky login there", 0.9), foreign("flaky login too", 0.2)]),
        MEANT,
    )
    assert [(each.source, each.relevance_score) for each in told.results] == [
        ("peer:anna", round(0.9 * PEER_SCORE_FACTOR, 3)),
        (LOCAL_SOURCE, 0.5),
        ("peer:anna", round(0.2 * PEER_SCORE_FACTOR, 3)),
    ]
    first = told.results[0]
    assert first.context.project_path == "shop"
    assert first.highlights == ["**flaky** **login** there"]


def test_a_server_that_has_fewer_of_the_words_counts_for_less() -> None:
    asked = answers(anna=[foreign("a blue page", 0.9)], bert=[foreign("the flaky login", 0.7)])
    told = merge_peer_answers(HistoryAnswer(), asked, MEANT)
    assert [each.source for each in told.results] == ["peer:bert", "peer:anna"]


def test_the_same_text_stands_once_and_names_all_who_have_it() -> None:
    asked = answers(
        anna=[foreign("Flaky  login", 0.9), foreign("another login", 0.3)],
        bert=[foreign("flaky login", 0.8), foreign("Another login", 0.4)],
    )
    told = merge_peer_answers(HistoryAnswer([own("flaky login", 0.2)]), asked, MEANT)
    named = {each.content.lower(): (each.source, each.also_in) for each in told.results}
    assert named["flaky login"] == (LOCAL_SOURCE, ["peer:anna", "peer:bert"])
    assert named["another login"] == ("peer:bert", ["peer:anna"])
    assert len(told.results) == 2


def test_without_anything_from_others_our_own_answer_stays_as_it_is() -> None:
    mine = HistoryAnswer([own("b", 0.4), own("a", 0.41)], ["topic"])
    fault = PeerFault("anna", "peer_timed_out", "Without anna.")
    told = merge_peer_answers(mine, PeerAnswers([PeerAnswer("bert")], [fault]), MEANT)
    assert (told.results, told.topics) == (mine.results, ["topic"])
    assert told.warnings == (ToolWarning("peer_timed_out", "Without anna."),)


def test_what_was_asked_for_is_what_comes_in() -> None:
    kinds = [
        foreign("said", type="conversation"),
        foreign("decided", type="decision"),
        foreign("coded", type="code"),
        foreign("remembered", type="memory"),
    ]

    def types(kind: Any) -> list[tuple[str, str]]:
        told = merge_peer_answers(HistoryAnswer(), answers(anna=kinds), SearchFilter("x", kind, 10))
        return sorted((each.content, each.type) for each in told.results)

    assert types("code") == [("coded", "code")]
    assert types("decision") == [("decided", "decision")]
    assert types("conversation") == [("said", "conversation")]
    assert [content for content, _ in types("all")] == ["coded", "decided", "said"]


@pytest.mark.parametrize("project", ["shop", "SHOP", "/home/me/shop", "C:\\work\\shop"])
def test_a_project_is_meant_by_its_name_wherever_it_lies(project: str) -> None:
    asked = answers(anna=[foreign("here"), foreign("there", project="blog")])
    told = merge_peer_answers(HistoryAnswer(), asked, SearchFilter("x", "all", 10, project))
    assert [each.content for each in told.results] == ["here"]


def test_what_is_older_or_newer_than_asked_stays_out() -> None:
    moments = [foreign(str(n), at=DAY_ONE + n * DAY) for n in range(5)]
    meant = SearchFilter("x", "all", 10, after=DAY_ONE + DAY, before=DAY_ONE + 3 * DAY)
    told = merge_peer_answers(HistoryAnswer(), answers(anna=moments), meant)
    assert sorted(each.content for each in told.results) == ["1", "2", "3"]


def test_more_is_asked_for_where_it_is_narrowed_here() -> None:
    assert SearchFilter("x", "code", 7).peer_question.limit == 7
    assert SearchFilter("x", "code", 7).peer_question.types == ("code",)
    assert SearchFilter("x", "all", 7, "shop").peer_question.limit == MAX_RESULTS
    assert SearchFilter("x", "all", 7, after=1).peer_question.limit == MAX_RESULTS


def test_of_about_the_same_score_the_newest_come_first() -> None:
    asked = answers(anna=[foreign("flaky login old", 0.62), foreign("flaky login", 0.61, at=DAY)])
    mine = HistoryAnswer([own("flaky login new", 0.51, at=DAY_ONE + DAY)])
    told = merge_peer_answers(mine, asked, MEANT)
    assert [each.content for each in told.results] == ["flaky login new", "flaky login old", "flaky login"]


def test_nobody_to_ask_and_half_an_answer_are_told() -> None:
    assert list_peer_warnings(PeerAnswers(is_anybody=False)) == [NO_PEERS_WARNING]
    [warning] = list_peer_warnings(PeerAnswers([PeerAnswer("anna", (), ("Half of it.",))]))
    assert warning == ToolWarning("peer_partial", 'Peer "anna": Half of it.')


TEXTS = st.sampled_from(["a", "A ", "b", "c  d", "C d", "e"])
SOURCES = st.sampled_from([LOCAL_SOURCE, "peer:anna", "peer:bert"])
RESULTS = st.lists(
    st.builds(lambda text, score, source: own(text, score, source=source), TEXTS, st.floats(0, 1), SOURCES), max_size=12
)


@given(RESULTS)
def test_each_text_of_others_stands_once_and_no_source_is_lost(found: list[MemoryResult]) -> None:
    ours_first = sorted(found, key=lambda one: one.source != LOCAL_SOURCE)
    kept = remove_duplicates(ours_first)
    ours = [one for one in found if one.source == LOCAL_SOURCE]
    assert len([one for one in kept if one.source == LOCAL_SOURCE]) == len(ours)
    theirs = [normalize_text(one.content) for one in kept if one.source != LOCAL_SOURCE]
    assert len(theirs) == len(set(theirs))
    assert not set(theirs) & {normalize_text(one.content) for one in ours}
    assert _named(kept) == _named(found)


def _named(results: list[MemoryResult]) -> set[tuple[str, str]]:
    """Who has which text."""
    return {(normalize_text(one.content), source) for one in results for source in (one.source, *(one.also_in or ()))}


@given(
    st.dictionaries(
        st.sampled_from(["anna", "bert", "cleo"]), st.lists(st.builds(foreign, TEXTS, st.floats(0, 1)), max_size=8)
    ),
    st.lists(st.builds(own, TEXTS, st.floats(0, 1)), max_size=8),
    st.integers(1, 12),
)
def test_a_page_has_the_best_and_no_more_than_asked(
    found: dict[str, list[SearchFinding]], mine: list[MemoryResult], limit: int
) -> None:
    told = merge_peer_answers(HistoryAnswer(mine), answers(**found), SearchFilter("a b", "all", limit))
    if not any(found.values()):
        assert told.results == mine
        return
    assert len(told.results) <= limit
    assert all(0 <= each.relevance_score <= 1 for each in told.results)
    everything = merge_peer_answers(HistoryAnswer(mine), answers(**found), SearchFilter("a b", "all", 50))
    best = sorted((one.relevance_score for one in everything.results), reverse=True)
    assert sorted((one.relevance_score for one in told.results), reverse=True) == best[:limit]


def test_a_source_is_named_once() -> None:
    assert add_source(LOCAL_SOURCE, None, "peer:a") == ["peer:a"]
    assert add_source(LOCAL_SOURCE, ["peer:a"], "peer:a") == ["peer:a"]
    assert add_source("peer:a", ["peer:b"], "peer:a") == ["peer:b"]
    assert add_source("peer:a", None, "peer:a") is None
