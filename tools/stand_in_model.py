"""Stand-in for the language model of an assistant: serves scripted replies on loopback.

It speaks three interfaces: Anthropic's messages, OpenAI's responses and Gemini's content.
"""

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
PATCH_TOOL = "apply_patch"  # takes a text instead of arguments
ENOUGH_TOOLS = 4  # a request with fewer is one of the assistant's asides, such as for a title


@dataclass
class StandIn:
    """Sends `replies` in order, then `Done.` `asked` has the requests, except for asides."""

    url: str
    replies: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    asked: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    def next_reply(self, request: dict[str, Any]) -> dict[str, Any]:
        if _count_tools(request) < ENOUGH_TOOLS:
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
        request = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))) or b"{}")
        path, _, query = self.path.partition("?")
        is_streamed = bool(request.get("stream")) or "alt=sse" in query
        if path.endswith("/messages"):
            message = _message(request.get("model", ""), self._next_reply(request))
            events = _list_message_events(message) if is_streamed else [message]
        elif path.endswith("/responses"):
            events = _list_response_events(self._next_reply(request))
        elif path.endswith("enerateContent"):
            events = [_content(self._next_reply(request))]
        else:
            is_streamed, events = False, [{"input_tokens": 1, "totalTokens": 1}]
        if is_streamed:
            named = ((f"event: {event['type']}\n" if "type" in event else "", event) for event in events)
            self._send("text/event-stream", "".join(f"{name}data: {json.dumps(event)}\n\n" for name, event in named))
        else:
            self._send("application/json", json.dumps(events[0]))

    def _next_reply(self, request: dict[str, Any]) -> dict[str, Any]:
        return cast(_Server, self.server).model.next_reply(request)

    def _send(self, kind: str, body: str) -> None:
        data = body.encode()
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def _count_tools(request: dict[str, Any]) -> int:
    """Return how many tools the model may call. Gemini CLI lists them inside of one."""
    return sum(len(tool.get("functionDeclarations", [tool])) for tool in request.get("tools", ()))


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


def _list_message_events(message: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the events of a streamed message: empty at first, then filled."""
    (block,) = message["content"]
    if block["type"] == "text":
        begun = block | {"text": ""}
        delta = {"type": "text_delta", "text": block["text"]}
    else:
        begun = block | {"input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
    ending = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    return [
        {"type": "message_start", "message": message | {"content": [], "stop_reason": None}},
        {"type": "content_block_start", "index": 0, "content_block": begun},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": ending, "usage": message["usage"]},
        {"type": "message_stop"},
    ]


def _list_response_events(block: dict[str, Any]) -> list[dict[str, Any]]:
    response = {"id": "resp_stand_in", "object": "response"}
    usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    return [
        {"type": "response.created", "response": response},
        {"type": "response.output_item.done", "output_index": 0, "item": _build_item(block)},
        {"type": "response.completed", "response": response | {"status": "completed", "usage": usage}},
    ]


def _build_item(block: dict[str, Any]) -> dict[str, Any]:
    if block["type"] == "text":
        said = {"type": "output_text", "text": block["text"]}
        return {"type": "message", "id": "msg_stand_in", "role": "assistant", "content": [said]}
    namespace, _, name = block["name"].rpartition("/")
    item = {"id": f"item_{block['id']}", "call_id": block["id"], "name": name}
    if name == PATCH_TOOL:
        return item | {"type": "custom_tool_call", "input": block["input"]["patch"]}
    item |= {"type": "function_call", "arguments": json.dumps(block["input"])}
    return item | {"namespace": namespace} if namespace else item  # a server's tools share a namespace


def _content(block: dict[str, Any]) -> dict[str, Any]:
    """Return one chunk of Gemini's content, which is a whole answer."""
    is_text = block["type"] == "text"
    part = {"text": block["text"]} if is_text else {"functionCall": {"name": block["name"], "args": block["input"]}}
    usage = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
    candidate = {"index": 0, "content": {"role": "model", "parts": [part]}, "finishReason": "STOP"}
    return {"candidates": [candidate], "usageMetadata": usage}
