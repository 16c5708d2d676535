import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everkept.core.records import Record
from everkept.families.memories.consolidation import (
    MAX_IMPORTANCE,
    SUMMARY_CHARACTERS,
    ReflectionInput,
    ReflectionPlan,
    build_plan,
)
from everkept.families.memories.model import MAX_TAGS
from everkept.values import replace
from hash_embedder import HashingEmbedder
from records import DAY_ONE, memory

AUTH = (
    "The refresh token was checked against the wrong key.",
    "Refresh token rotation is on: each refresh token is used once.",
    "Wrote a test for the expired refresh token.",
)
SIDEBAR = (
    "The sidebar overlaps the header.",
    "Sidebar grid replaces the flexbox: the header stays on top.",
    "Sidebar contrast fixed, header too.",
)
LUNCH = "Lunch is at noon."
PUSHING = "Run the tests before pushing to the server."


def event(text: str, session: str = "one", **more: Any) -> Record:
    fields = {"type": "episodic", "scope": "session", "session": session}
    return memory(text, **(fields | more))


def events(*texts: str, **more: Any) -> list[Record]:
    return [event(text, **more) for text in texts]


def planned(own: Sequence[Record], others: Sequence[Record] = (), **more: Any) -> ReflectionPlan:
    return build_plan(ReflectionInput("one", own, others, **more))


def recurring(*sessions: str, **more: Any) -> list[Record]:
    """The same theme, once in each session."""
    return [event(PUSHING, session, id=f"{number} {session}", **more) for number, session in enumerate(sessions)]


def test_a_topic_becomes_one_memory_in_the_words_of_its_members() -> None:
    (summary,) = planned(events(*AUTH, LUNCH)).summaries
    assert [member.text for member in summary.members] == sorted(AUTH)
    assert summary.scope == "project"
    written = " ".join(AUTH)
    assert all(f"{said}." in written for said in summary.text.rstrip(".").split(". "))


def test_what_hooks_say_of_one_command_needs_no_summary() -> None:
    automatic: dict[str, Any] = {"facets": {"automatic": True}}
    said = (
        "failed:\nno rule to build the sidebar",
        "worked.",
        "failed and then succeeded, after edits of the sidebar.",
    )
    same = events(*(f"`make sidebar` {each}" for each in said), **automatic)
    assert planned(same).summaries == ()
    others = events(*(f"`make sidebar {n}` {each}" for n, each in enumerate(said)), **automatic)
    assert len(planned(others).summaries) == 1


def test_each_topic_gets_its_own_summary() -> None:
    made = planned(events(*AUTH, *SIDEBAR, LUNCH))
    assert [len(summary.members) for summary in made.summaries] == [3, 3]
    assert made.analyzed == 7


def test_meaning_brings_together_what_shares_no_word() -> None:
    near, far = np.array([1, 0], np.float32), np.array([0, 1], np.float32)
    vectors = {"alpha": near, "bravo": near, "charlie": near, "delta": far}
    background = HashingEmbedder().background
    (summary,) = planned(events(*vectors), vectors=vectors, background=background).summaries
    assert [member.id for member in summary.members] == ["alpha", "bravo", "charlie"]


def test_two_notes_are_no_topic_unless_they_say_the_same() -> None:
    assert planned(events(*AUTH[:2])).summaries == ()
    twice = events("The cache is flushed on deploy.", "On deploy the cache is flushed!")
    (summary,) = planned(twice).summaries
    assert len(summary.members) == 2


@pytest.mark.parametrize(
    "more",
    [
        {"facets": {"consolidated": True}},
        {"facets": {"superseded_by": "another"}},
        {"facets": {"pinned": True}},
        {"facets": {"derived": "summary"}},
        {"type": "procedural"},
        {"type": "semantic", "scope": "project"},
    ],
)
def test_what_stands_for_itself_is_not_summed_up(more: dict[str, Any]) -> None:
    assert planned(events(*AUTH, **more)).summaries == ()


def test_what_nobody_asked_for_does_not_become_a_second_memory_with_the_same_words() -> None:
    texts = [f"Edited src/{name}.py" for name in "abc"]
    assert planned(events(*texts, facets={"automatic": True})).summaries == ()
    assert len(planned(events(*texts)).summaries) == 1


def test_facts_of_the_session_alone_are_summed_up_with_its_events() -> None:
    own = [*events(*AUTH[:2]), event(AUTH[2], type="semantic")]
    assert len(planned(own).summaries) == 1


def test_what_is_the_users_stays_the_users() -> None:
    own = [*events(*AUTH, scope="user"), *events(*SIDEBAR)]
    assert [summary.scope for summary in planned(own).summaries] == ["project", "user"]


def test_a_summary_is_as_important_as_its_members_but_never_the_most_important() -> None:
    own = [event(text, importance=i / 10) for i, text in enumerate(AUTH, 6)]
    assert planned(own).summaries[0].importance == 0.8
    vital = events(*AUTH, importance=1.0)
    assert planned(vital).summaries[0].importance == MAX_IMPORTANCE


