"""Tools, resources and prompts that the protocol's conformance suite expects in a server.

They stand beside the real ones and go through the same dispatch table.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

from conformance_rounds import ROOTS, Answers, Question, Rounds, form, sample, text_block
from everkept.core.sessions import ToolCall
from everkept.tools.tool import Tool, ToolResult
from everkept.transports.connection import JSON
from everkept.transports.dispatch import (
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    Dispatcher,
    Handler,
    ProtocolError,
    Reply,
    Request,
    build_progress_report,
)
from everkept.values import Value

PAUSE = 0.05  # seconds between two notifications, as the suite asks

# One red pixel, and one sample of silence.
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR42mP4z8AAAAMBAQD3A0FDAAAAAElFTkSuQmCC"
WAV = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQIAAAAAAA=="


def add_fixtures(dispatcher: Dispatcher) -> None:
    """Put the fixtures beside what the dispatcher offers."""
    dispatcher.more_tools += [_declared(name) for name in TOOLS]
    handlers = _Fixtures(dispatcher).handlers()
    dispatcher.methods.update(handlers)


class _Fixtures:
    """Handlers that answer for a fixture, and pass everything else on."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._real = dict(dispatcher.methods)

    def handlers(self) -> dict[str, Handler]:
        return {
            "initialize": self._begin,
            "server/discover": self._begin_for("server/discover"),
            "logging/setLevel": self._set_level,
            "completion/complete": self._complete,
            "tools/call": self._call_tool,
            "resources/list": self._listed("resources/list", "resources", "uri", RESOURCES),
            "resources/templates/list": self._listed(
                "resources/templates/list", "resourceTemplates", "uriTemplate", TEMPLATES
            ),
            "resources/read": self._read,
            "resources/subscribe": self._unless_fixture("resources/subscribe"),
            "resources/unsubscribe": self._unless_fixture("resources/unsubscribe"),
            "prompts/list": self._list_prompts,
            "prompts/get": self._get_prompt,
        }

    async def _begin(self, request: Request) -> Reply:
        return await self._begin_for("initialize")(request)

    def _begin_for(self, method: str) -> Handler:
        async def begin(request: Request) -> JSON:
            result = cast(JSON, await self._real[method](request))
            extra: JSON = {"prompts": {"listChanged": False}, "completions": {}}
            if not request.is_stateless:
                extra["logging"] = {}
            return result | {"capabilities": result["capabilities"] | extra}

        return begin

    async def _set_level(self, request: Request) -> JSON:
        if request.is_stateless:
            raise ProtocolError(METHOD_NOT_FOUND, "Method not found: logging/setLevel")
        return {}

    async def _complete(self, request: Request) -> JSON:
        return {"completion": {"values": [], "total": 0, "hasMore": False}}

    async def _call_tool(self, request: Request) -> Reply:
        name = request.params.get("name")
        if name not in TOOLS:
            return await self._real["tools/call"](request)
        return await TOOLS[name].run(request)

    def _listed(self, method: str, key: str, uri: str, fixtures: Mapping[str, JSON]) -> Handler:
        async def listed(request: Request) -> JSON:
            result = cast(JSON, await self._real[method](request))
            ours = [{uri: place, "name": place, "mimeType": content["mimeType"]} for place, content in fixtures.items()]
            return result | {key: [*result[key], *ours]}

        return listed

    async def _read(self, request: Request) -> Reply:
        uri = request.params.get("uri")
        if uri in RESOURCES:
            return {"contents": [{"uri": uri} | RESOURCES[uri]]}
        before, after = TEMPLATE.split("{id}")
        if isinstance(uri, str) and uri.startswith(before) and uri.endswith(after):
            number = uri.removeprefix(before).removesuffix(after)
            data = {"id": number, "templateTest": True, "data": f"Data for ID: {number}"}
            return {"contents": [{"uri": uri, **TEMPLATES[TEMPLATE], "text": json.dumps(data)}]}
        return await self._real["resources/read"](request)

    def _unless_fixture(self, method: str) -> Handler:
        async def handle(request: Request) -> Reply:
            if request.params.get("uri") in RESOURCES:
                return {}
            return await self._real[method](request)

        return handle

    async def _list_prompts(self, request: Request) -> JSON:
        prompts = [
            {
                "name": name,
                "description": name.replace("_", " "),
                "arguments": [
                    {"name": argument, "description": argument, "required": True} for argument in prompt.arguments
                ],
            }
            for name, prompt in PROMPTS.items()
        ]
        return {"prompts": prompts}

    async def _get_prompt(self, request: Request) -> JSON:
        prompt = PROMPTS.get(str(request.params.get("name")))
        if prompt is None:
            raise ProtocolError(INVALID_PARAMS, f"Unknown prompt: {request.params.get('name')}")
        return await prompt.run(request)


