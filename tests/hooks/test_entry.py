import asyncio
import json
from pathlib import Path

import pytest

from everkept.clients.entries import EVENTS, TIMEOUT
from everkept.errors import InvalidInput
from everkept.hooks.entry import (
    LAST_WORDS,
    LIMIT,
    LIMITS,
    Call,
    handler_of,
    parsed,
)
from everkept.settings import files_folder, load
from hook_processes import KNOWN, Hooks, listed, remember

SIGNED_IN = {"EVERKEPT_DATABASE_USER": "anna", "EVERKEPT_DATABASE_PASSWORD": "hunter2"}
NOBODY = "ws://127.0.0.1:1"  # where nothing listens
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
        (["X", "--engine=surreal"], Call("X", {"engine": "surreal"})),
        (["X", "--database-url", "ws://a"], Call("X", {"database_url": "ws://a"})),
        (["X", "--database-user", "root"], Call("X", {"database_user": "root"})),
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


@pytest.fixture
def hooks(tmp_path: Path) -> Hooks:
    """Those of a folder whose project has a memory, in SQLite files of the data folder."""
    (tmp_path / "shop" / ".git").mkdir(parents=True)
    called = Hooks(tmp_path / "data", tmp_path / "shop")
    asyncio.run(remember(called))
    return called


@pytest.mark.parametrize("address", [NOBODY, "postgresql://127.0.0.1:1/team"])
def test_hooks_of_a_server_read_the_copy_of_it_that_is_here(
    hooks: Hooks, tmp_path: Path, address: str
) -> None:
    flags = {"data_dir": tmp_path / "elsewhere", "database_url": address, "config": "none"}
    copy = files_folder(load(flags, SIGNED_IN))
    assert copy is not None
    copy.parent.mkdir(parents=True)
    hooks.data.rename(copy)
    served = Hooks(tmp_path / "elsewhere", hooks.folder)
    assert KNOWN in served.call("SessionStart", EVERKEPT_DATABASE_URL=address, **SIGNED_IN).context
    asked = served.told(prompt="How did we limit logins last time?", session_id="other")
    told = served.call("UserPromptSubmit", asked, "--database-url", address, **SIGNED_IN)
    assert KNOWN in told.context
    other = "ws://127.0.0.1:2"  # another database, of which nothing was seen here
    assert served.call("SessionStart", EVERKEPT_DATABASE_URL=other).is_silent
    assert served.faults == []


@pytest.mark.parametrize("event", ["SessionStart", "UserPromptSubmit", "SessionEnd"])
def test_hooks_are_silent_where_the_database_is_another_programs(hooks: Hooks, event: str) -> None:
    before = listed(hooks.data)
    assert hooks.call(event, None, "--engine", "surreal").is_silent
    in_memory = {"EVERKEPT_DEPLOYMENT_MODE": "embedded-memory"}
    assert hooks.call(event, **in_memory).is_silent
    assert listed(hooks.data) == before
