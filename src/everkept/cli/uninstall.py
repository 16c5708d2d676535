"""`everkept uninstall`: disconnects every client and stops background work. The data stays."""

import importlib.util
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

import everkept
from everkept.care.backup_schedule import get_backup_folder
from everkept.cli.config import (
    COPIES_FOLDER,
    build_client_environment,
    build_removal_parts,
    describe_change,
    print_changes,
)
from everkept.cli.options import add_common_options, load_command_settings
from everkept.cli.runner import echo, print_json
from everkept.clients.config_changes import AppliedChange, ConfigChange, apply_changes, plan_removal
from everkept.clients.config_files import (
    ClientEnvironment,
    ClientProgram,
    ConfigScope,
    forget_projects,
    format_backup_moment,
    list_clients,
    read_connected_projects,
)
from everkept.clients.entries import ConfigPart
from everkept.clients.own_command import PROGRAM_NAME
from everkept.clients.survey import ClientInstallation, survey_clients
from everkept.errors import EverkeptError, Refused
from everkept.hooks.worker import stop_worker
from everkept.settings import Settings, find_config_paths, is_on_server
from everkept.values import Value, replace


class ClientRemoval(Value):
    """Our entries in the files of one client, and the changes that remove them."""

    client: ClientProgram
    parts: tuple[ConfigPart, ...]
    copies: Path | None
    changes: tuple[ConfigChange, ...] = ()
    problem: str | None = None


@click.command()
@add_common_options
@click.option("--yes", is_flag=True, help="Skip the confirmation prompt.")
def uninstall(as_json: bool, yes: bool, **flags: Any) -> None:
    """Disconnect every client, stop background work, and keep the data.

    Removes what `everkept setup` wrote, for you and in projects. Shows the changes, asks, and keeps copies of files.
    Then shows how to remove the program and the data. Exits with 1 if a file could not be changed.
    """
    settings = load_command_settings(**flags)
    places = build_client_environment(settings)
    projects = list(dict.fromkeys([places.project, *read_connected_projects(settings.data_dir)]))
    in_projects = [replace(places, project=folder) for folder in projects]
    removals = [_plan_removal(client, "user", settings, flags) for client in list_clients(places)]
    removals += [
        _plan_removal(client, "project", settings, flags)
        for around in in_projects
        for client in list_clients(around)
        if client.project_file is not None
    ]
    # Two clients can share a file.
    changes = {(each.part.file, each.text): each for removal in removals for each in removal.changes}
    done: list[AppliedChange] = []
    problems = [removal.problem for removal in removals if removal.problem is not None]
    if changes:
        print_changes([*changes.values()], err=as_json)
        if not _confirm(yes=yes):
            echo("Nothing was changed.", err=True)
            return
        done, failed = _apply_removals(removals)
        problems += failed
    if not problems:
        forget_projects(settings.data_dir, projects)
    is_stopped = stop_worker(settings)
    left = list(_survey_left(places, in_projects[1:]))
    next_steps = [*_describe_left(left), *_describe_program(), *_describe_data(settings, flags)]
    if as_json:
        _print_as_json(done, problems, is_stopped=is_stopped, left=left, settings=settings)
    else:
        _print_result(removals, done, is_stopped=is_stopped)
        for step in next_steps:
            echo(step)
        for problem in problems:
            echo(f"everkept: {problem}", err=True)
    if problems or not is_stopped:
        sys.exit(1)


def _plan_removal(
    client: ClientProgram, scope: ConfigScope, settings: Settings, flags: dict[str, Any]
) -> ClientRemoval:
    """Return the changes of one client's files.

    The address of a team's server in a project stays, because the file belongs to everyone who works in it.
    """
    copies = settings.data_dir / COPIES_FOLDER if scope == "project" else None
    options = {**flags, "project": None, "toolsets": None, "read_only": None}
    parts = build_removal_parts(client, scope, settings, options, is_remote_included=scope == "user")
    try:
        changes = [change for part in parts if (change := plan_removal(part, copies)).is_needed]
    except EverkeptError as error:
        return ClientRemoval(client, (), copies, problem=error.message)
    return ClientRemoval(client, tuple(parts), copies, tuple(changes))


def _confirm(*, yes: bool) -> bool:
    if yes:
        return True
    if not sys.stdin.isatty():
        raise Refused("Nothing changed.", hint="Confirm in a terminal, or pass --yes.")
    return click.confirm("Remove these entries?", default=True, err=True)


