"""Gateways as short as tests need them, and an upstream in memory."""

import inspect
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, cast

from everkept.core.mcp import JSON, UpstreamProgram, UpstreamSettings
from everkept.core.sessions import Report, Session, ToolCall
from everkept.errors import UpstreamUnavailable
from everkept.families.gateway.model import SINGLE_UPSTREAM, GatewayConfig, PassThrough, ToolConfig, UpstreamConfig

TEXT: JSON = {"type": "string"}


class Asked(NamedTuple):
    """A call as an upstream gets it."""

    tool: str
    arguments: JSON
    report: Report | None = None


Answer = Callable[[Asked], JSON | Awaitable[JSON]]


def said(text: str, **more: Any) -> JSON:
    """A result with one text."""
    return {"content": [{"type": "text", "text": text}], **more}


def echo(asked: Asked) -> JSON:
    """Its arguments, as text and as they are."""
    return said(json.dumps(asked.arguments), structuredContent=asked.arguments)


class MemoryUpstream:
    """Another server, without a wire: everything goes in and out as a copy, as over one."""

    def __init__(self, name: str, tools: list[JSON], answer: Answer = echo) -> None:
        self.asked: list[Asked] = []  # every call, in order
        self.listings = 0  # how often its tools were asked for
        self.is_started = False
        self._name = name
        self._tools = tools
        self._answer = answer
        self._listeners: list[Callable[[], None]] = []
        self._is_closed = False

    @property
    def name(self) -> str:
        return self._name

    def start(self) -> None:
        if not self.is_started:
            self.is_started = True
            self._tell()

    async def list_tools(self) -> list[JSON]:
        self._use()
        self.listings += 1
        return _copied(self._tools)

    async def call(self, tool: str, arguments: Mapping[str, Any], report: Report | None = None) -> JSON:
        self._use()
        asked = Asked(tool, _copied(dict(arguments)), report)
        self.asked.append(asked)
        answer = self._answer(asked)
        return _copied(cast(JSON, await answer if inspect.isawaitable(answer) else answer))

    def change_tools(self, tools: list[JSON]) -> None:
        self._tools = tools
        self._tell()

    def on_tools_changed(self, tell: Callable[[], None]) -> None:
        self._listeners.append(tell)

    async def close(self) -> None:
        self._is_closed = True

    def _use(self) -> None:
        if self._is_closed:
            raise UpstreamUnavailable(self._name, "is closed.")
        self.start()

    def _tell(self) -> None:
        for tell in self._listeners:
            tell()


def listing(name: str, properties: JSON | None = None, **more: Any) -> JSON:
    """A tool as a server lists it; `required` and other keywords of its schema go in there."""
    keywords = ("required", "additionalProperties", "$defs", "allOf", "anyOf", "oneOf")
    schema = {"type": "object", "properties": properties or {}}
    schema |= {key: more.pop(key) for key in keywords if key in more}
    return {"name": name, "description": f"Does {name}.", "inputSchema": schema, **more}


def tool_config(
    name: str = "memory__search",
    tool: str = "search",
    mapping: Mapping[str, str] | None = None,
    *,
    properties: JSON | None = None,
    required: list[str] | None = None,
    **more: Any,
) -> ToolConfig:
    """A tool with texts for parameters where nothing else is said; a dot goes one level down."""
    mapping = {"query": "query"} if mapping is None else mapping
    schema: JSON = {"type": "object", "properties": dict.fromkeys(mapping, TEXT) if properties is None else properties}
    if required:
        schema["required"] = required
    fields: JSON = {
        "name": name,
        "description": "Finds what was said.",
        "input_schema": schema,
        "upstream": SINGLE_UPSTREAM,
        "tool": tool,
        "mapping": {ours: tuple(path.split(".")) for ours, path in mapping.items()},
    }
    return ToolConfig(**(fields | more))


def upstream_config(name: str = SINGLE_UPSTREAM, through: PassThrough | None = None) -> UpstreamConfig:
    return UpstreamConfig(UpstreamSettings(name, UpstreamProgram("program")), through)


def gateway_config(*tools: ToolConfig, upstreams: Mapping[str, PassThrough | None] | None = None) -> GatewayConfig:
    """One upstream that passes nothing through, where none is named."""
    named = {SINGLE_UPSTREAM: None} if upstreams is None else upstreams
    configs = {name: upstream_config(name, through) for name, through in named.items()}
    return GatewayConfig(configs, tools)


def a_call(tool: str = "memory__search", report: Report | None = None) -> ToolCall:
    return ToolCall(Session(), tool) if report is None else ToolCall(Session(), tool, report)


def _copied(value: Any) -> Any:
    return json.loads(json.dumps(value))
