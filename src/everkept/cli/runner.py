"""Run of one command: its application, progress bar and outcome."""

import asyncio
import json
import re
import sys
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import click

from everkept.app.app import App
from everkept.app.engines import build_empty_library, make_library
from everkept.cli.options import load_command_settings
from everkept.core.ports import Library
from everkept.core.projects import find_workspace
from everkept.core.sessions import Report, Session
from everkept.core.times import read_clock
from everkept.errors import EverkeptError, NoActiveProject, ReadOnly, Refused, Unavailable, UpstreamError
from everkept.patterns import compile_late
from everkept.settings import AUTO, GATEWAY, OWN_TOOLSETS, Settings, is_on_server, read_settings

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

# Selections that commands share, each in a note. `everkept switch-project` leaves the first for the repository, and a
# selected memory bank applies to the same working folder.
PROJECT_NOTE = "cli.project"
NO_PROJECT_HINT = (
    "To select one for this folder, run `everkept switch-project NAME`. For one command, pass `--project NAME`, or "
    "`--project auto` for the folder's own."
)
IN_MEMORY_WARNING = "Data is only in memory (deployment_mode embedded-memory) and is lost when the command ends."
SELECTION_NOTES = {"bank": "cli.bank", "mode": "cli.mode", "updates_bank": "cli.updates_bank"}

_CONTROL_REPLACEMENTS = {code: "\ufffd" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}
_JSON_ESCAPES = {code: f"\\u{code:04x}" for code in range(127, 160)}  # JSON escapes the others itself
# Characters without a picture, or that turn the order of others. Joiners inside a word or emoji belong to its spelling.
_INVISIBLE = compile_late(
    "[\u00ad\u061c\u115f\u1160\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb"
    "\U000e0000-\U000e007f]|(?<![^\x00-\x7f\u200b-\u200f])[\u200c\u200d]|[\u200c\u200d](?![^\x00-\x7f\u200b-\u200f])"
)
_TOOL_NAME = re.compile(r"`?\b([a-z]+(?:_[a-z]+)+)\b`?")


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
        if writes and settings.read_only:
            raise ReadOnly("This command writes, but the setting read_only is on.")
        if (writes or stores) and settings.deployment_mode == "embedded-memory":
            click.echo(f"everkept: {IN_MEMORY_WARNING}", err=True)
        nothing = build_empty_library(settings) if makes_nothing else None
        shared = None if writes or stores else _open_shared_library(settings)
        app = App(settings, library=nothing or shared)
        try:
            return await work(app)
        finally:
            await app.close()

    return asyncio.run(run())


def _open_shared_library(settings: Settings) -> Library | None:
    """Open a shared library. Return None if it is not shared. A mistyped namespace must not look empty."""
    return make_library(settings, read_clock, founds=False) if is_on_server(settings) else None


async def require_project(app: App, flags: Mapping[str, Any]) -> None:
    """Check that --project exists, because a mistyped name must not look empty.

    Raise NotFound.
    """
    if (named := flags.get("project")) not in (None, AUTO):
        await app.library.get_project(named)


async def read_session(app: App, *, keeps_bank: bool = True) -> Session:
    """Return the session of commands. They share a selected project, which `--project` overrides; without both, the
    project of the working folder applies.

    A bank that the command names overrides the selected one: `keeps_bank` is then False.
    """
    chosen = None if app.settings.project else await _find_chosen_project(app)
    notes = {name: await app.library.get_note(_build_key(app, name)) for name in SELECTION_NOTES}
    return Session(
        client="command line",
        project=chosen,
        is_conversation=False,
        bank=notes["bank"] if keeps_bank else None,
        mode=notes["mode"],
        updates_bank=bool(notes["updates_bank"]),
    )


async def save_selection(app: App, session: Session, before: Session) -> None:
    """Save the selection of a command for the next one."""
    if session.project != before.project:
        await choose_project(app, session.project)
    for name in SELECTION_NOTES:
        chosen = getattr(session, name)
        if chosen != getattr(before, name):
            await app.library.set_note(_build_key(app, name), str(chosen) if chosen else None)


async def choose_project(app: App, name: str | None) -> None:
    """Set the project of commands in this folder. None: the folder's own project."""
    await app.library.set_note(_build_project_key(app), name)


async def _find_chosen_project(app: App) -> str | None:
    if chosen := await app.library.get_note(_build_project_key(app)):
        return chosen
    home = None if app.settings.path is None else find_workspace(app.settings.path)
    project = None if home is None else await app.library.find_workspace_project(home.key)
    return None if project is None else project.name


def _build_project_key(app: App) -> str:
    home = None if app.settings.path is None else find_workspace(app.settings.path)
    return f"{PROJECT_NOTE} {home.key}" if home else PROJECT_NOTE


def _build_key(app: App, name: str) -> str:
    return f"{SELECTION_NOTES[name]} {app.settings.path}"


def print_json(value: Any) -> None:
    text = json.dumps(value, ensure_ascii=False, indent=2).translate(_JSON_ESCAPES)
    click.echo(_INVISIBLE.sub(lambda found: json.dumps(found[0])[1:-1], text))


def replace_controls(text: str) -> str:
    """Return a text for the terminal: without control characters, and with marks for invisible ones."""
    shown = text.translate(_CONTROL_REPLACEMENTS)
    return shown if shown.isascii() else _INVISIBLE.sub(lambda found: f"<U+{ord(found[0]):04X}>", shown)


def echo(text: str = "", *, err: bool = False) -> None:
    """Print a text that may contain what others wrote."""
    click.echo(replace_controls(text), err=err)


def report_error(error: EverkeptError, *, as_json: bool = False) -> int:
    """Print an error and return the exit status: 2 for the caller's mistake, otherwise 1."""
    if as_json:
        print_json(error.to_envelope())
    click.echo(f"everkept: {replace_controls(error.message)}", err=True)
    hint = NO_PROJECT_HINT if isinstance(error, NoActiveProject) else error.hint
    if hint:
        click.echo(f"  {replace_controls(_replace_tool_names(hint))}", err=True)
    candidates: list[dict[str, str]] = error.facts.get("candidates", [])
    for candidate in candidates:
        echo(f"  - {candidate['use']}  {candidate['id']}", err=True)
    return 1 if isinstance(error, Unavailable | UpstreamError) else 2


def _replace_tool_names(hint: str) -> str:
    """Replace names of tools in a hint with those of commands."""
    if not _TOOL_NAME.search(hint):
        return hint
    try:
        known = {tool.name for tool in App(read_settings(FULL_SETTINGS)).tools}
    except EverkeptError:  # the settings may be the fault
        return hint
    return _TOOL_NAME.sub(lambda word: f"`everkept {to_command_name(word[1])}`" if word[1] in known else word[0], hint)


def to_command_name(tool: str) -> str:
    return tool.replace("_", "-")


@contextmanager
def report_interruption(left: Callable[[], str]) -> Generator[None, None, None]:
    """Print what remains when a person interrupts a long command."""
    try:
        yield
    except (KeyboardInterrupt, click.Abort):
        click.echo(f"Interrupted. {left()}", err=True)
        raise


def confirm(question: str, *, yes: bool) -> bool:
    """Ask a person to confirm. A program must pass --yes."""
    if yes:
        return True
    if not sys.stdin.isatty():
        raise Refused("This deletes data permanently.", hint="Confirm in a terminal, or pass --yes.")
    return click.confirm(question, err=True)


@contextmanager
def show_progress(title: str) -> Generator[Callable[[int, int], None], None, None]:
    """Return a function that takes the done count and the total."""
    if not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(title, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


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
