import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

Run = Callable[..., Any]

PATIENCE = 60  # seconds


def test_the_help_says_what_it_is_for(everkept: Run) -> None:
    outcome = everkept("hook", "--help")
    assert outcome.status == 0
    assert "SessionStart" in outcome.out
    assert "faults.log" in outcome.out


def test_the_program_gives_the_same_help(everkept: Run) -> None:
    said = subprocess.run(
        [sys.executable, "-m", "everkept", "hook", "--help"],
        capture_output=True,
        encoding="utf-8",
        timeout=PATIENCE,
        check=True,
    )
    assert said.stdout == everkept("hook", "--help").out


def test_through_the_command_line_it_answers_as_it_does_without(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    code = "import sys; from everkept.cli.main import main; main(sys.argv[1:])"
    place = f"--data-dir={tmp_path / 'data'}"
    said = subprocess.run(
        [sys.executable, "-c", code, "hook", "SessionStart", place, "--log-level", "info"],
        input="no JSON",
        capture_output=True,
        encoding="utf-8",
        timeout=PATIENCE,
        check=True,
    )
    assert said.stdout == ""
    assert said.stderr.startswith("everkept hook SessionStart: invalid_input")
    assert (tmp_path / "data" / "hooks" / "faults.log").exists()
