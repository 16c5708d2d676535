"""Entry of the command line: a group that loads the module of a command when it is called."""

import difflib
import importlib
import io
import os
import shutil
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

import click
from click.formatting import wrap_text
from click.shell_completion import CompletionItem

from everkept import __version__
from everkept.cli.options import add_common_options, load_command_settings
from everkept.errors import EverkeptError

if TYPE_CHECKING:
    from everkept.families.gateway.model import ToolConfig
    from everkept.first_answers import ServerStart
    from everkept.tools.tool import Tool


@click.command()
@add_common_options
@click.argument("shell", type=click.Choice(["bash", "fish", "powershell", "zsh"]))
@click.pass_context
def completion(context: click.Context, shell: str, **_flags: Any) -> None:
    """Print a completion script for SHELL. It also works for an alias with the name `everkept`.

    \b
    bash: everkept completion bash > ~/.local/share/bash-completion/completions/everkept
    zsh:  everkept completion zsh > ~/.zfunc/_everkept   (with ~/.zfunc in fpath)
    fish: everkept completion fish > ~/.config/fish/completions/everkept.fish

    \b
    PowerShell: everkept completion powershell >> $PROFILE
    """
    from everkept.cli.completion import build_script
    from everkept.clients.own_command import build_own_command

    command = build_own_command(load_command_settings().launcher, sys.executable)
    click.echo(build_script(shell, context.find_root().command, command))


