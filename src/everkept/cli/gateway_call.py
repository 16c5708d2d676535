"""`everkept gateway call`: one call of a tool, with arguments as a person types them."""

import asyncio
import json
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NoReturn, TypeVar, cast

import click

from everkept.app.app import App
from everkept.app.gateway_file import load
from everkept.cli.flags import silence_warnings
from everkept.cli.options import add_common_options, load_command_settings
from everkept.cli.runner import GATEWAY_SETTINGS, print_json, replace_controls, run_with_app, show_tool_progress
from everkept.cli.tools import PHRASE_PARAMETERS, STANDARD_INPUT, read_standard_input
from everkept.core.mcp import Upstream, UpstreamSettings
from everkept.core.sessions import Session
from everkept.core.text import clip_text
from everkept.errors import InvalidInput, NotFound
from everkept.families.gateway.model import find_likeliest
from everkept.families.gateway.schema_facts import (
    ALL_KINDS,
    SchemaRoot,
    SchemaTooComplex,
    as_object,
    find_items,
    find_kinds,
    find_values,
    format_kinds,
    get_kind,
    list_names,
    list_required,
    resolve_path,
)
from everkept.settings import Settings, get_gateway_path, read_upstream_environment
from everkept.tools.schema import JSON
from everkept.tools.tool import Tool, ToolResult
from everkept.upstreams.upstream import open_upstream

_MAX_LISTED_NAMES = 50


class ValueForm:
    """Parts of a value's schema that help to parse the typed text.

    The tool checks the value. A complicated schema accepts any text.
    """

    def __init__(self, place: Any, root: SchemaRoot) -> None:
        self._place = place
        self._root = root
        try:
            self.kinds = find_kinds(place, root)
            self.choices = find_values(place, root) or []  # empty if other values are allowed
        except SchemaTooComplex:
            self.kinds, self.choices = ALL_KINDS, []

    @property
    def items(self) -> "ValueForm":
        try:
            return ValueForm(find_items(self._place, self._root), self._root)
        except SchemaTooComplex:
            return ValueForm(True, self._root)

    @property
    def is_open(self) -> bool:
        """Return whether any value is allowed."""
        return self.kinds in (ALL_KINDS, frozenset())

    def has_only(self, kind: str) -> bool:
        return self.kinds == frozenset({kind})

    def can_take(self, kind: str) -> bool:
        return self.is_open or kind in self.kinds

    @property
    def keys(self) -> list[str]:
        """Return the described properties of an object."""
        try:
            return list_names(self._place, self._root)
        except SchemaTooComplex:
            return []

    @property
    def item_keys(self) -> list[str]:
        """Return the keys of the objects in a list, if it contains only objects."""
        return self.items.keys if self.has_only("array") and self.items.has_only("object") else []

    def get_property(self, key: str) -> "ValueForm":
        try:
            return ValueForm(resolve_path(self._place, [key], self._root), self._root)
        except SchemaTooComplex:
            return ValueForm(True, self._root)

    def parse_value(self, texts: Sequence[str], name: str) -> Any:
        """Parse a value, as a list if several texts are given or nothing else is allowed."""
        if known := self.item_keys:
            return self._parse_objects(texts, name, known)
        if len(texts) == 1 and not (self.has_only("array") and not _is_list(texts[0])):
            return self._parse_one(texts[0], name)
        if not self.can_take("array"):
            raise InvalidInput(
                f"`{name}` takes one value, and several are given.", hint=f"Pass `{name}` once.", argument=name
            )
        items = self.items
        return [items.parse_value([text], name) for text in texts]

    def _parse_objects(self, texts: Sequence[str], name: str, known: Sequence[str]) -> list[Any]:
        """Parse objects from JSON, `-` for standard input, or key=value. A repeated key begins the next object, unless
        it takes a list.
        """
        items, found = self.items, list[Any]()
        current: dict[str, list[str]] = {}

        def finish() -> None:
            if current:
                found.append({key: items.get_property(key).parse_value(current[key], key) for key in current})
                current.clear()

        for text in texts:
            key, separator, value = text.partition("=")
            if separator and key in known:
                form = items.get_property(key)
                if key in current and (form.is_open or not form.can_take("array")):
                    finish()
                current.setdefault(key, []).append(value)
            else:
                finish()
                found += self._parse_json_objects(text, name, known)
        finish()
        return found

    def _parse_json_objects(self, text: str, name: str, known: Sequence[str]) -> list[Any]:
        value = _parse_json_or_text(read_standard_input() if text == STANDARD_INPUT else text)
        if isinstance(value, dict | list):
            return cast(list[Any], value) if isinstance(value, list) else [value]
        raise InvalidInput(
            f"`{name}` is {clip_text(text)!r}, which is not JSON or key=value.",
            hint=f"Write {known[0]}=…, JSON, or {STANDARD_INPUT} for JSON on standard input. "
            f"Known: {clip_text(', '.join(known), 200)}.",
            argument=name,
            value=clip_text(text),
        )

    def _parse_one(self, text: str, name: str) -> Any:
        if text in self.choices:
            return text
        value = _parse_json_or_text(text)
        kind = get_kind(value)
        if self.is_open or (kind, value) in [(get_kind(each), each) for each in self.choices]:
            return value
        if "string" in self.kinds:
            # Only text in the form of an object or list counts as one.
            return value if kind in ("object", "array") and kind in self.kinds else text
        if kind not in self.kinds:
            _refuse_kind(text, name, self.kinds)
        return value