def test_a_summary_has_the_tags_that_most_members_have() -> None:
    tags = [("auth", "bug"), ("auth",), ("test",)]
    own = [event(text, tags=some) for text, some in zip(AUTH, tags, strict=True)]
    assert planned(own).summaries[0].tags == ("auth",)


def test_a_summary_has_no_more_tags_than_a_memory_may_have() -> None:
    many = [tuple(f"{n} {i}" for i in range(MAX_TAGS)) for n in range(2)]
    twice = ("The cache is flushed on deploy.", "On deploy the cache is flushed!")
    own = [event(text, tags=some) for text, some in zip(twice, many, strict=True)]
    (summary,) = planned(own).summaries
    assert len(summary.tags) < MAX_TAGS


def test_a_pattern_is_tagged_as_one_and_not_as_what_others_keep_to_themselves() -> None:
    others = recurring("x", "two", "three", tags=("private",))[1:]
    (pattern,) = planned(recurring("one", tags=("tests",)), others).patterns
    assert pattern.tags == ("tests", "pattern")


def test_a_theme_of_the_user_stays_the_users() -> None:
    others = recurring("x", "two", "two", scope="user")[1:]
    (pattern,) = planned(recurring("one", scope="user"), others).patterns
    assert (pattern.scope, pattern.suggested_scope) == ("user", "user")


def test_a_summary_is_as_old_as_its_newest_member() -> None:
    own = [event(text, created_at=DAY_ONE + i) for i, text in enumerate(AUTH)]
    assert planned(own).summaries[0].occurred_at == DAY_ONE + 2


def test_a_summary_of_much_stays_short() -> None:
    long = events(*(f"{text} Refresh token case {i} is {'very ' * 40}odd." for i, text in enumerate(AUTH * 5)))
    assert all(len(summary.text) <= SUMMARY_CHARACTERS for summary in planned(long).summaries)


def test_a_theme_that_comes_back_in_other_sessions_is_a_pattern() -> None:
    made = planned(recurring("one"), recurring("x", "two", "three")[1:])
    (pattern,) = made.patterns
    assert pattern.text == f"Recurring theme: {PUSHING}"
    assert (pattern.frequency, pattern.sessions) == (3, 3)
    assert pattern.suggested_scope == "user"
    assert made.analyzed == 1


def test_a_theme_of_one_session_is_no_pattern() -> None:
    assert planned(recurring("one", "one", "one")).patterns == ()


def test_a_theme_that_this_session_does_not_touch_is_not_brought_up() -> None:
    assert planned(events(LUNCH), recurring("two", "three", "four")).patterns == ()


@pytest.mark.parametrize(
    "bound",
    [
        {"text": "Run the tests in tests/core/test_tokens.py before pushing to the server."},
        {"text": "Run the tests of app.py before pushing to the server."},
        {"facets": {"source": {"file": "ci.yml"}}},
    ],
)
def test_what_speaks_of_a_file_is_the_projects(bound: dict[str, Any]) -> None:
    own = [replace(recurring("one")[0], **bound)]
    (pattern,) = planned(own, recurring("x", "two", "three")[1:]).patterns
    assert pattern.suggested_scope == "project"


def test_what_two_sessions_share_is_the_projects() -> None:
    (pattern,) = planned(recurring("one"), recurring("x", "two", "two")[1:]).patterns
    assert pattern.suggested_scope == "project"


def test_what_another_session_keeps_to_itself_is_not_quoted() -> None:
    others = [
        event("Run all tests before pushing to the server, secret tests too.", "two"),
        event("Pushing to the server: run tests before, on the secret machine.", "three"),
    ]
    (pattern,) = planned(recurring("one"), others).patterns
    assert "secret" not in pattern.text
    assert pattern.frequency == 3


def test_a_pattern_that_is_known_is_not_made_again() -> None:
    own, others = recurring("one"), recurring("x", "two", "three")[1:]
    facets = {"derived": "pattern", "derived_from": [record.id for record in (*own, *others)]}
    known = memory("As it was put before", type="procedural", facets=facets)
    (pattern,) = planned(own, others, patterns=[known]).patterns
    assert (pattern.id, pattern.text) == (known.id, known.text)
    assert not pattern.has_new_members
    newer = event(PUSHING + " Always!", created_at=DAY_ONE + 1)
    (grown,) = planned([*own, newer], others, patterns=[known]).patterns
    assert grown.has_new_members
    assert grown.frequency == 4


def test_a_pattern_that_was_forgotten_is_not_brought_up_again() -> None:
    own, others = recurring("one"), recurring("x", "two", "three")[1:]
    facets = {"derived": "pattern", "derived_from": [record.id for record in (*own, *others)]}
    known = memory("Forgotten", type="procedural", facets=facets, deleted_at=DAY_ONE)
    assert planned(own, others, patterns=[known]).patterns == ()


