"""Which prompts are worth a look at all."""

import pytest

from everkept.hooks.prompting.reading import HEAD, TAIL, part_read, read


@pytest.mark.parametrize(
    "prompt",
    [
        "",
        " ",
        "yes",
        "go on",
        "thanks",
        "/clear",
        "/review src",
        "!ls -la",
        "<bash-input>ls",
        "ok?",
    ],
)
def test_a_trivial_prompt_is_not_read_on(prompt: str) -> None:
    assert read(prompt) is None


def test_a_path_is_no_command() -> None:
    assert read("/srv/app/redis.conf has a wrong password policy for replicas") is not None


def test_three_telling_words_are_needed_two_with_a_hint_and_one_with_a_question_for_it() -> None:
    assert read("redis replicas") is None
    assert read("redis replicas sentinel") is not None
    assert read("redis again") is None
    assert read("redis replicas again") is not None
    assert read("how did we replicate redis before") is not None
    assert read("how did we do it before") is None
    assert read("wie haben wir das letztes Mal gemacht?") is None
    assert read("AssertionError: assert 1 == 2") is not None


def test_a_question_for_all_that_was_done_has_no_words() -> None:
    reading = read("what did we do yesterday?")
    assert reading is not None
    assert reading.words == ()


def test_a_short_topic_is_told_by_the_rest_of_the_prompt() -> None:
    reading = read("Which queue did we pick for the newsletter mailer?")
    assert reading is not None
    assert [word.text for word in reading.words] == ["queue", "newsletter", "mailer"]


def test_a_long_prompt_is_read_in_parts_and_so_is_its_error() -> None:
    log = "\n".join(f"step {n} of nightly reindex done" for n in range(5_000))
    reading = read(f"{log}\nReindexError: shard seven went missing")
    assert reading is not None
    assert len(reading.prompt) < 5_000
    assert reading.is_debugging
    assert [word.text for word in reading.error] == ["reindexerror", "shard", "seven"]


def test_of_a_long_prompt_the_beginning_and_the_end_are_read() -> None:
    prompt = "begin " + "x" * 100_000 + " end"
    part = part_read(prompt)
    assert len(part) <= HEAD + TAIL + 1
    assert part.startswith("begin ")
    assert part.endswith(" end")
