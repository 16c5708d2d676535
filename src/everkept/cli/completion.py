"""Completion of commands in shells: its scripts, and the values that a person can type."""

import shlex
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
    add_completion_class,
)

from everkept.cli.flags import COMMON_SETTINGS
from everkept.errors import EverkeptError

if TYPE_CHECKING:
    from everkept.app.app import App

PROGRAM = "everkept"
MAX_OFFERED = 50
MAX_READ_MEMORIES = 500  # whose tags are offered
HELP_CHARACTERS = 60

# Scripts call this command, because an alias exists only in the shell. Every command answers; without one, `run` would
# start the server.
_CALL = "{command} completion"

_POWERSHELL = """\
Register-ArgumentCompleter -Native -CommandName %(prog_name)s -ScriptBlock {
    param($word, $line, $cursor)
    $env:COMP_WORDS = "$line"
    $env:COMP_CWORD = "$word"
    $env:%(complete_var)s = "powershell_complete"
    try {
        & $1 completion | ForEach-Object {
            $type, $value, $about = $_ -split ",", 2 | ForEach-Object { $_ -split "`t", 2 }
            if ($type -eq "plain") {
                if ($value -match "\\s") { $typed = "'$value'" } else { $typed = $value }
                if (-not $about) { $about = $value }
                [System.Management.Automation.CompletionResult]::new($typed, $value, "ParameterValue", $about)
            }
        }
    } finally {
        Remove-Item Env:COMP_WORDS, Env:COMP_CWORD, Env:%(complete_var)s
    }
}
"""


class PowerShellComplete(FishComplete):
    """Completion in PowerShell, which passes and reads the same as fish."""

    name = "powershell"
    source_template = _POWERSHELL


add_completion_class(PowerShellComplete)

# In the script of each shell: how it calls the program, and how it must. A value may contain spaces.
_REPLACEMENTS: dict[type[ShellComplete], dict[str, str]] = {
    BashComplete: {"=bash_complete $1)": "=bash_complete {call})", "+=($value)": '+=("$(printf \'%q\' "$value")")'},
    ZshComplete: {
        f"=zsh_complete {PROGRAM})": "=zsh_complete {call})",
        f"    (( ! $+commands[{PROGRAM}] )) && return 1\n": "",
        f"compdef _{PROGRAM}_completion {PROGRAM}\n": f"compdef _{PROGRAM}_completion {PROGRAM} {{program}}\n",
    },
    FishComplete: {f"(commandline -t) {PROGRAM})": "(commandline -t) {call})"},
    PowerShellComplete: {"$1 completion": "{call}"},
}
SHELLS = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete, "powershell": PowerShellComplete}


def build_script(shell: str, root: click.Command, words: tuple[str, ...]) -> str:
    """Return the script for a shell. `words` start this program from any folder."""
    kind = SHELLS[shell]
    script = kind(root, {}, PROGRAM, f"_{PROGRAM.upper()}_COMPLETE").source()
    command = shlex.join(words)
    for old, new in _REPLACEMENTS[kind].items():
        script = script.replace(old, new.format(call=_CALL.format(command=command), program=shlex.quote(words[0])))
    return script


Offer = Callable[["App"], Awaitable[list[tuple[str, str]]]]
Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem[Any]]]


def _complete(offer: Offer) -> Completer:
    """Return the completion of a value from the stored data: values, each with a description."""

    def complete(context: click.Context, parameter: click.Parameter, typed: str) -> list[CompletionItem[Any]]:
        from everkept.cli.runner import run_with_app

        flags: dict[str, Any] = {name: context.params.get(name) for name in COMMON_SETTINGS}
        flags["log_level"] = "error"
        try:
            offered = run_with_app(offer, makes_nothing=True, **flags)
        except (EverkeptError, OSError):  # a key press must not print a fault
            return []
        found = [pair for pair in offered if pair[0].lower().startswith(typed.lower()) and pair[0].isprintable()]
        return [CompletionItem(value, help=about or None) for value, about in found[:MAX_OFFERED]]

    return complete


async def _list_projects(app: "App") -> list[tuple[str, str]]:
    return [(each.name, each.description) for each in await app.guarded.list_projects()]


async def _list_memories(app: "App") -> list[tuple[str, str]]:
    from everkept.cli.runner import read_session
    from everkept.core.records import RecordFilter
    from everkept.core.short_ids import shorten_ids
    from everkept.core.text import clip_text
    from everkept.families.memories.memory_identity import MEMORY_PREFIX

    found = await app.memory_access.list_newest(await read_session(app), RecordFilter(), MAX_READ_MEMORIES)
    short = shorten_ids([record.id for _, record in found], MEMORY_PREFIX)
    return [(short[record.id], clip_text(record.text, HELP_CHARACTERS)) for _, record in found]


async def _list_tags(app: "App") -> list[tuple[str, str]]:
    from everkept.cli.runner import read_session
    from everkept.core.records import RecordFilter

    found = await app.memory_access.list_newest(await read_session(app), RecordFilter(), MAX_READ_MEMORIES)
    return [(tag, "") for tag in sorted({tag for _, record in found for tag in record.tags})]


async def _list_conversations(app: "App") -> list[tuple[str, str]]:
    from everkept.core.short_ids import shorten_ids
    from everkept.core.text import clip_text

    found = await app.history.list_conversations(MAX_OFFERED)
    short = shorten_ids([record.id for record in found])
    return [(short[record.id], clip_text(record.name or "", HELP_CHARACTERS)) for record in found]


async def _list_entities(app: "App") -> list[tuple[str, str]]:
    from everkept.cli.runner import read_session

    read = await app.call(await read_session(app), "read_graph", {"limit": MAX_READ_MEMORIES})
    return [(each["name"], each["entity_type"]) for each in read.facts["entities"]]


complete_projects = _complete(_list_projects)
complete_memories = _complete(_list_memories)
complete_tags = _complete(_list_tags)
complete_conversations = _complete(_list_conversations)
complete_entities = _complete(_list_entities)


def complete_clients(context: click.Context, parameter: click.Parameter, typed: str) -> list[CompletionItem[Any]]:
    from everkept.clients.config_files import CLIENTS

    return [CompletionItem(name) for name in CLIENTS if name.startswith(typed)]
