"""Clients that keep a number of calls under way at once, and time each of them."""

import json
import subprocess
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.client import HTTPConnection
from typing import IO, Any, Protocol, cast
from urllib.parse import urlsplit

JSON = dict[str, Any]

PROTOCOL = "2025-11-25"
GREETING: JSON = {"protocolVersion": PROTOCOL, "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
CLOSING = 10.0  # seconds that a server gets to end by itself


class Caller(Protocol):
    def calls(self, tool: str, arguments: JSON, count: int, at_once: int) -> list[float]:
        """Seconds that each of so many calls took. A call that fails ends the measurement."""
        ...

    def close(self) -> None: ...


class StdioCaller:
    """Starts a server and speaks to it on pipes, from one thread."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], log: int | None = None) -> None:
        """`log` is where its standard error goes; None: to ours."""
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=environment
        )
        self._begun: dict[int, float] = {}
        self._number = 0
        self._ask("initialize", GREETING)
        self._answer()
        self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    @property
    def pid(self) -> int:
        return self._process.pid

    def calls(self, tool: str, arguments: JSON, count: int, at_once: int) -> list[float]:
        params: JSON = {"name": tool, "arguments": arguments}
        for _ in range(min(at_once, count)):
            self._ask("tools/call", params)
        durations: list[float] = []
        while len(durations) < count:
            durations.append(self._answer())
            if len(durations) + len(self._begun) < count:
                self._ask("tools/call", params)
        return durations

    def close(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            cast(IO[bytes], pipe).close()
        try:
            self._process.wait(CLOSING)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _ask(self, method: str, params: JSON) -> None:
        self._number += 1
        message: JSON = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}
        self._begun[self._number] = time.perf_counter()
        self._send(message)

    def _send(self, message: JSON) -> None:
        pipe = cast(IO[bytes], self._process.stdin)
        pipe.write(json.dumps(message).encode() + b"\n")
        pipe.flush()

    def _answer(self) -> float:
        while True:
            line = cast(IO[bytes], self._process.stdout).readline()
            if not line:
                raise SystemExit("The server ended in the middle of the measurement.")
            message: JSON = json.loads(line)
            if "method" not in message:
                took = time.perf_counter() - self._begun.pop(message["id"])
                _refuse_failure(message)
                return took


class HttpCaller:
    """Speaks to an address, on as many connections as there are calls at once."""

    def __init__(self, url: str) -> None:
        self._place = urlsplit(url)

    def calls(self, tool: str, arguments: JSON, count: int, at_once: int) -> list[float]:
        params: JSON = {"name": tool, "arguments": arguments}
        shares = [count // at_once + (number < count % at_once) for number in range(at_once)]
        with ThreadPoolExecutor(at_once) as threads:
            timed = threads.map(partial(self._timed, params), shares)
            return [duration for durations in timed for duration in durations]

    def close(self) -> None:
        """Nothing stays open between calls."""

    def _timed(self, params: JSON, count: int) -> list[float]:
        connection = HTTPConnection(str(self._place.hostname), self._place.port)
        durations: list[float] = []
        for number in range(count):
            body = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
            began = time.perf_counter()
            connection.request(
                "POST",
                self._place.path,
                json.dumps(body).encode(),
                {"Content-Type": "application/json", "Accept": "application/json"},
            )
            message: JSON = json.loads(connection.getresponse().read())
            durations.append(time.perf_counter() - began)
            _refuse_failure(message)
        connection.close()
        return durations


def _refuse_failure(message: JSON) -> None:
    if "error" in message or message["result"].get("isError"):
        raise SystemExit(f"A call failed: {json.dumps(message)[:1000]}")
