"""Every tool as a command, with its arguments as a person types them."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, cast, get_args, get_origin

import click

from everkept.app.app import App
from everkept.app.engines import format_command
from everkept.cli.completion import (
    Completer,
    complete_conversations,
    complete_entities,
    complete_memories,
    complete_projects,
)
from everkept.cli.findings import print_found
from everkept.cli.options import COMMON_SETTINGS, STANDARD_INPUT, add_common_options, read_standard_input, split_tags
from everkept.cli.render import build_console, format_label, render
from everkept.cli.runner import (
    FULL_SETTINGS,
    confirm,
    echo,
    print_json,
    read_session,
    run_with_app,
    save_selection,
    to_command_name,
    to_command_words,
)
from everkept.cli.where import PROJECT_CHOSEN, PROJECT_RELEASED, read_chosen
from everkept.core.folder_project import end_choice, release_folder
from everkept.core.sessions import Session
from everkept.core.text import clip_text, format_count
from everkept.errors import InvalidInput, escape_name
from everkept.families.bank.model import TOOL_NAMES as BANK_TOOLS
from everkept.settings import AUTO, read_settings
from everkept.tools.schema import Parameter, get_bare_type, list_parameters
from everkept.tools.tool import Effect, Tool, ToolResult
from everkept.values import is_value_type, replace

COMPLETIONS: dict[str, Completer] = {
    "memory_id": complete_memories,
    "supersedes": complete_memories,
    "names": complete_entities,
    "entity": complete_entities,
    "id": complete_conversations,
}
PHRASE_PARAMETERS = ("query", "problem_description")  # several words without quotes
TAGS_PARAMETER = "tags"
STREAM_PARAMETER = "content"  # argument whose text may come from standard input


def build_click_parameter(parameter: Parameter, complete: Completer | None = None) -> click.Parameter:
    """Build a word for a required argument, otherwise an option."""
    kind = get_bare_type(parameter.annotation)
    if parameter.is_required:
        return click.Argument(
            [parameter.attribute],
            shell_complete=complete,
            metavar=_format_metavar(parameter, kind),
            nargs=-1 if _is_list(kind) or parameter.name in PHRASE_PARAMETERS else 1,
            required=True,
        )
    if parameter.field.moment:
        kind = str  # a time is typed as text
    name = format_label(parameter.name).replace(" ", "-")
    if kind is bool:
        return click.Option([f"--{name}/--no-{name}", parameter.attribute], default=None, help=_format_help(parameter))
    repeated = _is_plain_list(kind)
    return click.Option(
        [f"--{name}", *(["--tag"] if parameter.name == TAGS_PARAMETER else []), parameter.attribute],
        type=_get_click_type(get_bare_type(get_args(kind)[0]) if repeated else kind),
        multiple=repeated,
        metavar=None if _is_plain(kind) or repeated else "JSON",
        help=_format_help(parameter) + (". Repeatable." if repeated else ""),
        shell_complete=complete,
        default=None,
    )


def build_word_argument(parameter: Parameter, destination: str, complete: Completer | None = None) -> click.Argument:
    """Build a word in place of an option."""
    kind = _get_click_type(get_bare_type(parameter.annotation))
    shown = _format_name(parameter)
    return click.Argument([destination], metavar=f"[{shown}]", type=kind, required=False, shell_complete=complete)


def parse_argument(parameter: Parameter, value: Any) -> Any:
    """Parse an argument into the value that the tool takes."""
    kind = get_bare_type(parameter.annotation)
    if parameter.name == TAGS_PARAMETER:
        texts = [value] if isinstance(value, str) else list(cast(Sequence[str], value))
        if not any(text.lstrip().startswith(("[", "{")) for text in texts):
            return split_tags(texts)
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


def _parse_json_items(text: str, name: str, known: Sequence[str]) -> list[Any]:
    """Parse a list, one object, or the tool's whole argument with the list under its name."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
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
    except (ValueError, RecursionError) as error:
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
    "search_knowledge_graph": "entity",
    "get_memory_context": "task_description",
    "switch_mode": "mode",
    "select_store": "store_id",
    "set_memory_bank_path": "path",
    "initialize_memory_bank": "path",
    "graph_delete_entity": "entity",
}
WORD_ARGUMENT = "word"
DELETING_TOOL = "delete_project"
PROJECT_TOOLS = ("switch_project", "archive_project", "restore_project", DELETING_TOOL)
RESTORING_TOOL = "restore_project"
ENDING_TOOLS = ("archive_project", DELETING_TOOL)  # the folder's own project is used again
# What people read in place of the project's data.
PROJECT_OUTCOMES = {
    "create_project": 'Created project "{name}".',
    "switch_project": 'Selected project "{name}".',
    "archive_project": 'Archived project "{name}". To use it again, run `everkept restore-project {argument}`.',
    "restore_project": 'Restored project "{name}".',
}
COUNTED_KINDS = {
    "memory": ("memory", "memories"),
    "entity": ("entity", "entities"),
    "observation": ("observation",),
    "link": ("relation",),
}
# Arguments that make a tool answer in text for a model.
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


