import json

import pytest

from recollect.errors import InvalidInput
from recollect.hooks.answers import MOST_CONTEXT, MOST_NOTICE, written
from recollect.hooks.model import Answer


@pytest.mark.parametrize("answer", [None, Answer(), Answer(context="", notice="")])
def test_nothing_to_say_is_nothing_at_all(answer: Answer | None) -> None:
    assert written("SessionStart", answer) == b""


def test_context_goes_to_the_assistant_under_the_name_of_its_event() -> None:
    said = json.loads(written("UserPromptSubmit", Answer(context='a "quoted"\nthing: ä 日本')))
    assert said == {
        "hookSpecificOutput": {
            "hookEventName": "UserPromptSubmit",
            "additionalContext": 'a "quoted"\nthing: ä 日本',
        }
    }


def test_a_notice_goes_to_the_user() -> None:
    assert json.loads(written("SessionStart", Answer(notice="3 memories wait"))) == {
        "systemMessage": "3 memories wait"
    }


def test_an_answer_is_one_line() -> None:
    said = written("SessionStart", Answer(context="one\ntwo\r\n", notice="three\n"))
    assert said.count(b"\n") == 1
    assert said.endswith(b"\n")


def test_an_answer_of_the_largest_size_is_given_and_a_longer_one_is_none() -> None:
    whole = "ä" * MOST_CONTEXT
    said = json.loads(written("SessionStart", Answer(context=whole)))
    assert said["hookSpecificOutput"]["additionalContext"] == whole
    for answer in (Answer(context=whole + "."), Answer(notice="." * (MOST_NOTICE + 1))):
        with pytest.raises(InvalidInput):
            written("SessionStart", answer)


def test_half_a_character_does_not_spoil_an_answer() -> None:
    said = json.loads(written("SessionStart", Answer(context="a\ud800b")))
    assert said["hookSpecificOutput"]["additionalContext"] == "a?b"
