"""What a session is taken to know already."""

from making import DAY_ONE
from recollect.core.records import Record
from recollect.families.history.model import CODE, TURN
from recollect.hooks.prompting.judging import Find
from recollect.hooks.prompting.marks import is_same_topic, marks_of, not_given, topic_marks
from recollect.hooks.prompting.wording import telling_words


def find(record_id: str, text: str, kind: str = TURN, parent: str | None = None) -> Find:
    record = Record(record_id, kind, DAY_ONE, DAY_ONE, text=text, parent=parent)
    return Find(record, "history", 1.0, 1.0, 3)


def test_a_record_is_known_by_its_id_its_turn_and_its_text() -> None:
    given = marks_of(find("one", "Same  text").record)
    assert not_given([find("one", "another text")], given) == []
    assert not_given([find("two", "same text")], given) == []
    assert not_given([find("code", "x = 1", CODE, parent="one")], given) == []
    assert len(not_given([find("two", "another text")], given)) == 1


def test_a_topic_is_the_same_where_more_than_half_of_its_words_are() -> None:
    given = set(topic_marks(telling_words("redis replicas sentinel quorum")))
    assert is_same_topic(topic_marks(telling_words("Redis replica sentinels")), given)
    assert not is_same_topic(topic_marks(telling_words("redis replicas backup schedule")), given)


def test_the_marks_of_a_topic_do_not_tell_its_words() -> None:
    assert not any("swordfish" in mark for mark in topic_marks(telling_words("swordfish recipe")))
