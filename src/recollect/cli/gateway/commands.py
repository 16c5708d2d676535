"""The gateway's tools as commands, made from the schemas in its file."""

import re
from collections.abc import Collection, Sequence
from typing import Any, cast

import click

from recollect.app.gateway.file import load as load_file
from recollect.cli.bank import words
from recollect.cli.gateway.call import called, run_gateway, show
from recollect.cli.gateway.values import Form, Parameters
from recollect.cli.options import common
from recollect.cli.parameters import SPOKEN
from recollect.cli.running import harmless
from recollect.core.text import clipped
from recollect.errors import RecollectError
from recollect.families.gateway.model import ToolConfig
from recollect.settings import load
from recollect.tools.schema import JSON

PROJECT = "project"  # ours mean nothing to another server, and it may well have its own
# Options that every command has; a parameter of the same name gets `tool-` before it.
RESERVED = frozenset({"config", "data-dir", "help", "json", "log-level"})

_METAVARS = {"string": "TEXT", "fraction": "NUMBER", "integer": "INTEGER", "boolean": "BOOLEAN"}
_OTHER = re.compile(r"[^\w.]+")
_DASHES = re.compile(r"[-_]+")


def gateway_commands(taken: Collection[str]) -> dict[str, ToolConfig]:
    """Tools with an entry in the gateway's file, by the name of their command.

    Whoever has a name already keeps it; `recollect gateway call` reaches the others. So it does
    those that are passed through: which there are, only their server knows.
    """
    try:
        path = load().gateway_config
        tools = () if path is None else load_file(path).config.tools
    except RecollectError:  # told by `gateway check`, status and doctor: nobody else asked
        return {}
    named: dict[str, ToolConfig] = {}
    for tool in tools:
        name = _DASHES.sub("-", tool.name).strip("-")
        if name and name not in taken:
            named.setdefault(name, tool)
    return named


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

    command = click.command(name, help=tool.description)(common(run))
    shared = [option for option in command.params if option.name != PROJECT]
    command.params = [*arguments.parameters, *shared]
    return command


class _Arguments:
    """Words for what the tool needs, options for the rest."""

    def __init__(self, schema: JSON) -> None:
        known = Parameters(schema)
        self.parameters: list[click.Parameter] = []
        self._forms: dict[str, tuple[str, Form]] = {}  # by destination
        self._taken = set(RESERVED)
        self._spoken: set[str] = set()
        self._has_many = False
        for name in known.names:
            described = known.described(name)
            if described is False:
                continue
            form, destination = known.form(name), f"argument_{len(self._forms)}"
            made = (
                self._word(destination, name, form)
                if name in known.required
                else self._option(destination, name, form, _help(described))
            )
            if made is not None:
                self._forms[destination] = (name, form)
                self.parameters.append(made)

    def typed(self, given: dict[str, Any]) -> JSON:
        values: JSON = {}
        for destination, (name, form) in self._forms.items():
            value = given[destination]
            if isinstance(value, bool):
                values[name] = value
            elif value not in (None, ()):
                texts = [value] if isinstance(value, str) else list(cast(Sequence[str], value))
                if destination in self._spoken:
                    texts = [" ".join(texts)]
                values[name] = form.value_of(texts, name)
        return values

    def _word(self, destination: str, name: str, form: Form) -> click.Argument:
        """Of several that take many words, only one can."""
        is_spoken = name in SPOKEN and form.takes("string")
        has_many = not self._has_many and (is_spoken or form.is_only("array"))
        self._has_many = self._has_many or has_many
        if is_spoken and has_many:
            self._spoken.add(destination)
        shown = words(name).replace(" ", "_").upper()
        return click.Argument(
            [destination],
            type=_type(form),
            metavar=f"{shown}..." if has_many else shown,
            nargs=-1 if has_many else 1,
            required=True,
        )

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
