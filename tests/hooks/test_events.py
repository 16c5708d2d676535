import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everkept.errors import InvalidInput
from everkept.hooks.events import HookEvent, build_event, get_event_name, parse_input


def told(**facts: Any) -> Mapping[str, Any]:
    return parse_input(json.dumps(facts).encode())


def test_an_event_has_what_it_was_told() -> None:
    event = build_event(
        "PostToolUse",
        told(
            session_id="8a3e",
            transcript_path="/home/ada/.claude/projects/x/8a3e.jsonl",
            cwd="/home/ada/shop",
            hook_event_name="PostToolUse",
            tool_name="Bash",
            tool_input={"command": "make test"},
            tool_response={"stdout": "2 failed", "interrupted": False},
        ),
    )
    assert event == HookEvent(
        "PostToolUse",
        session="8a3e",
        folder=Path("/home/ada/shop"),
        transcript=Path("/home/ada/.claude/projects/x/8a3e.jsonl"),
        tool="Bash",
        tool_input={"command": "make test"},
        tool_response={"stdout": "2 failed", "interrupted": False},
    )


@pytest.mark.parametrize(
    ("facts", "field", "value"),
    [
        ({"prompt": "hello"}, "prompt", "hello"),
        ({"user_prompt": "hello"}, "prompt", "hello"),
        ({"tool_response": "out"}, "tool_response", "out"),
        ({"tool_result": "out"}, "tool_response", "out"),
        ({"source": "compact"}, "source", "compact"),
        ({"error": "boom"}, "error", "boom"),
        ({"is_interrupt": True}, "is_interrupt", True),
        ({"reason": "clear"}, "reason", "clear"),
    ],
)
def test_both_names_of_a_field_are_known(facts: dict[str, Any], field: str, value: Any) -> None:
    assert getattr(build_event("X", told(**facts)), field) == value


def test_the_name_of_the_command_line_counts_before_the_events_own() -> None:
    assert get_event_name("PreCompact", told(hook_event_name="Stop")) == "PreCompact"
    assert get_event_name("", told(hook_event_name="Stop")) == "Stop"
    assert get_event_name("", told()) == ""


@pytest.mark.parametrize("wrong", [None, 7, 1.5, True, ["a"], {"a": "b"}])
def test_what_has_another_type_counts_as_not_said(wrong: Any) -> None:
    texts = ("session_id", "cwd", "transcript_path", "source", "prompt", "tool_name", "error")
    facts = dict.fromkeys((*texts, "reason", "hook_event_name"), wrong)
    assert build_event("X", told(**facts)) == HookEvent("X")


@pytest.mark.parametrize("wrong", [None, 7, "text", ["a"]])
def test_the_input_of_a_tool_is_an_object_or_nothing(wrong: Any) -> None:
    assert build_event("X", told(tool_input=wrong)).tool_input == {}


@pytest.mark.parametrize(
    "bad",
    [b"", b"  ", b"{", b"nonsense", b'"text"', b"[]", b"null", b"\xff\xfe{", b"[" * 100_000],
    ids=["empty", "blank", "cut", "words", "text", "list", "null", "bytes", "deep"],
)
def test_what_is_no_object_is_refused_without_quoting_it(bad: bytes) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_input(bad)
    assert "nonsense" not in str(caught.value)


def test_half_a_character_becomes_a_question_mark_wherever_it_is() -> None:
    facts = {"prompt": "a\ud800", "tool_input": {"b\udfff": ["c\ud800", [{"d": "e\udc00"}]]}}
    event = build_event("X", told(**facts))
    assert event.prompt == "a?"
    assert event.tool_input == {"b?": ["c?", [{"d": "e?"}]]}


def test_a_path_with_a_zero_in_it_is_none() -> None:
    assert build_event("X", told(cwd="/a\0b")).folder is None


texts = st.text(st.characters(exclude_categories=()))  # half characters too
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner) | st.dictionaries(texts, inner),
    max_leaves=8,
)
names = st.sampled_from(["session_id", "cwd", "prompt", "tool_input", "tool_response", "transcript_path", "error"])


@given(st.dictionaries(names, values))
def test_any_object_becomes_an_event_whose_texts_can_be_stored(facts: dict[str, Any]) -> None:
    event = build_event("X", told(**facts))
    for text in (event.session, event.prompt, event.error, str(event.folder)):
        text.encode("utf-8")
    json.dumps(dict(event.tool_input), ensure_ascii=False).encode("utf-8")
