from hypothesis import given, settings
from hypothesis import strategies as st

from everkept.core.records import Record
from everkept.families.memories.likeness import extract_key_topics, format_session_summary
from records import DAY_ONE, memory


def memories(*texts: str, **more: object) -> list[Record]:
    return [memory(text, **more) for text in texts]


def test_a_summary_counts_memories_by_type_and_names_their_topics() -> None:
    records = [
        *memories("Discussed the auth flow.", "The auth flow needs a token.", type="episodic"),
        memory("gRPC calls have deadlines.", tags=("gRPC",)),
    ]
    assert format_session_summary(records) == ("3 memories (2 episodic, 1 semantic). Key topics: auth flow, gRPC")


def test_one_memory_is_no_plural() -> None:
    assert format_session_summary(memories("Redis")).startswith("1 memory (1 semantic).")


def test_a_session_without_memories_says_so() -> None:
    assert format_session_summary([]) == "No memories were stored."


def test_words_that_come_together_are_one_topic() -> None:
    records = memories("Error handling is typed.", "User asked about error handling.")
    assert extract_key_topics(records)[0] == "error handling"


def test_topics_are_spelled_as_people_write_them() -> None:
    records = memories("PostgreSQL is slow.", "We moved to PostgreSQL.", "Caching helps.", "caching")
    assert extract_key_topics(records) == ["caching", "PostgreSQL"]


def test_inflections_are_one_topic() -> None:
    assert extract_key_topics(memories("Migrations failed.", "The migration is back.")) == ["migration"]


def test_empty_words_are_no_topics() -> None:
    assert extract_key_topics(memories("The user asked about it.", "The user said it was used.")) == []


def test_tags_count_as_topics() -> None:
    assert extract_key_topics([memory("It broke again.", tags=("billing",))]) == ["billing"]


def test_of_a_long_text_the_beginning_is_read() -> None:
    texts = (f"Kafka {number} {'and ' * 1_000} Redis" for number in range(3))
    assert extract_key_topics(memories(*texts)) == ["kafka"]


def test_of_much_text_the_newest_is_read() -> None:
    filler = "of the " * 300
    old = [memory(f"Kafka {n} {filler}", created_at=DAY_ONE) for n in range(300)]
    new = [memory(f"Redis {n} {filler}", created_at=DAY_ONE + 1) for n in range(200)]
    assert extract_key_topics([*old, *new]) == ["redis"]
    assert format_session_summary([*old, *new]).startswith("500 memories")


def test_tags_without_end_are_not_all_read() -> None:
    tags = tuple(f"Kafka {'x' * 90}{n}" for n in range(50))
    old = [memory(f"old {n}", tags=tags, created_at=DAY_ONE) for n in range(100)]
    new = [memory(f"new {n}", tags=("Redis",) * 2_000, created_at=DAY_ONE + 1) for n in range(20)]
    assert extract_key_topics([*old, *new]) == ["Redis"]


@settings(deadline=None)
@given(st.lists(st.text(), max_size=8, unique=True))
def test_any_text_can_be_summed_up_in_any_order(texts: list[str]) -> None:
    records = memories(*texts)
    assert format_session_summary(records) == format_session_summary(records[::-1])
