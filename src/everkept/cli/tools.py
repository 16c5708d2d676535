"""Every tool as a command, with its arguments as a person types them."""

import io
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, cast, get_args, get_origin

import click

from everkept.app.app import App
from everkept.cli.options import COMMON_SETTINGS, add_common_options
from everkept.cli.render import format_label, render
from everkept.cli.runner import (
    FULL_SETTINGS,
    choose_project,
    confirm,
    echo,
    print_json,
    read_session,
    run_with_app,
    save_selection,
    to_command_name,
)
from everkept.core.sessions import Session
from everkept.core.text import clip_text
from everkept.errors import InvalidInput
from everkept.families.bank.model import TOOL_NAMES as BANK_TOOLS
from everkept.settings import AUTO, read_settings
from everkept.tools.schema import Parameter, get_bare_type, list_parameters
from everkept.tools.tool import Effect, Tool, ToolResult
from everkept.values import is_value_type, replace

STANDARD_INPUT = "-"
PHRASE_PARAMETERS = ("query", "problem_description")  # several words without quotes
STREAM_PARAMETER = "content"  # argument whose text may come from standard input


def build_click_parameter(parameter: Parameter) -> click.Parameter:
    """Build a word for a required argument, otherwise an option."""
    kind = get_bare_type(parameter.annotation)
    if parameter.is_required:
        return click.Argument(
            [parameter.attribute],
            metavar=_format_metavar(parameter, kind),
            nargs=-1 if _is_list(kind) or parameter.name in PHRASE_PARAMETERS else 1,
            required=True,
        )
    if parameter.field.moment:
        kind = str  # a time is typed as text
    name = parameter.attribute.rstrip("_").replace("_", "-")
    if kind is bool:
        return click.Option([f"--{name}/--no-{name}", parameter.attribute], default=None, help=_format_help(parameter))
    repeated = _is_plain_list(kind)
    return click.Option(
        [f"--{name}", parameter.attribute],
        type=_get_click_type(get_bare_type(get_args(kind)[0]) if repeated else kind),
        multiple=repeated,
        metavar=None if _is_plain(kind) or repeated else "JSON",
        help=_format_help(parameter) + (" May be repeated." if repeated else ""),
        default=None,
    )


def build_word_argument(parameter: Parameter, destination: str) -> click.Argument:
    """Build a word in place of an option."""
    kind = _get_click_type(get_bare_type(parameter.annotation))
    shown = _format_name(parameter)
    return click.Argument([destination], metavar=f"[{shown}]", type=kind, required=False)


def parse_argument(parameter: Parameter, value: Any) -> Any:
    """Parse an argument into the value that the tool takes."""
    kind = get_bare_type(parameter.annotation)
    if not parameter.is_required and not _is_plain(kind) and not _is_plain_list(kind):
        return _parse_json(value, parameter.name)
    if parameter.is_required and parameter.name == STREAM_PARAMETER and value == STANDARD_INPUT:
        return read_standard_input()
    if parameter.is_required and parameter.name in PHRASE_PARAMETERS:
        return " ".join(cast(Sequence[str], value))
    if not _is_list(kind):
        return value
    item = get_bare_type(get_args(kind)[0])
    typed: Sequence[str] = value
    return parse_items(typed, item, parameter.name) if is_value_type(item) else list(typed)


def parse_items(typed: Sequence[str], item: Any, name: str) -> list[Any]:
    """Parse objects from JSON, `-` for JSON on standard input, or key=value.

    A repeated key begins the next object, unless it takes a list.
    """
    known = {
        name: parameter for parameter in list_parameters(item) for name in (parameter.name, *parameter.field.aliases)
    }
    items: list[Any] = []
    current: dict[str, Any] = {}
    for word in typed:
        key, separator, value = word.partition("=")
        if word == STANDARD_INPUT:
            items += _parse_json_items(read_standard_input(), name, [*known])
        elif separator and key.strip() in known:
            parameter = known[key.strip()]
            if _is_list(get_bare_type(parameter.annotation)):
                current.setdefault(parameter.name, []).append(value)
                continue
            if parameter.name in current:
                items.append(current)
                current = {}
            current[parameter.name] = value
        else:
            items += _parse_json_items(word, name, [*known])
    return [*items, current] if current else items


def _format_help(parameter: Parameter) -> str:
    default = parameter.default
    if default in (None, False, "", []):
        return parameter.field.description
    return f"{parameter.field.description}  [default: {'yes' if default is True else default}]"


