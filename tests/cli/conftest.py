"""The command line, called in process."""

import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from everkept.cli.main import main


@dataclass(frozen=True)
class Outcome:
    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Outcome]


class Typed(io.StringIO):
    """What is typed, by a person where there is a terminal."""

    def __init__(self, text: str, *, terminal: bool) -> None:
        super().__init__(text)
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


@pytest.fixture
def everkept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Run:
    """Runs one command on a data folder of its own; `stdin` is what is typed into it."""
    monkeypatch.setenv("EVERKEPT_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("COLUMNS", "120")

    def run(*arguments: str, stdin: str = "", terminal: bool = False) -> Outcome:
        monkeypatch.setattr("sys.stdin", Typed(stdin, terminal=terminal))
        status = 0
        try:
            main([*arguments])
        except SystemExit as ended:
            status = ended.code if isinstance(ended.code, int) else 1
        captured = capsys.readouterr()
        return Outcome(status, captured.out, captured.err)

    return run
