"""Messages, answers and typed texts of others: how each is read, a valid sample, and the errors that may come."""

import asyncio
import base64
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from everkept.app.app import App
from everkept.cli.gateway_call import parse_arguments
from everkept.core.answers import decode_cursor
from everkept.core.peers import Peer
from everkept.core.secrets import find_secrets, mask_text
from everkept.core.sessions import Session
from everkept.core.times import parse_time
from everkept.errors import EverkeptError
from everkept.families.gateway.draft import draft_file, read_ready_file
from everkept.families.gateway.file_reader import parse_file
from everkept.families.gateway.schema_check import find_mistake
from everkept.families.gateway.schema_facts import SchemaRoot, SchemaTooComplex
from everkept.families.gateway.toolset import to_result
from everkept.hooks.events import build_event, parse_input
from everkept.hooks.prompts import parse_prompt
from everkept.hooks.shell_commands import condense_command, extract_error_lines, find_outcome, find_purpose
from everkept.language.words import parse_query, to_fts5
from everkept.peers.client import InvalidAnswer, parse_answer, parse_program
from everkept.peers.peer_file import PeerFile
from everkept.retrieval.dates import find_spans
from everkept.retrieval.intent import analyze_question
from everkept.transports.dispatch import Dispatcher
from everkept.transports.http import McpEndpoint
from everkept.transports.http_exchange import Message, Receive, Send
from everkept.transports.stdio import serve_stdio
from everkept.upstreams.link import LinkEnded, NotSent, UnreadableJson, get_result, parse_message
from http_upstreams import Received, in_handshake_era, linked, raw_server
from loopback_http import loopback_http
from parser_bench import DEEP, Bench, Parser, decode, encode, in_text

GATEWAY_FILE = Path(__file__).parents[1] / "families" / "gateway" / "simple.json"

# Messages of clients.


def _request(number: object, method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


def _tool(number: object, name: str, **arguments: Any) -> dict[str, Any]:
    return _request(number, "tools/call", name=name, arguments=arguments, _meta={"progressToken": 1})


_HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
MESSAGES = (
    _request(1, "initialize", **_HELLO),
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
    _request(2, "tools/list"),
    _tool(3, "store_memory", content="Ada prefers tea", type="semantic", tags=["drinks"], importance=0.5),
    _tool(4, "recall_memories", query="which drink?", limit=3, explain=True),
    _tool("five", "create_entities", entities=[{"name": "Tea", "entity_type": "drink", "observations": ["hot"]}]),
    _tool(6, "search_nodes", query='"tea" OR (ada -x)', limit=2),
    _request(7, "resources/read", uri="everkept://status"),
    [_request(8, "prompts/list"), {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 4}}],
    _tool(9, "recall_memories", query="tea", created_after="2026-01-01", cursor="W10="),
)
LAST = encode(_request("last", "ping"))


def read_stdio(bench: Bench, data: bytes) -> None:
    """Whatever comes before it, a ping is answered, and no answer is an internal error."""
    answers = bench.run(ask_stdio(bench.app, data[:40_000] + b"\n" + LAST))
    assert any(answer["id"] == "last" for answer in answers if "id" in answer)
    assert "nternal" not in json.dumps([answer for answer in answers if "error" in answer]), answers
    assert "internal_error" not in json.dumps(answers)


async def ask_stdio(app: App, data: bytes) -> list[dict[str, Any]]:
    """Return what a server over stdio writes."""
    (read, sent), (answered, written) = os.pipe(), os.pipe()
    received = bytearray()
    loop = asyncio.get_running_loop()
    os.write(sent, data)
    os.close(sent)
    loop.add_reader(answered, lambda: received.extend(os.read(answered, 1 << 16)))
    try:
        await serve_stdio(Dispatcher(app), read, written)
        os.set_blocking(answered, False)
        while chunk := _read_rest(answered):
            received.extend(chunk)
    finally:
        loop.remove_reader(answered)
        for end in (read, answered, written):
            os.close(end)
    return [json.loads(line) for line in received.splitlines()]


