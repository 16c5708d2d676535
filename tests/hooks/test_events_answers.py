import json

import pytest

from everkept.errors import InvalidInput
from everkept.hooks.events import MAX_CONTEXT_CHARACTERS, HookAnswer, format_answer


@pytest.mark.parametrize("answer", [None, HookAnswer()])
def test_nothing_to_say_is_nothing_at_all(answer: HookAnswer | None) -> None:
    assert format_answer("SessionStart", answer) == b""


def test_context_goes_to_the_assistant_under_the_name_of_its_event() -> None:
    said = json.loads(format_answer("UserPromptSubmit", HookAnswer(context='a "quoted"\nthing: ä 日本')))
    assert said == {
        "hookSpecificOutput": {"hookEventName": "UserPromptSubmit", "additionalContext": 'a "quoted"\nthing: ä 日本'}
    }


def test_an_answer_is_one_line() -> None:
    said = format_answer("SessionStart", HookAnswer(context="one\ntwo\r\n"))
    assert said.count(b"\n") == 1
    assert said.endswith(b"\n")


def test_an_answer_of_the_largest_size_is_given_and_a_longer_one_is_none() -> None:
    whole = "ä" * MAX_CONTEXT_CHARACTERS
    said = json.loads(format_answer("SessionStart", HookAnswer(context=whole)))
    assert said["hookSpecificOutput"]["additionalContext"] == whole
    with pytest.raises(InvalidInput):
        format_answer("SessionStart", HookAnswer(context=whole + "."))


def test_half_a_character_does_not_spoil_an_answer() -> None:
    said = json.loads(format_answer("SessionStart", HookAnswer(context="a\ud800b")))
    assert said["hookSpecificOutput"]["additionalContext"] == "a?b"