def _apply_removals(removals: Sequence[ClientRemoval]) -> tuple[list[AppliedChange], list[str]]:
    """Change the files of each client. A client whose files cannot be changed does not stop the others."""
    moment = format_backup_moment()
    done: list[AppliedChange] = []
    problems: list[str] = []
    for removal in removals:
        try:
            done += apply_changes(removal.parts, moment, undo=True, copies=removal.copies)
        except EverkeptError as error:
            problems.append(error.message)
    return done, problems


def _print_result(removals: Sequence[ClientRemoval], done: Sequence[AppliedChange], *, is_stopped: bool) -> None:
    for each in done:
        echo(describe_change(each))
    titles = dict.fromkeys(each.client.title for each in removals if each.changes)
    if done:
        echo(f"Disconnected {', '.join(titles)}. Restart what is running to apply.")
    else:
        echo("No client has an entry of Everkept that setup wrote.")
    if not is_stopped:
        echo("An import of conversations is still running. It ends by itself within 5 minutes.")


def _survey_left(here: ClientEnvironment, others: Sequence[ClientEnvironment]) -> Iterator[ClientInstallation]:
    """Return the entries that are still there."""
    yield from (each for each in survey_clients(here) if each.is_set_up)
    for around in others:
        yield from (each for each in survey_clients(around) if each.is_set_up and each.scope == "project")


def _describe_left(left: Sequence[ClientInstallation]) -> Iterator[str]:
    """Return what the user must still do about entries that setup did not write."""
    for each in left:
        if each.kind == "plugin":
            yield f"{each.title} still has the plugin. To remove it, run `claude plugin uninstall {each.name}`."
        elif each.kind == "remote":
            yield f"{each.file} still connects its project to {each.url}, for everyone who works in it."
        elif each.scope == "local":
            yield f"{each.title} has the server {each.name} here. To remove it, run `claude mcp remove {each.name}`."
        else:
            yield f"{each.file} still starts Everkept as {each.name or 'a hook'}. Remove the entry by hand."


def _describe_program() -> Iterator[str]:
    """Return how to remove the program, by what installed it."""
    prefix, root = Path(sys.prefix), Path(everkept.__file__).resolve().parents[2]
    if (prefix / "uv-receipt.toml").is_file():
        yield f"To remove the program, run `uv tool uninstall {PROGRAM_NAME}`."
    elif (prefix / "pipx_metadata.json").is_file():
        yield f"To remove the program, run `pipx uninstall {PROGRAM_NAME}`."
    elif (root / "pyproject.toml").is_file():
        yield f"To remove the program, delete the folder {root}."
    elif importlib.util.find_spec("pip") is not None:
        yield f"To remove the program, run `{_quote(sys.executable)} -m pip uninstall {PROGRAM_NAME}`."
    else:
        yield f"To remove the program, run `uv pip uninstall --python {_quote(sys.executable)} {PROGRAM_NAME}`."


def _describe_data(settings: Settings, flags: dict[str, Any]) -> Iterator[str]:
    """Return where the data is, and how to delete it."""
    if is_on_server(settings):
        yield f"Your data stays on the {settings.engine} server. To delete it, drop the database there."
    folder = settings.data_dir
    if folder.is_dir():
        yield f"Your data stays in {folder}. To keep a copy, run `everkept backup FILE` before you remove the program."
        yield f"To delete the data permanently, run `{_build_delete_command(folder)}`."
        for kept in (get_backup_folder(settings), *sorted(folder.parent.glob(f"{folder.name}-before-restore-*.zip"))):
            if kept.exists():
                yield f"A backup of it stays in {kept}."
    elif not is_on_server(settings):
        yield f"Nothing is stored: {folder} does not exist."
    used, _ = find_config_paths(flags)
    if used is not None:
        yield f"Your settings stay in {used}."


def _build_delete_command(folder: Path) -> str:
    if sys.platform == "win32":
        return f'Remove-Item -Recurse -Force "{folder}"'
    return f"rm -r {shlex.quote(str(folder))}"


def _quote(word: str) -> str:
    return f'"{word}"' if sys.platform == "win32" else shlex.quote(word)


def _print_as_json(
    done: Sequence[AppliedChange],
    problems: Sequence[str],
    *,
    is_stopped: bool,
    left: Sequence[ClientInstallation],
    settings: Settings,
) -> None:
    print_json(
        {
            "changed": [{"file": str(each.file), "backup": str(each.backup) if each.backup else None} for each in done],
            "problems": list(problems),
            "left": [{"client": each.client, "kind": each.kind, "file": str(each.file)} for each in left],
            "worker_stopped": is_stopped,
            "data_dir": str(settings.data_dir) if settings.data_dir.is_dir() else None,
        }
    )
