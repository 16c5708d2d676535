"""The command line's entry: a group that loads a command's module when it is asked for."""

import difflib
import importlib
import io
import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn

import click
from click.shell_completion import get_completion_class

from everkept import __version__
from everkept.cli.options import add_common_options
from everkept.errors import EverkeptError

if TYPE_CHECKING:
    from everkept.families.gateway.model import ToolConfig
    from everkept.first_answers import ServerStart
    from everkept.tools.tool import Tool


@click.command()
@add_common_options
@click.argument("shell", type=click.Choice(["bash", "fish", "zsh"]))
@click.pass_context
def completion(context: click.Context, shell: str, **_flags: Any) -> None:
    """Print the completion script for a SHELL.

    \b
    bash: everkept completion bash > ~/.local/share/bash-completion/completions/everkept
    zsh:  everkept completion zsh > ~/.zfunc/_everkept   (with ~/.zfunc in fpath)
    fish: everkept completion fish > ~/.config/fish/completions/everkept.fish
    """
    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"click has no completion for {shell}.")
    root = context.find_root()
    click.echo(kind(root.command, {}, "everkept", "_EVERKEPT_COMPLETE").source())


@click.command()
@add_common_options
@click.argument("event", required=False)
@click.option("--path", metavar="PATH", help="Working folder. Default: the one the event names.")
@click.option("--worker", is_flag=True, hidden=True)
def hook(event: str | None, *, worker: bool, as_json: bool, **flags: str | None) -> NoReturn:
    """Answer an EVENT of an assistant: SessionStart, UserPromptSubmit, PostToolUse,
    PostToolUseFailure, PreCompact or SessionEnd.

    Assistants call it, not people: `everkept setup` tells them to. It reads the event as JSON
    from standard input, prints what the assistant should know as JSON, if anything, and always
    ends with status 0. What went wrong is in `hooks/faults.log` in the data folder.
    """
    from everkept.hooks.entry import main

    given = {name: value for name, value in flags.items() if value is not None}
    main(
        [
            *([event] if event else []),
            *(f"--{name.replace('_', '-')}={value}" for name, value in given.items()),
            *(["--worker"] if worker else []),
        ]
    )


# Each command, the module that defines it, and its line in the overview: an overview that
# imported every command would be slow. The tools' own commands come from the application.
COMMANDS = {
    "access-log": ("everkept.cli.accounts:access_log", "Show who read and changed what."),
    "account": ("everkept.cli.accounts:account", "List and remove the accounts of others."),
    "audit": ("everkept.cli.changes:audit", "Find what should not have been stored."),
    "backup": ("everkept.cli.care:backup", "Write everything that is stored into one file."),
    "bank": ("everkept.cli.bank:bank", "Trust a bank; show and restore versions of its files."),
    "completion": ("everkept.cli.main:completion", "Print the shell completion script."),
    "config": ("everkept.cli.config:config", "Show the settings and where they come from."),
    "context": ("everkept.cli.memories:context", "Print what an assistant should know."),
    "demo": ("everkept.cli.selftest:demo", "Show store and recall at work."),
    "doctor": ("everkept.cli.care:doctor", "Find what is wrong here, and mend it."),
    "edit": ("everkept.cli.memories:edit", "Change a memory."),
    "export": ("everkept.cli.exchange:export", "Write everything as Markdown and JSON lines."),
    "forget": ("everkept.cli.memories:forget", "Forget a memory, or automatic ones."),
    "gateway": ("everkept.cli.gateway:gateway", "Put stable names before other servers."),
    "grant": ("everkept.cli.accounts:grant", "Let a user see a project."),
    "health": ("everkept.cli.http_servers:health", "Ask a server over HTTP whether it is well."),
    "history": ("everkept.cli.history:history", "See, leave out or forget past conversations."),
    "hook": ("everkept.cli.main:hook", "Answer an event of an assistant."),
    "import": ("everkept.cli.exchange:import_", "Take in what other programs keep."),
    "index": ("everkept.cli.memories:index", "Give memories that wait their vectors now."),
    "journal": ("everkept.cli.database:journal", "Show what waits for a database that is away."),
    "list": ("everkept.cli.memories:list_", "List memories, newest first."),
    "log": ("everkept.cli.changes:log", "Show what changed, when and by which tool."),
    "migrate": ("everkept.cli.database:migrate", "Copy everything into another engine."),
    "off": ("everkept.cli.history:off", "Switch the project of this folder off."),
    "on": ("everkept.cli.history:on", "Switch the project of this folder on again."),
    "peer": ("everkept.cli.http_servers:peer", "Name other people's servers that may be asked."),
    "pin": ("everkept.cli.memories:pin", "Keep a memory from fading."),
    "purge": ("everkept.cli.changes:purge", "Remove things for good."),
    "recall": ("everkept.cli.memories:recall", "Find memories, with the reasons."),
    "remember": ("everkept.cli.memories:remember", "Store a memory."),
    "restore": ("everkept.cli.care:restore", "Bring a backup back."),
    "revoke": ("everkept.cli.accounts:revoke", "Hide a project from a user again."),
    "selftest": ("everkept.cli.selftest:selftest", "Prove that no acknowledged write is lost."),
    "serve": ("everkept.cli.serve:serve", "Serve assistants over MCP, on stdio or HTTP."),
    "setup": ("everkept.cli.config:setup", "Connect a client: write its configuration."),
    "status": ("everkept.cli.status:status", "Show how much is remembered, and what waits."),
    "token": ("everkept.cli.accounts:token", "Make and manage tokens for HTTP."),
    "undo": ("everkept.cli.changes:undo", "Take a change back."),
}