@click.command()
@add_common_options
@click.argument("event", required=False)
@click.option("--path", metavar="PATH", help="Working folder. Default: the folder in the event.")
@click.option(
    "--client", metavar="NAME", help="Assistant that runs the hook, such as codex or cursor. Default: claude-code."
)
@click.option("--worker", is_flag=True, hidden=True)
def hook(event: str | None, *, worker: bool, as_json: bool, **flags: str | None) -> NoReturn:
    """Handle an assistant's hook EVENT (called by assistants, not people).

    EVENT is SessionStart, UserPromptSubmit, PostToolUse, PostToolUseFailure, PreCompact or SessionEnd, or the
    assistant's own name for one of these. Reads the event as JSON from standard input, prints context for the assistant
    as JSON, and always exits with 0. Faults are logged to `hooks/faults.log` in the data folder.
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


# Groups of the overview: each command, the module that defines it, and its line. Importing every command would be slow.
COMMAND_GROUPS: dict[str, dict[str, tuple[str, str]]] = {
    "Memories": {
        "remember": ("memories:remember", "Store a memory."),
        "recall": ("memories:recall", "Search memories and show why each one matched."),
        "list": ("memory_lists:list_", "List memories, newest first."),
        "history-of": ("memory_lists:history_of", "Show every version of a memory."),
        "edit": ("memories:edit", "Change a memory's text, importance or tags."),
        "pin": ("memories:pin", "Keep a memory from fading."),
        "forget": ("memories:forget", "Hide a memory from recall."),
        "review": ("review:review", "Keep, edit or drop what may be worth remembering."),
        "find": ("findings:find", "Search everything that is stored."),
        "context": ("memories:context", "Print the context block for a task."),
    },
    "Conversations": {
        "import": ("exchange:import_", "Import conversations, an export, or another server's data."),
        "history": ("history:history", "List, exclude or delete past conversations."),
    },
    "Data": {
        "log": ("changes:log", "Show what changed, when, and by which tool."),
        "timeline": ("timeline:timeline", "Show what happened by day."),
        "graph": ("graph_picture:graph", "Draw the knowledge graph for Markdown or Graphviz."),
        "undo": ("changes:undo", "Undo a change."),
        "purge": ("changes:purge", "Permanently delete memories and entities."),
        "audit": ("changes:audit", "Find secrets in stored text."),
        "backup": ("care:backup", "Save all data to one file."),
        "restore": ("care:restore", "Restore data from a backup."),
        "export": ("exchange:export", "Export all data as Markdown and JSON Lines."),
        "migrate": ("database:migrate", "Copy all data to another database engine."),
        "index": ("memories:index", "Compute missing embeddings now."),
        "bank": ("bank:bank", "Trust a bank; show and restore versions of its files."),
    },
    "Setup": {
        "setup": ("config:setup", "Connect an assistant by writing its configuration."),
        "uninstall": ("uninstall:uninstall", "Disconnect every assistant and keep the data."),
        "serve": ("serve:serve", "Run the MCP server over stdio or HTTP."),
        "console": ("console:console", "Open what is remembered in the browser."),
        "where": ("where:where", "Show which project this folder uses, and why."),
        "status": ("status:status", "Show what is stored and what is pending."),
        "doctor": ("care:doctor", "Find problems and fix them."),
        "extras": ("extras:extras", "List or install optional packages."),
        "config": ("config:config", "Show settings and where each one comes from."),
        "on": ("history:on", "Turn memory back on for this folder's project."),
        "off": ("history:off", "Turn memory off for this folder's project."),
        "demo": ("selftest:demo", "Try storing and recalling in a temporary folder."),
        "selftest": ("selftest:selftest", "Prove that no acknowledged write is lost."),
        "completion": ("main:completion", "Print a shell completion script."),
    },
    "Teams": {
        "token": ("accounts:token", "Create, list and revoke HTTP tokens."),
        "account": ("accounts:account", "List, link and remove accounts."),
        "grant": ("accounts:grant", "Give a user access to a project."),
        "revoke": ("accounts:revoke", "Remove a user's access to a project."),
        "access-log": ("accounts:access_log", "Show who read or changed what."),
        "peer": ("http_servers:peer", "Manage the peer servers that searches can ask."),
        "gateway": ("gateway:gateway", "Serve other MCP servers' tools under stable names."),
        "journal": ("database:journal", "Show writes waiting for an unreachable database."),
        "health": ("http_servers:health", "Check whether the HTTP server is healthy."),
    },
}
HIDDEN_COMMANDS = {
    "hook": ("main:hook", "Handle an assistant's hook event."),
    "tools": ("main:list_tools", "List the tools, which are commands too."),
    "help": ("main:show_help", "Show the help of a command."),
}
COMMANDS = {name: each for group in (*COMMAND_GROUPS.values(), HIDDEN_COMMANDS) for name, each in group.items()}
JOINED_LINES = {  # two commands on one line
    "backup": ("restore", "Save all data to one file, or restore it."),
    "on": ("off", "Turn memory on or off for this folder's project."),
    "grant": ("revoke", "Give or remove a user's access to a project."),
}
NARROW = 60  # columns; two columns of text do not fit
MIN_HELP_WIDTH = 20
NAME_WIDTH = max(map(len, ("backup, restore", *COMMANDS)))


class HelpFormatter(click.HelpFormatter):
    """Formatter of help that also fits narrow terminals: there, the text of a name is below it."""

    def __init__(self, indent_increment: int = 2, width: int | None = None, max_width: int | None = None) -> None:
        columns = shutil.get_terminal_size().columns
        width = max(columns - 1, MIN_HELP_WIDTH) if width is None and columns < NARROW else width
        super().__init__(indent_increment, width, max_width)

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        if self.width >= NARROW:
            super().write_dl(rows, col_max, col_spacing)
            return
        for name, text in rows:
            for words, indent in ((name.strip(), self.current_indent), (text, self.current_indent + 2)):
                self.write(f"{wrap_text(words, self.width, ' ' * indent, ' ' * indent)}\n")


click.Context.formatter_class = HelpFormatter


class CommandGroup(click.Group):
    """Group that imports only the called command, so that a server starts fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        from everkept.cli.tools import get_tool_commands

        tools = get_tool_commands()
        return [*COMMANDS, *tools, *_read_gateway_commands(tools)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in COMMANDS:
            module, _, attribute = COMMANDS[cmd_name][0].partition(":")
            return getattr(importlib.import_module(f"everkept.cli.{module}"), attribute)
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

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands by group. The general options are in the last line."""
        for title, group in COMMAND_GROUPS.items():
            others = {other for other, _ in JOINED_LINES.values()}
            rows = [_build_row(name, line) for name, (_, line) in group.items() if name not in others]
            with formatter.section(title):
                formatter.write_dl(rows)
        last = "Every tool is also a command: `everkept tools`. Help: `everkept help COMMAND`."
        formatter.write(f"\n{wrap_text(last, formatter.width)}\n")


def _build_row(name: str, line: str) -> tuple[str, str]:
    other, joined = JOINED_LINES.get(name, ("", line))
    return (f"{name}, {other}" if other else name).ljust(NAME_WIDTH), joined


def _complete_command(context: click.Context, _parameter: click.Parameter, typed: str) -> list[CompletionItem[Any]]:
    return [CompletionItem(name) for name in cli.list_commands(context) if name.startswith(typed)]


@click.command("help")
@add_common_options
@click.argument("words", metavar="[COMMAND]...", nargs=-1, shell_complete=_complete_command)
@click.pass_context
def show_help(context: click.Context, words: tuple[str, ...], **_flags: Any) -> None:
    """Show the help of COMMAND, or the overview."""
    shown = context.find_root()
    for word in words:
        if not isinstance(shown.command, click.Group):
            raise click.UsageError(f"{shown.command_path!r} has no command {word!r}.", shown)
        name, command, _ = shown.command.resolve_command(shown, [word])
        if command is None:
            return
        shown = click.Context(command, info_name=name, parent=shown)
    click.echo(shown.get_help())


@click.command("tools")
@add_common_options
def list_tools(as_json: bool, **_flags: Any) -> None:
    """List the tools. Each one is also a command.

    The gateway's tools are listed too, if its file defines any.
    """
    from everkept.cli.tools import get_tool_commands

    tools = get_tool_commands()
    of_gateway = _read_gateway_commands(tools)
    if as_json:
        from everkept.cli.runner import print_json

        print_json({"tools": list(tools), "gateway": list(of_gateway)})
        return
    formatter = HelpFormatter(width=min(shutil.get_terminal_size().columns, 100))
    for title, listed in (("Tools", tools), ("Tools of the gateway", of_gateway)):
        if listed:
            with formatter.section(title):
                formatter.write_dl([(name, _get_first_sentence(tool.description)) for name, tool in listed.items()])
    click.echo(formatter.getvalue(), nl=False)


def _read_gateway_commands(tools: Mapping[str, "Tool"]) -> dict[str, "ToolConfig"]:
    from everkept.cli.gateway_commands import read_gateway_commands

    return read_gateway_commands({*COMMANDS, *tools})


def _describe_gateway_fault() -> str:
    """Return a note about a fault in the gateway's file, which can be why a command is missing."""
    from everkept.cli.gateway_commands import find_gateway_fault

    fault = find_gateway_fault()
    return f"\nThe gateway's file has a fault, so its tools have no commands: {fault}" if fault else ""


def _build_gateway_command(name: str, tool: "ToolConfig") -> click.Command:
    from everkept.cli.gateway_commands import build_gateway_command

    return build_gateway_command(name, tool)


def _get_first_sentence(description: str) -> str:
    return " ".join(description.split(". ")[0].split()).removesuffix(".") + "."


@click.group(cls=CommandGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="everkept")
def cli() -> None:
    """One memory for all your AI assistants, on your own machine."""


def main(arguments: list[str] | None = None, *, start: "ServerStart | None" = None) -> None:
    """Run a command. Exit with 0 if it is done, 2 for the caller's mistake, 130 if interrupted, otherwise 1.

    `start` is for `serve`: the requests that were answered before this was loaded.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal shows "?" for an unknown character
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
            click.echo(f"everkept: {error.filename} cannot be used ({error.strerror}).", err=True)
            click.echo("  Check the path and its permissions.", err=True)
            sys.exit(1)
        # The pipe is closed or its disk is full, so nothing can be printed.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        click.echo(f"everkept: cannot write the output ({error.strerror}).", err=True)
        sys.exit(1)
    except EverkeptError as error:
        from everkept.cli.runner import report_error

        sys.exit(report_error(error, as_json="--json" in arguments))


if __name__ == "__main__":
    main()
