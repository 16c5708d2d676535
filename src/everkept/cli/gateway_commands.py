"""The gateway's tools as commands, from the schemas in its file."""

import re
from collections.abc import Collection, Sequence
from typing import Any, cast

import click

from everkept.app.gateway_file import load as load_file
from everkept.cli.gateway_call import ToolParameters, ValueForm, call_tool, print_result, run_gateway
from everkept.cli.options import ENGINE_SETTINGS, add_common_options
from everkept.cli.render import format_label
from everkept.cli.runner import replace_controls
from everkept.cli.tools import PHRASE_PARAMETERS
from everkept.core.text import clip_text
from everkept.errors import EverkeptError
from everkept.families.gateway.model import ToolConfig
from everkept.settings import read_settings
from everkept.tools.schema import JSON

WORDS_ARGUMENT = "words"
# Environment variables of ours, which have no meaning for another server.
UNSHARED_OPTIONS = ("project", *ENGINE_SETTINGS)
# Options of every command. A parameter with the same name gets the prefix `tool-`.
RESERVED_OPTIONS = frozenset({"config", "data-dir", "help", "json", "log-level"})

EPILOG = "To use another gateway file, set EVERKEPT_GATEWAY_CONFIG."

_METAVARS = {"string": "TEXT", "fraction": "NUMBER", "integer": "INTEGER", "boolean": "BOOLEAN"}
_NOT_WORD = re.compile(r"[^\w.]+")
_DASHES = re.compile(r"[-_]+")


def read_gateway_commands(taken: Collection[str]) -> dict[str, ToolConfig]:
    """Return the tools in the gateway's file by command name.

    A name that is taken keeps its meaning; `everkept gateway call` reaches the other tools. It also reaches
    passed-through tools, which only their server knows.
    """
    try:
        tools = _read_tools()
    except EverkeptError:  # `gateway check`, status and doctor report it
        return {}
    named: dict[str, ToolConfig] = {}
    for tool in tools:
        name = to_command_name(tool.name)
        if name and name not in taken:
            named.setdefault(name, tool)
    return named


def find_gateway_fault() -> str | None:
    """Return why no tool of the gateway has a command, or None."""
    try:
        _read_tools()
    except EverkeptError as error:
        return replace_controls(str(error))
    return None


def _read_tools() -> Sequence[ToolConfig]:
    path = read_settings().gateway_config
    return () if path is None else load_file(path).config.tools


def to_command_name(tool: str) -> str:
    return _DASHES.sub("-", tool).strip("-")


def build_gateway_command(name: str, tool: ToolConfig) -> click.Command:
    arguments = _ToolArguments(tool.input_schema)

    def run(as_json: bool, data_dir: Any, config: Any, log_level: Any, **given: Any) -> None:
        typed = arguments.parse(given)
        result = run_gateway(
            lambda app: call_tool(app, tool.name, typed), data_dir=data_dir, config=config, log_level=log_level
        )
        print_result(result, as_json=as_json)

    command = click.command(name, help=tool.description, epilog=EPILOG)(add_common_options(run))
    shared = [option for option in command.params if option.name not in UNSHARED_OPTIONS]
    command.params = [*arguments.parameters, *shared]
    return command