class ToolParameters:
    """Parameters of a tool, from its schema."""

    def __init__(self, schema: JSON) -> None:
        self._root = SchemaRoot(schema)
        try:
            self.names = list_names(schema, self._root)
            self.required = set(list_required(schema, self._root))
        except SchemaTooComplex:
            self.names, self.required = list(as_object(schema.get("properties"))), set[str]()

    def get_schema(self, name: str) -> Any:
        """Return the schema of a parameter, or False if it surely does not exist."""
        try:
            return resolve_path(self._root.schema, [name], self._root)
        except SchemaTooComplex:
            return True

    def get_form(self, name: str) -> ValueForm:
        described = self.get_schema(name)
        if described is False:
            # The tool would ignore it silently.
            close = find_likeliest(name, self.names)
            hint = f"Did you mean `{close}`?" if close else self.hint
            raise InvalidInput(f"Unknown argument `{clip_text(name)}`.", hint=hint, argument=name)
        return ValueForm(described, self._root)

    def find_bare_parameter(self, words: Sequence[str]) -> str:
        """Return the parameter for words without a key."""
        if len(self.required) == 1:
            return next(iter(self.required))
        raise InvalidInput(
            f"{clip_text(words[0])!r} is not key=value or a JSON object.", hint=self.hint, value=clip_text(words[0])
        )

    @property
    def hint(self) -> str:
        known = clip_text(", ".join(self.names[:_MAX_LISTED_NAMES]), 500)
        return f"Known: {known}." if known else "It takes no arguments."


def parse_arguments(words: Sequence[str], schema: JSON) -> JSON:
    """Parse arguments from key=value, a JSON object, or `-` for one on standard input. Single values override the
    object. If the tool requires one argument, words without a key are its value.
    """
    parameters = ToolParameters(schema)
    whole: JSON = {}
    typed: dict[str, list[str]] = {}
    bare: list[str] = []
    for word in words:
        if word == STANDARD_INPUT:
            whole |= _parse_object(read_standard_input(), "Standard input")
        elif word.lstrip().startswith("{"):
            whole |= _parse_object(word, repr(clip_text(word)))
        else:
            name, separator, value = word.partition("=")
            if not separator:
                bare.append(word)
            else:
                typed.setdefault(name.strip(), []).append(value)
    if bare:
        name = parameters.find_bare_parameter(bare)
        spoken = name in PHRASE_PARAMETERS and parameters.get_form(name).can_take("string")
        typed.setdefault(name, []).extend([" ".join(bare)] if spoken else bare)
    return whole | {name: parameters.get_form(name).parse_value(texts, name) for name, texts in typed.items()}


def _is_list(text: str) -> bool:
    return isinstance(_parse_json_or_text(text), list)


def _parse_json_or_text(text: str) -> Any:
    try:
        return _load_json(text)
    except ValueError:
        return text


