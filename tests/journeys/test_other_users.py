"""Another user of this machine, while a server runs on data of every kind."""

import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from server_processes import HANG, command, environment, http_server

STRANGER = 54_321  # an id that no user has
MODES = {"file": {0o600}, "folder": {0o700}} if os.name == "posix" else {"file": {0o666}, "folder": {0o777}}

# Tries what a stranger may try with each path, and prints what worked.
TRY = """
import json, os, sys
from pathlib import Path

given = json.load(sys.stdin)
os.setgroups([])
os.setgid(given["stranger"])
os.setuid(given["stranger"])
for text, is_folder in given["paths"]:
    path = Path(text)
    tries = {
        "read": lambda: os.listdir(path) if is_folder else path.read_bytes(),
        "written": lambda: (path / "stranger").touch() if is_folder else path.open("r+b").close(),
        "moved": lambda: path.rename(text + ".stranger"),
        "linked": lambda: os.link(path, given["own"] + "/link"),
        "opened": lambda: path.chmod(0o777),
    }
    for name, attempt in tries.items():
        try:
            attempt()
        except OSError:
            continue
        print(name, text)
"""


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    """All that we write for a user whose umask takes nothing away; others may walk into the folder."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    before = os.umask(0)
    try:
        event = {"session_id": "one", "cwd": str(folder), "hook_event_name": "SessionStart", "source": "startup"}
        _run(folder, "remember", "The door is green.", "--project", "shop")
        _run(folder, "token")
        _run(folder, "backup", str(folder / "backup.zip"))
        _run(folder, "export", str(folder / "export"))
        _run(folder, "hook", "session-start", given=json.dumps(event))
        with http_server(folder / "data", "--project", "shop"):
            yield folder
    finally:
        os.umask(before)
        shutil.rmtree(folder)


def _run(folder: Path, *arguments: str, given: str = "") -> None:
    home = {"HOME": str(folder), "USERPROFILE": str(folder), "EVERKEPT_DATA_DIR": str(folder / "data")}
    subprocess.run(
        command(*arguments), input=given, check=True, env=environment() | home, encoding="utf-8", timeout=HANG
    )


def test_everything_is_for_its_owner_only(home: Path) -> None:
    found: dict[str, set[int]] = {"file": set(), "folder": set()}
    for path in home.rglob("*"):
        found["folder" if path.is_dir() else "file"].add(stat.S_IMODE(path.stat().st_mode))
    assert found == MODES


def test_a_stranger_reads_and_changes_nothing(home: Path) -> None:
    """As another user if we may become one; the modes above are what we can see otherwise."""
    paths = [(str(path), path.is_dir()) for path in home.rglob("*")]
    assert len(paths) > 20
    assert any(path.endswith("-wal") for path, _ in paths)
    if sys.platform == "win32" or os.geteuid() != 0:
        assert all(stat.S_IMODE(path.stat().st_mode) & 0o077 == 0 or os.name != "posix" for path in home.iterdir())
        return
    with tempfile.TemporaryDirectory() as own:
        os.chown(own, STRANGER, STRANGER)
        given = json.dumps({"paths": paths, "stranger": STRANGER, "own": own})
        tried = subprocess.run(
            [sys.executable, "-c", TRY], input=given, capture_output=True, check=True, encoding="utf-8", timeout=HANG
        )
    assert tried.stdout == ""
