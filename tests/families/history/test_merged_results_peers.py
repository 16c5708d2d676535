from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conversations import DAY
from everkept.core.answers import Finding
from everkept.core.peers import MOST_RESULTS, SHARE, Asked, PeerAnswer, PeerFault
from everkept.core.times import iso
from everkept.families.history.merged_results import (
    LEAST,
    NO_PEERS,
    Meant,
    also_in,
    each_once,
    joined,
    same_text,
    shares,
    warnings_of,
)
from everkept.families.history.search_answers import LOCAL, Context, MemoryResult
from everkept.families.history.searches import Answered
from everkept.tools.tool import Warned
from records import DAY_ONE

WORDS = st.lists(st.sampled_from(["login", "flaky", "test", "blue", "page"]), max_size=6)


def test_the_search_that_has_the_asked_words_counts_in_full() -> None:
    counted = shares("flaky login", {"a": ["the flaky login"], "b": ["a blue page"], "c": []})
    assert counted == {"a": 1.0, "b": LEAST, "c": LEAST}


def test_where_nobody_has_a_word_all_count_the_same() -> None:
    assert shares("flaky login", {"a": ["a blue page"], "b": []}) == {"a": 1.0, "b": 1.0}


@given(st.dictionaries(st.text(max_size=2), st.lists(WORDS.map(" ".join), max_size=3)), WORDS)
def test_shares_lie_between_the_least_and_all_and_somebody_has_all(
    texts: dict[str, list[str]], asked: list[str]
) -> None:
    counted = shares(" ".join(asked), texts)
    assert counted.keys() == texts.keys()
    assert all(LEAST <= share <= 1 for share in counted.values())
    assert not counted or max(counted.values()) == 1


MEANT = Meant("flaky login", "all", 10)


def own(content: str, score: float = 0.5, *, at: int = DAY_ONE, **more: Any) -> MemoryResult:
    plain: dict[str, Any] = {"type": "conversation", "source": LOCAL, "highlights": []} | more
    context = Context("s1", "/home/ann/shop", iso(at), ["user"])
    return MemoryResult(
        f"turn_{content}", content=content, context=context, relevance_score=score, **plain
    )


def foreign(content: str, score: float = 0.5, **more: Any) -> Finding:
    plain: dict[str, Any] = {"type": "conversation", "project": "shop", "at": DAY_ONE} | more
    return Finding(
        id=f"anna:turn_{content}", content=content, score=score, search_type="semantic", **plain
    )


def answers(**findings: list[Finding]) -> Asked:
    return Asked([PeerAnswer(peer, tuple(some)) for peer, some in findings.items()])


def test_what_others_have_stands_among_our_own_and_counts_a_little_less() -> None:
    told = joined(
        Answered([own("flaky login here", 0.5)]),
        answers(anna=[foreign("flaky login there", 0.9), foreign("flaky login too", 0.2)]),
        MEANT,
    )
    assert [(each.source, each.relevance_score) for each in told.results] == [
        ("peer:anna", round(0.9 * SHARE, 3)),
        (LOCAL, 0.5),
        ("peer:anna", round(0.2 * SHARE, 3)),
    ]
    first = told.results[0]
    assert first.context.project_path == "shop"
    assert first.highlights == ["**flaky** **login** there"]


def test_a_server_that_has_fewer_of_the_words_counts_for_less() -> None:
    asked = answers(anna=[foreign("a blue page", 0.9)], bert=[foreign("the flaky login", 0.7)])
    told = joined(Answered(), asked, MEANT)
    assert [each.source for each in told.results] == ["peer:bert", "peer:anna"]


def test_the_same_text_stands_once_and_names_all_who_have_it() -> None:
    asked = answers(
        anna=[foreign("Flaky  login", 0.9), foreign("another login", 0.3)],
        bert=[foreign("flaky login", 0.8), foreign("Another login", 0.4)],
    )
    told = joined(Answered([own("flaky login", 0.2)]), asked, MEANT)
    named = {each.content.lower(): (each.source, each.also_in) for each in told.results}
    assert named["flaky login"] == (LOCAL, ["peer:anna", "peer:bert"])
    assert named["another login"] == ("peer:bert", ["peer:anna"])
    assert len(told.results) == 2


def test_without_anything_from_others_our_own_answer_stays_as_it_is() -> None:
    mine = Answered([own("b", 0.4), own("a", 0.41)], ["topic"])
    fault = PeerFault("anna", "peer_timed_out", "Without anna.")
    told = joined(mine, Asked([PeerAnswer("bert")], [fault]), MEANT)
    assert (told.results, told.topics) == (mine.results, ["topic"])
    assert told.warnings == (Warned("peer_timed_out", "Without anna."),)


