"""Other processes for a test: functions of `actors`, run by a Python of their own.

A function of another module is named with it: `file_actors:write_and_die`.
"""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

_RUN = """
import importlib, json, sys
module, _, name = sys.argv[1].rpartition(":")
getattr(importlib.import_module(module or "actors"), name)(*json.loads(sys.argv[2]))
"""
PATIENCE = 120  # seconds until a test stops waiting for a process that has hung


class Actor:
    """A process that says lines of JSON and hears lines of text."""

    def __init__(self, name: str, *arguments: Any, **options: Any) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", _RUN, name, json.dumps(arguments, default=str)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            **options,
        )

    def hear(self) -> Any:
        """The next thing that the process says; None when it has ended."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        return json.loads(line) if line.endswith("\n") else None

    def tell(self, line: str = "") -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def ask(self, line: str = "") -> Any:
        self.tell(line)
        return self.hear()

    def finish(self) -> list[Any]:
        """Ends its input, and gives all that it still says."""
        output = self._rest()
        assert self.process.returncode == 0
        return [json.loads(line) for line in output.splitlines()]

    def kill(self) -> list[Any]:
        """Ends it without warning, and gives what it had said until then."""
        self.process.kill()
        output = self._rest()
        return [json.loads(line) for line in output.splitlines(keepends=True) if line[-1] == "\n"]

    def _rest(self) -> str:
        """Until its end, with what was read ahead of the last line that was heard."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        hung = threading.Timer(PATIENCE, self.process.kill)
        hung.start()
        try:
            with suppress(BrokenPipeError):
                self.process.stdin.close()
            with self.process.stdout as said:
                output = said.read()
            self.process.wait()
        finally:
            hung.cancel()
            hung.join()
        return output


@contextmanager
def acting(name: str, *arguments: Any, **options: Any) -> Iterator[Actor]:
    """An actor that is gone when the block ends."""
    actor = Actor(name, *arguments, **options)
    with actor.process:
        try:
            yield actor
        finally:
            actor.process.kill()


def said_by(name: str, *arguments: Any, **options: Any) -> Any:
    """What an actor says that speaks once and ends."""
    [answer] = Actor(name, *arguments, **options).finish()
    return answer
