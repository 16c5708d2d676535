"""The first session on a machine with conversations that nobody imported."""

import json
from pathlib import Path

import pytest

from hook_workers import hooked, transcript, wait_for_workers

SESSIONS = [f"{number}1111111-2222-4333-8444-555555555555" for number in range(3)]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def start(data: Path, home: Path, folder: Path, path: Path | None = None) -> str:
    told = {"session_id": SESSIONS[0], "cwd": str(folder), "source": "startup"}
    if path is not None:
        told["transcript_path"] = str(path)
    said = hooked("SessionStart", data, home, told)
    return json.loads(said).get("systemMessage", "") if said else ""


def test_the_first_session_says_once_how_to_import_the_others(home: Path, tmp_path: Path) -> None:
    data, folder = tmp_path / "data", tmp_path / "shop"
    (folder / ".git").mkdir(parents=True)
    own, *_ = [transcript(home, session, folder, 2) for session in SESSIONS]
    said = start(data, home, folder, own)
    assert "Everkept found 2 conversations of Claude Code on this machine." in said
    assert "`everkept import history`" in said
    assert len(said.splitlines()) == 1
    assert start(data, home, folder, own) == ""


def test_a_machine_without_conversations_is_told_nothing_and_keeps_nothing(home: Path, tmp_path: Path) -> None:
    data, folder = tmp_path / "data", tmp_path / "shop"
    (folder / ".git").mkdir(parents=True)
    home.mkdir()
    assert start(data, home, folder) == ""
    later = transcript(home, SESSIONS[1], folder, 2)
    assert "1 conversation of Claude Code" in start(data, home, folder)
    assert later.is_file()


def test_imported_conversations_are_not_announced(home: Path, tmp_path: Path) -> None:
    data, folder = tmp_path / "data", tmp_path / "shop"
    (folder / ".git").mkdir(parents=True)
    path = transcript(home, SESSIONS[1], folder, 2)
    told = {"session_id": SESSIONS[1], "cwd": str(folder), "reason": "other", "transcript_path": str(path)}
    hooked("SessionEnd", data, home, told)
    wait_for_workers(data)
    assert start(data, home, folder) == ""
