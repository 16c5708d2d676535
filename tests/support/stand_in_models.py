"""Stand-in for the language models of frameworks: serves scripted replies on loopback, in the formats of three APIs."""

import json
import threading
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast

QUOTE = "«the request»"  # a reply that repeats the whole request, so a test sees what the model was told

Reply = str | tuple[str, Mapping[str, Any]]  # what the model says, or a tool with its arguments


class StandIn:
    """Sends the replies in order. `requests` has the body of each request."""

    def __init__(self, url: str, replies: Iterable[Reply]) -> None:
        self.url = url
        self.replies = [*replies]
        self.requests: list[dict[str, Any]] = []

    @property
    def environment(self) -> dict[str, str]:
        """The variables that lead the clients of all APIs here."""
        keys = dict.fromkeys(("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GOOGLE_API_KEY"), "none")
        bases = {"ANTHROPIC_BASE_URL": self.url, "OPENAI_BASE_URL": self.url, "GOOGLE_GEMINI_BASE_URL": self.url}
        return keys | bases | {"OPENAI_AGENTS_DISABLE_TRACING": "1", "LANGSMITH_TRACING": "false"}

    def answer(self, path: str, request: dict[str, Any]) -> dict[str, Any]:
        self.requests.append(request)
        reply = self.replies.pop(0)
        if reply == QUOTE:
            reply = json.dumps(request, ensure_ascii=False)
        number = len(self.requests)
        if path.endswith("/messages"):
            return _describe_anthropic(reply, number)
        if path.endswith("/responses"):
            return _describe_openai(reply, number)
        return _describe_gemini(reply)


def _describe_anthropic(reply: Reply, number: int) -> dict[str, Any]:
    block = (
        {"type": "text", "text": reply}
        if isinstance(reply, str)
        else {"type": "tool_use", "id": f"toolu_{number}", "name": reply[0], "input": reply[1]}
    )
    return {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "model": "stand-in",
        "content": [block],
        "stop_reason": "end_turn" if isinstance(reply, str) else "tool_use",
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }


def _describe_openai(reply: Reply, number: int) -> dict[str, Any]:
    item: dict[str, Any] = {"id": f"item_{number}", "status": "completed"}
    if isinstance(reply, str):
        text: dict[str, Any] = {"type": "output_text", "text": reply, "annotations": []}
        item |= {"type": "message", "role": "assistant", "content": [text]}
    else:
        arguments = json.dumps(reply[1])
        item |= {"type": "function_call", "call_id": f"call_{number}", "name": reply[0], "arguments": arguments}
    return {
        "id": f"resp_{number}",
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "model": "stand-in",
        "output": [item],
        "parallel_tool_calls": False,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": 1,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": 1,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 2,
        },
    }


def _describe_gemini(reply: Reply) -> dict[str, Any]:
    part = {"text": reply} if isinstance(reply, str) else {"functionCall": {"name": reply[0], "args": reply[1]}}
    content = {"role": "model", "parts": [part]}
    return {"candidates": [{"content": content, "finishReason": "STOP", "index": 0}], "modelVersion": "stand-in"}


@contextmanager
def serve_replies(*replies: Reply) -> Generator[StandIn, None, None]:
    with _Server(("127.0.0.1", 0), _Handler) as server:
        server.model = StandIn(f"http://127.0.0.1:{server.server_port}", replies)
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
        """Log nothing."""

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))) or b"{}")
        path = self.path.partition("?")[0]
        data = json.dumps(cast(_Server, self.server).model.answer(path, request)).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
