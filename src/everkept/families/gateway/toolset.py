"""The tools of a gateway, mapped or passed through, and the call to the server behind each."""

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from typing import Any, cast
from weakref import WeakMethod

from everkept.core.mcp import Upstream
from everkept.core.sessions import ToolCall
from everkept.core.text import clip_text, format_count
from everkept.errors import MAX_LISTED, EverkeptError, InvalidInput, UpstreamError, escape_name
from everkept.families.gateway.model import (
    JSON,
    PREFIX_SEPARATOR,
    GatewayConfig,
    PassedTool,
    ToolConfig,
    find_fault,
    find_likeliest,
    find_passed,
    resolve_name,
    select_named,
)
from everkept.families.gateway.schema_check import ALTERNATIVE_KEYWORDS, FALSE_SCHEMA, SchemaMistake, find_mistake
from everkept.families.gateway.schema_facts import (
    SchemaRoot,
    SchemaTooComplex,
    StepBudget,
    as_object,
    find_kinds,
    format_kinds,
    get_kind,
)
from everkept.tools.tool import Effect, Run, Tool, ToolResult


class UpstreamToolName:
    """Name of a tool at the server. Only a name that may have a prefix is looked up in the server's list.

    The answer is kept until it may have changed: the server reported changed tools, was connected again, or failed a
    call.
    """

    def __init__(self, wanted: str, upstream: Upstream) -> None:
        self._wanted = wanted
        self._upstream = upstream
        self._found: str | None = None
        self._doubts = 0
        if PREFIX_SEPARATOR not in wanted:
            self._found = wanted
        else:
            # The upstream may outlive the file with this name.
            doubt = WeakMethod(self.invalidate)
            upstream.on_tools_changed(lambda: (doubt() or (lambda: None))())

    async def resolve(self) -> str:
        """Return the server's name of the tool. Raise UpstreamError if there is none."""
        if self._found is not None:
            return self._found
        doubts = self._doubts
        found = await self._look_up()
        if doubts == self._doubts:  # otherwise the list may already be outdated
            self._found = found
        return found

    def invalidate(self) -> None:
        if PREFIX_SEPARATOR in self._wanted:
            self._found = None
            self._doubts += 1

    async def _look_up(self) -> str:
        known = [tool["name"] for tool in select_named(await self._upstream.list_tools())]
        found = resolve_name(self._wanted, set(known))
        if found is None:
            listed = ", ".join(clip_text(escape_name(name)) for name in known[:MAX_LISTED]) or "none"
            more = f" and {len(known) - MAX_LISTED} more" if len(known) > MAX_LISTED else ""
            raise UpstreamError(
                f'{self._upstream.name} has no tool "{self._wanted}"; it has: {listed}{more}. '
                "To see what has changed, run `everkept gateway check`.",
                upstream=self._upstream.name,
            )
        return found


ArgumentPath = tuple[str, ...]


def map_arguments(tool: ToolConfig, arguments: Mapping[str, Any]) -> JSON:
    """Build the server's arguments: mapped parameters, defaults of omitted ones, constants, and the rest if the file
    maps it.

    The reader refuses paths that conflict, so no value replaces another.
    """
    sent: JSON = {}
    for parameter, path in tool.mapping.items():
        if parameter in arguments:
            _set_value(sent, path, arguments[parameter])
        elif parameter in tool.defaults:
            _set_value(sent, path, deepcopy(tool.defaults[parameter]))
    for path, value in tool.constants.items():
        _set_value(sent, path, deepcopy(value))
    if tool.rest is not None:
        _ensure_object(sent, tool.rest).update(_select_others(tool, tool.rest, arguments))
    return sent


def _set_value(sent: JSON, path: ArgumentPath, value: Any) -> None:
    _ensure_object(sent, path[:-1])[path[-1]] = value


def _ensure_object(sent: JSON, path: ArgumentPath) -> JSON:
    """Return the object at this path; create it if it is missing."""
    for key in path:
        sent = cast(JSON, sent.setdefault(key, {}))
    return sent