def _read_rest(answered: int) -> bytes:
    try:
        return os.read(answered, 1 << 16)
    except BlockingIOError:
        return b""


def _post(body: bytes, *more: str, method: str = "POST", path: str = "/mcp") -> bytes:
    headers = (f"{method} {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json", *more)
    lengths = f"Content-Length: {len(body)}", "Accept: application/json, text/event-stream"
    return "\r\n".join((*headers, *lengths, "", "")).encode() + body


_MODERN = "MCP-Protocol-Version: 2026-07-28"
_META = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
REQUESTS = (
    _post(encode(MESSAGES[0])),
    _post(encode(MESSAGES[3]), "Mcp-Session-Id: 0123456789abcdef", "MCP-Protocol-Version: 2025-11-25"),
    _post(
        encode(_request(1, "tools/call", name="search_nodes", arguments={"query": "tea"}, _meta=_META)),
        *(_MODERN, "Mcp-Method: tools/call", "Mcp-Name: search_nodes"),
    ),
    _post(encode(_request(1, "server/discover", _meta=_META)), _MODERN, "Mcp-Method: server/discover"),
    _post(b"", "Last-Event-ID: 1-2", "Mcp-Session-Id: x", method="GET"),
    _post(b"", "Mcp-Session-Id: x", method="DELETE") + _post(encode(MESSAGES[2])),
    b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n2;a=b\r\n{}\r\n0\r\n\r\n",
)


def read_http(bench: Bench, data: bytes) -> None:
    bench.run(_send_http(bench, data))


async def _send_http(bench: Bench, data: bytes) -> None:
    """No request is a fault of ours: not in the listener, and not in the endpoint."""
    faults: list[object] = []
    endpoint = McpEndpoint(Dispatcher(bench.app), "/mcp")

    async def watched(scope: Message, receive: Receive, send: Send) -> None:
        async def note(message: Message) -> None:
            if message.get("status", 200) >= 500:
                faults.append(message)
            await send(message)

        try:
            await endpoint(scope, receive, note)
        except Exception as error:  # noqa: BLE001 - each is a fault
            faults.append(error)

    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: faults.append(context))
    async with loopback_http(watched, idle_seconds=0.2) as server, server.connect() as client:
        client.send(data)
        if client.writer.can_write_eof():
            client.writer.write_eof()
        await client.wait_closed()
    endpoint.close()
    loop.set_exception_handler(None)
    assert not faults


# Other servers.


def read_gateway_file(_: Bench, data: bytes) -> None:
    found = parse_file(decode(data), Path("/etc/gateway").absolute())
    assert found.config is not None or found.problems
    for problem in found.problems:
        str(problem).encode()


def read_tool_list(_: Bench, data: bytes) -> None:
    """Tools and answers of a server behind the gateway."""
    message = parse_message(data)
    if not isinstance(message, dict):
        return
    with suppress(EverkeptError):  # a fault of the server, in its words
        get_result({"error": message.get("result"), "id": 1}, "notes")
    result: Any = get_result(message, "notes")
    tools = result.get("tools")
    draft_file({"command": "x"}, tools if isinstance(tools, list) else [])
    for tool in tools if isinstance(tools, list) else []:
        schema = tool.get("inputSchema") if isinstance(tool, dict) else None
        if isinstance(schema, dict):
            with suppress(SchemaTooComplex):
                find_mistake({"query": "a", "limit": [1], "deep": {"x": {}}}, schema, SchemaRoot(schema))
    to_result(result, "notes", "search")


def read_event_stream(bench: Bench, data: bytes) -> None:
    bench.run(_ask_streaming_server(data))


async def _ask_streaming_server(data: bytes) -> None:
    """Whatever a server streams, the caller gets an answer or a named error, and nothing fails besides the call."""
    faults: list[object] = []

    async def answer(_: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n" + data)
        await writer.drain()
        writer.close()

    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: faults.append(context))
    try:
        async with raw_server(in_handshake_era(answer)) as (url, _), linked(url) as link:
            async with asyncio.timeout(STREAM_SECONDS):
                await link.request("tools/list", {})
    finally:
        loop.set_exception_handler(None)
    assert not faults


