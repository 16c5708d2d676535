"""The gateway's tools as commands, made from the schemas in its file."""

import re
from collections.abc import Collection, Sequence
from typing import Any, cast

import click

from everkept.app.gateway_file import load as load_file
from everkept.cli.gateway_call import Form, Parameters, called, run_gateway, show
from everkept.cli.options import OF_THE_ENGINE, common
from everkept.cli.render import words
from everkept.cli.runner import harmless
from everkept.cli.tools import SPOKEN
from everkept.core.text import clipped
from everkept.errors import EverkeptError
from everkept.families.gateway.model import ToolConfig
from everkept.settings import load
from everkept.tools.schema import JSON

WORDS = "words"
# Ours mean nothing to another server, and it may well have its own.
NOT_SHARED = ("project", *OF_THE_ENGINE)
# Options that every command has; a parameter of the same name gets `tool-` before it.
RESERVED = frozenset({"config", "data-dir", "help", "json", "log-level"})

EPILOG = "EVERKEPT_GATEWAY_CONFIG names another file of the gateway than the usual one."

_METAVARS = {"string": "TEXT", "fraction": "NUMBER", "integer": "INTEGER", "boolean": "BOOLEAN"}
_OTHER = re.compile(r"[^\w.]+")
_DASHES = re.compile(r"[-_]+")


def gateway_commands(taken: Collection[str]) -> dict[str, ToolConfig]:
    """Tools with an entry in the gateway's file, by the name of their command.

    Whoever has a name already keeps it; `everkept gateway call` reaches the others. So it does
    those that are passed through: which there are, only their server knows.
    """
    try:
        tools = _tools()
    except EverkeptError:  # told by `gateway check`, status and doctor: nobody else asked
        return {}
    named: dict[str, ToolConfig] = {}
    for tool in tools:
        name = command_of(tool.name)
        if name and name not in taken:
            named.setdefault(name, tool)
    return named


def fault_in_file() -> str | None:
    """Why no tool of the gateway has a command; None where there is no such reason."""
    try:
        _tools()
    except EverkeptError as error:
        return harmless(str(error))
    return None


def _tools() -> Sequence[ToolConfig]:
    path = load().gateway_config
    return () if path is None else load_file(path).config.tools


def command_of(tool: str) -> str:
    return _DASHES.sub("-", tool).strip("-")


def command_for(name: str, tool: ToolConfig) -> click.Command:
    arguments = _Arguments(tool.input_schema)

    def run(as_json: bool, data_dir: Any, config: Any, log_level: Any, **given: Any) -> None:
        typed = arguments.typed(given)
        result = run_gateway(
            lambda app: called(app, tool.name, typed),
            data_dir=data_dir,
            config=config,
            log_level=log_level,
        )
        show(result, as_json=as_json)

    command = click.command(name, help=tool.description, epilog=EPILOG)(common(run))
    shared = [option for option in command.params if option.name not in NOT_SHARED]
    command.params = [*arguments.parameters, *shared]
    return command


