"""What a session is taken to know already."""

from everkept.core.records import Record
from everkept.families.history.model import CODE, TURN
from everkept.hooks.prompt_evidence import (
    MEMORY,
    PromptEvidence,
    compute_marks,
    compute_topic_marks,
    exclude_given,
    is_same_topic,
    remove_duplicates,
)
from everkept.language.telling_words import find_telling_words
from records import DAY_ONE


def find(record_id: str, text: str, kind: str = TURN, parent: str | None = None) -> PromptEvidence:
    record = Record(record_id, kind, DAY_ONE, DAY_ONE, text=text, parent=parent)
    return PromptEvidence(record, "history", 1.0, 1.0, 3)


def test_a_record_is_known_by_its_id_its_turn_and_its_text() -> None:
    given = compute_marks(find("one", "Same  text").record)
    assert exclude_given([find("one", "another text")], given) == []
    assert exclude_given([find("two", "same text")], given) == []
    assert exclude_given([find("code", "x = 1", CODE, parent="one")], given) == []
    assert len(exclude_given([find("two", "another text")], given)) == 1


def memory(record_id: str, text: str, **facets: object) -> PromptEvidence:
    record = Record(record_id, MEMORY, DAY_ONE, DAY_ONE, text=text, facets=facets)
    return PromptEvidence(record, "project", 1.0, 1.0, 3)


def test_of_memories_that_say_the_same_the_fullest_is_left_in_the_best_place() -> None:
    short = memory("short", "Redis holds the sessions", derived="summary")
    other = memory("other", "Postgres holds the orders", consolidated=True)
    full = memory("full", "Redis holds the sessions of all shops", consolidated=True)
    assert [find.record.id for find in remove_duplicates([short, other, full])] == ["full", "other"]
    assert [find.record.id for find in remove_duplicates([full, short])] == ["full"]


def test_what_people_have_stored_themselves_is_left_as_it_is() -> None:
    one, two = memory("one", "We use tabs"), memory("two", "We do not use tabs")
    assert remove_duplicates([one, two]) == (one, two)
    turn = find("turn", "We use tabs")
    assert remove_duplicates([memory("copy", "We use tabs", automatic=True), turn])[1:] == (turn,)


def test_a_copy_in_other_order_was_given_with_the_first() -> None:
    given = compute_marks(memory("one", "Redis holds the sessions.", automatic=True).record)
    copy = memory("two", "The sessions: Redis holds.", automatic=True, derived="pattern")
    assert exclude_given([copy], given) == []


def test_a_topic_is_the_same_where_more_than_half_of_its_words_are() -> None:
    given = set(compute_topic_marks(find_telling_words("redis replicas sentinel quorum")))
    assert is_same_topic(compute_topic_marks(find_telling_words("Redis replica sentinels")), given)
    assert not is_same_topic(compute_topic_marks(find_telling_words("redis replicas backup schedule")), given)


def test_the_marks_of_a_topic_do_not_tell_its_words() -> None:
    assert not any("swordfish" in mark for mark in compute_topic_marks(find_telling_words("swordfish recipe")))