def _print_project_outcome(tool: str, facts: Mapping[str, Any]) -> None:
    name = str(facts["name"])
    echo(PROJECT_OUTCOMES[tool].format(name=escape_name(name), argument=format_command([name], sys.platform)))
    if facts.get("note"):
        echo(str(facts["note"]))
    if facts.get("off"):
        echo("Memory is off for it. To turn it on, run `everkept on` in its folder.")


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
        flags = {key: given.pop(key) for key in (*COMMON_SETTINGS, *of_bank)}
        if flags.get("path") is not None:
            flags["path"] = flags["path"].expanduser().resolve()
        arguments = _parse_arguments(tool, own, given)
        if tool.name == DELETING_TOOL and not _confirm_deletion(str(arguments["name"]), flags, yes=yes):
            return
        if FILTER_PARAMETER in given:
            _set_project_filter(arguments, flags[PROJECT_PARAMETER])
        takes_project = len(own) < len(tool.parameters)
        if takes_project and not _can_create(tool) and flags[PROJECT_PARAMETER] not in (None, AUTO):
            # Only writes create a missing project, because a mistyped name must not look empty.
            arguments[PROJECT_PARAMETER] = flags[PROJECT_PARAMETER]
        if tool.name == "switch_project" and arguments.get("name") == AUTO:
            run_with_app(lambda app: release_folder(app.library, app.settings.path), writes=True, **flags)
            echo(PROJECT_RELEASED)
            return
        names_bank = any(flags.get(key) is not None for key in ("path", "folder"))

        async def call(app: App) -> tuple[ToolResult, str | None]:
            session = await read_session(app, keeps_bank=not names_bank)
            before, chosen = replace(session), await read_chosen(app)
            ending = str(arguments["name"]) if tool.name in ENDING_TOOLS else ""
            ended = {each.name: each.id for each in await app.library.list_projects()} if ending else {}
            result = await app.call(session, called or tool.name, arguments)
            await save_selection(app, session, before)
            if ending in ended and await end_choice(app.library, app.settings.path, ending, ended[ending]):
                return result, PROJECT_RELEASED
            if tool.name == RESTORING_TOOL and (now := await read_chosen(app)) not in (None, chosen):
                return result, PROJECT_CHOSEN.format(name=now)
            if session.project is not None:
                return result, _format_project_choice(session.project, app.settings.project, flags[PROJECT_PARAMETER])
            return result, _format_bank_choice(app, session, before, _is_bank_question(tool, arguments))

        result, note = run_with_app(call, stores=not tool.is_read_only, **flags)
        if as_json:
            print_json(result.facts)
        elif arguments.get(FORMAT_PARAMETER) == MARKDOWN_FORMAT:
            echo(result.text)  # for a program that passes it to a model
        elif FORMAT_PARAMETER in given:
            print_found(build_console(), result.facts, _get_query(arguments))
        else:
            if tool.name in PROJECT_OUTCOMES:
                _print_project_outcome(tool.name, result.facts)
            elif tool.name == DELETING_TOOL and result.sentence:
                echo(to_command_words(result.sentence))
            else:
                render(result, _get_query(arguments))
            if note is not None:
                echo(note)

    command = click.command(name, help=tool.description)(add_common_options(run))
    command.params = [*_build_parameters(tool, own), *of_bank.values(), *command.params]
    if tool.name == DELETING_TOOL:
        command.params.append(click.Option(["--yes"], is_flag=True, help="Skip the confirmation prompt."))
    return command


def format_counts(held: Mapping[str, int]) -> str:
    """Format what a project holds."""
    counted = [format_count(held[kind], *words) for kind, words in COUNTED_KINDS.items() if held.get(kind)]
    return ", ".join(counted) or "no data"


def _confirm_deletion(name: str, flags: Mapping[str, Any], *, yes: bool) -> bool:
    """Ask a person before a project is deleted, with what it holds."""

    async def count(app: App) -> Mapping[str, int]:
        project = await app.guarded.get_project(name)
        return await (await app.guarded.get_store(project)).count_live()

    if yes:
        return True
    held = run_with_app(count, **flags)
    question = f'Move project "{name}" with {format_counts(held)} to the trash?'
    return confirm(question, yes=False, refusal="Deleting a project needs a confirmation.")


def _get_query(arguments: Mapping[str, Any]) -> str:
    return next((str(arguments[name]) for name in PHRASE_PARAMETERS if name in arguments), "")


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
    completions = {**COMPLETIONS, **({"name": complete_projects} if tool.name in PROJECT_TOOLS else {})}
    before = [
        build_word_argument(parameter, WORD_ARGUMENT, completions.get(parameter.name))
        for parameter in own
        if parameter.attribute == obvious
    ]
    return [*before, *(build_click_parameter(parameter, completions.get(parameter.name)) for parameter in own)]


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


def _format_project_choice(chosen: str, configured: str | None, named: str | None) -> str:
    """Say that the choice applies to the folder, and what overrides it."""
    told = PROJECT_CHOSEN.format(name=chosen)
    if configured in (None, AUTO) or named is not None:
        return told
    return f'{told}\nBut the setting `project` is "{configured}" and overrides it. To see where, run `everkept config`.'


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
