"""Run of one command: its application, progress bar and outcome."""

import asyncio
import json
import re
import signal
import sys
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar, cast

import click

from everkept.app.app import App
from everkept.app.engines import build_empty_library, make_library
from everkept.cli.flags import PROJECT_LOGS, load_command_settings, silence_warnings
from everkept.core.folder_project import choose_project, explain_choice, explain_folder_project, format_lost
from everkept.core.ports import Library
from everkept.core.sessions import Report, Session, track_used_projects
from everkept.core.text import INVISIBLE
from everkept.core.text import replace_controls as replace_controls
from everkept.core.times import read_clock
from everkept.errors import AmbiguousName, EverkeptError, ReadOnly, Refused, Unavailable, UpstreamError
from everkept.settings import AUTO, GATEWAY, OWN_TOOLSETS, Settings, is_on_server, read_settings
from everkept.values import replace

T = TypeVar("T")

# Settings for commands, which run on this machine. Tools of a gateway have their own commands, so that their names and
# faults affect no others.
ALL_TOOLS_SETTINGS = {
    "toolsets": ",".join(OWN_TOOLSETS),
    "bank_extras": True,
    "mode_tools": False,
    "transport": "stdio",
}
GATEWAY_SETTINGS = {"toolsets": GATEWAY, "dialect": "everkept", "transport": "stdio"}
FULL_SETTINGS = {**ALL_TOOLS_SETTINGS, "read_only": False, "dialect": "everkept"}

# Selections that commands in a working folder share, each in a note.
PROJECT_KEY = "everkept.project"  # in the context of a command: the project that it used
IN_MEMORY_WARNING = "Data is only in memory (deployment_mode embedded-memory) and is lost when the command ends."
SELECTION_NOTES = {"bank": "cli.bank", "mode": "cli.mode", "updates_bank": "cli.updates_bank"}

_JSON_ESCAPES = {code: f"\\u{code:04x}" for code in range(127, 160)}  # JSON escapes the others itself
_TOOL_NAME = re.compile(r"`?\b([a-z]+(?:_[a-z]+)+)\b`?")
_CALL = re.compile(r"\b[Cc]all(?= `everkept )")
_ARGUMENT = re.compile(r"(?<!setting )`(project|all_projects|supersedes|new_name)`")
# Tools with a command that people know by another name.
_COMMANDS = {"recall_memories": "recall", "store_memory": "remember", "unified_memory_search": "find"}

MAX_SHOWN_LINES = 10


def run_with_app(
    work: Callable[[App], Awaitable[T]],
    *,
    writes: bool = False,
    stores: bool = False,
    makes_nothing: bool = False,
    offering: Mapping[str, Any] = ALL_TOOLS_SETTINGS,
    **flags: Any,
) -> T:
    """Open the application with the flags, do the work, and close it.

    A command that `writes` is refused if read_only is on; a tool that `stores` checks that itself.

    A command that `makes_nothing` creates no files in an empty data folder. A command that only reads creates nothing
    in a shared database.
    """

    async def run() -> T:
        # A command reaches every tool, whatever assistants are offered.
        settings = load_command_settings(**{**flags, **offering})
        if settings.project is None and settings.dialect == "everkept":
            settings = replace(settings, project=AUTO)
        if writes and settings.read_only:
            raise ReadOnly("This command writes, but the setting read_only is on.")
        if (writes or stores) and settings.deployment_mode == "embedded-memory":
            click.echo(f"everkept: {IN_MEMORY_WARNING}", err=True)
        nothing = build_empty_library(settings) if makes_nothing else None
        shared = None if writes or stores else _open_shared_library(settings)
        app = App(settings, library=nothing or shared)
        used: list[str] = []
        try:
            with silence_warnings(settings, PROJECT_LOGS), track_used_projects(used):
                done = await work(app)
            if used and flags.get("project") is None:
                await _note_project(app, used[0])
            return done
        except (EverkeptError, click.ClickException, click.exceptions.Exit, click.Abort, OSError):
            raise
        except Exception as error:
            if (damage := await app.find_damage()) is None:
                raise
            raise damage from error
        finally:
            await app.close()

    return asyncio.run(run())


def _open_shared_library(settings: Settings) -> Library | None:
    """Open a shared library. Return None if it is not shared. A mistyped namespace must not look empty."""
    return make_library(settings, read_clock, founds=False) if is_on_server(settings) else None


async def _note_project(app: App, name: str) -> None:
    """Note which project the command used, unless it is the one that people expect here."""
    folder, configured = app.settings.path, app.settings.project
    if configured not in (None, AUTO):
        note = f"Project: {name}, from the setting `project`."
    else:
        found = await explain_folder_project(app.library, folder)
        reason = explain_choice(found, folder)
        note = format_lost(found) if found.lost else f"Project: {name}, {reason}." if reason else ""
    context = click.get_current_context(silent=True)
    if note and context is not None and PROJECT_KEY not in context.meta:
        context.meta[PROJECT_KEY] = name
        context.call_on_close(lambda: echo(note, err=True))


async def require_project(app: App, flags: Mapping[str, Any]) -> None:
    """Check that --project exists, because a mistyped name must not look empty.

    Raise NotFound.
    """
    if (named := flags.get("project")) not in (None, AUTO):
        await app.library.get_project(named)


