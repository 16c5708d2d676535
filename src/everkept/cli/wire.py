"""A minimal MCP client over a child's standard input and output: one request at a time."""

import json
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO, Any, cast

JSON = dict[str, Any]

PROTOCOL = "2025-06-18"
CLOSING = 5.0  # seconds that a server gets to end by itself


class ServerGone(Exception):
    """The server ended before it answered; whether it acted is unknown."""


class CallFailed(Exception):
    """The server answered, and said no."""

    def __init__(self, code: str, message: str, *, retry_possible: bool = False) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.retry_possible = retry_possible


class Wire:
    """One server and the way to it. `kill` may come from any thread, the rest from one."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        log: IO[bytes] | int = subprocess.DEVNULL,
    ) -> None:
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=environment,
        )
        self._requests = 0
        self.waiting_since: float | None = None

    @property
    def pid(self) -> int:
        return self._process.pid

    def initialize(self, name: str, version: str = "1") -> JSON:
        answer = self.request(
            "initialize",
            {
                "protocolVersion": PROTOCOL,
                "capabilities": {},
                "clientInfo": {"name": name, "version": version},
            },
        )
        self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return answer

    def call(self, tool: str, arguments: JSON) -> JSON:
        """The structured answer of a tool."""
        result = self.request("tools/call", {"name": tool, "arguments": arguments})
        structured: JSON = result.get("structuredContent") or {}
        if result.get("isError"):
            raise CallFailed(
                structured.get("error", "tool_error"),
                structured.get("message", str(result.get("content"))),
                retry_possible=structured.get("retry_possible", False),
            )
        return structured

    def request(self, method: str, params: JSON) -> JSON:
        self._requests += 1
        self.waiting_since = time.monotonic()
        try:
            self._send({"jsonrpc": "2.0", "id": self._requests, "method": method, "params": params})
            answer = self._answer()
        finally:
            self.waiting_since = None
        if "error" in answer:
            raise CallFailed(str(answer["error"]["code"]), answer["error"]["message"])
        return cast(JSON, answer["result"])

    def kill(self) -> bool:
        """Ends the server on the spot, without a chance to tidy up; False if it was gone."""
        is_running = self._process.poll() is None
        self._process.kill()
        return is_running

    def close(self) -> None:
        """Ends the server as a client does, by closing its input; kills it if that is no use."""
        process = self._process
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(OSError):  # what was not sent to a dead server cannot be flushed
                    pipe.close()
        try:
            process.wait(CLOSING)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _send(self, message: JSON) -> None:
        pipe = cast(IO[bytes], self._process.stdin)
        try:
            pipe.write(json.dumps(message, ensure_ascii=False).encode() + b"\n")
            pipe.flush()
        except OSError as error:
            raise ServerGone from error

    def _answer(self) -> JSON:
        """The answer to the last request; notifications on the way are skipped."""
        pipe = cast(IO[bytes], self._process.stdout)
        while True:
            line = pipe.readline()
            if not line.endswith(b"\n"):
                raise ServerGone
            message: JSON = json.loads(line)
            if message.get("id") == self._requests and "method" not in message:
                return message