def _load_json(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _refuse_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a JSON number")


def _parse_object(text: str, what: str) -> JSON:
    value = _parse_json_or_text(text)
    if not isinstance(value, dict):
        raise InvalidInput(f"{what} is not a JSON object.", hint='Use, for example, {"query": "tea"}.')
    return cast(JSON, value)


def _refuse_kind(text: str, name: str, wanted: frozenset[str]) -> NoReturn:
    is_json = bool(wanted & {"object", "array"})
    raise InvalidInput(
        f"`{name}` must be {format_kinds(wanted)}, not {clip_text(text)!r}.",
        hint="Write objects and lists as JSON." if is_json else None,
        argument=name,
        value=clip_text(text),
    )


gateway_config = click.option("--gateway-config", metavar="FILE", help="The gateway's file.")


def get_gateway_file(settings: Settings) -> Path:
    """Return the gateway's file. Raise InvalidInput if it does not exist."""
    if settings.gateway_config is None:
        usual = get_gateway_path(settings)
        raise InvalidInput(
            "Cannot find a gateway file.",
            hint=f"Create one with `everkept gateway init` ({usual}), or pass another with --gateway-config.",
        )
    return settings.gateway_config


T = TypeVar("T")

SLOW_SECONDS = 5.0  # of silence; the first start of a package may take a minute
GATEWAY_LOGS = ("everkept.upstreams", "everkept.app.gateway")


@asynccontextmanager
async def open_upstreams(reaches: Iterable[UpstreamSettings]) -> AsyncGenerator[Mapping[str, Upstream], None]:
    """Open the upstreams by name. Each starts at its first call."""
    environment = read_upstream_environment()
    upstreams = {reach.name: open_upstream(reach, environment) for reach in reaches}
    try:
        yield upstreams
    finally:
        await asyncio.gather(*(upstream.close() for upstream in upstreams.values()))


async def report_if_slow(work: Coroutine[Any, Any, T], whom: str) -> T:
    """Wait for an answer. Print a note on standard error if that takes long and there is no progress bar."""
    task = asyncio.ensure_future(work)
    try:
        done, _ = await asyncio.wait([task], timeout=SLOW_SECONDS)
        if not done and not sys.stderr.isatty():
            click.echo(f"Waiting for {whom} …", err=True)
        return await task
    finally:
        task.cancel()


@click.command()
@add_common_options
@gateway_config
@click.argument("tool")
@click.argument("words", nargs=-1, metavar="[KEY=VALUE | JSON | -]...")
def call(tool: str, words: tuple[str, ...], as_json: bool, **flags: Any) -> None:
    """Call a TOOL of the gateway, as an assistant would.

    Values are read by the tool's schema: text, numbers, true and false. Write objects as JSON, and repeat a key for a
    list. All arguments together may be a JSON object, or come from standard input with `-`. Passed-through tools work
    too.
    """

    async def work(app: App) -> ToolResult:
        found = await _find_tool(app, tool)
        return await call_tool(app, found.name, parse_arguments(words, found.input_schema))

    print_result(run_gateway(work, **flags), as_json=as_json)


def run_gateway(work: Callable[[App], Awaitable[ToolResult]], **flags: Any) -> ToolResult:
    """Run like `run_with_app`, for tools of the gateway. Faults of its file are reported first."""
    settings = load_command_settings(**flags)
    load(get_gateway_file(settings))
    with silence_warnings(settings, GATEWAY_LOGS):
        return run_with_app(work, offering=GATEWAY_SETTINGS, **flags)


async def call_tool(app: App, name: str, arguments: JSON) -> ToolResult:
    session = Session(client="command line", is_conversation=False)
    with show_tool_progress(name) as report:
        return await app.call(session, name, arguments, report)


def print_result(result: ToolResult, *, as_json: bool) -> None:
    """Print the tool's result. Exit with status 1 if it is an error."""
    if as_json:
        print_json(result.facts if result.wire is None else result.wire)
    elif result.text:
        out = sys.stderr if result.is_error else sys.stdout
        shown = replace_controls(result.text) if out.isatty() else result.text
        click.echo(shown, file=out, color=True)
    else:
        print_json(result.facts)
    if result.is_error:
        sys.exit(1)


async def _find_tool(app: App, name: str) -> Tool:
    """Return the tool. Only its server knows a passed-through tool."""
    assert app.gateway is not None
    if name not in (known := {tool.name: tool for tool in app.gateway.list_tools()}):
        with show_tool_progress("Asking for tools"):
            await app.gateway.refresh(patience=None)
        known = {tool.name: tool for tool in app.gateway.list_tools()}
    if name not in known:
        if (failure := app.gateway.find_failure(name)) is not None:
            raise failure
        close = find_likeliest(name, known)
        listed = clip_text(", ".join(known), 500) or "none"
        hint = f"Did you mean `{close}`?" if close else f"The gateway has: {listed}."
        raise NotFound("tool", clip_text(name), hint=hint)
    return known[name]
