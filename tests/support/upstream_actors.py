"""A small MCP server for tests, with the standard library alone: it can do what bad servers do.

Run as a program it serves on standard input and output, with `--http FILE` over HTTP: then the
port is written to the file.
"""

import argparse
import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import cast

from upstream_tools import INVALID_PARAMS, JSON, LIFETIME, POLL, Actor, Call, Cancelled, RpcError, said

META = "io.modelcontextprotocol/"
VERSION = "2026-07-28"
HANDSHAKE_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
METHOD_NOT_FOUND = -32601


class Wire:
    """The server on standard input and output, in either era or both."""

    def __init__(self, actor: Actor, era: str) -> None:
        self._actor = actor
        self._era = era
        self._lock = threading.Lock()
        self._running: dict[str | int, threading.Event] = {}
        self._listening: list[str | int] = []
        self._answers: dict[str, JSON] = {}
        self._answered = threading.Condition()
        self._is_deaf = threading.Event()
        self._wire_tools: dict[str, Callable[[JSON], JSON | None]] = {
            "rubbish": self._rubbish,
            "garble": self._garble,
            "broken": self._broken,
            "neither": self._neither,
            "twice": self._twice,
            "ask": self._ask,
            "deaf": self._deaf,
            "hang_up": self._hang_up,
        }

    def serve(self) -> None:
        for line in sys.stdin.buffer:
            if self._is_deaf.is_set():
                threading.Event().wait(LIFETIME)
            if line.strip():
                self._on_message(json.loads(line))

    def _on_message(self, message: JSON) -> None:
        params: JSON = message.get("params") or {}
        if "method" not in message:
            with self._answered:
                self._answers[message["id"]] = message
                self._answered.notify_all()
        elif "id" not in message:
            if message["method"] == "notifications/cancelled":
                self._cancel(params["requestId"])
        elif message["method"] == "tools/call":
            self._running[message["id"]] = threading.Event()
            # Quick ones too: the answers may come in any order.
            threading.Thread(target=self._answer, args=(message, params), daemon=True).start()
        else:
            self._answer(message, params)

    def _cancel(self, request_id: str | int) -> None:
        if event := self._running.get(request_id):
            event.set()

    def _answer(self, message: JSON, params: JSON) -> None:
        request_id = message["id"]
        try:
            is_stateless = self._is_stateless(message["method"], params)
            result = self._result(message, params)
            if result is not None:
                finished = self._finished(result) if is_stateless else result
                self.send({"id": request_id, "result": finished})
        except RpcError as error:
            self.send({"id": request_id, "error": error.body})
        except Cancelled:
            pass
        finally:
            self._running.pop(request_id, None)

    def _is_stateless(self, method: str, params: JSON) -> bool:
        meta = cast(JSON, params.get("_meta") or {})
        if META + "protocolVersion" in meta:
            if self._era == "handshake" or meta[META + "protocolVersion"] != VERSION:
                raise RpcError(-32022, "Unsupported protocol version", {"supported": [VERSION]})
            if META + "clientCapabilities" not in meta:
                raise RpcError(INVALID_PARAMS, "`_meta` lacks the capabilities.")
            return True
        if self._era == "stateless":
            raise RpcError(INVALID_PARAMS, f"{method} lacks the version of the protocol.")
        return False

    def _finished(self, result: JSON) -> JSON:
        meta = {**result.get("_meta", {}), META + "serverInfo": self._actor.info}
        return {"resultType": "complete", **result, "_meta": meta}

    def _result(self, message: JSON, params: JSON) -> JSON | None:
        match message["method"]:
            case "initialize":
                asked = params["protocolVersion"]
                return {
                    "protocolVersion": asked if asked in HANDSHAKE_VERSIONS else "2025-06-18",
                    "capabilities": self._actor.capabilities,
                    "serverInfo": self._actor.info,
                }
            case "server/discover":
                return {
                    "supportedVersions": [VERSION],
                    "capabilities": self._actor.capabilities,
                    "ttlMs": 0,
                    "cacheScope": "private",
                }
            case "subscriptions/listen":
                self._listening.append(message["id"])
                tag = {"_meta": {META + "subscriptionId": message["id"]}}
                granted = {"notifications": {"toolsListChanged": True}} | tag
                self.notify("notifications/subscriptions/acknowledged", granted)
                return None
            case "ping":
                return {}
            case "tools/list":
                caching: JSON = {"ttlMs": 0, "cacheScope": "private"}
                listed = self._actor.listed(params.get("cursor"))
                return listed if self._era == "handshake" else listed | caching
            case "tools/call":
                return self._call(message["id"], params)
            case other:
                raise RpcError(METHOD_NOT_FOUND, f"Method not found: {other}")

    def _call(self, request_id: str | int, params: JSON) -> JSON | None:
        name, arguments = params["name"], cast(JSON, params.get("arguments") or {})
        if wire_tool := self._wire_tools.get(name):
            return wire_tool({"id": request_id, **arguments})
        token = cast(JSON, params.get("_meta") or {}).get("progressToken")

        def report(done: float, total: float | None, message: str | None) -> None:
            if token is not None:
                body = {"progressToken": token, "progress": done, "total": total}
                self.notify("notifications/progress", body | {"message": message})

        cancelled = self._running[request_id]
        return self._actor.call(Call(name, arguments, report, self._announce, cancelled))

    def _announce(self) -> None:
        if self._era != "stateless":
            self.notify("notifications/tools/list_changed", {})
        for listener in self._listening:
            tag = {"_meta": {META + "subscriptionId": listener}}
            self.notify("notifications/tools/list_changed", tag)

    def notify(self, method: str, params: JSON) -> None:
        self.send({"method": method, "params": params})

    def send(self, message: JSON) -> None:
        self.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def write(self, data: bytes) -> None:
        with self._lock:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()

    def _rubbish(self, _: JSON) -> JSON:
        for line in RUBBISH:
            self.write(line + b"\n")
        return said({"rubbish": len(RUBBISH)})

    def _garble(self, call: JSON) -> None:
        """Half an answer, and the end."""
        self.write(b'{"jsonrpc": "2.0", "id": %d, "result": {"content": [' % call["id"])
        os._exit(0)

    def _broken(self, call: JSON) -> None:
        """An answer that is no JSON, but for its beginning."""
        self.write(b'{"jsonrpc": "2.0", "id": %d, "result": {"content": [}\n' % call["id"])

    def _neither(self, call: JSON) -> None:
        self.send({"id": call["id"]})

    def _twice(self, call: JSON) -> JSON:
        self.send({"id": call["id"], "result": said({"answer": 1})})
        return said({"answer": 2})

    def _ask(self, call: JSON) -> JSON:
        """What the client answers to a request of ours."""
        asked = f"asked {call['method']}"
        self.send({"id": asked, "method": call["method"], "params": {}})
        with self._answered:
            self._answered.wait_for(lambda: asked in self._answers, LIFETIME)
        return said(self._answers[asked])

    def _deaf(self, call: JSON) -> JSON:
        """Reads one line more, and then none; with `mutters` it writes to stderr all the time."""
        self._is_deaf.set()
        if call.get("mutters"):
            threading.Thread(target=_mutter, daemon=True).start()
        return said({})

    def _hang_up(self, _: JSON) -> None:
        """Ends its output, and lives on."""
        with self._lock:
            nothing = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nothing, 1)


