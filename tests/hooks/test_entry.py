import asyncio
import json
from pathlib import Path

import pytest

from everkept.clients.hook_entries import HOOK_FORMATS, HOOK_TIMEOUT_SECONDS
from everkept.errors import InvalidInput
from everkept.hooks.entry import FINISH_SECONDS, HookCall, find_time_limit, load_handler, parse_arguments
from everkept.settings import find_files_folder, read_settings
from hook_processes import KNOWN, Hooks, listed, remember

SIGNED_IN = {"EVERKEPT_DATABASE_USER": "anna", "EVERKEPT_DATABASE_PASSWORD": "hunter2"}
NOBODY = "ws://127.0.0.1:1"  # where nothing listens
PLUGIN = Path(__file__).parents[2] / "plugin" / "hooks" / "hooks.json"


@pytest.mark.parametrize(
    ("argv", "call"),
    [
        ([], HookCall("", {})),
        (["SessionStart"], HookCall("SessionStart", {})),
        (["X", "--data-dir", "/d"], HookCall("X", {"data_dir": "/d"})),
        (["--data-dir=/d=e", "X"], HookCall("X", {"data_dir": "/d=e"})),
        (["X", "--project", "--odd"], HookCall("X", {"project": "--odd"})),
        (["X", "--json"], HookCall("X", {})),
        (["X", "--config="], HookCall("X", {"config": ""})),
        (["X", "--log-level"], HookCall("X", {"log_level": ""})),
        (["X", "--engine=surreal"], HookCall("X", {"engine": "surreal"})),
        (["X", "--database-url", "ws://a"], HookCall("X", {"database_url": "ws://a"})),
        (["X", "--database-user", "root"], HookCall("X", {"database_user": "root"})),
        (["beforeSubmitPrompt", "--client", "cursor"], HookCall("UserPromptSubmit", {}, client="cursor")),
        (["X", "--client=codex"], HookCall("X", {}, client="codex")),
        (["SessionStart", "--client=claude-code"], HookCall("SessionStart", {})),
        (["--worker", "--path", "/p"], HookCall("", {"path": "/p"}, is_worker=True)),
    ],
)
def test_arguments_are_read_in_any_order(argv: list[str], call: HookCall) -> None:
    assert parse_arguments(argv) == call


@pytest.mark.parametrize(
    "argv", [["X", "Y"], ["X", "--client", "netscape"], ["--unknown"], ["-v", "X"], ["X", "--yaml"]]
)
def test_what_it_does_not_know_is_refused(argv: list[str]) -> None:
    with pytest.raises(InvalidInput):
        parse_arguments(argv)


@pytest.mark.parametrize(
    ("event", "name"),
    [
        ("SessionStart", "handle_session_start"),
        ("UserPromptSubmit", "handle_user_prompt"),
        ("PostToolUse", "handle_tool_use"),
        ("PostToolUseFailure", "handle_tool_use"),
        ("PreCompact", "handle_session_end"),
        ("SessionEnd", "handle_session_end"),
    ],
)
def test_each_event_has_its_handler(event: str, name: str) -> None:
    handler = load_handler(event)
    assert handler is not None
    assert handler.__name__ == name


@pytest.mark.parametrize("event", ["", "Stop", "sessionstart", "PreToolUse", "../x"])
def test_other_events_have_none(event: str) -> None:
    assert load_handler(event) is None


@pytest.mark.parametrize("event", HOOK_FORMATS["claude-code"].events)
def test_a_hook_ends_itself_before_a_client_ends_it(event: str) -> None:
    of_plugin = [
        hook["timeout"] for group in json.loads(PLUGIN.read_text("utf-8"))["hooks"][event] for hook in group["hooks"]
    ]
    assert find_time_limit(event, "") + FINISH_SECONDS < min(HOOK_TIMEOUT_SECONDS, *of_plugin)


@pytest.mark.parametrize("client", ["codex", "copilot", "cursor", "gemini"])
def test_a_hook_of_another_client_ends_itself_in_time_too(client: str) -> None:
    form = HOOK_FORMATS[client]
    name, usual = form.timeout
    for event in form.events:
        call = parse_arguments([event, "--client", client])
        given = form.timeouts.get(event, usual) / (1_000 if client == "gemini" else 1)
        assert find_time_limit(call.event, call.client) + FINISH_SECONDS < given, (name, event)


@pytest.fixture
def hooks(tmp_path: Path) -> Hooks:
    """Those of a folder whose project has a memory, in SQLite files of the data folder."""
    (tmp_path / "shop" / ".git").mkdir(parents=True)
    called = Hooks(tmp_path / "data", tmp_path / "shop")
    asyncio.run(remember(called))
    return called


@pytest.mark.parametrize("address", [NOBODY, "postgresql://127.0.0.1:1/team"])
def test_hooks_of_a_server_read_the_copy_of_it_that_is_here(hooks: Hooks, tmp_path: Path, address: str) -> None:
    flags = {"data_dir": tmp_path / "elsewhere", "database_url": address, "config": "none"}
    copy = find_files_folder(read_settings(flags, SIGNED_IN))
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