Run = Callable[[Request], Awaitable[JSON]]


class _Fixture(Value):
    run: Run
    arguments: tuple[str, ...] = ()
    schema: JSON | None = None


def _declared(name: str) -> Tool:
    """The fixture as tools/list shows it; calls never come this far."""

    async def run(_call: ToolCall, _arguments: Mapping[str, Any]) -> ToolResult:
        raise NotImplementedError

    fixture = TOOLS[name]
    properties = {argument: {"type": "string"} for argument in fixture.arguments}
    schema = fixture.schema or {"type": "object", "properties": properties, "required": list(fixture.arguments)}
    description = f"Conformance fixture {name}."
    listing = {"name": name, "description": description, "inputSchema": schema}
    return Tool(name, description, schema, run, listing=listing)


def _image() -> JSON:
    return {"type": "image", "data": PNG, "mimeType": "image/png"}


def _resource(uri: str, mime_type: str, text: str) -> JSON:
    return {"type": "resource", "resource": {"uri": uri, "mimeType": mime_type, "text": text}}


def _argument(request: Request, name: str) -> str:
    arguments = request.params.get("arguments")
    value = cast(JSON, arguments).get(name) if isinstance(arguments, dict) else None
    if not isinstance(value, str):
        raise ProtocolError(INVALID_PARAMS, f"`{name}` is required.")
    return value


def _content(*content: JSON, is_error: bool = False) -> _Fixture:
    async def run(_request: Request) -> JSON:
        return {"content": list(content), "isError": is_error}

    return _Fixture(run)


def _messages(*content: JSON) -> _Fixture:
    async def run(_request: Request) -> JSON:
        return {"messages": [{"role": "user", "content": item} for item in content]}

    return _Fixture(run)


async def _log(request: Request) -> JSON:
    for text in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        if not request.is_stateless:
            await request.notify("notifications/message", {"level": "info", "data": text})
            await asyncio.sleep(PAUSE)
    return {"content": [text_block("Logged three messages.")]}


async def _report_progress(request: Request) -> JSON:
    report = build_progress_report(request)
    for done in (0, 50, 100):
        if report is not None:
            await report(done, 100, None)
        await asyncio.sleep(PAUSE)
    return {"content": [text_block("Reported progress three times.")]}


async def _prompt_with_arguments(request: Request) -> JSON:
    first, second = _argument(request, "arg1"), _argument(request, "arg2")
    text = f"Prompt with arguments: arg1='{first}', arg2='{second}'"
    return await _messages(text_block(text)).run(request)


async def _prompt_with_resource(request: Request) -> JSON:
    uri = _argument(request, "resourceUri")
    return await _messages(
        _resource(uri, "text/plain", "Embedded resource content for testing."),
        text_block("Please process the embedded resource above."),
    ).run(request)


def _asks(finish: Callable[[Answers], JSON], *rounds: Mapping[str, Question]) -> _Fixture:
    return _Fixture(Rounds(rounds, finish).run)


def _asks_with_state(*rounds: Mapping[str, Question]) -> _Fixture:
    return _Fixture(Rounds(rounds, _done, keeps_state=True).run)


def _done(answers: Answers) -> JSON:
    return {"content": [text_block(f"state-ok: {json.dumps(answers)}")], "isError": False}


def _form_result(answers: Answers) -> JSON:
    [answer] = answers.values()
    action, content = answer.get("action"), json.dumps(answer.get("content", {}))
    return {"content": [text_block(f"Elicitation completed: action={action}, content={content}")]}


async def _ask_user(request: Request) -> JSON:
    person = {
        "username": {"type": "string", "description": "User's response"},
        "email": {"type": "string", "description": "User's email address"},
    }
    asked = form(_argument(request, "message"), person, ("username", "email"))

    def finish(answers: Answers) -> JSON:
        answer = answers["user"]
        content = json.dumps(answer.get("content", {}))
        return {"content": [text_block(f"User response: action: {answer['action']}, content: {content}")]}

    return await Rounds(({"user": asked},), finish).run(request)


async def _ask_model(request: Request) -> JSON:
    def finish(answers: Answers) -> JSON:
        content = cast(JSON, answers["model"].get("content", {}))
        return {"content": [text_block(f"LLM response: {content.get('text', '')}")]}

    questions = {"model": sample(_argument(request, "prompt"))}
    return await Rounds((questions,), finish).run(request)


def _context_prompt(answers: Answers) -> JSON:
    return {"messages": [{"role": "user", "content": text_block(json.dumps(answers))}]}


