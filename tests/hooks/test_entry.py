import json
from pathlib import Path

import pytest

from recollect.clients.hook_entries import EVENTS, TIMEOUT
from recollect.errors import InvalidInput
from recollect.hooks.entry import (
    LAST_WORDS,
    LIMIT,
    LIMITS,
    Call,
    handler_of,
    parsed,
)

PLUGIN = Path(__file__).parents[2] / "plugin" / "hooks" / "hooks.json"


@pytest.mark.parametrize(
    ("argv", "call"),
    [
        ([], Call("", {})),
        (["SessionStart"], Call("SessionStart", {})),
        (["X", "--data-dir", "/d"], Call("X", {"data_dir": "/d"})),
        (["--data-dir=/d=e", "X"], Call("X", {"data_dir": "/d=e"})),
        (["X", "--project", "--odd"], Call("X", {"project": "--odd"})),
        (["X", "--json"], Call("X", {})),
        (["X", "--config="], Call("X", {"config": ""})),
        (["X", "--log-level"], Call("X", {"log_level": ""})),
        (["--worker", "--path", "/p"], Call("", {"path": "/p"}, is_worker=True)),
    ],
)
def test_arguments_are_read_in_any_order(argv: list[str], call: Call) -> None:
    assert parsed(argv) == call


@pytest.mark.parametrize("argv", [["X", "Y"], ["--unknown"], ["-v", "X"], ["X", "--yaml"]])
def test_what_it_does_not_know_is_refused(argv: list[str]) -> None:
    with pytest.raises(InvalidInput):
        parsed(argv)


@pytest.mark.parametrize(
    ("event", "name"),
    [
        ("SessionStart", "session_start"),
        ("UserPromptSubmit", "user_prompt"),
        ("PostToolUse", "tool_used"),
        ("PostToolUseFailure", "tool_used"),
        ("PreCompact", "leaving"),
        ("SessionEnd", "leaving"),
    ],
)
def test_each_event_has_its_handler(event: str, name: str) -> None:
    handler = handler_of(event)
    assert handler is not None
    assert handler.__name__ == name


@pytest.mark.parametrize("event", ["", "Stop", "sessionstart", "PreToolUse", "../x"])
def test_other_events_have_none(event: str) -> None:
    assert handler_of(event) is None


@pytest.mark.parametrize("event", EVENTS)
def test_a_hook_ends_itself_before_a_client_ends_it(event: str) -> None:
    of_plugin = [
        hook["timeout"]
        for group in json.loads(PLUGIN.read_text("utf-8"))["hooks"][event]
        for hook in group["hooks"]
    ]
    assert LIMITS.get(event, LIMIT) + LAST_WORDS < min(TIMEOUT, *of_plugin)
