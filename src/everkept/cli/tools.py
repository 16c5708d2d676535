"""Every tool as a command, with its arguments as a person types them."""

import io
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, cast, get_args, get_origin

import click

from everkept.app.app import App
from everkept.cli.options import COMMON, common
from everkept.cli.render import render, words
from everkept.cli.runner import (
    EVERYTHING,
    choose_project,
    command_name,
    command_session,
    confirmed,
    keep_selection,
    print_json,
    run_with_app,
)
from everkept.core.sessions import Session
from everkept.core.text import clipped
from everkept.errors import InvalidInput
from everkept.families.bank.model import TOOLS as BANK_TOOLS
from everkept.settings import AUTO, load
from everkept.tools.schema import Parameter, bare_type, parameters_of
from everkept.tools.tool import Effect, Result, Tool
from everkept.values import is_value_type, replace

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


PROJECT = "project"  # an option of every command already

# Of tools that need no argument: the one that a person means by a word without a name.
OBVIOUS = {
    "switch_mode": "mode",
    "select_store": "store_id",
    "set_memory_bank_path": "path",
    "graph_delete_entity": "entity",
}
WORD = "word"
# Of tools that can answer in text for a person, which is who commands are for.
FORMAT, MARKDOWN = "format", "markdown"
FILTER = "project_filter"

# Settings that say which bank is meant, as far as the tool has no such argument itself.
OF_THE_BANK = {
    "path": click.Option(
        ["--path"], type=click.Path(path_type=Path), help="Working folder; its bank is meant."
    ),
    "folder": click.Option(["--folder"], help="Name of the bank's folder."),
    "username": click.Option(["--username"], help="Who makes the entries."),
}


def tool_commands() -> dict[str, Tool]:
    """The tools by the name of their command."""
    return {command_name(tool.name): tool for tool in App(load(EVERYTHING)).tools}


def command_for(name: str, tool: Tool) -> click.Command:
    own = [parameter for parameter in tool.parameters if parameter.name != PROJECT]
    of_bank = _bank_options(tool, own)

    def run(as_json: bool, yes: bool = False, **given: Any) -> None:
        if tool.effect is Effect.ERASES and not confirmed(f"{tool.description} Go on?", yes=yes):
            return
        flags = {key: given.pop(key) for key in (*COMMON, *of_bank)}
        if flags.get("path") is not None:
            flags["path"] = flags["path"].expanduser().resolve()
        arguments = _arguments(tool, own, given)
        if not as_json and FORMAT in given:
            arguments.setdefault(FORMAT, MARKDOWN)
        if FILTER in given:
            _choose_project(arguments, flags[PROJECT])
        takes_project = len(own) < len(tool.parameters)
        if takes_project and not _makes(tool) and flags[PROJECT] not in (None, AUTO):
            # Only what writes makes a project that is missing: a mistyped name must not look
            # like an empty one.
            arguments[PROJECT] = flags[PROJECT]
        if tool.name == "switch_project" and arguments.get("name") == AUTO:
            run_with_app(lambda app: choose_project(app, None), **flags)
            click.echo("Commands here mean the project of this folder from now on.")
            return
        names_bank = any(flags.get(key) is not None for key in ("path", "folder"))

        async def call(app: App) -> tuple[Result, str | None]:
            session = await command_session(app, keeps_bank=not names_bank)
            before = replace(session)
            result = await app.call(session, tool.name, arguments)
            await keep_selection(app, session, before)
            return result, _about_choice(app, session, before, _asks(tool, arguments))

        result, note = run_with_app(call, stores=not tool.only_reads, **flags)
        if as_json:
            print_json(result.structured)
        elif arguments.get(FORMAT) == MARKDOWN:
            click.echo(result.text)
            if "(turn_" in result.text or "(code_" in result.text:
                click.echo("`everkept read-conversation ID` opens the conversation around one.")
        else:
            render(result)
            if note is not None:
                click.echo(note)

    command = click.command(name, help=tool.description)(common(run))
    command.params = [*_typed(tool, own), *of_bank.values(), *command.params]
    if tool.effect is Effect.ERASES:
        command.params.append(click.Option(["--yes"], is_flag=True, help="Do not ask."))
    return command


def _choose_project(arguments: dict[str, Any], project: str | None) -> None:
    """Whoever says --project means it, and `.` is the folder that the command runs in."""
    if project not in (None, AUTO):
        arguments.setdefault(FILTER, project)
    if arguments.get(FILTER) in (".", "./"):
        arguments[FILTER] = str(Path.cwd())


def _makes(tool: Tool) -> bool:
    return tool.effect in (Effect.WRITES, Effect.REPEATABLE)


def _bank_options(tool: Tool, own: list[Parameter]) -> dict[str, click.Parameter]:
    if tool.name not in BANK_TOOLS:
        return {}
    taken = {parameter.attribute for parameter in own}
    return {name: option for name, option in OF_THE_BANK.items() if name not in taken}


def _typed(tool: Tool, own: list[Parameter]) -> list[click.Parameter]:
    obvious = OBVIOUS.get(tool.name)
    before = [word_for(parameter, WORD) for parameter in own if parameter.attribute == obvious]
    return [*before, *(click_parameter(parameter) for parameter in own)]


def _arguments(tool: Tool, own: list[Parameter], given: dict[str, Any]) -> dict[str, Any]:
    word = given.pop(WORD, None)
    if word is not None:
        obvious = OBVIOUS[tool.name]
        if given[obvious] is not None:
            option = obvious.replace("_", "-")
            raise click.UsageError(f"{word!r} and --{option} are both given; one is enough.")
        given[obvious] = word
    return {
        parameter.name: argument_from(parameter, given[parameter.attribute])
        for parameter in own
        if given[parameter.attribute] not in (None, ())
    }


def _asks(tool: Tool, arguments: dict[str, Any]) -> bool:
    """Whether the command wants to know which bank is meant."""
    return tool.name == "get_memory_bank_status" and "storeId" not in arguments


def _about_choice(app: App, session: Session, before: Session, asked: bool) -> str | None:
    """What is chosen of banks lasts from one command to the next, so it is said."""
    folder = app.settings.path
    usual = str(Path(folder or "") / app.settings.folder)
    if (session.bank or usual) != (before.bank or usual):
        return f"Commands in {folder} mean this bank from now on."
    if asked and before.bank not in (None, usual):
        return (
            f"It was chosen for commands in {folder}; "
            "`everkept set-memory-bank-path` goes back to the bank there."
        )
    return None
