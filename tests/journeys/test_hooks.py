"""Hooks with real processes: whatever is wrong, they end in silence, with status 0 and in time."""

import asyncio
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import apsw
import psutil
import pytest

from everkept.engines.sqlite.library import SqliteLibrary
from everkept.hooks.workspace import SessionLedger
from hook_processes import KNOWN, PATIENCE, Hooks, listed, remember
from hook_workers import wait_for_workers
from processes import acting
from records import batch, memory

QUICK = ("SessionStart", "UserPromptSubmit")
ASKED = "How did we limit logins last time?"
FORBIDDEN = {
    "asyncio",
    "click",
    "concurrent.futures",
    "dataclasses",
    "hashlib",
    "inspect",
    "logging",
    "mcp",
    "msgspec",
    "numpy",
    "orjson",
    "rich",
    "ssl",
    "subprocess",
    "yaml",
}
# What of ours is for those who write, walk or clean up.
NOT_FOR_READERS = {
    "everkept.core.answers",
    "everkept.engines.sqlite.purge",
    "everkept.engines.sqlite.commit",
    "everkept.engines.sqlite.graph_queries",
}
NOBODY = 65534  # a user without rights, on every Unix
# Permissions do not bind root, who therefore becomes another user once all is loaded.
AS_ANOTHER = """
import os, sys
import everkept.core.secrets, everkept.engines.sqlite.read_only_library
from everkept.hooks import entry, events, workspace
entry.load_handler("SessionStart")
os.setuid(int(sys.argv[1]))
entry.main(["SessionStart", sys.argv[2]])
"""


@pytest.fixture
def empty(tmp_path: Path) -> Hooks:
    """Nothing was ever stored."""
    folder = tmp_path / "shop"
    folder.mkdir()
    return Hooks(tmp_path / "data", folder)


@pytest.fixture
def hooks(empty: Hooks) -> Hooks:
    """There is something to say at the start of a session."""
    asyncio.run(remember(empty))
    return empty


@pytest.fixture
def reachable() -> Iterator[Path]:
    """A folder that every user may walk into; pytest's own are for one user."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    for path in folder.iterdir():
        path.chmod(0o700)
    shutil.rmtree(folder)


@pytest.fixture(autouse=True)
def none_is_left(tmp_path: Path) -> Iterator[None]:
    """No process that knows this test's folder outlives it."""
    yield
    ends = time.monotonic() + PATIENCE
    while left := _knowing(str(tmp_path)):
        assert time.monotonic() < ends, left
        psutil.wait_procs(left, timeout=0.1)


def _knowing(word: str) -> list[psutil.Process]:
    others = (each for each in psutil.process_iter(["cmdline"]) if each.pid != os.getpid())
    return [each for each in others if any(word in part for part in each.info["cmdline"] or ())]


def test_an_answer_is_context_in_the_form_of_the_client(hooks: Hooks) -> None:
    outcome = hooks.call("SessionStart")
    assert (outcome.status, outcome.err) == (0, "")
    assert json.loads(outcome.out)["hookSpecificOutput"]["hookEventName"] == "SessionStart"
    assert KNOWN in outcome.context
    assert hooks.faults == []


def test_the_event_may_name_itself(hooks: Hooks) -> None:
    told = hooks.told(hook_event_name="SessionStart")
    assert KNOWN in hooks.call("", told).context


@pytest.mark.parametrize(
    ("client", "event", "facts", "field"),
    [
        ("cursor", "sessionStart", {"conversation_id": "c", "workspace_roots": True}, "additional_context"),
        ("copilot", "sessionStart", {"sessionId": "s", "cwd": True}, "additionalContext"),
        ("codex", "SessionStart", {"session_id": "s", "cwd": True}, "hookSpecificOutput"),
        ("gemini", "SessionStart", {"session_id": "s", "cwd": True}, "hookSpecificOutput"),
    ],
)
def test_every_assistant_is_told_what_is_known(
    hooks: Hooks, client: str, event: str, facts: dict[str, Any], field: str
) -> None:
    places = {"cwd": str(hooks.folder), "workspace_roots": [str(hooks.folder)]}
    told = {name: places.get(name, value) for name, value in facts.items()}
    outcome = hooks.call(event, json.dumps(told), "--client", client)
    assert KNOWN in str(json.loads(outcome.out)[field])
    assert hooks.faults == []


