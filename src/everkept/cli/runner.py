"""The run of one command: its application, its progress bar and its outcome."""

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
from everkept.errors import EverkeptError, NoActiveProject, ReadOnly, Unavailable, UpstreamError
from everkept.settings import AUTO, GATEWAY, OWN_TOOLSETS, Settings, is_on_server, read_settings

T = TypeVar("T")

# A command is on this machine, however assistants are served. Tools of a gateway have commands
# of their own, so that a name they share with one of ours, or a fault in their file, stops nothing.
ALL_TOOLS_SETTINGS = {
    "toolsets": ",".join(OWN_TOOLSETS),
    "bank_extras": True,
    "mode_tools": False,
    "transport": "stdio",
}
GATEWAY_SETTINGS = {"toolsets": GATEWAY, "dialect": "everkept", "transport": "stdio"}
FULL_SETTINGS = {**ALL_TOOLS_SETTINGS, "read_only": False, "dialect": "everkept"}

# What commands choose, kept in a note each for those that follow: `everkept switch-project`
# leaves the first, for the repository around, and what is chosen of a memory bank counts in the
# same working folder.
PROJECT_NOTE = "cli.project"
NO_PROJECT_HINT = (
    "`everkept switch-project NAME` chooses one for this folder; `--project NAME` does for one "
    "command, and `--project auto` makes the folder's own."
)
IN_MEMORY_WARNING = (
    "Everything is kept in memory here (deployment_mode embedded-memory): nothing of it is left once the command ends."
)
SELECTION_NOTES = {"bank": "cli.bank", "mode": "cli.mode", "updates_bank": "cli.updates_bank"}

_CONTROL_REPLACEMENTS = {code: "\ufffd" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}
_JSON_ESCAPES = {code: f"\\u{code:04x}" for code in range(127, 160)}  # JSON itself does the others
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
    """Opens the application as the flags say, does the work, closes it again.

    What `writes` is refused where only reading is allowed; a tool that `stores` says so itself.

    One that `makes_nothing` leaves a data folder in which nothing is stored yet as it is. None
    that only reads makes anything in a database that others share.
    """

    async def run() -> T:
        # A command reaches every tool; which ones assistants are offered is another question.
        settings = load_command_settings(**{**flags, **offering})
        if writes and settings.read_only:
            raise ReadOnly("This command writes, and only reading is allowed here.")
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
    """A mistyped namespace must not look like an empty one; None where nobody shares it."""
    return make_library(settings, read_clock, founds=False) if is_on_server(settings) else None


async def require_project(app: App, flags: Mapping[str, Any]) -> None:
    """Where it is only read, a mistyped --project must not look like an empty one.

    Raises NotFound.
    """
    if (named := flags.get("project")) not in (None, AUTO):
        await app.library.get_project(named)


async def read_session(app: App, *, keeps_bank: bool = True) -> Session:
    """Commands share one choice of project, kept between them; `--project` goes before it, and
    without either it is the project of the working folder, where that has one.

    So does a bank that the command names itself: then it is not `keeps_bank`.
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
    """What a command chose, for the next one."""
    if session.project != before.project:
        await choose_project(app, session.project)
    for name in SELECTION_NOTES:
        chosen = getattr(session, name)
        if chosen != getattr(before, name):
            await app.library.set_note(_build_key(app, name), str(chosen) if chosen else None)


async def choose_project(app: App, name: str | None) -> None:
    """What commands in this folder mean from now on; None: the project of the folder."""
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
    click.echo(json.dumps(value, ensure_ascii=False, indent=2).translate(_JSON_ESCAPES))


def replace_controls(text: str) -> str:
    """What another program said, without what would steer the terminal that it is shown on."""
    return text.translate(_CONTROL_REPLACEMENTS)


def report_error(error: EverkeptError, *, as_json: bool = False) -> int:
    """Prints an error and gives the exit status: 2 for a caller's mistake, 1 for anything else."""
    if as_json:
        print_json(error.to_envelope())
    click.echo(f"everkept: {replace_controls(error.message)}", err=True)
    hint = NO_PROJECT_HINT if isinstance(error, NoActiveProject) else error.hint
    if hint:
        click.echo(f"  {replace_controls(_replace_tool_names(hint))}", err=True)
    candidates: list[dict[str, str]] = error.facts.get("candidates", [])
    for candidate in candidates:
        click.echo(f"  - {candidate['use']}  {candidate['id']}", err=True)
    return 1 if isinstance(error, Unavailable | UpstreamError) else 2


def _replace_tool_names(hint: str) -> str:
    """A hint names tools as assistants know them: for people, the commands that they are."""
    if not _TOOL_NAME.search(hint):
        return hint
    try:
        known = {tool.name for tool in App(read_settings(FULL_SETTINGS)).tools}
    except EverkeptError:  # the settings may be what is wrong
        return hint
    return _TOOL_NAME.sub(lambda word: f"`everkept {to_command_name(word[1])}`" if word[1] in known else word[0], hint)


def to_command_name(tool: str) -> str:
    return tool.replace("_", "-")


@contextmanager
def report_interruption(left: Callable[[], str]) -> Generator[None, None, None]:
    """Says what is left where somebody ends a command that takes long."""
    try:
        yield
    except (KeyboardInterrupt, click.Abort):
        click.echo(f"Interrupted. {left()}", err=True)
        raise


def confirm(question: str, *, yes: bool) -> bool:
    """Asks a person; a program has to say --yes."""
    if yes:
        return True
    if not sys.stdin.isatty():
        raise click.UsageError("This removes data for good: say --yes where nobody can be asked.")
    return click.confirm(question, err=True)


@contextmanager
def show_progress(title: str) -> Generator[Callable[[int, int], None], None, None]:
    """Gives a function that takes what is done and the total."""
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
    """The same for work that may tell how far it is, or nothing; None where nobody looks."""
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
