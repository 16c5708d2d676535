"""The tools of a gateway, mapped or passed through, and one call to the server behind each."""

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from typing import Any, cast
from weakref import WeakMethod

from everkept.core.mcp import Upstream
from everkept.core.sessions import Call
from everkept.core.text import clipped, counted
from everkept.errors import MOST_LISTED, EverkeptError, InvalidInput, UpstreamError, visible
from everkept.families.gateway.model import (
    JSON,
    PREFIXED,
    GatewayConfig,
    Passed,
    ToolConfig,
    fault_in,
    likeliest,
    named,
    passed,
    resolved,
)
from everkept.families.gateway.schema_check import (
    ALTERNATIVES,
    NOTHING_FITS,
    Mistake,
    first_mistake,
)
from everkept.families.gateway.schema_facts import (
    Root,
    Steps,
    TooIntricate,
    by_name,
    in_words,
    kind_of,
    kinds,
)
from everkept.tools.tool import Effect, Result, Run, Tool


class NameThere:
    """Only a name that may have a prefix is worth the question what there is.

    It is asked once, and again when the answer may be another: after the server said that its
    tools have changed, was connected anew, or failed a call.
    """

    def __init__(self, wanted: str, upstream: Upstream) -> None:
        self._wanted = wanted
        self._upstream = upstream
        self._found: str | None = None
        self._doubts = 0
        if PREFIXED not in wanted:
            self._found = wanted
        else:
            # The upstream may live longer than the file that this name stands in.
            doubt = WeakMethod(self.doubt)
            upstream.on_tools_changed(lambda: (doubt() or _nobody)())

    async def get(self) -> str:
        """UpstreamError where there is no such tool."""
        if self._found is not None:
            return self._found
        doubts = self._doubts
        found = await self._ask()
        if doubts == self._doubts:  # else what was listed may be outdated already
            self._found = found
        return found

    def doubt(self) -> None:
        if PREFIXED in self._wanted:
            self._found = None
            self._doubts += 1

    async def _ask(self) -> str:
        known = [tool["name"] for tool in named(await self._upstream.tools())]
        found = resolved(self._wanted, set(known))
        if found is None:
            listed = ", ".join(clipped(visible(name)) for name in known[:MOST_LISTED]) or "none"
            more = f" and {len(known) - MOST_LISTED} more" if len(known) > MOST_LISTED else ""
            raise UpstreamError(
                f'{self._upstream.name} has no tool "{self._wanted}"; it has: {listed}{more}. '
                "`everkept gateway check` tells what has changed.",
                upstream=self._upstream.name,
            )
        return found


def _nobody() -> None:
    pass


Path = tuple[str, ...]


def mapped(tool: ToolConfig, arguments: Mapping[str, Any]) -> JSON:
    """What is mapped, the defaults of what was left out, and the constants; the rest where the
    file has a place for it, and nothing else.

    The paths of a file that was read do not meet, so none takes the place of another.
    """
    sent: JSON = {}
    for parameter, path in tool.mapping.items():
        if parameter in arguments:
            _put(sent, path, arguments[parameter])
        elif parameter in tool.defaults:
            _put(sent, path, deepcopy(tool.defaults[parameter]))
    for path, value in tool.constants.items():
        _put(sent, path, deepcopy(value))
    if tool.rest is not None:
        _below(sent, tool.rest).update(_others(tool, tool.rest, arguments))
    return sent


def _put(sent: JSON, path: Path, value: Any) -> None:
    _below(sent, path[:-1])[path[-1]] = value


def _below(sent: JSON, path: Path) -> JSON:
    """The object there, which is made where it is missing."""
    for key in path:
        sent = cast(JSON, sent.setdefault(key, {}))
    return sent


def _others(tool: ToolConfig, rest: Path, arguments: Mapping[str, Any]) -> JSON:
    """What has no entry in the mapping. InvalidInput for what would take another's place."""
    others = {name: value for name, value in arguments.items() if name not in tool.mapping}
    constant = dict.fromkeys(tool.constants)
    sources = {path: parameter for parameter, path in tool.mapping.items()} | constant
    for path, source in sources.items():
        if path[: len(rest)] == rest and (name := path[len(rest)]) in others:
            raise InvalidInput(
                f"`{clipped(name)}` cannot be given: the gateway's file fills that place itself.",
                hint=None if source is None else f"Give `{source}`.",
                argument=name,
            )
    return others


MOST_STEPS = 50_000  # in one call: no other is answered meanwhile


def check(given: Mapping[str, Any], schema: JSON) -> None:
    """InvalidInput for what does not fit, in the words of our own parameters.

    What cannot be said in a moment is for the server to say.
    """
    root = Root(schema, Steps(MOST_STEPS))
    try:
        mistake = first_mistake(dict(given), schema, root)
        refusal = None if mistake is None else _refusal(mistake, root)
    except (TooIntricate, RecursionError):  # the latter where the value cannot even be shown
        return
    if refusal is not None:
        raise refusal