class CommandGroup(click.Group):
    """Imports only what is called: a start of the server must not pay for tables and colours."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        from everkept.cli.tools import get_tool_commands

        tools = get_tool_commands()
        return [*COMMANDS, *tools, *_read_gateway_commands(tools)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in COMMANDS:
            module, _, attribute = COMMANDS[cmd_name][0].partition(":")
            return getattr(importlib.import_module(module), attribute)
        from everkept.cli.tools import find_tool_command, get_tool_commands

        if (command := find_tool_command(cmd_name)) is not None:
            return command
        tool = _read_gateway_commands(get_tool_commands()).get(cmd_name)
        return None if tool is None else _build_gateway_command(cmd_name, tool)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            close = difflib.get_close_matches(args[0], self.list_commands(ctx), n=1)
            guess = f" Did you mean {close[0]!r}?" if close else ""
            told = _describe_gateway_fault()
            if not guess and not told:
                raise
            raise click.UsageError(f"{error.message}{guess}{told}", ctx) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from everkept.cli.tools import get_tool_commands

        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])
        tools = get_tool_commands()
        with formatter.section("Tools, as assistants see them"):
            formatter.write_dl([(name, _get_first_sentence(tool.description)) for name, tool in tools.items()])
        if of_gateway := _read_gateway_commands(tools):
            with formatter.section("Tools of the gateway"):
                rows = [(name, _get_first_sentence(tool.description)) for name, tool in of_gateway.items()]
                formatter.write_dl(rows)


def _read_gateway_commands(tools: Mapping[str, "Tool"]) -> dict[str, "ToolConfig"]:
    from everkept.cli.gateway_commands import read_gateway_commands

    return read_gateway_commands({*COMMANDS, *tools})


def _describe_gateway_fault() -> str:
    """That a command may be missing because of a fault in the file that would make it."""
    from everkept.cli.gateway_commands import find_gateway_fault

    fault = find_gateway_fault()
    return f"\nThe gateway's file has a fault, so its tools are no commands: {fault}" if fault else ""


def _build_gateway_command(name: str, tool: "ToolConfig") -> click.Command:
    from everkept.cli.gateway_commands import build_gateway_command

    return build_gateway_command(name, tool)


def _get_first_sentence(description: str) -> str:
    return " ".join(description.split(". ")[0].split())


@click.group(cls=CommandGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="everkept")
def cli() -> None:
    """One memory for every AI assistant, on your own machine."""


def main(arguments: list[str] | None = None, *, start: "ServerStart | None" = None) -> None:
    """Exit status: 0 done, 2 the caller's mistake, 1 anything else, 130 interrupted.

    `start` is for `serve`: what a client was answered before this was loaded.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that cannot show a letter shows "?"
    try:
        cli.main(arguments, prog_name="everkept", standalone_mode=False, obj=start)
    except click.exceptions.Exit as exit_:
        sys.exit(exit_.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except OSError as error:
        if error.filename is not None:
            raise
        # A pipe that was closed, or a full disk behind it: the output has nowhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        click.echo(f"everkept: the output could not be written ({error.strerror}).", err=True)
        sys.exit(1)
    except EverkeptError as error:
        from everkept.cli.runner import report_error

        sys.exit(report_error(error, as_json="--json" in arguments))


if __name__ == "__main__":
    main()
