"""Stand-in for the language model of an assistant: serves scripted replies on loopback."""

from __future__ import annotations

import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any, cast

_numbers = count(1)
ENOUGH_TOOLS = 4  # a request with fewer is one of the assistant's asides, such as for a title


@dataclass
class StandIn:
    """Sends `replies` in order, then `Done.` `asked` has the text of each request."""

    url: str
    replies: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    asked: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    def next_reply(self, request: dict[str, Any]) -> dict[str, Any]:
        if len(request.get("tools", ())) < ENOUGH_TOOLS:
            return text("Done.")
        self.asked.append(request)
        return self.replies.pop(0) if self.replies else text("Done.")


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


def call(tool: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": f"toolu_{next(_numbers)}", "name": tool, "input": arguments}


@contextmanager
def stand_in_model() -> Generator[StandIn, None, None]:
    with _Server(("127.0.0.1", 0), _Handler) as server:
        server.model = StandIn(f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever, args=[0.05])
        thread.start()
        try:
            yield server.model
        finally:
            server.shutdown()
            thread.join()


class _Server(ThreadingHTTPServer):
    model: StandIn


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing, because errors appear in the assistant's output."""

    def do_GET(self) -> None:
        self._send("application/json", "{}")

    def do_POST(self) -> None:
        told = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))) or b"{}")
        if not self.path.partition("?")[0].endswith("/messages"):
            self._send("application/json", '{"input_tokens": 1}')
            return
        message = _message(told.get("model", ""), cast(_Server, self.server).model.next_reply(told))
        if told.get("stream"):
            events = "".join(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in _events(message))
            self._send("text/event-stream", events)
        else:
            self._send("application/json", json.dumps(message))

    def _send(self, kind: str, body: str) -> None:
        data = body.encode()
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def _message(model: str, block: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": "msg_stand_in",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [block],
        "stop_reason": "tool_use" if block["type"] == "tool_use" else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }


def _events(message: dict[str, Any]) -> Generator[dict[str, Any], None, None]:
    """Yield the events of a streamed message: empty at first, then filled."""
    (block,) = message["content"]
    if block["type"] == "text":
        begun = block | {"text": ""}
        delta = {"type": "text_delta", "text": block["text"]}
    else:
        begun = block | {"input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
    yield {"type": "message_start", "message": message | {"content": [], "stop_reason": None}}
    yield {"type": "content_block_start", "index": 0, "content_block": begun}
    yield {"type": "content_block_delta", "index": 0, "delta": delta}
    yield {"type": "content_block_stop", "index": 0}
    ending = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    yield {"type": "message_delta", "delta": ending, "usage": message["usage"]}
    yield {"type": "message_stop"}