_SCHEMA = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "minLength": 1, "maxLength": 9, "pattern": "^a+$", "enum": ["a", 1]},
        "limit": {"type": ["integer", "array"], "items": {"$ref": "#/$defs/n"}, "maxItems": 2},
        "deep": {"anyOf": [{"type": "object", "additionalProperties": False}, {"$ref": "#"}], "default": {}},
    },
    "required": ["query"],
    "$defs": {"n": {"type": "number", "minimum": 0, "exclusiveMaximum": 5, "multipleOf": 0.5}},
}
_TOOLS = {
    "tools": [{"name": "search", "description": "Finds", "inputSchema": _SCHEMA, "annotations": {"readOnlyHint": True}}]
}
_CONTENT = {
    "content": [
        {"type": "text", "text": "found"},
        {"type": "image", "data": "aGk=", "mimeType": "image/png"},
        {"type": "resource", "resource": {"uri": "file:///a", "text": "x", "mimeType": "text/plain"}},
        {"type": "resource_link", "uri": "file:///a", "name": "a"},
    ],
    "structuredContent": {"a": 1},
    "isError": False,
    "_meta": {},
}
STREAM_SECONDS = 0.3  # a server may ask for a pause before the stream goes on
_EVENTS = (
    b'event: message\ndata: {"jsonrpc": "2.0", "id": 2, "result": {"tools": []}}\n\n',
    b': ping\nretry: 100\n\ndata: {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progress": 1}}\n\n'
    b'data: {"jsonrpc": "2.0", "id": "a",\ndata: "method": "roots/list"}\r\n\r\n'
    b'data: {"jsonrpc": "2.0", "id": 2, "result": {"tools": [], "nextCursor": "a"}}\n\n',
)
_PEER = Peer("anna", "host", 443, "0" * 64, "token")
_FINDING = {"id": "t1", "type": "conversation", "content": "tea", "score": 0.8, "title": None, "project": "shop"}
_PEER_ANSWER = encode({"version": 1, "results": [_FINDING | {"at": "2026-02-01T10:00:00Z"}], "warnings": ["slow"]})
_PEER_ROW = {"address": "https://host:443", "token": "t", "fingerprint": f"sha256:{'0' * 64}", "time_limit": 2.5}
SERVERS: Mapping[str, Parser] = {
    "gateway's file": Parser(
        read_gateway_file, (GATEWAY_FILE.read_bytes(), read_ready_file("server-memory", Path("data")).encode())
    ),
    "answers of servers": Parser(
        read_tool_list,
        (
            encode({"jsonrpc": "2.0", "id": 1, "result": _TOOLS}),
            encode({"jsonrpc": "2.0", "id": 1, "result": _CONTENT}),
        ),
        (UnreadableJson, EverkeptError),
    ),
    "events of servers": Parser(
        read_event_stream, _EVENTS, (EverkeptError, LinkEnded, NotSent, TimeoutError), (b"data: " + DEEP + b"\n\n",)
    ),
    "answers of peers": Parser(lambda _, data: parse_answer(_PEER, data, 20), (_PEER_ANSWER,), (InvalidAnswer,)),
    "programs of peers": Parser(
        lambda _, data: parse_program(data), (encode({"name": "everkept", "version": "1"}),), (InvalidAnswer,)
    ),
    "list of peers": Parser(
        lambda bench, data: PeerFile(bench.write(data, "peers.json").parent).read_peers(),
        (encode({"version": 1, "peers": {"anna": _PEER_ROW}}),),
        (EverkeptError,),
    ),
}


# What people type, and what an assistant reports.


def read_secrets(_: Bench, data: bytes) -> None:
    text = decode(data)
    ends = 0
    for start, end, kind in find_secrets(text):
        assert ends <= start < end <= len(text)
        assert kind
        ends = end
    mask_text(text)


