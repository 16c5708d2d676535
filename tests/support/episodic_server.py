"""Stands in for the server of episodic-memory: its two tools with its schemas.

It is strict as that one is: a parameter that it does not know is an error, and errors are
results, never those of the protocol. With `--heard FILE` it keeps every message that it was sent.
"""

import argparse
import json
import sys
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast

JSON = dict[str, Any]

_READS: JSON = {"readOnlyHint": True, "destructiveHint": False, "idempotentHint": True, "openWorldHint": False}
_DAY: JSON = {"type": "string", "pattern": r"^\d{4}-\d{2}-\d{2}$"}
_NAME: JSON = {"type": "string", "minLength": 1}
_CONCEPTS: JSON = {"type": "array", "items": {"type": "string", "minLength": 2}}
SEARCH: JSON = {
    "name": "search",
    "description": "Searches conversations by meaning, by text, or both.",
    "inputSchema": {
        "type": "object",
        "properties": {
            "query": {"oneOf": [{"type": "string", "minLength": 2}, _CONCEPTS | {"minItems": 2, "maxItems": 5}]},
            "mode": {"type": "string", "enum": ["vector", "text", "both"], "default": "both"},
            "limit": {"type": "number", "minimum": 1, "maximum": 50, "default": 10},
            "after": _DAY,
            "before": _DAY,
            "project": _NAME,
            "session_id": _NAME,
            "git_branch": _NAME,
            "response_format": {"type": "string", "enum": ["markdown", "json"], "default": "markdown"},
        },
        "required": ["query"],
        "additionalProperties": False,
    },
    "annotations": {"title": "Search conversations", **_READS},
}
READ: JSON = {
    "name": "read",
    "description": "Shows one conversation.",
    "inputSchema": {
        "type": "object",
        "properties": {
            "path": _NAME,
            "startLine": {"type": "number", "minimum": 1},
            "endLine": {"type": "number", "minimum": 1},
        },
        "required": ["path"],
        "additionalProperties": False,
    },
    "annotations": {"title": "Show a conversation", **_READS},
}
CONVERSATION = "/archive/shop/monday.jsonl"


class Refusal(Exception):
    """Becomes a result that is an error."""


def search(arguments: JSON) -> str:
    limit = arguments.get("limit", 10)
    if not isinstance(limit, int | float) or not 1 <= limit <= 50:
        raise Refusal("limit: must be from 1 to 50")
    if "harbour" not in arguments["query"]:
        return "No results found."
    if arguments.get("response_format") == "json":
        return json.dumps({"results": [], "count": 0, "mode": arguments.get("mode", "both")})
    return f"Found 1 relevant conversation (of {limit}):\n\n1. [shop, 2026-01-05] - 91% match"


def read(arguments: JSON) -> str:
    if arguments["path"] != CONVERSATION:
        raise Refusal(f"File not found: {arguments['path']}")
    return "# Conversation\n\n## Messages\n\n**User:** Where is the harbour?"


TOOLS: dict[str, tuple[JSON, Callable[[JSON], str]]] = {"search": (SEARCH, search), "read": (READ, read)}


def called(name: str, arguments: JSON) -> JSON:
    try:
        return {"content": [{"type": "text", "text": _said(name, arguments)}]}
    except Refusal as refusal:
        text = f"Error: {refusal}"
        return {"content": [{"type": "text", "text": text}], "isError": True}


def _said(name: str, arguments: JSON) -> str:
    if name not in TOOLS:
        raise Refusal(f"Unknown tool: {name}")
    described, tool = TOOLS[name]
    schema = cast(JSON, described["inputSchema"])
    for unknown in sorted(arguments.keys() - schema["properties"].keys()):
        raise Refusal(f"Unrecognized key: {unknown}")
    for missing in sorted(set(schema["required"]) - arguments.keys()):
        raise Refusal(f"{missing}: Required")
    return tool(arguments)


def answered(message: JSON) -> JSON:
    params = cast(JSON, message.get("params") or {})
    match message["method"]:
        case "initialize":
            return {
                "result": {
                    "protocolVersion": "2025-06-18",
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "episodic-memory", "version": "1.4.0"},
                }
            }
        case "tools/list":
            return {"result": {"tools": [described for described, _ in TOOLS.values()]}}
        case "tools/call":
            return {"result": called(params["name"], params.get("arguments") or {})}
        case "ping":
            return {"result": {}}
        case method:
            return {"error": {"code": -32601, "message": f"Method not found: {method}"}}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    heard: Path

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: what matters is what was heard."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with self.heard.open("ab") as heard:
            heard.write(self.headers.as_bytes() + body + b"\n")
        message = cast(JSON, json.loads(body))
        if "id" not in message:
            self._send(202, b"")
            return
        answer = {"jsonrpc": "2.0", "id": message["id"], **answered(message)}
        self._send(200, json.dumps(answer).encode())

    def do_GET(self) -> None:
        self._send(405, b"")

    do_DELETE = do_GET

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def listen(heard: str) -> None:
    """Says on which port it serves HTTP; what it hears is kept with the headers."""
    _Handler.heard = Path(heard)
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        sys.stdout.write(f"{server.server_port}\n")
        sys.stdout.flush()
        server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--heard", metavar="FILE", type=Path)
    options, _ = parser.parse_known_args()
    for line in sys.stdin.buffer:
        if options.heard is not None:
            with options.heard.open("ab") as heard:
                heard.write(line)
        message = cast(JSON, json.loads(line))
        if "method" in message and "id" in message:
            answer = {"jsonrpc": "2.0", "id": message["id"], **answered(message)}
            sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n")
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