@pytest.mark.parametrize(
    ("client", "event", "file"),
    [
        ("claude-code", "SessionStart", ".claude/settings.json"),
        ("codex", "SessionStart", ".codex/hooks.json"),
        ("copilot", "SessionStart", ".copilot/hooks/everkept.json"),
        ("cursor", "sessionStart", ".cursor/hooks.json"),
        ("gemini", "SessionStart", ".gemini/settings.json"),
        ("vscode", "SessionStart", ".copilot/hooks/everkept.json"),
    ],
)
def test_the_hook_that_setup_writes_says_what_is_known(hooks: Hooks, client: str, event: str, file: str) -> None:
    setup = hooks.run("-m", "everkept", "setup", client, "--yes", "--force")
    assert setup.wait(PATIENCE) == 0
    setup.communicate()
    (written,) = json.loads((hooks.folder.parent / file).read_text("utf-8"))["hooks"][event]
    line = written["command"] if "command" in written else written["hooks"][0]["command"]
    outcome = hooks.call_line(line, hooks.told())
    assert (outcome.status, outcome.err) == (0, "")
    assert KNOWN in outcome.out
    assert hooks.faults == []


def test_a_client_that_also_runs_the_hooks_of_claude_code_is_answered_once(hooks: Hooks) -> None:
    told = json.dumps({"conversation_id": "c", "workspace_roots": [str(hooks.folder)], "prompt": ASKED})
    outcomes = [hooks.call("UserPromptSubmit", told), hooks.call("beforeSubmitPrompt", told, "--client=cursor")]
    assert [KNOWN in outcome.out for outcome in outcomes] == [True, False]
    assert "additional_context" in outcomes[0].out
    assert [path.name.partition("-")[2] for path in (hooks.data / "hooks/sessions").glob("*-moments.txt")] == [
        "moments.txt"
    ]
    assert hooks.faults == []


def test_a_command_that_works_soon_after_it_failed_is_another_moment(hooks: Hooks) -> None:
    used: dict[str, Any] = {"hook_event_name": "PostToolUse", "tool_name": "Bash", "tool_input": {"command": "make"}}
    for code in (2, 2, 0):
        text = f"no rule\n<shellId: 0 completed with exit code {code}>"
        told = hooks.told(**used, tool_result={"result_type": "success", "text_result_for_llm": text})
        assert hooks.call("PostToolUse", told, "--client", "copilot").status == 0
    assert hooks.call("SessionEnd", hooks.told(reason="other")).status == 0
    wait_for_workers(hooks.data)  # which sum the session up
    out, _ = hooks.run("-m", "everkept", "list", "--automatic", "--json").communicate(timeout=PATIENCE)
    assert sorted(each["content"] for each in json.loads(out)["memories"]) == [
        "`make` failed and then succeeded, with no file edited in between. It had failed with:\nno rule"
    ]
    assert hooks.faults == []


def test_an_unknown_client_is_a_fault_and_silence(hooks: Hooks) -> None:
    outcome = hooks.call("SessionStart", None, "--client", "netscape")
    assert (outcome.status, outcome.out) == (0, "")


def test_the_folder_of_the_project_counts_before_the_events_own(hooks: Hooks, tmp_path: Path) -> None:
    elsewhere = hooks.told(cwd=str(tmp_path / "elsewhere"))
    assert hooks.call("SessionStart", elsewhere).is_silent
    named = str(hooks.folder)
    assert KNOWN in hooks.call("SessionStart", elsewhere, CLAUDE_PROJECT_DIR=named).context
    told = hooks.told(cwd=str(tmp_path / "elsewhere"), session_id="another")
    assert KNOWN in hooks.call("SessionStart", told, f"--path={named}").context


def test_without_a_folder_in_the_event_the_processs_own_counts(hooks: Hooks) -> None:
    assert KNOWN in hooks.call("SessionStart", hooks.told(cwd=None)).context


