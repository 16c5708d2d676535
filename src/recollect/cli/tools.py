"""Every tool as a command, made from the same declaration as its schema."""

import json
import sys
from collections.abc import Sequence
from dataclasses import is_dataclass, replace
from typing import Any, Literal, cast, get_args, get_origin

import click

from recollect.app.app import App
from recollect.cli.options import common
from recollect.cli.render import render
from recollect.cli.running import (
    EVERY_TOOL,
    command_session,
    confirmed,
    keep_selection,
    print_json,
    run_with_app,
)
from recollect.core.text import clipped
from recollect.errors import InvalidInput
from recollect.settings import AUTO, load
from recollect.tools.schema import Parameter, bare_type, parameters_of
from recollect.tools.tool import Effect, Tool

EVERYTHING = {**EVERY_TOOL, "read_only": False, "dialect": "recollect"}
PROJECT = "project"  # an option of every command already


def tool_commands() -> dict[str, Tool]:
    """The tools by the name of their command."""
    return {tool.name.replace("_", "-"): tool for tool in App(load(EVERYTHING)).tools}


def command_for(name: str, tool: Tool) -> click.Command:
    own = [parameter for parameter in tool.parameters if parameter.name != PROJECT]

    def run(as_json: bool, yes: bool = False, **given: Any) -> None:
        if tool.effect is Effect.ERASES and not confirmed(f"{tool.description} Go on?", yes=yes):
            return
        flags = {key: given.pop(key) for key in ("data_dir", PROJECT, "log_level")}
        takes_project = len(own) < len(tool.parameters)
        arguments: dict[str, Any] = {
            parameter.name: _argument(parameter, given[parameter.attribute])
            for parameter in own
            if given[parameter.attribute] not in (None, ())
        }

        if takes_project and not _makes(tool) and flags[PROJECT] not in (None, AUTO):
            # Only what writes makes a project that is missing: a mistyped name must not look
            # like an empty one.
            arguments[PROJECT] = flags[PROJECT]

        async def call(app: App) -> Any:
            session = await command_session(app)
            before = replace(session)
            result = await app.call(session, tool.name, arguments)
            await keep_selection(app, session, before)
            return result

        result = run_with_app(call, **flags)
        if as_json:
            print_json(result.structured)
        else:
            render(result)

    command = click.command(name, help=tool.description)(common(run))
    command.params = [_click_parameter(parameter) for parameter in own] + command.params
    if tool.effect is Effect.ERASES:
        command.params.append(click.Option(["--yes"], is_flag=True, help="Do not ask."))
    return command


def _makes(tool: Tool) -> bool:
    return tool.effect in (Effect.WRITES, Effect.REPEATABLE)


def _click_parameter(parameter: Parameter) -> click.Parameter:
    kind = bare_type(parameter.annotation)
    if parameter.is_required:
        return click.Argument(
            [parameter.attribute],
            metavar=_metavar(parameter, kind),
            nargs=-1 if _is_list(kind) else 1,
            required=True,
        )
    if parameter.field.moment:
        kind = str  # a time is typed as text
    repeated = _is_plain_list(kind)
    return click.Option(
        ["--" + parameter.attribute.rstrip("_").replace("_", "-"), parameter.attribute],
        type=_click_type(bare_type(get_args(kind)[0]) if repeated else kind),
        multiple=repeated,
        metavar=None if _is_plain(kind) or repeated else "JSON",
        help=parameter.field.description + (" May be repeated." if repeated else ""),
        default=None,
        show_default=str(parameter.default) if parameter.default else False,
    )


def _metavar(parameter: Parameter, kind: Any) -> str:
    if not _is_list(kind):
        return parameter.name.upper()
    item = bare_type(get_args(kind)[0])
    if not is_dataclass(item):
        return parameter.name.upper() + "..."
    fields = " ".join(f"{p.name}=…" for p in parameters_of(cast(type, item)))
    return f"JSON | {fields} ..."


def _click_type(kind: Any) -> Any:
    if get_origin(kind) is Literal:
        return click.Choice(list(get_args(kind)))
    return {int: int, float: float, bool: bool}.get(kind, str)


def _argument(parameter: Parameter, value: Any) -> Any:
    kind = bare_type(parameter.annotation)
    if not parameter.is_required and not _is_plain(kind) and not _is_plain_list(kind):
        return _parsed_json(value, parameter.name)
    if not _is_list(kind):
        return value
    item = bare_type(get_args(kind)[0])
    words: Sequence[str] = value
    return items_from(words, item, parameter.name) if is_dataclass(item) else list(words)


def items_from(words: Sequence[str], item: Any, name: str) -> list[Any]:
    """Objects from what a person can type: JSON, `-` for JSON on standard input, or key=value.

    A key that is given again begins the next object, unless it takes a list.
    """
    known = {
        name: parameter
        for parameter in parameters_of(item)
        for name in (parameter.name, *parameter.field.aliases)
    }
    items: list[Any] = []
    current: dict[str, Any] = {}
    for word in words:
        key, separator, value = word.partition("=")
        if word == "-":
            items += _from_json(sys.stdin.read(), name, [*known])
        elif separator and key.strip() in known:
            parameter = known[key.strip()]
            if _is_list(bare_type(parameter.annotation)):
                current.setdefault(parameter.name, []).append(value)
                continue
            if parameter.name in current:
                items.append(current)
                current = {}
            current[parameter.name] = value
        else:
            items += _from_json(word, name, [*known])
    return [*items, current] if current else items


def _from_json(text: str, name: str, known: Sequence[str]) -> list[Any]:
    """A list, one object, or the tool's whole argument with the list under its name."""
    try:
        value = json.loads(text)
    except ValueError as error:
        shown = clipped(text)
        raise InvalidInput(
            f"{shown!r} is neither JSON nor one of these with a value: {', '.join(known)}.",
            hint=f"Write {known[0]}=…, JSON, or - for JSON on standard input.",
            value=shown,
        ) from error
    if isinstance(value, dict) and name in value:
        value = cast(dict[str, Any], value)[name]
    return cast(list[Any], value) if isinstance(value, list) else [value]


def _parsed_json(text: str, name: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        shown = clipped(text)
        raise InvalidInput(
            f"`{name}` is {shown!r}, which is no JSON.", argument=name, value=shown
        ) from error


def _is_plain(kind: Any) -> bool:
    return kind in (str, int, float, bool) or get_origin(kind) is Literal


def _is_plain_list(kind: Any) -> bool:
    return _is_list(kind) and _is_plain(bare_type(get_args(kind)[0]))


def _is_list(kind: Any) -> bool:
    return get_origin(kind) is list