def _refusal(mistake: Mistake, root: Root) -> InvalidInput:
    path, keyword = _path(mistake.path), mistake.keyword
    value, wanted = mistake.value, mistake.wanted
    if keyword == "required":
        name = _path([path, wanted])
        return InvalidInput(f"Argument `{name}` is required.", argument=name)
    if keyword == "additionalProperties":
        return _unknown(_path([path, wanted]), wanted, mistake.schema)
    subject, shown = f"`{path}`" if path else "The call", _shown(value)
    if keyword in ("enum", "const"):
        allowed: list[Any] = wanted if keyword == "enum" else [wanted]
        sentence = f"{subject} is {shown}; it must be one of {_listed(allowed)}."
    elif keyword == NOTHING_FITS:
        sentence = f"{subject} cannot be given."
    elif keyword in _LIMITS:
        sentence = f"{subject} {_LIMITS[keyword](value, wanted)}"
    elif keyword in ALTERNATIVES and kind_of(value) in kinds(mistake.schema, root):
        sentence = f"{subject} fits none of its alternatives{_reasons(wanted, root)}."
    else:
        sentence = f"{subject} must be {in_words(kinds(mistake.schema, root))}, not {shown}."
    return InvalidInput(sentence, argument=path, value=shown)


def _reasons(mistakes: list[Mistake], root: Root) -> str:
    """What is wrong with each, as far as a sentence bears it."""
    told = [each for each in mistakes if each.keyword not in ALTERNATIVES][:MOST_LISTED]
    found = dict.fromkeys(_refusal(each, root).message.rstrip(".") for each in told)
    return f": {'; or '.join(found)}" if found else ""


def _unknown(path: str, name: str, schema: JSON) -> InvalidInput:
    known = list(by_name(schema.get("properties")))
    close = likeliest(name, known)
    listed = clipped(", ".join(known[:MOST_LISTED]), 500) or "none"
    hint = f"Did you mean `{close}`?" if close else f"Known: {listed}."
    return InvalidInput(f"Unknown argument `{clipped(path)}`.", hint=hint, argument=clipped(path))


def _listed(allowed: list[Any]) -> str:
    more = f" and {len(allowed) - MOST_LISTED} more" if len(allowed) > MOST_LISTED else ""
    return ", ".join(map(_shown, allowed[:MOST_LISTED])) + more


def _is(limit: str) -> Callable[[Any, Any], str]:
    return lambda value, wanted: f"is {_shown(value)}; it must be {limit} {_shown(wanted)}."


def _has(limit: str, one: str) -> Callable[[Any, Any], str]:
    return lambda value, wanted: f"has {counted(len(value), one)}; it must have {limit} {wanted:,}."


_LIMITS: Mapping[str, Callable[[Any, Any], str]] = {
    "minimum": _is("at least"),
    "maximum": _is("at most"),
    "exclusiveMinimum": _is("more than"),
    "exclusiveMaximum": _is("less than"),
    "multipleOf": _is("a multiple of"),
    "minLength": _has("at least", "character"),
    "maxLength": _has("at most", "character"),
    "minItems": _has("at least", "item"),
    "maxItems": _has("at most", "item"),
    "minProperties": _has("at least", "key"),
    "maxProperties": _has("at most", "key"),
    "uniqueItems": lambda _value, _wanted: "has an item twice; each may be there once.",
}


def _path(steps: Iterable[str | int]) -> str:
    path = ""
    for step in steps:
        if isinstance(step, int):
            path += f"[{step}]"
        elif step:
            path += f".{step}" if path else step
    return path


def _shown(value: Any) -> str:
    return clipped(json.dumps(value, ensure_ascii=False, default=str))


INPUT_REQUIRED = "input_required"  # the server wants to ask the user before it goes on
_BASE64 = 3 / 4  # bytes a character
_KILOBYTE = 1000


def result_of(answer: Any, upstream: str, tool: str) -> Result:
    """It goes on as it came; text and structured content are for the command line."""
    if not isinstance(answer, dict):
        raise _no_result(upstream, tool, "it is no object")
    wire = cast(JSON, answer)
    if wire.get("resultType") == INPUT_REQUIRED:
        raise UpstreamError(
            f'"{tool}" of {upstream} wants to ask the user something before it goes on, and the '
            "gateway cannot ask on its behalf.",
            upstream=upstream,
        )
    content = wire.get("content", [])
    if not isinstance(content, list):
        raise _no_result(upstream, tool, "its `content` is no list")
    if not isinstance(wire.get("_meta", {}), dict):
        raise _no_result(upstream, tool, "its `_meta` is no object")
    blocks = cast(list[Any], content)
    structured = wire.get("structuredContent")
    return Result(
        structured=cast(JSON, structured) if isinstance(structured, dict) else {"content": blocks},
        sentence="\n".join(_text(block) for block in blocks),
        wire=wire if "content" in wire else {**wire, "content": []},
    )