@pytest.mark.parametrize("event", QUICK)
@pytest.mark.parametrize("told", [b"", b"{", b"[1]", b"\xff\xfe\x00", b"{}" * 9_000_000], ids=lambda told: len(told))
def test_bad_input_is_a_fault_and_silence(hooks: Hooks, event: str, told: bytes) -> None:
    assert hooks.call(event, told).is_silent
    assert [(fault.event, fault.reason[:13]) for fault in hooks.faults] == [(event, "invalid_input")]


@pytest.mark.parametrize("arguments", [("--unknown",), ("--data-dir",), ("--log-level=loud",)])
def test_bad_arguments_are_a_fault_too(hooks: Hooks, arguments: tuple[str, ...]) -> None:
    outcome = hooks.call("SessionStart", None, *arguments)
    assert (outcome.status, outcome.out) == (0, "")


def test_a_bad_config_file_is_a_fault_in_the_log(hooks: Hooks, tmp_path: Path) -> None:
    config = tmp_path / "config.md"
    config.write_text("---\nhooks: perhaps\n---\n", "utf-8")
    assert hooks.call("SessionStart", None, f"--config={config}").is_silent
    assert "perhaps" in hooks.faults[0].reason


def test_a_fault_is_said_aloud_where_a_log_level_is_given(hooks: Hooks) -> None:
    outcome = hooks.call("SessionStart", "{", "--log-level", "warning")
    assert (outcome.status, outcome.out) == (0, "")
    assert outcome.err.startswith("everkept hook SessionStart: invalid_input")


@pytest.mark.parametrize("event", [*QUICK, "PreToolUse"])
def test_where_nothing_is_stored_nothing_is_said_and_nothing_made(empty: Hooks, event: str) -> None:
    assert empty.call(event, empty.told(prompt=ASKED)).is_silent
    assert empty.call(event, "bad JSON").is_silent
    assert not empty.data.exists()


@pytest.mark.parametrize("event", ["Stop", "PreToolUse", "Nonsense", "PostCompact"])
def test_an_event_that_nobody_handles_is_nothing(hooks: Hooks, event: str) -> None:
    assert hooks.call(event).is_silent
    assert hooks.call(event, "bad JSON").is_silent
    assert hooks.call("", hooks.told(hook_event_name=event)).is_silent
    assert hooks.faults == []


@pytest.mark.parametrize("event", ["sessionstart", "session-start", "SesionStart"])
def test_an_event_that_is_mistyped_is_a_fault(hooks: Hooks, event: str) -> None:
    assert hooks.call(event).is_silent
    [fault] = hooks.faults
    assert f"Event '{event}' does not exist. Use SessionStart." in fault.reason


@pytest.mark.parametrize(
    "environment",
    [{"EVERKEPT_INSIDE_HOOK": "1"}, {"EVERKEPT_HOOKS": "false"}, {"EVERKEPT_DEPLOYMENT_MODE": "embedded-memory"}],
)
@pytest.mark.parametrize("event", ["SessionStart", "UserPromptSubmit", "SessionEnd"])
def test_what_is_switched_off_does_nothing(hooks: Hooks, event: str, environment: dict[str, str]) -> None:
    before = listed(hooks.data)
    assert hooks.call(event, hooks.told(prompt=ASKED), **environment).is_silent
    assert listed(hooks.data) == before


def test_hooks_are_switched_off_in_the_config_file(hooks: Hooks, tmp_path: Path) -> None:
    config = tmp_path / "config.md"
    config.write_text("---\nhooks: false\n---\n", "utf-8")
    assert hooks.call("SessionStart", None, f"--config={config}").is_silent
    assert hooks.faults == []


def test_reading_leaves_the_data_folder_as_it_is(hooks: Hooks) -> None:
    before = listed(hooks.data)
    assert hooks.call("UserPromptSubmit", hooks.told(prompt="thanks")).is_silent
    hooks.call("SessionStart")
    after = listed(hooks.data)
    ours = [name for name in after if name.startswith("hooks/")]
    assert {name: after[name] for name in after if name not in ours} == before
    assert len(ours) == 2  # what the session was given, and when old ones were last looked for


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:5_000])