def _format_metavar(parameter: Parameter, kind: Any) -> str:
    shown = _format_name(parameter)
    if parameter.name in PHRASE_PARAMETERS:
        return f"{shown}..."
    if not _is_list(kind):
        return f"{shown} | {STANDARD_INPUT}" if parameter.name == STREAM_PARAMETER else shown
    item = get_bare_type(get_args(kind)[0])
    if not is_value_type(item):
        return f"{shown}..."
    fields = " ".join(f"{p.name}=…" for p in list_parameters(cast(type, item)))
    return f"JSON | {fields} ..."


def _format_name(parameter: Parameter) -> str:
    return format_label(parameter.name).replace(" ", "_").upper()


def _get_click_type(kind: Any) -> Any:
    if get_origin(kind) is Literal:
        return click.Choice(list(get_args(kind)))
    return {int: int, float: float, bool: bool}.get(kind, str)


def read_standard_input() -> str:
    """Return all of standard input with its own line ends."""
    stream: Any = sys.stdin
    if isinstance(stream, io.TextIOWrapper):
        cast(Any, stream).reconfigure(encoding="utf-8", newline="")
    try:
        return str(stream.read())
    except UnicodeDecodeError:
        raise InvalidInput("Standard input is not UTF-8.", hint="Convert it to UTF-8 first.") from None


def _parse_json_items(text: str, name: str, known: Sequence[str]) -> list[Any]:
    """Parse a list, one object, or the tool's whole argument with the list under its name."""
    try:
        value = json.loads(text)
    except ValueError as error:
        shown = clip_text(text)
        raise InvalidInput(
            f"{shown!r} is not JSON or NAME=VALUE with one of these names: {', '.join(known)}.",
            hint=f"Write {known[0]}=…, JSON, or - for JSON on standard input.",
            value=shown,
        ) from error
    if isinstance(value, dict) and name in value:
        value = cast(dict[str, Any], value)[name]
    return cast(list[Any], value) if isinstance(value, list) else [value]


