"""Runs other memory programs as they are installed, so that they make the data that is imported.

Their models are not there: embeddings are hashed or turned off, which an import does not read.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from python_packages import install

SCRIPTS = Path(__file__).parents[2] / "support" / "programs"
# They ask for a release of it that not every package index has.
OVERRIDES = ("certifi>=2024",)
FOREIGN = ("EVERKEPT_", "MEMORY_", "XDG_", "MCP_", "MEM0_", "BASIC_MEMORY_", "PYTHON", "CLAUDE_")

Fill = Callable[..., Any]
Everkept = Callable[..., Any]


@pytest.fixture
def new_home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


@pytest.fixture
def environment(new_home: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    own = {name: str(new_home) for name in ("HOME", "USERPROFILE", "APPDATA", "LOCALAPPDATA")}
    return kept | own | {"COLUMNS": "120", "PYTHONUTF8": "1"}


@pytest.fixture
def fill(new_home: Path, environment: dict[str, str]) -> Fill:
    """Run a script with a program's packages in the home folder, and return what the program lists, if it does."""

    def run(script: str, *packages: str, given: Any = None, python: str = sys.executable) -> Any:
        folder = install(*packages, python=python, overrides=OVERRIDES)
        done = subprocess.run(
            [python, str(SCRIPTS / script), str(new_home), json.dumps(given)],
            cwd=new_home,
            env=environment | {"PYTHONPATH": str(folder)},
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=500,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-4000:]
        listed = new_home / "listed.json"
        return json.loads(listed.read_text(encoding="utf-8")) if listed.exists() else None

    return run


@pytest.fixture
def everkept(new_home: Path, environment: dict[str, str]) -> Everkept:
    """Run a command in the home folder, as a new user would, and return its JSON."""

    def run(*arguments: str) -> Any:
        done = subprocess.run(
            [sys.executable, "-m", "everkept", *arguments, "--json"],
            cwd=new_home,
            env=environment,
            capture_output=True,
            encoding="utf-8",
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run
