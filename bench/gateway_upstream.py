"""A server that costs next to nothing, to stand behind the gateway while that is measured.

python bench/gateway_upstream.py           speaks on standard input and output
python bench/gateway_upstream.py --http    listens on a free port, and says on which

Its one tool answers with a text of the size that it is asked for.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

JSON = dict[str, Any]

TOOL: JSON = {
    "name": "text",
    "description": "A text of so many bytes",
    "inputSchema": {
        "type": "object",
        "properties": {"size": {"type": "integer", "description": "In bytes"}},
        "required": ["size"],
    },
}
GREETING: JSON = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "bench", "version": "1"},
}


def answered(message: JSON) -> JSON | None:
    """None for a message that wants no answer."""
    if "id" not in message or "method" not in message:
        return None
    answer: JSON = {"jsonrpc": "2.0", "id": message["id"]}
    match message["method"]:
        case "initialize":
            return answer | {"result": GREETING}
        case "tools/list":
            return answer | {"result": {"tools": [TOOL]}}
        case "tools/call":
            text = "x" * message["params"]["arguments"]["size"]
            return answer | {"result": {"content": [{"type": "text", "text": text}]}}
        case "ping":
            return answer | {"result": {}}
        case method:
            return answer | {"error": {"code": -32601, "message": f"Method not found: {method}"}}


def serve_stdio() -> None:
    for line in sys.stdin.buffer:
        answer = answered(json.loads(line))
        if answer is not None:
            sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n")
            sys.stdout.buffer.flush()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # the head and the body in one packet

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the clock is running."""

    def do_GET(self) -> None:
        self._send(405, b"")

    do_DELETE = do_GET

    def do_POST(self) -> None:
        told = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
        answer = answered(told)
        if answer is None:
            self._send(202, b"")
        else:
            self._send(200, json.dumps(answer).encode())

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()


class Server(ThreadingHTTPServer):
    request_queue_size = 64  # connections that wait while the machine is busy


def serve_http() -> None:
    with Server(("127.0.0.1", 0), Handler) as server:
        sys.stdout.write(f"http://127.0.0.1:{server.server_port}/mcp\n")
        sys.stdout.flush()
        server.serve_forever()


if __name__ == "__main__":
    if "--http" in sys.argv[1:]:
        serve_http()
    else:
        serve_stdio()
