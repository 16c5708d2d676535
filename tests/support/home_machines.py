"""A machine of one person: a home folder with repositories, and commands, servers and hooks in them."""

import json
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from server_processes import HANG, INITIALIZE, StdioServer, command, environment, stdio_server


class HomeMachine:
    """A home folder, two repositories and a folder that is not a project, with one data folder."""

    def __init__(self, home: Path, **variables: str) -> None:
        self.home = home
        self._variables = variables
        self.data = home / "data"
        self.blog, self.api, self.plain = home / "blog", home / "api", home / "plain"
        for repository in (self.blog, self.api):
            (repository / ".git").mkdir(parents=True)
            (repository / "src").mkdir()
        self.plain.mkdir()

    @property
    def variables(self) -> dict[str, str]:
        home = {"HOME": str(self.home), "USERPROFILE": str(self.home)}
        own = {"EVERKEPT_DATA_DIR": str(self.data), "GIT_CONFIG_GLOBAL": str(self.home / ".gitconfig")}
        return home | own | self._variables

    def run_any(self, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command that may fail."""
        return subprocess.run(
            command(*arguments),
            capture_output=True,
            check=False,
            cwd=folder,
            encoding="utf-8",
            env=environment() | self.variables,
            stdin=subprocess.DEVNULL,
            timeout=HANG,
        )

    def run(self, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        done = self.run_any(folder, *arguments)
        assert done.returncode == 0, done.stderr
        return done

    def read(self, folder: Path, *arguments: str) -> Any:
        return json.loads(self.run(folder, *arguments, "--json").stdout)

    def find_used(self, folder: Path) -> tuple[str, str]:
        """The project here, and why."""
        told = self.read(folder, "where")
        return told["project"], told["reason"]

    @contextmanager
    def serve(self, folder: Path, *options: str, **hello: Any) -> Generator[StdioServer]:
        with stdio_server(self.data, *options, cwd=folder, **self.variables) as server:
            server.ask(0, "initialize", **(hello or INITIALIZE))
            server.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
            yield server

    def find_served(self, folder: Path) -> str:
        """The project of an assistant's server in this folder, as setup starts it."""
        with self.serve(folder, "--project", "auto") as server:
            return find_active(server)


def find_active(server: StdioServer) -> str:
    told = server.call("get_current_project")
    return told.get("name") or told["message"]