class _ToolArguments:
    """Options for all parameters of a tool, and words for the required ones."""

    def __init__(self, schema: JSON) -> None:
        known = ToolParameters(schema)
        self._forms: dict[str, tuple[str, ValueForm]] = {}  # by destination
        self._needed: list[str] = []  # destinations, in order
        self._taken = set(RESERVED_OPTIONS)
        options: list[click.Parameter] = []
        for name in known.names:
            described = known.get_schema(name)
            if described is False:
                continue
            form, destination = known.get_form(name), f"argument_{len(self._forms)}"
            option = self._build_option(destination, name, form, _format_help(described))
            is_needed = name in known.required
            if option is not None or is_needed:
                self._forms[destination] = (name, form)
                self._needed += [destination] if is_needed else []
                options += [] if option is None else [option]
        shown = " ".join(map(self._format_metavar, self._needed))
        words = click.Argument([WORDS_ARGUMENT], nargs=-1, metavar=shown) if self._needed else None
        self.parameters: list[click.Parameter] = [*([words] if words else []), *options]

    def parse(self, given: dict[str, Any]) -> JSON:
        given |= self._assign_words(given.pop(WORDS_ARGUMENT, ()), given)
        values: JSON = {}
        for destination, (name, form) in self._forms.items():
            value = given.get(destination)
            if isinstance(value, bool):
                values[name] = value
            elif value not in (None, ()):
                texts = [value] if isinstance(value, str) else list(cast(Sequence[str], value))
                values[name] = form.parse_value(texts, name)
        return values

    def _assign_words(self, typed: Sequence[str], given: dict[str, Any]) -> dict[str, Any]:
        """Assign the words to required parameters that are not given as options, in order.

        Of several that take many words, only the first does.
        """
        waiting = [each for each in self._needed if given.get(each) in (None, ())]
        many = next((at for at, each in enumerate(waiting) if self._can_take_many(each)), None)
        spare = len(typed) - len(waiting)
        if spare < 0:
            raise click.UsageError(f"Missing argument '{self._format_metavar(waiting[len(typed)])}'.")
        if spare and many is None:
            extra = " ".join(typed[len(waiting) :])
            raise click.UsageError(f"Got unexpected extra argument ({clip_text(extra)})")
        spread: dict[str, Any] = {}
        rest = list(typed)
        for at, destination in enumerate(waiting):
            count = spare + 1 if at == many else 1
            own, rest = rest[:count], rest[count:]
            name, form = self._forms[destination]
            is_spoken = name in PHRASE_PARAMETERS and form.can_take("string")
            texts = [" ".join(own)] if is_spoken else own
            spread[destination] = [_get_click_type(form).convert(text, None, None) for text in texts]
        return spread

    def _can_take_many(self, destination: str) -> bool:
        name, form = self._forms[destination]
        return form.has_only("array") or (name in PHRASE_PARAMETERS and form.can_take("string"))

    def _format_metavar(self, destination: str) -> str:
        name, form = self._forms[destination]
        shown = replace_controls(format_label(name).replace(" ", "_").upper())
        if keys := form.item_keys:
            return replace_controls(f"JSON | {clip_text(' '.join(f'{key}=…' for key in keys))} ...")
        return f"{shown}..." if self._can_take_many(destination) else shown

    def _build_option(self, destination: str, name: str, form: ValueForm, help_: str) -> click.Option | None:
        """Return None if no name is free for it."""
        is_flag = form.has_only("boolean")
        option = self._choose_name(name, is_flag=is_flag)
        if option is None:
            return None
        if is_flag:
            return click.Option([f"--{option}/--no-{option}", destination], default=None, help=help_)
        repeated = not form.is_open and form.can_take("array")
        kind = _get_click_type(form)
        return click.Option(
            [f"--{option}", destination],
            type=kind,
            multiple=repeated,
            metavar=_format_metavar(form) if kind is click.STRING else None,
            help=help_ + (". Repeatable." if repeated else ""),
        )

    def _choose_name(self, name: str, *, is_flag: bool) -> str | None:
        usual = _NOT_WORD.sub("-", format_label(name)).replace("_", "-").strip("-.")
        exact = name if _NOT_WORD.search(name) is None else ""
        for candidate in (usual, f"tool-{usual}", exact):
            wanted = {candidate, f"no-{candidate}"} if is_flag else {candidate}
            if candidate and not wanted & self._taken:
                self._taken |= wanted
                return candidate
        return None


def _get_click_type(form: ValueForm) -> Any:
    """Return text for the schema to parse, or a choice if the schema lists texts."""
    texts = [each for each in form.choices if isinstance(each, str) and each.isprintable()]
    return click.Choice(texts) if texts and len(texts) == len(form.choices) else click.STRING


def _format_metavar(form: ValueForm) -> str:
    if form.has_only("array"):
        form = form.items
    if form.is_open:
        return "VALUE"
    return next((shown for kind, shown in _METAVARS.items() if kind in form.kinds), "JSON")


def _format_help(described: Any) -> str:
    if not isinstance(described, dict):
        return ""
    about = cast(JSON, described)
    told, default = about.get("description"), about.get("default")
    text = clip_text(told, 300) if isinstance(told, str) else ""
    if default not in (None, False, "", []):
        text = f"{text}  [default: {clip_text(str(default))}]".strip()
    return replace_controls(text)
