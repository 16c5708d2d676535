"""Real servers in processes of their own, for tests that talk to them from outside."""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import closing, contextmanager
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

READY = "everkept: ready\n"  # all that a server writes to standard error
HANG = 60  # seconds; nothing takes that long unless it hangs
NAP = 0.05  # seconds between two looks at what tells nobody
MODERN = "2026-07-28"
META: dict[str, Any] = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": {},
}
INITIALIZE = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "everkept", *map(str, arguments)]


def environment() -> dict[str, str]:
    """Ours, without what would change the server's settings."""
    foreign = ("EVERKEPT_", "MEMORY_", "CLAUDE_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    # A busy machine must not make an answer shorter.
    return kept | {"EVERKEPT_CONFIG": "none", "EVERKEPT_RECALL_TIME_LIMIT": str(HANG)}


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments),
        capture_output=True,
        check=False,
        encoding="utf-8",
        env=environment(),
        stdin=subprocess.DEVNULL,
        timeout=HANG,
    )


def wait_for_database(look: Callable[[], Mapping[str, Any]], patience: float = HANG) -> None:
    """Until a server reaches its database and nothing waits to be written into it. `look` asks for its status."""
    deadline = time.monotonic() + patience
    while (told := look()["connection"])["status"] != "connected":
        assert time.monotonic() < deadline, told
        time.sleep(NAP)  # attempts are seconds apart, and nothing tells of them


class HttpServer:
    """A server that listens; `url` is where."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.said: list[str] = []
        assert process.stderr is not None
        for line in process.stderr:
            self.said.append(line)
            if "serving http" in line:
                break
        else:
            process.wait(HANG)
            raise AssertionError("".join(self.said))
        self.url = self.said[-1].split("serving ")[1].split()[0]
        # A full pipe would stop the server.
        self._drain = threading.Thread(target=self.said.extend, args=(process.stderr,))
        self._drain.start()

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.join()

    def join(self) -> int:
        status = self.process.wait(HANG)
        self._drain.join(HANG)
        return status

    def request(
        self, body: Any = None, headers: dict[str, str] | None = None, method: str = "POST"
    ) -> tuple[HTTPResponse, HTTPConnection]:
        """One request, its answer not read yet. The caller closes the connection."""
        place = urlsplit(self.url)
        assert place.hostname is not None
        connection = HTTPConnection(place.hostname, place.port, timeout=HANG)
        sent = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream", **(headers or {})}
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        try:
            connection.request(method, place.path, data, sent)
            return connection.getresponse(), connection
        except BaseException:
            connection.close()
            raise

    def exchange(
        self, body: Any = None, headers: dict[str, str] | None = None, method: str = "POST"
    ) -> tuple[int, dict[str, str], Any]:
        """Status, headers and the last message of the answer."""
        response, connection = self.request(body, headers, method)
        with closing(connection), response:  # a server may die in the middle of its answer
            text = response.read().decode()
        got = {name.lower(): value for name, value in response.getheaders()}
        return response.status, got, last_message(text)

    def ask(self, method: str, params: dict[str, Any], **headers: str) -> tuple[int, Any]:
        """A request of the stateless era, with the headers that it wants."""
        named = params.get("name") or params.get("uri")
        sent = {"MCP-Protocol-Version": MODERN, "Mcp-Method": method, **headers}
        if named:
            sent["Mcp-Name"] = named
        body: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"_meta": META} | params}
        status, _, message = self.exchange(body, sent)
        return status, message

    def open_session(self, **headers: str) -> dict[str, str]:
        """Does the handshake; returns the headers of the session."""
        body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": INITIALIZE}
        status, got, message = self.exchange(body, headers)
        assert status == 200, message
        session = {
            "Mcp-Session-Id": got["mcp-session-id"],
            "MCP-Protocol-Version": message["result"]["protocolVersion"],
            **headers,
        }
        note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        assert self.exchange(note, session)[0] == 202
        return session


def last_message(text: str) -> Any:
    data = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    try:
        return json.loads(data[-1] if data else text)
    except ValueError:
        return text


@contextmanager
def http_server(
    data_dir: Path, *options: object, program: list[str] | None = None, **variables: str
) -> Generator[HttpServer]:
    """`program` is what runs in place of ours, with the same arguments."""
    arguments = ("serve", "--transport", "http", "--port", 0, "--data-dir", data_dir, *options)
    process = subprocess.Popen(
        command(*arguments) if program is None else [*program, *map(str, arguments)],
        encoding="utf-8",
        env=environment() | variables,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
    )
    try:
        server = HttpServer(process)
        yield server
        if process.poll() is None:
            server.stop()
        else:
            server.join()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        assert process.stderr is not None
        process.stderr.close()


class StdioServer:
    """A server on pipes."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self._errors: str | None = None
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put(b"")

    def write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def send(self, *messages: Any) -> None:
        self.write(b"".join(json.dumps(message).encode() + b"\n" for message in messages))

    def request(self, request_id: Any, method: str, **params: Any) -> None:
        self.send({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params})

    def receive(self) -> Any:
        """The next message, or None when there will be no more."""
        line = self._lines.get(timeout=HANG)
        return json.loads(line) if line else None

    def receive_line(self) -> bytes:
        """The next message as it was sent."""
        line = self._lines.get(timeout=HANG)
        assert line
        return line.rstrip(b"\n")

    def rest(self) -> list[Any]:
        return list(iter(self.receive, None))

    def receive_answer(self) -> Any:
        """The next message that is no notification, or None when there will be no more."""
        while (message := self.receive()) is not None and "method" in message:
            continue
        return message

    def ask(self, request_id: Any, method: str, **params: Any) -> Any:
        """Return the answer, and skip the notifications that come before it."""
        self.request(request_id, method, **params)
        return self.receive_answer()

    def call(self, tool: str, **arguments: Any) -> Any:
        """The structured answer of a tool."""
        answer = self.ask(1, "tools/call", name=tool, arguments=arguments)
        return answer["result"]["structuredContent"]

    def close_input(self) -> int:
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(HANG)

    def finish(self) -> str:
        """Stops it if it still runs; gives what it wrote to stderr."""
        if self._errors is not None:
            return self._errors
        if self.process.poll() is None:
            self.process.kill()
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self._errors = errors = self.process.stderr.read().decode()
        self.process.wait(HANG)
        self._reader.join(HANG)
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            try:
                pipe.close()
            except BrokenPipeError:
                continue
        return errors


@contextmanager
def stdio_server(data_dir: Path, *options: object, cwd: Path | None = None, **variables: str) -> Generator[StdioServer]:
    process = subprocess.Popen(
        command("serve", "--data-dir", data_dir, *options),
        cwd=cwd,
        env=environment() | variables,
        stderr=subprocess.PIPE,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    server = StdioServer(process)
    try:
        yield server
    finally:
        server.finish()
