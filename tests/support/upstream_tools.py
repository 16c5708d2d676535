"""What the test server of `upstream_actors` can do, however it is reached."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

JSON = dict[str, Any]

LIFETIME = 300  # seconds after which even what ignores its end is gone
POLL = 0.01
INVALID_PARAMS = -32602


class RpcError(Exception):
    """An answer that is an error of the protocol."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.body: JSON = {"code": code, "message": message}
        if data is not None:
            self.body["data"] = data


class Cancelled(Exception):
    """The caller wants no answer any more."""


@dataclass(frozen=True)
class Call:
    """A call of a tool. `report` tells of progress, `announce` that the tools have changed."""

    tool: str
    arguments: JSON
    report: Callable[[float, float | None, str | None], None] = lambda *_: None
    announce: Callable[[], None] = lambda: None
    cancelled: threading.Event = field(default_factory=threading.Event)


class Actor:
    """What the server does, whatever it is reached by. Tools may take long: call from a thread."""

    def __init__(self, name: str = "actor", tools: Path | None = None, page_size: int | None = None) -> None:
        self.name = name
        self._file = tools
        self._page_size = page_size
        self._added: list[JSON] = []
        self._calls = 0
        self._lock = threading.Lock()
        self._tools: dict[str, Callable[[Call], JSON]] = {
            "echo": lambda call: said(call.arguments),
            "env": lambda _: said(dict(os.environ)),
            "where": lambda _: said({"cwd": str(Path.cwd())}),
            "pid": lambda _: said({"pid": os.getpid()}),
            "name": lambda _: said({"name": self.name}),
            "count": self._count,
            "progress": _progress,
            "wait": _wait,
            "crash": _crash,
            "big": lambda call: texted("x" * call.arguments["bytes"]),
            "fails": lambda call: texted(call.arguments.get("text", "It did not work.")) | IS_ERROR,
            "error": _error,
            "odd": lambda _: json.loads(ODD),
            "change": self._change,
            "spawn": _spawn,
            "stderr": _write_stderr,
        }

    @property
    def info(self) -> JSON:
        return {"name": self.name, "version": "1"}

    @property
    def capabilities(self) -> JSON:
        return {"tools": {"listChanged": True}}

    def listed(self, cursor: str | None = None) -> JSON:
        """The result of tools/list."""
        tools = self._described() + self._added
        if self._page_size is None:
            return {"tools": tools}
        start = int(cursor or 0)
        end = start + self._page_size
        more: JSON = {"nextCursor": str(end)} if end < len(tools) else {}
        return {"tools": tools[start:end]} | more

    def call(self, call: Call) -> JSON:
        """The result of tools/call. Raises RpcError, and Cancelled where there is none."""
        with self._lock:
            self._calls += 1
        if tool := self._tools.get(call.tool):
            return tool(call)
        if any(call.tool == described["name"] for described in self._described() + self._added):
            return said({"tool": call.tool, "arguments": call.arguments})
        raise RpcError(INVALID_PARAMS, f"Unknown tool: {call.tool}")

    def _described(self) -> list[JSON]:
        if self._file is not None:  # read anew each time: a test may have changed it
            return cast(list[JSON], json.loads(self._file.read_text(encoding="utf-8")))
        return [described(name) for name in self._tools]

    def _count(self, _: Call) -> JSON:
        return said({"calls": self._calls})

    def _change(self, call: Call) -> JSON:
        self._added.append(described(call.arguments["name"]))
        call.announce()
        return said({"changed": True})


def described(name: str) -> JSON:
    """A tool as tools/list shows it; what nobody knows is there to be kept."""
    return {
        "name": name,
        "title": name.title(),
        "description": f"Does {name}.",
        "inputSchema": {"type": "object"},
        "annotations": {"readOnlyHint": True, "unknownHint": "kept"},
        "x-unknown": {"kept": [1, 2.5, None]},
    }


def said(value: JSON) -> JSON:
    return texted(json.dumps(value)) | {"structuredContent": value}


def texted(text: str) -> JSON:
    return {"content": [{"type": "text", "text": text}]}


IS_ERROR: JSON = {"isError": True}
ODD = json.dumps(
    {
        "content": [
            {"type": "hologram", "data": {"deep": [{"x": None}]}},
            {"type": "text", "text": "é\u2028\x00😀", "annotations": {"x": 1}, "new": True},
        ],
        "structuredContent": [1, "no object", 10**30, 1e300],
        "isError": False,
        "unknown": {"kept": None},
        "_meta": {"example.org/kept": 1},
    }
)


def _progress(call: Call) -> JSON:
    steps = call.arguments.get("steps", 3)
    for step in range(1, steps + 1):
        call.report(step, steps, f"step {step}")
    return said({"steps": steps})


def _wait(call: Call) -> JSON:
    """Until the file `until` is there, else for ever. The file `started` says that it waits; when
    it is cancelled it writes `cancelled`, and with `late` answers nevertheless."""
    _touch(call.arguments.get("started"))
    until = call.arguments.get("until")
    for _ in range(int(LIFETIME / POLL)):
        if call.cancelled.wait(POLL):
            _touch(call.arguments.get("cancelled"))
            if call.arguments.get("late"):
                break
            raise Cancelled
        if until is not None and Path(until).exists():
            break
    return said({"waited": True})


def _touch(path: str | None) -> None:
    if path is not None:
        Path(path).touch()


def _crash(call: Call) -> JSON:
    _write_stderr(call)
    os._exit(call.arguments.get("status", 3))


def _error(call: Call) -> JSON:
    given = call.arguments
    raise RpcError(given.get("code", -32000), given.get("message", "No."), given.get("data"))


def _write_stderr(call: Call) -> JSON:
    sys.stderr.write(call.arguments.get("text", "a line of the log") + "\n")
    sys.stderr.flush()
    return said({})


def _spawn(_: Call) -> JSON:
    """A child of its own that holds our output and ignores a polite end."""
    code = (
        "import signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
        f"sys.stderr.write('ready\\n'); sys.stderr.flush(); time.sleep({LIFETIME})"
    )
    child = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
    assert child.stderr is not None
    child.stderr.readline()
    return said({"pid": child.pid})
