"""A tool's arguments as a person types them: words, options, flags, JSON and standard input."""

import io
import json
import sys
from collections.abc import Sequence
from typing import Any, Literal, cast, get_args, get_origin

import click

from everkept.cli.bank import words
from everkept.core.text import clipped
from everkept.errors import InvalidInput
from everkept.tools.schema import Parameter, bare_type, parameters_of
from everkept.values import is_value_type

STANDARD_INPUT = "-"
SPOKEN = ("query", "problem_description")  # several words, which nobody needs to quote
STREAMED = "content"  # the argument whose text may come from standard input


def click_parameter(parameter: Parameter) -> click.Parameter:
    """A word where the tool needs it, an option otherwise."""
    kind = bare_type(parameter.annotation)
    if parameter.is_required:
        return click.Argument(
            [parameter.attribute],
            metavar=_metavar(parameter, kind),
            nargs=-1 if _is_list(kind) or parameter.name in SPOKEN else 1,
            required=True,
        )
    if parameter.field.moment:
        kind = str  # a time is typed as text
    name = parameter.attribute.rstrip("_").replace("_", "-")
    if kind is bool:
        return click.Option(
            [f"--{name}/--no-{name}", parameter.attribute], default=None, help=_help(parameter)
        )
    repeated = _is_plain_list(kind)
    return click.Option(
        [f"--{name}", parameter.attribute],
        type=_click_type(bare_type(get_args(kind)[0]) if repeated else kind),
        multiple=repeated,
        metavar=None if _is_plain(kind) or repeated else "JSON",
        help=_help(parameter) + (" May be repeated." if repeated else ""),
        default=None,
    )


def word_for(parameter: Parameter, destination: str) -> click.Argument:
    """A word that stands for an option."""
    kind = _click_type(bare_type(parameter.annotation))
    shown = _shown_name(parameter)
    return click.Argument([destination], metavar=f"[{shown}]", type=kind, required=False)


def argument_from(parameter: Parameter, value: Any) -> Any:
    """What the tool is called with."""
    kind = bare_type(parameter.annotation)
    if not parameter.is_required and not _is_plain(kind) and not _is_plain_list(kind):
        return _parsed_json(value, parameter.name)
    if parameter.is_required and parameter.name == STREAMED and value == STANDARD_INPUT:
        return standard_input()
    if parameter.is_required and parameter.name in SPOKEN:
        return " ".join(cast(Sequence[str], value))
    if not _is_list(kind):
        return value
    item = bare_type(get_args(kind)[0])
    typed: Sequence[str] = value
    return items_from(typed, item, parameter.name) if is_value_type(item) else list(typed)


def items_from(typed: Sequence[str], item: Any, name: str) -> list[Any]:
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
    for word in typed:
        key, separator, value = word.partition("=")
        if word == STANDARD_INPUT:
            items += _from_json(standard_input(), name, [*known])
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


def _help(parameter: Parameter) -> str:
    default = parameter.default
    if default in (None, False, "", []):
        return parameter.field.description
    return f"{parameter.field.description}  [default: {'yes' if default is True else default}]"


def _metavar(parameter: Parameter, kind: Any) -> str:
    shown = _shown_name(parameter)
    if parameter.name in SPOKEN:
        return f"{shown}..."
    if not _is_list(kind):
        return f"{shown} | {STANDARD_INPUT}" if parameter.name == STREAMED else shown
    item = bare_type(get_args(kind)[0])
    if not is_value_type(item):
        return f"{shown}..."
    fields = " ".join(f"{p.name}=…" for p in parameters_of(cast(type, item)))
    return f"JSON | {fields} ..."


def _shown_name(parameter: Parameter) -> str:
    return words(parameter.name).replace(" ", "_").upper()


def _click_type(kind: Any) -> Any:
    if get_origin(kind) is Literal:
        return click.Choice(list(get_args(kind)))
    return {int: int, float: float, bool: bool}.get(kind, str)


def standard_input() -> str:
    """All of it, with the ends of lines that it has."""
    stream: Any = sys.stdin
    if isinstance(stream, io.TextIOWrapper):
        cast(Any, stream).reconfigure(encoding="utf-8", newline="")
    try:
        return str(stream.read())
    except UnicodeDecodeError:
        raise InvalidInput("What came on standard input is not UTF-8.") from None


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