class _Arguments:
    """Options for all that the tool takes, and words for what it needs."""

    def __init__(self, schema: JSON) -> None:
        known = Parameters(schema)
        self._forms: dict[str, tuple[str, Form]] = {}  # by destination
        self._needed: list[str] = []  # destinations, in order
        self._taken = set(RESERVED)
        options: list[click.Parameter] = []
        for name in known.names:
            described = known.described(name)
            if described is False:
                continue
            form, destination = known.form(name), f"argument_{len(self._forms)}"
            option = self._option(destination, name, form, _help(described))
            is_needed = name in known.required
            if option is not None or is_needed:
                self._forms[destination] = (name, form)
                self._needed += [destination] if is_needed else []
                options += [] if option is None else [option]
        shown = " ".join(map(self._shown, self._needed))
        words = click.Argument([WORDS], nargs=-1, metavar=shown) if self._needed else None
        self.parameters: list[click.Parameter] = [*([words] if words else []), *options]

    def typed(self, given: dict[str, Any]) -> JSON:
        given |= self._spread(given.pop(WORDS, ()), given)
        values: JSON = {}
        for destination, (name, form) in self._forms.items():
            value = given.get(destination)
            if isinstance(value, bool):
                values[name] = value
            elif value not in (None, ()):
                texts = [value] if isinstance(value, str) else list(cast(Sequence[str], value))
                values[name] = form.value_of(texts, name)
        return values

    def _spread(self, typed: Sequence[str], given: dict[str, Any]) -> dict[str, Any]:
        """The words for what is needed and not given as an option, in order.

        Of several that take many words, only the first does.
        """
        waiting = [each for each in self._needed if given.get(each) in (None, ())]
        many = next((at for at, each in enumerate(waiting) if self._takes_many(each)), None)
        spare = len(typed) - len(waiting)
        if spare < 0:
            raise click.UsageError(f"Missing argument '{self._shown(waiting[len(typed)])}'.")
        if spare and many is None:
            extra = " ".join(typed[len(waiting) :])
            raise click.UsageError(f"Got unexpected extra argument ({clipped(extra)})")
        spread: dict[str, Any] = {}
        rest = list(typed)
        for at, destination in enumerate(waiting):
            count = spare + 1 if at == many else 1
            own, rest = rest[:count], rest[count:]
            name, form = self._forms[destination]
            is_spoken = name in SPOKEN and form.takes("string")
            texts = [" ".join(own)] if is_spoken else own
            spread[destination] = [_type(form).convert(text, None, None) for text in texts]
        return spread

    def _takes_many(self, destination: str) -> bool:
        name, form = self._forms[destination]
        return form.is_only("array") or (name in SPOKEN and form.takes("string"))

    def _shown(self, destination: str) -> str:
        name, form = self._forms[destination]
        shown = harmless(words(name).replace(" ", "_").upper())
        if keys := form.keys_of_items:
            return harmless(f"JSON | {clipped(' '.join(f'{key}=…' for key in keys))} ...")
        return f"{shown}..." if self._takes_many(destination) else shown

    def _option(self, destination: str, name: str, form: Form, help_: str) -> click.Option | None:
        """None where no name is left for it."""
        is_flag = form.is_only("boolean")
        option = self._name_for(name, is_flag=is_flag)
        if option is None:
            return None
        if is_flag:
            return click.Option(
                [f"--{option}/--no-{option}", destination], default=None, help=help_
            )
        repeated = not form.is_open and form.takes("array")
        kind = _type(form)
        return click.Option(
            [f"--{option}", destination],
            type=kind,
            multiple=repeated,
            metavar=_metavar(form) if kind is click.STRING else None,
            help=help_ + (" May be repeated." if repeated else ""),
        )

    def _name_for(self, name: str, *, is_flag: bool) -> str | None:
        usual = _OTHER.sub("-", words(name)).replace("_", "-").strip("-.")
        exact = name if _OTHER.search(name) is None else ""
        for candidate in (usual, f"tool-{usual}", exact):
            wanted = {candidate, f"no-{candidate}"} if is_flag else {candidate}
            if candidate and not wanted & self._taken:
                self._taken |= wanted
                return candidate
        return None


def _type(form: Form) -> Any:
    """Text, which is read by the schema; where that lists texts, one of them."""
    texts = [each for each in form.choices if isinstance(each, str) and each.isprintable()]
    return click.Choice(texts) if texts and len(texts) == len(form.choices) else click.STRING


def _metavar(form: Form) -> str:
    if form.is_only("array"):
        form = form.items
    if form.is_open:
        return "VALUE"
    return next((shown for kind, shown in _METAVARS.items() if kind in form.kinds), "JSON")


def _help(described: Any) -> str:
    if not isinstance(described, dict):
        return ""
    about = cast(JSON, described)
    told, default = about.get("description"), about.get("default")
    text = clipped(told, 300) if isinstance(told, str) else ""
    if default not in (None, False, "", []):
        text = f"{text}  [default: {clipped(str(default))}]".strip()
    return harmless(text)