async def read_session(app: App, *, keeps_bank: bool = True) -> Session:
    """Return the session of commands in this folder.

    A bank that the command names overrides the selected one: `keeps_bank` is then False.
    """
    notes = {name: await app.library.get_note(_build_key(app, name)) for name in SELECTION_NOTES}
    return Session(
        client="command line",
        is_conversation=False,
        bank=notes["bank"] if keeps_bank else None,
        mode=notes["mode"],
        updates_bank=bool(notes["updates_bank"]),
    )


async def save_selection(app: App, session: Session, before: Session) -> None:
    """Save the selection of a command for the next one."""
    if session.project is not None:
        await choose_project(app.library, app.settings.path, session.project)
    for name in SELECTION_NOTES:
        chosen = getattr(session, name)
        if chosen != getattr(before, name):
            await app.library.set_note(_build_key(app, name), str(chosen) if chosen else None)


def _build_key(app: App, name: str) -> str:
    return f"{SELECTION_NOTES[name]} {app.settings.path}"


def print_json(value: Any) -> None:
    """Print a value as JSON, with the project if it is not the expected one."""
    context = click.get_current_context(silent=True)
    if isinstance(value, dict) and context is not None and (name := context.meta.get(PROJECT_KEY)):
        value = cast(dict[str, Any], value)
        value = value if "project" in value else {**value, "project": name}
    text = json.dumps(value, ensure_ascii=False, indent=2).translate(_JSON_ESCAPES)
    click.echo(INVISIBLE.sub(lambda found: json.dumps(found[0])[1:-1], text))


def echo(text: str = "", *, err: bool = False) -> None:
    """Print a text that may contain what others wrote."""
    click.echo(replace_controls(text), err=err)


def print_first(lines: Sequence[str], more: str = "more") -> None:
    """Print the first lines of a list that can be long."""
    for line in lines[:MAX_SHOWN_LINES]:
        echo(f"  {line}", err=True)
    if len(lines) > MAX_SHOWN_LINES:
        echo(f"  … and {len(lines) - MAX_SHOWN_LINES} {more}. To list all, pass --json.", err=True)


def report_error(error: EverkeptError, *, as_json: bool = False) -> int:
    """Print an error and return the exit status: 2 for the caller's mistake, otherwise 1."""
    if as_json:
        print_json(error.to_envelope())
    message = error.summary if isinstance(error, AmbiguousName) else error.message
    click.echo(f"everkept: {replace_controls(message)}", err=True)
    if error.hint:
        click.echo(f"  {replace_controls(to_command_words(error.hint))}", err=True)
    candidates: list[dict[str, str]] = error.facts.get("candidates", [])
    for candidate in candidates:
        echo(f"  - {candidate['use']}  {candidate['id']}", err=True)
    return 1 if isinstance(error, Unavailable | UpstreamError) else 2


def to_command_words(hint: str) -> str:
    """Replace names of tools in a sentence with those of commands, and arguments with options."""
    hint = _ARGUMENT.sub(lambda found: f"--{to_command_name(found[1])}", hint)
    if not _TOOL_NAME.search(hint):
        return hint
    try:
        known = {tool.name for tool in App(read_settings(FULL_SETTINGS)).tools}
    except EverkeptError:  # the settings may be the fault
        return hint
    hint = _TOOL_NAME.sub(lambda word: f"`everkept {_get_command(word[1])}`" if word[1] in known else word[0], hint)
    return _CALL.sub(lambda word: "Run" if word[0] == "Call" else "run", hint)


def to_command_name(tool: str) -> str:
    return tool.replace("_", "-")


def _get_command(tool: str) -> str:
    return _COMMANDS.get(tool) or to_command_name(tool)


@contextmanager
def report_interruption(left: Callable[[], str]) -> Generator[None, None, None]:
    """Print what remains when a person interrupts a long command."""
    try:
        yield
    except (KeyboardInterrupt, click.Abort):
        click.echo(f"Interrupted. {left()}", err=True)
        raise


def confirm(question: str, *, yes: bool, refusal: str = "This deletes data permanently.") -> bool:
    """Ask a person to confirm. A program must pass --yes."""
    if yes:
        return True
    if not sys.stdin.isatty():
        raise Refused(refusal, hint="Confirm in a terminal, or pass --yes.")
    # The event loop takes Ctrl-C for itself, and cannot act on it while the question waits.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return click.confirm(question, err=True)
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def show_progress(title: str) -> Generator[Callable[[int, int], None], None, None]:
    """Return a function that takes the done count and the total. The bar appears with its first call."""
    if not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    from rich.console import Console
    from rich.progress import Progress

    progress = Progress(console=Console(stderr=True), transient=True)
    task = progress.add_task(title, total=None)

    def report(done: int, total: int) -> None:
        progress.start()  # does nothing if it runs
        progress.update(task, completed=done, total=total)

    try:
        yield report
    finally:
        progress.stop()


@contextmanager
def show_tool_progress(title: str) -> Generator[Report | None, None, None]:
    """Return the same for work that may report its progress, or None without a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(escape(title), total=None)

        async def report(done: float, total: float | None, message: str | None) -> None:
            told = escape(replace_controls(" ".join((message or title).split())))
            progress.update(task, completed=done, total=total, description=told)

        yield report