def _select_others(tool: ToolConfig, rest: ArgumentPath, arguments: Mapping[str, Any]) -> JSON:
    """Return the arguments without an entry. Raise InvalidInput if one would replace another value."""
    others = {name: value for name, value in arguments.items() if name not in tool.mapping}
    constant = dict.fromkeys(tool.constants)
    sources = {path: parameter for parameter, path in tool.mapping.items()} | constant
    for path, source in sources.items():
        if path[: len(rest)] == rest and (name := path[len(rest)]) in others:
            raise InvalidInput(
                f"`{clip_text(name)}` is not allowed: the gateway's file sets that value itself.",
                hint="Remove it." if source is None else f"Pass `{source}` instead.",
                argument=name,
            )
    return others


MAX_CALL_STEPS = 50_000  # in one call, because no other is answered in that time


def check_arguments(given: Mapping[str, Any], schema: JSON) -> None:
    """Raise InvalidInput for a value that breaks the schema. The server decides about anything slow to check."""
    root = SchemaRoot(schema, StepBudget(MAX_CALL_STEPS))
    try:
        mistake = find_mistake(dict(given), schema, root)
        refusal = None if mistake is None else _build_refusal(mistake, root)
    except (SchemaTooComplex, RecursionError):  # RecursionError if the value cannot even be shown
        return
    if refusal is not None:
        raise refusal


def _build_refusal(mistake: SchemaMistake, root: SchemaRoot) -> InvalidInput:
    path, keyword = _format_path(mistake.path), mistake.keyword
    value, wanted = mistake.value, mistake.wanted
    if keyword == "required":
        name = _format_path([path, wanted])
        return InvalidInput(f"Argument `{name}` is required.", hint="Pass a value for it.", argument=name)
    if keyword == "additionalProperties":
        return _build_unknown_error(_format_path([path, wanted]), wanted, mistake.schema)
    subject, shown, hint = f"`{path}`" if path else "The call", _format_value(value), None
    if keyword in ("enum", "const"):
        allowed: list[Any] = wanted if keyword == "enum" else [wanted]
        sentence = f"{subject} is {shown}; it must be one of {_format_values(allowed)}."
    elif keyword == FALSE_SCHEMA:
        sentence, hint = f"{subject} is not allowed.", "Remove it."
    elif keyword in _LIMIT_MESSAGES:
        sentence = f"{subject} {_LIMIT_MESSAGES[keyword](value, wanted)}"
    elif keyword in ALTERNATIVE_KEYWORDS and get_kind(value) in find_kinds(mistake.schema, root):
        sentence = f"{subject} must match one of its alternatives{_format_reasons(wanted, root)}."
    else:
        sentence = f"{subject} must be {format_kinds(find_kinds(mistake.schema, root))}, not {shown}."
    return InvalidInput(sentence, hint=hint, argument=path, value=shown)


def _format_reasons(mistakes: list[SchemaMistake], root: SchemaRoot) -> str:
    """Format the mistakes in each alternative, at most MAX_LISTED."""
    told = [each for each in mistakes if each.keyword not in ALTERNATIVE_KEYWORDS][:MAX_LISTED]
    found = dict.fromkeys(_build_refusal(each, root).message.rstrip(".") for each in told)
    return f": {'; or '.join(found)}" if found else ""


def _build_unknown_error(path: str, name: str, schema: JSON) -> InvalidInput:
    known = list(as_object(schema.get("properties")))
    close = find_likeliest(name, known)
    listed = clip_text(", ".join(known[:MAX_LISTED]), 500) or "none"
    hint = f"Did you mean `{close}`?" if close else f"Known: {listed}."
    return InvalidInput(f"Unknown argument `{clip_text(path)}`.", hint=hint, argument=clip_text(path))


