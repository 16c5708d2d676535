"""Every tool as a command, made from the same declaration as its schema."""

from pathlib import Path
from typing import Any

import click

from everkept.app.app import App
from everkept.cli.options import COMMON, common
from everkept.cli.parameters import argument_from, click_parameter, word_for
from everkept.cli.render import render
from everkept.cli.running import (
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
from everkept.families.bank.modes.modes import TOOLS as BANK_TOOLS
from everkept.settings import AUTO, load
from everkept.tools.schema import Parameter
from everkept.tools.tool import Effect, Result, Tool
from everkept.values import replace

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