def _parse_json(text: str, name: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        shown = clip_text(text)
        raise InvalidInput(
            f"`{name}` is {shown!r}, which is not JSON.", hint="Write it as JSON.", argument=name, value=shown
        ) from error


def _is_plain(kind: Any) -> bool:
    return kind in (str, int, float, bool) or get_origin(kind) is Literal


def _is_plain_list(kind: Any) -> bool:
    return _is_list(kind) and _is_plain(get_bare_type(get_args(kind)[0]))


def _is_list(kind: Any) -> bool:
    return get_origin(kind) is list


PROJECT_PARAMETER = "project"  # an option of every command already

# For tools without required arguments: the argument for a word without a name.
DEFAULT_WORDS = {
    "switch_mode": "mode",
    "select_store": "store_id",
    "set_memory_bank_path": "path",
    "initialize_memory_bank": "path",
    "graph_delete_entity": "entity",
}
WORD_ARGUMENT = "word"
# Arguments that make a tool answer in text for people.
FORMAT_PARAMETER, MARKDOWN_FORMAT = "format", "markdown"
FILTER_PARAMETER = "project_filter"

# Settings that select a bank, if the tool does not have such an argument.
BANK_OPTIONS = {
    "path": click.Option(["--path"], type=click.Path(path_type=Path), help="Working folder of the memory bank."),
    "folder": click.Option(["--folder"], help="Name of the bank's folder."),
    "username": click.Option(["--username"], help="Author of the entries."),
}


def get_tool_commands() -> dict[str, Tool]:
    """Return the tools by command name."""
    return {to_command_name(tool.name): tool for tool in App(read_settings(FULL_SETTINGS)).tools}


def find_tool_command(name: str) -> click.Command | None:
    """Return the command for a tool's name or alias."""
    tools = get_tool_commands()
    for tool in tools.values():
        for alias in (tool.name, *tool.aliases):
            if to_command_name(alias) == name:
                return build_tool_command(name, tool, alias)
    return None


def build_tool_command(name: str, tool: Tool, called: str | None = None) -> click.Command:
    """Build the command of a tool that is called by its name, or by the alias `called`."""
    own = [parameter for parameter in tool.parameters if parameter.name != PROJECT_PARAMETER]
    of_bank = _select_bank_options(tool, own)

    def run(as_json: bool, yes: bool = False, **given: Any) -> None:
        if tool.effect is Effect.PERMANENT and not confirm(f"{tool.description} Continue?", yes=yes):
            return
        flags = {key: given.pop(key) for key in (*COMMON_SETTINGS, *of_bank)}
        if flags.get("path") is not None:
            flags["path"] = flags["path"].expanduser().resolve()
        arguments = _parse_arguments(tool, own, given)
        if not as_json and FORMAT_PARAMETER in given:
            arguments.setdefault(FORMAT_PARAMETER, MARKDOWN_FORMAT)
        if FILTER_PARAMETER in given:
            _set_project_filter(arguments, flags[PROJECT_PARAMETER])
        takes_project = len(own) < len(tool.parameters)
        if takes_project and not _can_create(tool) and flags[PROJECT_PARAMETER] not in (None, AUTO):
            # Only writes create a missing project, because a mistyped name must not look empty.
            arguments[PROJECT_PARAMETER] = flags[PROJECT_PARAMETER]
        if tool.name == "switch_project" and arguments.get("name") == AUTO:
            run_with_app(lambda app: choose_project(app, None), **flags)
            echo("Commands here use this folder's project again.")
            return
        names_bank = any(flags.get(key) is not None for key in ("path", "folder"))

        async def call(app: App) -> tuple[ToolResult, str | None]:
            session = await read_session(app, keeps_bank=not names_bank)
            before = replace(session)
            result = await app.call(session, called or tool.name, arguments)
            await save_selection(app, session, before)
            return result, _format_bank_choice(app, session, before, _is_bank_question(tool, arguments))

        result, note = run_with_app(call, stores=not tool.is_read_only, **flags)
        if as_json:
            print_json(result.facts)
        elif arguments.get(FORMAT_PARAMETER) == MARKDOWN_FORMAT:
            echo(result.text)
            if "(turn_" in result.text or "(code_" in result.text:
                echo("To read the conversation around one, run `everkept read-conversation ID`.")
        else:
            render(result)
            if note is not None:
                echo(note)

    command = click.command(name, help=tool.description)(add_common_options(run))
    command.params = [*_build_parameters(tool, own), *of_bank.values(), *command.params]
    if tool.effect is Effect.PERMANENT:
        command.params.append(click.Option(["--yes"], is_flag=True, help="Skip the confirmation prompt."))
    return command


def _set_project_filter(arguments: dict[str, Any], project: str | None) -> None:
    """Filter by --project; `.` is the working folder."""
    if project not in (None, AUTO):
        arguments.setdefault(FILTER_PARAMETER, project)
    if arguments.get(FILTER_PARAMETER) in (".", "./"):
        arguments[FILTER_PARAMETER] = str(Path.cwd())


def _can_create(tool: Tool) -> bool:
    return tool.effect in (Effect.WRITES, Effect.REPEATABLE)


def _select_bank_options(tool: Tool, own: list[Parameter]) -> dict[str, click.Parameter]:
    if tool.name not in BANK_TOOLS:
        return {}
    taken = {parameter.attribute for parameter in own}
    return {name: option for name, option in BANK_OPTIONS.items() if name not in taken}


def _build_parameters(tool: Tool, own: list[Parameter]) -> list[click.Parameter]:
    obvious = DEFAULT_WORDS.get(tool.name)
    before = [build_word_argument(parameter, WORD_ARGUMENT) for parameter in own if parameter.attribute == obvious]
    return [*before, *(build_click_parameter(parameter) for parameter in own)]


def _parse_arguments(tool: Tool, own: list[Parameter], given: dict[str, Any]) -> dict[str, Any]:
    word = given.pop(WORD_ARGUMENT, None)
    if word is not None:
        obvious = DEFAULT_WORDS[tool.name]
        if given[obvious] is not None:
            option = obvious.replace("_", "-")
            raise click.UsageError(f"{word!r} and --{option} cannot be combined. Pass one of them.")
        given[obvious] = word
    return {
        parameter.name: parse_argument(parameter, given[parameter.attribute])
        for parameter in own
        if given[parameter.attribute] not in (None, ())
    }


def _is_bank_question(tool: Tool, arguments: dict[str, Any]) -> bool:
    """Return whether the command shows the selected bank."""
    return tool.name == "get_memory_bank_status" and "storeId" not in arguments


def _format_bank_choice(app: App, session: Session, before: Session, asked: bool) -> str | None:
    """Describe the selected bank, because the selection applies to later commands."""
    folder = app.settings.path
    usual = str(Path(folder or "") / app.settings.folder)
    if (session.bank or usual) != (before.bank or usual):
        return f"Commands in {folder} now use this bank."
    if asked and before.bank not in (None, usual):
        return (
            f"It is selected for commands in {folder}. "
            "To use the bank there again, run `everkept set-memory-bank-path`."
        )
    return None