def _format_values(allowed: list[Any]) -> str:
    more = f" and {len(allowed) - MAX_LISTED} more" if len(allowed) > MAX_LISTED else ""
    return ", ".join(map(_format_value, allowed[:MAX_LISTED])) + more


def _make_value_message(limit: str) -> Callable[[Any, Any], str]:
    return lambda value, wanted: f"is {_format_value(value)}; it must be {limit} {_format_value(wanted)}."


def _make_size_message(limit: str, one: str) -> Callable[[Any, Any], str]:
    return lambda value, wanted: f"has {format_count(len(value), one)}; it must have {limit} {wanted:,}."


_LIMIT_MESSAGES: Mapping[str, Callable[[Any, Any], str]] = {
    "minimum": _make_value_message("at least"),
    "maximum": _make_value_message("at most"),
    "exclusiveMinimum": _make_value_message("more than"),
    "exclusiveMaximum": _make_value_message("less than"),
    "multipleOf": _make_value_message("a multiple of"),
    "minLength": _make_size_message("at least", "character"),
    "maxLength": _make_size_message("at most", "character"),
    "minItems": _make_size_message("at least", "item"),
    "maxItems": _make_size_message("at most", "item"),
    "minProperties": _make_size_message("at least", "key"),
    "maxProperties": _make_size_message("at most", "key"),
    "uniqueItems": lambda _value, _wanted: "has a duplicate item; its items must be unique.",
}


def _format_path(steps: Iterable[str | int]) -> str:
    path = ""
    for step in steps:
        if isinstance(step, int):
            path += f"[{step}]"
        elif step:
            path += f".{step}" if path else step
    return path


def _format_value(value: Any) -> str:
    return clip_text(json.dumps(value, ensure_ascii=False, default=str))


INPUT_REQUIRED = "input_required"  # the server needs input from the user
_BASE64_BYTES_PER_CHARACTER = 3 / 4
_KILOBYTE_BYTES = 1000


def to_result(answer: Any, upstream: str, tool: str) -> ToolResult:
    """Build the result. The answer is passed on unchanged; text and structured content are for the command line."""
    if not isinstance(answer, dict):
        raise _build_result_error(upstream, tool, "it is not an object")
    wire = cast(JSON, answer)
    if wire.get("resultType") == INPUT_REQUIRED:
        raise UpstreamError(f'"{tool}" of {upstream} needs user input, which is not supported.', upstream=upstream)
    content = wire.get("content", [])
    if not isinstance(content, list):
        raise _build_result_error(upstream, tool, "its `content` is not a list")
    if not isinstance(wire.get("_meta", {}), dict):
        raise _build_result_error(upstream, tool, "its `_meta` is not an object")
    blocks = cast(list[Any], content)
    structured = wire.get("structuredContent")
    return ToolResult(
        structured=cast(JSON, structured) if isinstance(structured, dict) else {"content": blocks},
        sentence="\n".join(_format_block(block) for block in blocks),
        wire=wire if "content" in wire else {**wire, "content": []},
    )


def _build_result_error(upstream: str, tool: str, reason: str) -> UpstreamError:
    return UpstreamError(f'{upstream} returned an invalid result for "{tool}": {reason}.', upstream=upstream)


def _format_block(block: Any) -> str:
    """Format a content block as text for people."""
    if not isinstance(block, dict):
        return clip_text(str(block))
    fields = cast(JSON, block)
    kind = str(fields.get("type", "unknown"))
    match kind:
        case "text":
            return str(fields.get("text", ""))
        case "resource":
            return _format_resource(fields.get("resource"))
        case "resource_link":
            named = (fields.get(key) for key in ("uri", "name", "mimeType"))
            return f"[resource {', '.join(str(each) for each in named if each)}]"
        case _:
            return _format_data(kind, fields.get("mimeType"), fields.get("data"))


def _format_resource(resource: Any) -> str:
    fields = cast(JSON, resource) if isinstance(resource, dict) else {}
    if isinstance(fields.get("text"), str):
        return cast(str, fields["text"])
    uri = fields.get("uri")
    kind = f"resource {uri}" if isinstance(uri, str) else "resource"
    return _format_data(kind, fields.get("mimeType"), fields.get("blob"))


