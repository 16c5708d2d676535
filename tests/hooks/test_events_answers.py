import json

import pytest

from everkept.errors import InvalidInput
from everkept.hooks.events import MOST_CONTEXT, Answer, written


@pytest.mark.parametrize("answer", [None, Answer()])
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


def test_an_answer_is_one_line() -> None:
    said = written("SessionStart", Answer(context="one\ntwo\r\n"))
    assert said.count(b"\n") == 1
    assert said.endswith(b"\n")


def test_an_answer_of_the_largest_size_is_given_and_a_longer_one_is_none() -> None:
    whole = "ä" * MOST_CONTEXT
    said = json.loads(written("SessionStart", Answer(context=whole)))
    assert said["hookSpecificOutput"]["additionalContext"] == whole
    with pytest.raises(InvalidInput):
        written("SessionStart", Answer(context=whole + "."))


def test_half_a_character_does_not_spoil_an_answer() -> None:
    said = json.loads(written("SessionStart", Answer(context="a\ud800b")))
    assert said["hookSpecificOutput"]["additionalContext"] == "a?b"
