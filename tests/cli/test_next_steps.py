import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]


@pytest.fixture
def talks(home: Path) -> list[Path]:
    """Three conversations of Claude Code that were never imported."""
    folder = home / ".claude" / "projects" / "-shop"
    folder.mkdir(parents=True)
    paths = [folder / f"{number}1111111-2222-4333-8444-555555555555.jsonl" for number in range(3)]
    for path in paths:
        line = {
            "type": "user",
            "uuid": f"{path.stem}-1",
            "sessionId": path.stem,
            "timestamp": "2026-03-02T10:00:00.000Z",
            "cwd": "/shop",
            "message": {"role": "user", "content": "The teapot leaks"},
        }
        path.write_text(json.dumps(line) + "\n", encoding="utf-8")
    return paths


def connected(everkept: Run) -> set[str]:
    return {each["client"] for each in everkept("setup", "--json").json["clients"] if each["set_up"]}


def test_each_step_can_be_taken_or_skipped(everkept: Run, home: Path, talks: list[Path]) -> None:
    count = len([each for each in everkept("setup", "--json").json["clients"] if each["installed"]])
    told = everkept("setup", stdin="y\n" + "n\n" * (count - 1) + "y\n", terminal=True)
    assert told.status == 0, told.err
    assert len(connected(everkept)) == 1
    assert "Import 3 conversations of Claude Code (about 1 s)?" in told.err
    assert "3 new conversations" in told.out
    again = everkept("setup", stdin="n\n" * count, terminal=True)
    assert "Import" not in again.err


def test_a_client_without_hooks_is_offered_them(everkept: Run, home: Path) -> None:
    everkept("setup", "claude-code", "--yes", "--no-hooks")
    told = everkept("setup", stdin="y\n" + "n\n" * 20, terminal=True)
    assert "Claude Code is installed, and its hooks are not turned on." in told.out
    assert (home / ".claude" / "settings.json").exists()
    assert "Claude Code is installed" not in everkept("setup", stdin="n\n" * 20, terminal=True).out


def test_a_connected_client_offers_the_import_next(everkept: Run, home: Path, talks: list[Path]) -> None:
    told = everkept("setup", "codex", stdin="y\nn\n", terminal=True)
    assert "Import 3 conversations of Claude Code" in told.err
    assert "To import them later, run `everkept import history`." in told.out
    assert "0 conversations" in everkept("status").out


def test_a_program_is_told_the_command_and_asked_nothing(everkept: Run, home: Path, talks: list[Path]) -> None:
    told = everkept("setup", "codex", "--yes")
    assert "To import 3 conversations of Claude Code (about 1 s), run `everkept import history`." in told.out
    assert "run `everkept import history`" not in everkept("setup").out
    assert json.loads(everkept("setup", "gemini", "--yes", "--json").out)["client"] == "gemini"