def read_query(bench: Bench, data: bytes) -> None:
    text = decode(data)[:2_000]
    query = parse_query(text)
    for words in (query.build_all_query(), query.build_any_query()):
        if words is not None:
            to_fts5(words)
    analyze_question(text)
    find_spans(text, 1_772_445_600_000_000)
    bench.run(bench.app.call(Session(), "search_nodes", {"query": text, "limit": 2}))


def read_hook(_: Bench, data: bytes) -> None:
    event = build_event("PostToolUse", parse_input(data))
    parse_prompt(event.prompt)
    command = event.tool_input.get("command")
    if isinstance(command, str):
        condense_command(command)
        find_outcome(event, find_purpose(command))
    extract_error_lines(event.error)


def read_command(_: Bench, data: bytes) -> None:
    text = decode(data)
    condense_command(text)
    find_purpose(text)
    parse_prompt(text)


_HOOK = {
    "session_id": "s",
    "cwd": "/work",
    "transcript_path": "/t.jsonl",
    "hook_event_name": "PostToolUse",
    "prompt": "Do you remember how we fixed the login error last week?",
    "tool_name": "Bash",
    "tool_input": {"command": "cd /work && npm run build 2>&1 | tail -3", "file_path": "/a.py"},
    "tool_response": {"stdout": "ok", "stderr": "Error: no", "exit_code": 1, "interrupted": False},
    "error": "TypeError: x is not a function\n  at a.js:1",
    "is_interrupt": False,
}
_SECRETS = (
    b"export API_KEY=aB3dE6gH9jK2mN5pQ8rS1tU4 # and password: hunter2X!\n",
    b"postgres://ada:s3cr3tPass@db/x?sslmode=on curl -u ada:pw9Xy https://h -H 'Authorization: Bearer abc.def.ghi'\n",
    b'{"client_secret": "x9Y8z7W6v5U4t3S2", "webhook": "https://hooks.slack.com/services/T0/B0/abcdefghijkl"}\n',
)
_QUERIES = (
    b'"exact phrase" OR (tea AND -coffee) na*',
    b"what did we decide about src/app.py and get_user() last week, since 2026-01-02?",
    "wie haben wir im März die Größe der Überschrift geändert? 数据库".encode(),
)
_CURSOR = b"WyJhIiwgMSwgMi41XQ=="
TYPED: Mapping[str, Parser] = {
    "secrets": Parser(read_secrets, _SECRETS),
    "query": Parser(read_query, _QUERIES, (EverkeptError,), (b"on 9999-12-31",)),
    "input of a hook": Parser(read_hook, (encode(_HOOK),), (EverkeptError,)),
    "command": Parser(read_command, (b"cd /a && X=1 git -C b commit -m 'c d' | tee \"e\" > f; npm test || true",)),
    "cursor": Parser(in_text(lambda text: decode_cursor(text, str, int, float)), (_CURSOR,), (EverkeptError,)),
    "cursor's content": Parser(
        lambda _, data: decode_cursor(base64.urlsafe_b64encode(data).decode(), str, int),
        (b'["a", 1]',),
        (EverkeptError,),
        (DEEP,),
    ),
    "time": Parser(in_text(parse_time), (b"2026-03-01T10:00:00.123456+02:00", b"2026-03-01"), (ValueError,)),
    "arguments": Parser(
        in_text(lambda text: parse_arguments(text.replace("-", "_").split(), _SCHEMA)),
        (b'query=a limit=3 deep={"x":1}', b'{"query":"a"}'),
        (EverkeptError,),
    ),
}

CLIENTS: Mapping[str, Parser] = {
    "message over stdio": Parser(read_stdio, (encode(*MESSAGES), *(encode(each) for each in MESSAGES))),
    "request over HTTP": Parser(read_http, REQUESTS),
}
FOREIGN_MESSAGES: Mapping[str, Parser] = {**CLIENTS, **SERVERS, **TYPED}
