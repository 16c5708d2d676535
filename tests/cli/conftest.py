"""The command line, called in process."""

import io
import json
import sys
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
def everkept(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
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


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository to work in, so that memories have a project."""
    folder = tmp_path / "shop"
    (folder / ".git").mkdir(parents=True)
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that commands are called in."""
    folder = tmp_path / "shop"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder in which every client is installed, and a project to work in."""
    home = tmp_path / "home"
    for name in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(name, str(home))
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "COPILOT_HOME", "GEMINI_CLI_HOME", "CLAUDE_PROJECT_DIR"):
        monkeypatch.delenv(name, raising=False)
    for name in ("APPDATA", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(home / "apps"))
    monkeypatch.setenv("EVERKEPT_LAUNCHER", "")
    folders = (".claude", ".codex", ".copilot/session-state", ".cursor", ".gemini", ".codeium/windsurf")
    applications = home / "Library" / "Application Support"
    if sys.platform != "darwin":
        applications = home / "apps"
    for folder in (*folders, "apps/opencode", applications / "Claude", applications / "Code"):
        (home / folder).mkdir(parents=True)
    (tmp_path / "shop").mkdir()
    monkeypatch.chdir(tmp_path / "shop")
    return home


ACTOR = Path(__file__).parents[1] / "support" / "upstream_actors.py"
JSON = dict[str, Any]

TOOLS: list[JSON] = [
    {
        "name": "search",
        "description": "Finds notes.",
        "inputSchema": {
            "type": "object",
            "properties": {"text": {"type": "string"}, "limit": {"type": "number"}},
            "required": ["text"],
        },
    },
    {
        "name": "add",
        "description": "Adds a note.",
        "inputSchema": {"type": "object", "properties": {"note": {"type": "string"}}},
    },
]

Actor = Callable[..., JSON]
Write = Callable[..., Path]


@pytest.fixture
def tools_file(tmp_path: Path) -> Path:
    """What the server lists."""
    path = tmp_path / "listed.json"
    path.write_text(json.dumps(TOOLS), encoding="utf-8")
    return path


@pytest.fixture
def actor(tools_file: Path) -> Actor:
    """The server as a gateway's file names it."""

    def made(*options: object, tools: Path | None = tools_file) -> JSON:
        listed = [] if tools is None else ["--tools", str(tools)]
        return {"command": sys.executable, "args": [str(ACTOR), *listed, *map(str, options)]}

    return made


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes the gateway's file, which commands read from then on."""
    path = tmp_path / "tools.json"
    monkeypatch.setenv("EVERKEPT_GATEWAY_CONFIG", str(path))

    def written(config: Any) -> Path:
        text = config if isinstance(config, str) else json.dumps(config, indent=2)
        path.write_text(text, encoding="utf-8")
        return path

    return written