def _scribble(path: Path) -> None:
    path.write_bytes(b"no database at all " * 1_000)


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _newer(path: Path) -> None:
    connection: Any = apsw.Connection(str(path))
    connection.pragma("user_version", 99)
    connection.close()


@pytest.mark.parametrize("harm", [_cut, _scribble, _empty, _folder, _newer])
@pytest.mark.parametrize("which", ["_meta.db", "projects/*.db"])
def test_a_database_that_cannot_be_read_is_a_fault_and_silence(
    hooks: Hooks, which: str, harm: Callable[[Path], None]
) -> None:
    [path] = hooks.data.glob(which)
    harm(path)
    assert hooks.call("SessionStart").is_silent
    assert hooks.faults[0].reason.split(":")[0] in {"store_damaged", "store_too_new", "unavailable", "conflict"}


@pytest.mark.parametrize("event", [*QUICK, "PostToolUse", "SessionEnd"])
def test_a_data_folder_that_is_a_file_is_silence(hooks: Hooks, tmp_path: Path, event: str) -> None:
    (tmp_path / "file").write_text("kept", "utf-8")
    for place in ("file", "file/deeper"):
        told = hooks.told(prompt=ASKED, tool_name="Write", tool_input={"file_path": "/a/b.py"})
        assert hooks.call(event, told, f"--data-dir={tmp_path / place}").is_silent
    assert (tmp_path / "file").read_text("utf-8") == "kept"


@pytest.mark.parametrize("rights", [0o000, 0o500])
def test_a_data_folder_that_may_not_be_used_is_silence(hooks: Hooks, reachable: Path, rights: int) -> None:
    shutil.copytree(hooks.data, reachable / "data")
    user = NOBODY if os.geteuid() == 0 else os.geteuid()
    os.chown(reachable / "data", user, -1)
    (reachable / "data").chmod(rights)
    process = hooks.run("-c", AS_ANOTHER, str(user), f"--data-dir={reachable / 'data'}")
    assert process.communicate(hooks.told().encode(), timeout=PATIENCE) == (b"", b"")
    assert process.returncode == 0


@pytest.mark.parametrize("event", QUICK)
def test_a_locked_database_holds_nobody_up(hooks: Hooks, event: str) -> None:
    paths = [*hooks.data.glob("*.db"), *hooks.data.glob("projects/*.db")]
    with acting("hook_actors:lock_whole", *paths) as other:
        assert other.hear() == "locked"
        assert hooks.call(event, hooks.told(prompt=ASKED)).is_silent
    assert "store_busy" in hooks.faults[0].reason


@pytest.mark.parametrize("event", ["UserPromptSubmit", "SessionEnd", ""])
def test_input_that_never_ends_is_not_waited_for(hooks: Hooks, event: str) -> None:
    with hooks.started(event) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b'{"session_id": ')
        process.stdin.flush()
        assert process.wait(PATIENCE) == 0
        assert process.stdout.read() == b""
    assert "longer than" in hooks.faults[0].reason


def test_a_reader_that_is_gone_is_no_error(hooks: Hooks) -> None:
    with hooks.started("SessionStart") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.close()
        process.stdin.write(hooks.told().encode())
        process.stdin.close()
        assert process.wait(PATIENCE) == 0


def test_without_standard_streams_it_ends_as_well(hooks: Hooks) -> None:
    code = (
        "import sys; sys.stdin = sys.stdout = sys.stderr = None\n"
        "from everkept.hooks.entry import main; main(['SessionStart'])"
    )
    with hooks.run("-c", code) as process:
        assert process.wait(PATIENCE) == 0


async def test_a_project_that_is_off_is_left_alone(hooks: Hooks) -> None:
    library = SqliteLibrary(hooks.data)
    [project] = await library.list_projects()
    await library.set_off(project.name, off=True)
    await library.close()
    before = listed(hooks.data)
    for event in (*QUICK, "PostToolUse", "PreCompact", "SessionEnd"):
        assert hooks.call(event, hooks.told(prompt=ASKED)).is_silent
    assert listed(hooks.data) == before


