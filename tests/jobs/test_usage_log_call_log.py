import asyncio
import json
import logging
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from everkept.app.app import App
from everkept.core.sessions import Session
from everkept.errors import NotFound
from everkept.jobs import usage_log
from everkept.jobs.usage_log import CallLog, CallNote, read_calls
from everkept.settings import read_settings
from server_processes import HANG, INITIALIZE, command, environment, stdio_server

SECRET = "ghp_" + "a1B2c3D4e5" * 4


def note(tool: str, project: str | None = "shop", client: str = "test 1") -> CallNote:
    return CallNote(1_800_000_000_000_000, tool, project, client, None, 1.26, "ok")


def write(folder: Path, *notes: CallNote) -> None:
    async def run() -> None:
        written = CallLog(folder)
        for each in notes:
            written.note(each)
        await written.close()

    asyncio.run(run())


def names(folder: Path, limit: int = 100, project: str | None = None) -> list[str]:
    return [call["tool"] for call in read_calls(folder, limit, project)]


async def test_every_call_leaves_one_line_without_its_content(tmp_path: Path) -> None:
    app = App(read_settings({"data_dir": str(tmp_path), "toolsets": "graph,memories"}, {}))
    session = Session(client="test 1")
    await app.call(session, "create_project", {"name": "shop"})
    await app.call(session, "create_entities", {"entities": [{"name": "Zanzibar", "entityType": "place"}]})
    with pytest.raises(NotFound):
        await app.call(session, "search_nodes", {"query": "Zanzibar", "project": f"key {SECRET}"})
    await app.close()
    calls = read_calls(tmp_path, 10)
    assert [(call["tool"], call["project"], call["outcome"]) for call in reversed(calls)] == [
        ("create_project", "shop", "ok"),
        ("create_entities", "shop", "ok"),
        ("search_nodes", "key [masked: github token]", "not_found"),
    ]
    assert all(call["client"] == "test 1" and call["ms"] >= 0 and call["at"].endswith("Z") for call in calls)
    file = tmp_path / "calls" / "calls.jsonl"
    assert not any(word in file.read_text(encoding="utf-8") for word in ("Zanzibar", SECRET))
    if sys.platform != "win32":
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_server_says_ready_once_and_shows_arguments_only_in_its_debug_log(tmp_path: Path) -> None:
    with stdio_server(tmp_path, "--debug", "--project", "shop") as server:
        server.ask(1, "initialize", **INITIALIZE)
        server.call("search_nodes", query=f"harbor {SECRET}")
        assert server.close_input() == 0
    said = server.finish()
    assert said.count("everkept: ready\n") == 1
    assert "harbor" in said
    assert SECRET not in said
    [call] = read_calls(tmp_path, 10)
    assert (call["tool"], call["project"], call["client"]) == ("search_nodes", "shop", "test 1")


def test_the_command_line_shows_calls_newest_first_with_a_limit(tmp_path: Path) -> None:
    write(tmp_path, note("one"), note("two", "other"), note("three"))
    words = command("log", "--calls", "--data-dir", tmp_path)
    shown = subprocess.run(words, capture_output=True, check=True, env=environment(), timeout=HANG, encoding="utf-8")
    assert shown.stdout.index("three") < shown.stdout.index("one")
    words += ["--json", "--limit", "1", "--project", "shop"]
    shown = subprocess.run(words, capture_output=True, check=True, env=environment(), timeout=HANG, encoding="utf-8")
    assert json.loads(shown.stdout)["calls"] == [
        {"at": "2027-01-15T08:00:00.000Z", "tool": "three", "project": "shop", "client": "test 1"}
        | {"ms": 1.3, "outcome": "ok"}
    ]


async def test_a_call_that_names_no_project_is_logged_with_the_one_that_it_used(tmp_path: Path) -> None:
    folder = tmp_path / "shop"
    (folder / ".git").mkdir(parents=True)
    app = App(read_settings({"data_dir": str(tmp_path / "data"), "path": folder, "project": "auto"}, {}))
    await app.call(Session(), "search_nodes", {"query": "Zanzibar"})
    await app.call(Session(), "list_projects", {})
    await app.close()
    assert [call["project"] for call in read_calls(tmp_path / "data", 10)] == [None, "shop"]


def test_full_files_rotate_and_the_oldest_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage_log, "MAX_FILE_BYTES", 1)
    for number in range(6):
        write(tmp_path, note(f"tool{number}"))
    assert names(tmp_path) == ["tool5", "tool4", "tool3", "tool2"]
    assert len(list((tmp_path / "calls").glob("*.jsonl"))) == usage_log.MAX_FILES


def test_a_line_that_a_dying_process_left_is_skipped(tmp_path: Path) -> None:
    write(tmp_path, note("one"))
    with (tmp_path / "calls" / "calls.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"at": "20\n[]\n')
    write(tmp_path, note("two"))
    assert names(tmp_path) == ["two", "one"]
    assert names(tmp_path, 1) == ["two"]


def test_several_writers_leave_whole_lines(tmp_path: Path) -> None:
    async def run() -> None:
        logs = [CallLog(tmp_path) for _ in range(4)]
        for number in range(50):
            for each in logs:
                each.note(note(f"tool{number}", client="x" * 300))
        await asyncio.gather(*(each.close() for each in logs))

    asyncio.run(run())
    assert len(read_calls(tmp_path, 1000)) == 200


def test_a_folder_that_cannot_be_written_fails_no_call(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    (tmp_path / "calls").write_text("in the way", encoding="utf-8")
    write(tmp_path, note("one"))
    assert "not logged" in caplog.text
