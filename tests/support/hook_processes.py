"""Hooks as an assistant calls them: a process of their own, JSON in, and at most an answer out."""

import json
import os
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from everkept.core.projects import find_workspace
from everkept.engines.sqlite.library import SqliteLibrary
from everkept.hooks.workspace import HookFault, read_recent_faults
from records import DAY_ONE, batch, memory

_ASSISTANTS_OWN = ("CLAUDE_", "CODEX_", "COPILOT_", "CURSOR_", "EVERKEPT_", "GEMINI_")  # variables of the caller's
PATIENCE = 60  # seconds until a test stops waiting for a hook that has hung
KNOWN = "Logins are limited to five tries in ten minutes."


@dataclass(frozen=True)
class Outcome:
    status: int
    out: str
    err: str

    @property
    def is_silent(self) -> bool:
        return (self.status, self.out, self.err) == (0, "", "")

    @property
    def context(self) -> str:
        """What the assistant is given."""
        return json.loads(self.out)["hookSpecificOutput"]["additionalContext"]


@dataclass(frozen=True)
class Hooks:
    """Calls hooks of one data folder, in one working folder."""

    data: Path
    folder: Path

    @property
    def faults(self) -> list[HookFault]:
        return read_recent_faults(self.data / "hooks")

    def told(self, **facts: Any) -> str:
        """What an assistant would say of an event here."""
        usual = {"session_id": "5e55-10", "cwd": str(self.folder), "source": "startup"}
        return json.dumps(usual | facts)

    def call(self, event: str, told: str | bytes | None = None, *arguments: str, **environment: str) -> Outcome:
        given = self.told() if told is None else told
        process = self.started(event, *arguments, **environment)
        out, err = process.communicate(given.encode() if isinstance(given, str) else given, timeout=PATIENCE)
        return Outcome(process.returncode, out.decode(), err.decode())

    def call_line(self, line: str, told: str) -> Outcome:
        """Runs a hook by the shell line in an assistant's configuration."""
        variables = self._environment({})
        done = subprocess.run(
            line, shell=True, input=told.encode(), capture_output=True, cwd=self.folder, env=variables, timeout=PATIENCE
        )
        return Outcome(done.returncode, done.stdout.decode(), done.stderr.decode())

    def started(self, event: str, *arguments: str, **environment: str) -> subprocess.Popen[bytes]:
        named = [event] if event else []
        return self.run("-m", "everkept", "hook", *named, *arguments, **environment)

    def run(self, *arguments: str, **environment: str) -> subprocess.Popen[bytes]:
        """A Python of its own, in the working folder."""
        return subprocess.Popen(
            [sys.executable, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=self.folder,
            env=self._environment(environment),
        )

    def _environment(self, more: dict[str, str]) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(_ASSISTANTS_OWN)}
        places = {name: str(self.folder.parent) for name in ("HOME", "USERPROFILE")}
        ours = {"EVERKEPT_CONFIG": "none", "EVERKEPT_DATA_DIR": str(self.data)}
        return kept | places | ours | {"PYTHONPATH": os.pathsep.join(sys.path)} | more


async def remember(hooks: Hooks, text: str = KNOWN) -> None:
    """Makes the project of the working folder, with one memory that matters."""
    library = SqliteLibrary(hooks.data)
    home = find_workspace(hooks.folder)
    assert home is not None
    project = await library.create(home.name, "")
    await library.link_workspace(home.key, project)
    _, store = await library.open(project.name)
    await store.commit(batch(memory(text, importance=0.9), at=DAY_ONE))
    await library.open_user_store()
    await library.open_history_store()
    await library.close()


def listed(folder: Path) -> dict[str, tuple[int, int]]:
    """Every file with its size and the time of its last change."""
    found: dict[str, tuple[int, int]] = {}
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):
            state = path.stat()
            if path.is_file():
                found[path.relative_to(folder).as_posix()] = (state.st_size, state.st_mtime_ns)
    return found