def _format_data(kind: str, mime_type: Any, data: Any) -> str:
    about = f" {mime_type}" if isinstance(mime_type, str) else ""
    if not isinstance(data, str):
        return f"[{kind}{about}]"
    count = int(len(data) * _BASE64_BYTES_PER_CHARACTER)
    size = format_count(count, "byte") if count < _KILOBYTE_BYTES else f"{round(count / _KILOBYTE_BYTES)} KB"
    return f"[{kind}{about}, {size}]"


log = logging.getLogger(__name__)


class GatewayTools:
    """Tools in front of other servers. Answers are never cached."""

    def __init__(self, config: GatewayConfig, upstreams: Mapping[str, Upstream]) -> None:
        self._config = config
        self._upstreams = upstreams

    def list_mapped_tools(self) -> list[Tool]:
        """Return the tools with an entry in the file, without asking a server."""
        return [self._build_mapped_tool(tool) for tool in self._config.tools]

    async def list_passed_tools(self, upstream: str) -> list[Tool]:
        """Return the tools that an upstream lists now and that are passed through."""
        listed = await self._upstreams[upstream].list_tools()
        tools: list[Tool] = []
        for each in find_passed(self._config, upstream, listed):
            fault = find_fault(each.listing)
            if fault is None:
                tools.append(self._build_passed_tool(upstream, each))
            else:
                name = clip_text(escape_name(each.theirs))
                log.warning("gateway: %s of %s is not offered: %s", name, upstream, fault)
        return tools

    def _build_mapped_tool(self, tool: ToolConfig) -> Tool:
        upstream = self._upstreams[tool.upstream]
        name = UpstreamToolName(tool.tool, upstream)

        async def run(call: ToolCall, given: Mapping[str, Any]) -> ToolResult:
            check_arguments(given, tool.input_schema)
            try:
                result = await _call_upstream(upstream, await name.resolve(), map_arguments(tool, given), call)
            except EverkeptError:
                name.invalidate()
                raise
            if result.is_error:
                name.invalidate()
            return result

        return _build_tool(_build_listing(tool), run, is_trusted=True)

    def _build_passed_tool(self, upstream_name: str, tool: PassedTool) -> Tool:
        upstream = self._upstreams[upstream_name]
        through = self._config.upstreams[upstream_name].pass_through

        async def run(call: ToolCall, given: Mapping[str, Any]) -> ToolResult:
            return await _call_upstream(upstream, tool.theirs, given, call)

        is_trusted = through is not None and through.trusts_read_only_hint
        return _build_tool(tool.listing, run, is_trusted=is_trusted)


def _build_tool(listing: JSON, run: Run, *, is_trusted: bool) -> Tool:
    """Build a tool. The server's readOnlyHint counts only if the file trusts it."""
    hints = as_object(listing.get("annotations"))
    return Tool(
        name=listing["name"],
        description=listing.get("description", ""),
        input_schema=listing["inputSchema"],
        output_schema=listing.get("outputSchema"),
        run=run,
        effect=Effect.OUTSIDE,
        listing=listing,
        said_to_read=is_trusted and hints.get("readOnlyHint") is True,
    )


def _build_listing(tool: ToolConfig) -> JSON:
    said = {
        "name": tool.name,
        "title": tool.title,
        "description": tool.description,
        "inputSchema": tool.input_schema,
        "outputSchema": tool.output_schema,
        "annotations": tool.annotations,
    }
    return {key: value for key, value in said.items() if value is not None}


async def _call_upstream(upstream: Upstream, tool: str, arguments: Mapping[str, Any], call: ToolCall) -> ToolResult:
    report = call.report if call.wants_progress else None
    answer = await upstream.call(tool, arguments, report)
    return to_result(answer, upstream.name, tool)