NAME = form("What is your name?", {"name": {"type": "string"}}, ("name",))
COLOUR = form("What is your favourite colour?", {"color": {"type": "string"}}, ("color",))
CONFIRM = form("Please confirm", {"ok": {"type": "boolean"}}, ("ok",))
CONTEXT = form("What context should the prompt use?", {"context": {"type": "string"}}, ("context",))
DEFAULTS = form(
    "Please review the defaults",
    {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": True},
    },
)
OPTIONS = ["option1", "option2", "option3"]
TITLED = [
    {"const": "value1", "title": "First Option"},
    {"const": "value2", "title": "Second Option"},
    {"const": "value3", "title": "Third Option"},
]
ENUMS = form(
    "Please choose",
    {
        "untitledSingle": {"type": "string", "enum": OPTIONS},
        "titledSingle": {"type": "string", "oneOf": TITLED},
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": OPTIONS}},
        "titledMulti": {"type": "array", "items": {"anyOf": TITLED}},
    },
)
SCHEMA_2020_12: JSON = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}
HEADER_SCHEMA: JSON = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}

TOOLS: dict[str, _Fixture] = {
    "test_simple_text": _content(text_block("This is a simple text response for testing.")),
    "test_image_content": _content(_image()),
    "test_audio_content": _content({"type": "audio", "data": WAV, "mimeType": "audio/wav"}),
    "test_embedded_resource": _content(
        _resource("test://embedded-resource", "text/plain", "This is an embedded resource content.")
    ),
    "test_multiple_content_types": _content(
        text_block("Multiple content types test:"),
        _image(),
        _resource("test://mixed-content-resource", "application/json", '{"test":"data","value":123}'),
    ),
    "test_error_handling": _content(text_block("This tool intentionally returns an error for testing"), is_error=True),
    "test_tool_with_logging": _Fixture(_log),
    "test_logging_tool": _Fixture(_log),
    "test_tool_with_progress": _Fixture(_report_progress),
    "test_sampling": _Fixture(_ask_model, ("prompt",)),
    "test_elicitation": _Fixture(_ask_user, ("message",)),
    "test_elicitation_sep1034_defaults": _asks(_form_result, {"form": DEFAULTS}),
    "test_elicitation_sep1330_enums": _asks(_form_result, {"form": ENUMS}),
    "json_schema_2020_12_tool": _Fixture(_content(text_block("ok")).run, schema=SCHEMA_2020_12),
    "test_headers": _Fixture(_content(text_block("ok")).run, schema=HEADER_SCHEMA),
    "test_missing_capability": _asks(_done, {"model": sample("Are you there?")}),
    "test_streaming_elicitation": _asks(_done, {"user_name": NAME}),
    "test_input_required_result_elicitation": _asks(_done, {"user_name": NAME}),
    "test_input_required_result_sampling": _asks(_done, {"capital_question": sample("What is the capital of France?")}),
    "test_input_required_result_list_roots": _asks(_done, {"client_roots": ROOTS}),
    "test_input_required_result_capabilities": _asks(
        _done, {"user_name": NAME, "greeting": sample("Generate a greeting", 50)}
    ),
    "test_input_required_result_request_state": _asks_with_state({"confirm": CONFIRM}),
    "test_input_required_result_tampered_state": _asks_with_state({"confirm": CONFIRM}),
    "test_input_required_result_multiple_inputs": _asks_with_state(
        {"user_name": NAME, "greeting": sample("Generate a greeting", 50), "client_roots": ROOTS}
    ),
    "test_input_required_result_multi_round": _asks_with_state({"step1": NAME}, {"step2": COLOUR}),
}

RESOURCES: dict[str, JSON] = {
    "test://static-text": {"mimeType": "text/plain", "text": "This is the content of the static text resource."},
    "test://static-binary": {"mimeType": "image/png", "blob": PNG},
    "test://watched-resource": {"mimeType": "text/plain", "text": "This resource never changes."},
}
TEMPLATE = "test://template/{id}/data"
TEMPLATES: dict[str, JSON] = {TEMPLATE: {"mimeType": "application/json"}}

PROMPTS: dict[str, _Fixture] = {
    "test_simple_prompt": _messages(text_block("This is a simple prompt for testing.")),
    "test_prompt_with_arguments": _Fixture(_prompt_with_arguments, ("arg1", "arg2")),
    "test_prompt_with_embedded_resource": _Fixture(_prompt_with_resource, ("resourceUri",)),
    "test_prompt_with_image": _messages(_image(), text_block("Please analyze the image above.")),
    "test_input_required_result_prompt": _asks(_context_prompt, {"user_context": CONTEXT}),
}