async def test_what_a_server_has_just_stored_is_told(hooks: Hooks) -> None:
    library = SqliteLibrary(hooks.data)
    [project] = await library.list_projects()
    _, store = await library.open(project.name)
    await store.commit(batch(memory("Sessions end after an hour.", importance=0.9)))
    assert list(hooks.data.glob("projects/*-wal"))
    context = hooks.call("SessionStart").context
    await library.close()
    assert KNOWN in context
    assert "Sessions end after an hour." in context


def loaded_by(hooks: Hooks, event: str, facts: dict[str, Any]) -> set[str]:
    """The modules that a hook loads beyond those of an interpreter that does nothing."""
    process = hooks.run("-X", "importtime", "-m", "everkept", "hook", event)
    _, err = process.communicate(hooks.told(**facts).encode(), timeout=PATIENCE)
    assert hooks.faults == []
    return {line.rpartition("|")[2].strip() for line in err.decode().splitlines()}


@pytest.mark.parametrize(
    ("event", "facts"),
    [
        ("SessionStart", {}),
        ("UserPromptSubmit", {"prompt": ASKED}),
        ("UserPromptSubmit", {"prompt": "thanks"}),
        ("PostToolUse", {"tool_name": "Read", "tool_input": {"file_path": "/a/b.py"}}),
    ],
)
def test_a_quick_hook_loads_little(hooks: Hooks, event: str, facts: dict[str, Any]) -> None:
    loaded = loaded_by(hooks, event, facts)
    assert "everkept.hooks.entry" in loaded
    assert {name for name in loaded if FORBIDDEN & {name, name.partition(".")[0]}} == set()
    assert loaded & NOT_FOR_READERS == set()


def test_a_prompt_that_asks_for_nothing_loads_neither_settings_nor_engine(hooks: Hooks) -> None:
    loaded = loaded_by(hooks, "UserPromptSubmit", {"prompt": "yes"})
    assert "everkept.hooks.prompts" in loaded
    kept_out = {"pathlib", "urllib.parse", "ipaddress", "datetime", "apsw", "everkept.settings"}
    assert kept_out & loaded == set()


def test_an_event_that_nobody_handles_loads_next_to_nothing(hooks: Hooks) -> None:
    loaded = loaded_by(hooks, "Stop", {})
    assert {name for name in loaded if name.startswith("everkept")} == {
        "everkept",
        "everkept.hooks",
        "everkept.hooks.unhandled",
    }
    assert loaded & {"typing", "threading", "json", "enum", "re"} == set()


@pytest.mark.parametrize("event", ["Stop", "PreToolUse"])
def test_input_of_an_unhandled_event_that_never_ends_is_not_waited_for(hooks: Hooks, event: str) -> None:
    with hooks.started(event) as process:
        assert process.wait(PATIENCE) == 0
    assert hooks.faults == []


def test_fifty_at_once_all_end_and_nothing_is_told_twice(hooks: Hooks) -> None:
    with ThreadPoolExecutor(50) as callers:
        outcomes = list(callers.map(hooks.call, ["SessionStart"] * 50))
    assert [outcome.status for outcome in outcomes] == [0] * 50
    assert sum(KNOWN in outcome.out for outcome in outcomes) <= 1
    assert {outcome.err for outcome in outcomes} == {""}


def test_a_command_that_is_made_to_hang_a_reader_does_not(hooks: Hooks) -> None:
    facts = {"tool_input": {"command": "x <<" + "A" * 400 + "\n" * 2_500}, "tool_name": "Bash"}
    told = hooks.told(**facts, tool_response={"stdout": "x", "exit_code": 1})
    assert hooks.call("PostToolUse", told).is_silent
    assert hooks.faults == []


def test_a_session_that_starts_sweeps_away_what_others_of_long_ago_have_left(hooks: Hooks) -> None:
    ledger = SessionLedger(hooks.data / "hooks", "aaaa")
    ledger.claim(["x"])
    [path] = (hooks.data / "hooks" / "sessions").iterdir()
    os.utime(path, (0, 0))
    assert hooks.call("SessionStart", None, EVERKEPT_READ_ONLY="true").status == 0
    assert ledger.read_given() == {"x"}
    assert hooks.call("SessionStart").status == 0
    assert ledger.read_given() == set()