def test_what_was_asked_for_is_what_comes_in() -> None:
    kinds = [
        foreign("said", type="conversation"),
        foreign("decided", type="decision"),
        foreign("coded", type="code"),
        foreign("remembered", type="memory"),
    ]

    def types(kind: Any) -> list[tuple[str, str]]:
        told = joined(Answered(), answers(anna=kinds), Meant("x", kind, 10))
        return sorted((each.content, each.type) for each in told.results)

    assert types("code") == [("coded", "code")]
    assert types("decision") == [("decided", "decision")]
    assert types("conversation") == [("decided", "conversation"), ("said", "conversation")]
    assert [content for content, _ in types("all")] == ["coded", "decided", "said"]


@pytest.mark.parametrize("project", ["shop", "SHOP", "/home/me/shop", "C:\\work\\shop"])
def test_a_project_is_meant_by_its_name_wherever_it_lies(project: str) -> None:
    asked = answers(anna=[foreign("here"), foreign("there", project="blog")])
    told = joined(Answered(), asked, Meant("x", "all", 10, project))
    assert [each.content for each in told.results] == ["here"]


def test_what_is_older_or_newer_than_asked_stays_out() -> None:
    moments = [foreign(str(n), at=DAY_ONE + n * DAY) for n in range(5)]
    meant = Meant("x", "all", 10, after=DAY_ONE + DAY, before=DAY_ONE + 3 * DAY)
    told = joined(Answered(), answers(anna=moments), meant)
    assert sorted(each.content for each in told.results) == ["1", "2", "3"]


def test_more_is_asked_for_where_it_is_narrowed_here() -> None:
    assert Meant("x", "code", 7).question.limit == 7
    assert Meant("x", "code", 7).question.types == ("code",)
    assert Meant("x", "all", 7, "shop").question.limit == MOST_RESULTS
    assert Meant("x", "all", 7, after=1).question.limit == MOST_RESULTS


def test_of_about_the_same_score_the_newest_come_first() -> None:
    asked = answers(anna=[foreign("flaky login old", 0.62), foreign("flaky login", 0.61, at=DAY)])
    mine = Answered([own("flaky login new", 0.51, at=DAY_ONE + DAY)])
    told = joined(mine, asked, MEANT)
    assert [each.content for each in told.results] == [
        "flaky login new",
        "flaky login old",
        "flaky login",
    ]


def test_nobody_to_ask_and_half_an_answer_are_told() -> None:
    assert warnings_of(Asked(is_anybody=False)) == [NO_PEERS]
    [warning] = warnings_of(Asked([PeerAnswer("anna", (), ("Half of it.",))]))
    assert warning == Warned("peer_partial", 'The peer "anna" says: Half of it.')


TEXTS = st.sampled_from(["a", "A ", "b", "c  d", "C d", "e"])
SOURCES = st.sampled_from([LOCAL, "peer:anna", "peer:bert"])
RESULTS = st.lists(
    st.builds(
        lambda text, score, source: own(text, score, source=source), TEXTS, st.floats(0, 1), SOURCES
    ),
    max_size=12,
)


@given(RESULTS)
def test_each_text_of_others_stands_once_and_no_source_is_lost(found: list[MemoryResult]) -> None:
    ours_first = sorted(found, key=lambda one: one.source != LOCAL)
    kept = each_once(ours_first)
    ours = [one for one in found if one.source == LOCAL]
    assert len([one for one in kept if one.source == LOCAL]) == len(ours)
    theirs = [same_text(one.content) for one in kept if one.source != LOCAL]
    assert len(theirs) == len(set(theirs))
    assert not set(theirs) & {same_text(one.content) for one in ours}
    assert _named(kept) == _named(found)


def _named(results: list[MemoryResult]) -> set[tuple[str, str]]:
    """Who has which text."""
    return {
        (same_text(one.content), source)
        for one in results
        for source in (one.source, *(one.also_in or ()))
    }


@given(
    st.dictionaries(
        st.sampled_from(["anna", "bert", "cleo"]),
        st.lists(st.builds(foreign, TEXTS, st.floats(0, 1)), max_size=8),
    ),
    st.lists(st.builds(own, TEXTS, st.floats(0, 1)), max_size=8),
    st.integers(1, 12),
)
def test_a_page_has_the_best_and_no_more_than_asked(
    found: dict[str, list[Finding]], mine: list[MemoryResult], limit: int
) -> None:
    told = joined(Answered(mine), answers(**found), Meant("a b", "all", limit))
    if not any(found.values()):
        assert told.results == mine
        return
    assert len(told.results) <= limit
    assert all(0 <= each.relevance_score <= 1 for each in told.results)
    everything = joined(Answered(mine), answers(**found), Meant("a b", "all", 50))
    best = sorted((one.relevance_score for one in everything.results), reverse=True)
    assert sorted((one.relevance_score for one in told.results), reverse=True) == best[:limit]


def test_a_source_is_named_once() -> None:
    assert also_in(LOCAL, None, "peer:a") == ["peer:a"]
    assert also_in(LOCAL, ["peer:a"], "peer:a") == ["peer:a"]
    assert also_in("peer:a", ["peer:b"], "peer:a") == ["peer:b"]
    assert also_in("peer:a", None, "peer:a") is None