def test_a_strategy_does_its_part_alone() -> None:
    own = [*events(*AUTH), *recurring("one")]
    remembered = ReflectionInput("one", own, recurring("x", "two", "three")[1:])
    summed, found = build_plan(remembered, "summarize"), build_plan(remembered, "extract_patterns")
    both = build_plan(remembered, "full")
    assert summed.summaries
    assert not summed.patterns
    assert found.patterns
    assert not found.summaries
    assert (both.summaries, both.patterns) == (summed.summaries, found.patterns)


WORDS = ("token", "refresh", "sidebar", "header", "redis", "cache", "deploy", "tests", "lunch")
texts = st.lists(st.sampled_from(WORDS), min_size=1, max_size=6).map(" ".join)
moments = st.integers(0, 3)
notes = st.lists(st.tuples(texts, moments), max_size=12, unique_by=lambda pair: pair[0])


@settings(deadline=None)
@given(notes, notes, st.randoms(use_true_random=False))
def test_the_same_memories_make_the_same_plan_in_any_order(
    own: list[tuple[str, int]], others: list[tuple[str, int]], random: Any
) -> None:
    ours = [event(text, created_at=DAY_ONE + at) for text, at in own]
    theirs = [event(text, f"other {at}", id=f"other {text}", created_at=DAY_ONE + at) for text, at in others]
    made = planned(ours, theirs)
    random.shuffle(ours)
    random.shuffle(theirs)
    assert planned(ours, theirs) == made


@settings(deadline=None)
@given(notes)
def test_no_memory_is_summed_up_twice(own: list[tuple[str, int]]) -> None:
    made = planned([event(text, created_at=DAY_ONE + at) for text, at in own])
    members = [member.id for summary in made.summaries for member in summary.members]
    assert len(members) == len(set(members))


directions = st.dictionaries(st.sampled_from(range(24)), st.integers(0, 3), max_size=24)


@settings(deadline=None)
@given(notes, notes, directions, directions)
def test_vectors_that_come_or_go_bring_up_nothing_more(
    own: list[tuple[str, int]], others: list[tuple[str, int]], earlier: dict[int, int], later: dict[int, int]
) -> None:
    ours = [event(text) for text, _ in own]
    theirs = [event(text, f"other {at}", id=f"other {text}") for text, at in others]

    def vectors(chosen: dict[int, int]) -> dict[str, Any]:
        both = [*ours, *theirs]
        near = np.eye(4, dtype=np.float32)
        return {both[n].id: near[to] for n, to in chosen.items() if n < len(both)}

    first = planned(ours, theirs, vectors=vectors(earlier))
    settled, patterns = kept(ours, first, DAY_ONE + 1)
    second = planned(settled, theirs, patterns=patterns, vectors=vectors(later))
    if first.summaries:
        assert second.summaries == ()
    if first.patterns:
        assert not any(pattern.has_new_members for pattern in second.patterns)


def kept(own: Sequence[Record], made: ReflectionPlan, at: int) -> tuple[list[Record], list[Record]]:
    """The memories of the session and the patterns, once a plan is carried out."""
    gone = {member.id for summary in made.summaries for member in summary.members}
    sources = [replace(r, facets={"consolidated": True}) if r.id in gone else r for r in own]
    summaries = [
        event(summary.text, id=summary.id, facets={"derived": "summary"}, created_at=at) for summary in made.summaries
    ]
    patterns = [
        event(
            pattern.text,
            id=pattern.id,
            created_at=at,
            facets={"derived": "pattern", "derived_from": [m.id for m in pattern.members]},
        )
        for pattern in made.patterns
    ]
    return [*sources, *summaries, *patterns], patterns


def test_what_was_changed_since_counts_as_new() -> None:
    summary = event("Summed up", facets={"derived": "summary"}, created_at=DAY_ONE + 1)
    assert planned([*events(*AUTH), summary]).summaries == ()
    changed = event(AUTH[2], updated_at=DAY_ONE + 2)
    assert len(planned([*events(*AUTH[:2]), changed, summary]).summaries) == 1


def test_of_a_long_text_the_beginning_is_read_and_a_clipped_quote_says_so() -> None:
    start = "The deploy script fails on the staging machine"
    long = events(*(f"{start} {word} {'very ' * 20_000}odd" for word in ("now", "again", "twice")))
    (summary,) = planned(long).summaries
    assert summary.text.startswith(start)
    assert summary.text.endswith("…")
    assert "odd" not in summary.text


def test_ids_look_like_those_of_other_memories_and_depend_on_the_members() -> None:
    (one,) = planned(events(*AUTH)).summaries
    (other,) = planned([*events(*AUTH[:2]), event(AUTH[2], id="another")]).summaries
    assert one.id.startswith("memory:")
    assert len(one.id) == len("memory:") + 26
    assert one.text == other.text
    assert one.id != other.id


def test_planning_is_imported_without_numpy() -> None:
    code = (
        "import sys, everkept.families.memories.reflection, everkept.families.memories.context\n"
        "sys.exit('numpy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