def _mutter() -> None:
    for _ in range(int(LIFETIME / POLL)):
        sys.stderr.write("still busy\n")
        sys.stderr.flush()
        threading.Event().wait(POLL)


RUBBISH = (
    b"Server is starting, please wait",
    b'"a text"',
    b"[1, 2, 3]",
    b"{}",
    b'{"jsonrpc": "2.0"}',
    b'{"jsonrpc": "2.0", "id": 999999, "result": {}}',
    b'{"jsonrpc": "2.0", "id": [], "result": {}}',
    b'{"jsonrpc": "2.0", "method": "notifications/unknown", "params": {"x": 1}}',
    b'{"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": {}}}',
    b'{"jsonrpc": "2.0", "method": "notifications/progress", "params": 7}',
    b'{"jsonrpc": "2.0", "method": 7}',
    b"{" * 200,
    b"[" * 100_000,
    b"\xff\xfe\x00",
    b"",
)


def ignore_the_end() -> None:
    if sys.platform != "win32":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--era", choices=["handshake", "stateless", "both"], default="both")
    parser.add_argument("--http", metavar="PORT_FILE", type=Path)
    parser.add_argument("--port", type=int, default=0, help="for HTTP, where it matters")
    parser.add_argument("--tools", metavar="FILE", type=Path, help="a JSON list of tools")
    parser.add_argument("--name", default="actor")
    parser.add_argument("--page-size", type=int)
    parser.add_argument("--greet-when", metavar="FILE", type=Path, help="reads nothing before")
    parser.add_argument("--silent", action="store_true", help="never answers")
    parser.add_argument("--stays", action="store_true", help="ignores that its input ends")
    parser.add_argument("--apart", action="store_true", help="in a process group of its own")
    parser.add_argument("--says", metavar="TEXT", help="on stderr, at the start")
    parser.add_argument("--prints", metavar="TEXT", help="on stdout, at the start")
    parser.add_argument("--ends", metavar="STATUS", type=int, help="at once")
    parser.add_argument("--starts", metavar="FILE", type=Path, help="gets a line at every start")
    options = parser.parse_args()
    if options.says is not None:
        sys.stderr.write(options.says + "\n")
    if options.prints is not None:
        sys.stdout.write(options.prints + "\n")
        sys.stdout.flush()
    if options.starts is not None:
        with options.starts.open("a", encoding="utf-8") as starts:
            starts.write(f"{os.getpid()}\n")
    if options.ends is not None:
        sys.exit(options.ends)
    if options.stays:
        ignore_the_end()
    if options.apart and sys.platform != "win32":
        os.setpgrp()
    actor = Actor(options.name, options.tools, options.page_size)
    if options.http is not None:
        from http_upstream_actors import serve_http

        serve_http(actor, options.era, options.http, options.port)
        return
    if options.silent:
        sys.stdin.buffer.read()
    while options.greet_when is not None and not options.greet_when.exists():
        threading.Event().wait(POLL)
    Wire(actor, options.era).serve()
    if options.stays:
        threading.Event().wait(LIFETIME)


if __name__ == "__main__":
    main()
