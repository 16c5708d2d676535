"""Which program is started, where and with what environment; and what it writes to stderr."""

import logging
import os
import sys
from pathlib import Path

import pytest

from everkept.core.mcp import UpstreamProgram
from everkept.errors import UpstreamUnavailable
from everkept.upstreams.child import (
    INHERITED_VARIABLES,
    LOGGED_CHARACTERS,
    MAX_LOGGED_LINES,
    ProgramStart,
    StderrLog,
    resolve_program,
)
from upstreams import Clock

HOME = "USERPROFILE" if sys.platform == "win32" else "HOME"
OURS = {"PATH": os.environ["PATH"], "TOKEN": "secret", "EVERKEPT_DATA_DIR": "/data"}


def launched(launch: UpstreamProgram, **ours: str) -> ProgramStart:
    return resolve_program("notes", launch, OURS | ours)


def refused(launch: UpstreamProgram) -> UpstreamUnavailable:
    with pytest.raises(UpstreamUnavailable) as error:
        launched(launch)
    assert not error.value.retry_possible
    return error.value


def script(path: Path) -> Path:
    path.write_text("#!/bin/sh\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def test_a_program_inherits_a_short_list_and_what_is_named() -> None:
    launch = UpstreamProgram(sys.executable, env={"KEY": "${TOKEN}", "PLAIN": "$TOKEN"})
    names = dict.fromkeys(INHERITED_VARIABLES, "x") | {"PATH": OURS["PATH"]}
    given = launched(launch, **names).environment
    assert given == names | {"KEY": "secret", "PLAIN": "$TOKEN"}


def test_a_function_of_a_shell_is_not_inherited() -> None:
    given = launched(UpstreamProgram(sys.executable), TERM="() { :; }").environment
    assert "TERM" not in given


def test_a_variable_that_is_not_set_is_named() -> None:
    error = refused(UpstreamProgram(sys.executable, env={"KEY": "Bearer ${MISSING}"}))
    assert "MISSING" in error.message


def test_a_program_is_found_by_the_path_that_it_gets(tmp_path: Path) -> None:
    found = script(tmp_path / "server.cmd")
    launch = UpstreamProgram("server.cmd", ("-y", "x"), env={"PATH": str(tmp_path)})
    assert launched(launch).command == (str(found), "-y", "x")


def test_a_program_with_a_folder_in_its_name_lies_beside_where_it_will_be(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    found = script(tmp_path / "bin" / "server.cmd")
    started = launched(UpstreamProgram("bin/server.cmd", cwd=str(tmp_path)))
    assert started.command == (str(found),)
    assert started.folder == str(tmp_path)


def test_a_program_that_is_not_there_is_named() -> None:
    error = refused(UpstreamProgram("no-such-program"))
    assert error.message == ("notes cannot be started: program no-such-program not found in the folders of PATH.")
    assert error.hint


@pytest.mark.parametrize("line", ["python3 /x/flex.py", "npx -y notes"])
def test_a_whole_line_as_a_program_is_told_where_the_rest_belongs(line: str) -> None:
    error = refused(UpstreamProgram(line))
    assert f'"{line}"' in error.message
    assert "`args`" in (error.hint or "")
    assert "hush" not in refused(UpstreamProgram(f"{line} --password hush-hush-22")).message


def test_a_file_that_is_no_program_is_named(tmp_path: Path) -> None:
    (tmp_path / "server.txt").touch()
    assert "is not executable" in refused(UpstreamProgram(str(tmp_path / "server.txt"))).message


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    error = refused(UpstreamProgram(sys.executable, cwd=str(tmp_path / "away")))
    assert "away" in error.message


def test_without_a_folder_it_is_the_home_folder_and_never_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    home = tmp_path / "home"
    home.mkdir()
    assert launched(UpstreamProgram(sys.executable), **{HOME: str(home)}).folder == str(home)
    for other in ("", ".", "home", str(tmp_path / "away")):
        folder = launched(UpstreamProgram(sys.executable), **{HOME: other}).folder
        assert folder == Path(sys.executable).anchor


def test_a_program_is_not_looked_for_where_we_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    script(tmp_path / "server.cmd")
    (tmp_path / "bin").mkdir()
    script(tmp_path / "bin" / "server.cmd")
    for path in ("", ".", "bin", os.pathsep.join(("", ".", "bin", ""))):
        refused(UpstreamProgram("server.cmd", env={"PATH": path}))
    with pytest.raises(UpstreamUnavailable):
        launched(UpstreamProgram("bin/server.cmd"), **{HOME: ""})


def test_on_windows_a_program_is_known_by_its_ending(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("npx", "npx.cmd", "npx.txt"):
        script(tmp_path / name)
    monkeypatch.setattr(sys, "platform", "win32")
    env = {"PATH": str(tmp_path), "PATHEXT": ".exe;.cmd;"}
    for wanted in ("npx", "npx.cmd", str(tmp_path / "npx")):
        assert launched(UpstreamProgram(wanted, env=env)).command == (str(tmp_path / "npx.cmd"),)
    assert "is not executable" in refused(UpstreamProgram(str(tmp_path / "npx.txt"), env=env)).message


def test_a_folder_that_is_not_absolute_is_refused() -> None:
    refused(UpstreamProgram(sys.executable, cwd="."))


@pytest.fixture(autouse=True)
def level(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


def hide(text: str) -> str:
    return text.replace("hunter22", "***")


async def test_each_line_is_logged_with_the_name_of_the_server(caplog: pytest.LogCaptureFixture) -> None:
    remarks = StderrLog("notes", hide)
    remarks.feed(b"rea")
    remarks.feed(b"dy\r\n \nport 80")
    remarks.finish()
    assert caplog.messages == ["notes: ready", "notes: port 80"]
    assert remarks.format_last_lines() == "ready / port 80"


async def test_what_is_hidden_shows_neither_in_the_log_nor_in_the_last_words(caplog: pytest.LogCaptureFixture) -> None:
    remarks = StderrLog("notes", hide)
    remarks.feed(b"x" * (LOGGED_CHARACTERS - 4) + b"hunter22\n")
    assert "hunt" not in caplog.text
    assert "hunt" not in remarks.format_last_lines()


async def test_what_cannot_be_seen_is_escaped(caplog: pytest.LogCaptureFixture) -> None:
    remarks = StderrLog("notes", hide)
    remarks.feed(b"\x1b[2Jgone\rforged \xff\n")
    [message] = caplog.messages
    assert message.isprintable()
    assert remarks.format_last_lines().isprintable()


async def test_a_flood_is_cut_and_counted(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    remarks = StderrLog("notes", hide)
    remarks.feed(b"".join(b"line %d\n" % number for number in range(1000)))
    assert len(caplog.messages) == MAX_LOGGED_LINES
    await clock.goes_on(1.1)
    assert caplog.messages[MAX_LOGGED_LINES:] == [
        f"notes: omitted {1000 - MAX_LOGGED_LINES} more lines within a second"
    ]
    remarks.feed(b"calm again\n")
    remarks.finish()
    assert caplog.messages[-1] == "notes: calm again"
    assert remarks.format_last_lines() == "line 998 / line 999 / calm again"


async def test_what_was_left_out_before_the_end_is_counted_too(caplog: pytest.LogCaptureFixture) -> None:
    remarks = StderrLog("notes", hide)
    remarks.feed(b"line\n" * (MAX_LOGGED_LINES + 3))
    remarks.finish()
    assert "3 more lines" in caplog.messages[-1]


async def test_what_strays_onto_its_output_is_logged_once_and_kept(caplog: pytest.LogCaptureFixture) -> None:
    remarks = StderrLog("notes", hide)
    remarks.add_stray_line(b"x" * (LOGGED_CHARACTERS - 4) + b"hunter22 is the password")
    remarks.add_stray_line(b"Hello!")
    remarks.feed(b"ready\n")
    [warning, _] = caplog.messages
    assert "not a message" in warning
    assert "hunt" not in caplog.text
    assert remarks.format_last_lines().endswith("Hello! / ready")


async def test_a_line_without_an_end_is_among_the_last_words() -> None:
    remarks = StderrLog("notes", hide)
    remarks.feed(b"one\ntwo\nPassword: ")
    assert remarks.format_last_lines(b"Ok to proceed? ") == "two / Password: / Ok to proceed?"
    remarks.finish()
    assert remarks.format_last_lines() == "one / two / Password:"


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (
            "npm error code E404\nnpm error 404 Not Found - GET https://registry.example/notes-server - Not found\n"
            "npm error 404\nnpm error 404  The requested resource 'notes-server@*' could not be found.\n"
            "npm error 404\nnpm error 404 Note that you can also install from a\n"
            "npm error 404 tarball, folder, http url, or git url.\n"
            "npm error A complete log of this run can be found in: /home/ada/.npm/_logs/debug.log\n",
            "npm error 404  The requested resource 'notes-server@*' could not be found.",
        ),
        (
            "node:internal/modules/cjs/loader:1228\n  throw err;\n\nError: Cannot find module '/x/notes-server'\n"
            "    at Module._load (loader:1225:15)\n    at node:internal/main:36:7 {\n  code: 'MODULE_NOT_FOUND',\n"
            "  requireStack: []\n}\n\nNode.js v20.20.2\n",
            "Error: Cannot find module '/x/notes-server'",
        ),
        ("ready\nno error so far\nServer 1.2\nport 80\nlistening\n", "Server 1.2"),
        ("cannot read a\nx\nValueError: invalid b\ny\n", "x"),
    ],
)
async def test_the_line_that_explains_a_failed_start_comes_before_the_last_ones(said: str, reason: str) -> None:
    remarks = StderrLog("notes", hide, ("-y", "notes-server"))
    remarks.feed(said.encode())
    assert remarks.format_last_lines().split(" / ")[0] == reason
    assert remarks.format_last_lines().endswith(said.strip().rpartition("\n")[2])