def _no_result(upstream: str, tool: str, reason: str) -> UpstreamError:
    return UpstreamError(
        f'{upstream} answered "{tool}" with what is no result of a tool: {reason}.',
        upstream=upstream,
    )


def _text(block: Any) -> str:
    """A block as a person reads it."""
    if not isinstance(block, dict):
        return clipped(str(block))
    fields = cast(JSON, block)
    kind = str(fields.get("type", "unknown"))
    match kind:
        case "text":
            return str(fields.get("text", ""))
        case "resource":
            return _resource(fields.get("resource"))
        case "resource_link":
            named = (fields.get(key) for key in ("uri", "name", "mimeType"))
            return f"[resource {', '.join(str(each) for each in named if each)}]"
        case _:
            return _data(kind, fields.get("mimeType"), fields.get("data"))


def _resource(resource: Any) -> str:
    fields = cast(JSON, resource) if isinstance(resource, dict) else {}
    if isinstance(fields.get("text"), str):
        return cast(str, fields["text"])
    uri = fields.get("uri")
    kind = f"resource {uri}" if isinstance(uri, str) else "resource"
    return _data(kind, fields.get("mimeType"), fields.get("blob"))


def _data(kind: str, mime_type: Any, data: Any) -> str:
    about = f" {mime_type}" if isinstance(mime_type, str) else ""
    size = f", {_size(len(data))}" if isinstance(data, str) else ""
    return f"[{kind}{about}{size}]"


def _size(characters: int) -> str:
    count = int(characters * _BASE64)
    return f"{count} bytes" if count < _KILOBYTE else f"{round(count / _KILOBYTE)} KB"


log = logging.getLogger(__name__)


class GatewayTools:
    """Tools in front of other servers. Nothing is kept of what these answer."""

    def __init__(self, config: GatewayConfig, upstreams: Mapping[str, Upstream]) -> None:
        self._config = config
        self._upstreams = upstreams

    def mapped_tools(self) -> list[Tool]:
        """Those with an entry in the file; no server is asked."""
        return [self._mapped(tool) for tool in self._config.tools]

    async def passed_tools(self, upstream: str) -> list[Tool]:
        """Those that an upstream lists now, as far as they are passed through."""
        listed = await self._upstreams[upstream].tools()
        tools: list[Tool] = []
        for each in passed(self._config, upstream, listed):
            fault = fault_in(each.listing)
            if fault is None:
                tools.append(self._passed(upstream, each))
            else:
                name = clipped(visible(each.theirs))
                log.warning("gateway: %s of %s is not offered: %s", name, upstream, fault)
        return tools

    def _mapped(self, tool: ToolConfig) -> Tool:
        upstream = self._upstreams[tool.upstream]
        name = NameThere(tool.tool, upstream)

        async def run(call: Call, given: Mapping[str, Any]) -> Result:
            check(given, tool.input_schema)
            try:
                result = await _called(upstream, await name.get(), mapped(tool, given), call)
            except EverkeptError:
                name.doubt()
                raise
            if result.is_error:
                name.doubt()
            return result

        return _tool(_listing(tool), run, is_trusted=True)

    def _passed(self, upstream_name: str, tool: Passed) -> Tool:
        upstream = self._upstreams[upstream_name]
        through = self._config.upstreams[upstream_name].pass_through

        async def run(call: Call, given: Mapping[str, Any]) -> Result:
            return await _called(upstream, tool.theirs, given, call)

        is_trusted = through is not None and through.trusts_read_only_hint
        return _tool(tool.listing, run, is_trusted=is_trusted)


def _tool(listing: JSON, run: Run, *, is_trusted: bool) -> Tool:
    """What a server says of its own tools is believed where the file says so."""
    hints = by_name(listing.get("annotations"))
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


def _listing(tool: ToolConfig) -> JSON:
    said = {
        "name": tool.name,
        "title": tool.title,
        "description": tool.description,
        "inputSchema": tool.input_schema,
        "outputSchema": tool.output_schema,
        "annotations": tool.annotations,
    }
    return {key: value for key, value in said.items() if value is not None}


async def _called(
    upstream: Upstream, tool: str, arguments: Mapping[str, Any], call: Call
) -> Result:
    report = call.report if call.wants_progress else None
    answer = await upstream.call(tool, arguments, report)
    return result_of(answer, upstream.name, tool)
