"""`everkept purge project`: permanent deletion of a project in the trash."""

import sys
from collections.abc import Mapping
from typing import Any

import click

from everkept.app.app import App
from everkept.cli.runner import echo, print_json
from everkept.cli.tools import format_counts
from everkept.core.projects import TrashedProject
from everkept.core.text import format_count
from everkept.core.times import format_iso, format_local
from everkept.errors import InvalidInput, NotFound, Refused
from everkept.jobs.call_log import erase_calls

PROJECT_WORD = "project"  # first word of `everkept purge project NAME`


async def purge_project(app: App, names: tuple[str, ...], *, yes: bool, as_json: bool) -> None:
    """Permanently delete the projects in the trash with this name, or the one with this id."""
    if len(names) != 1:
        raise InvalidInput("Specify one project.", hint="Run `everkept purge project NAME`.")
    found = await _find_trashed(app, names[0])
    counted = [(each, await _count_live(app, each)) for each in found]
    if not yes:
        _confirm_name(found[0].name, counted)
    for each in found:
        await app.project_changes.purge(each)
    if all(each.name != found[0].name for each in await app.guarded.list_projects()):
        erase_calls(app.settings.data_dir, lambda line: found[0].name in line.splitlines())
    if as_json:
        print_json({"purged": [_describe(*each) for each in counted]})
    else:
        count = "project" if len(found) == 1 else format_count(len(found), "project")
        echo(f'Permanently deleted {count} "{found[0].name}".')


async def _find_trashed(app: App, name: str) -> list[TrashedProject]:
    one = await app.project_changes.find_trashed(name)
    if one is not None:
        return [each for each in await app.project_changes.list_trash() if each.name == name] or [one]
    live = [each.name for each in await app.guarded.list_projects()]
    if name in live:
        raise Refused(
            f'Project "{name}" is not in the trash.', hint="Delete it first with delete_project.", project=name
        )
    raise NotFound(
        "project", name, message=f'Project "{name}" is not in the trash.', hint="List the trash with list_projects."
    )


async def _count_live(app: App, trashed: TrashedProject) -> Mapping[str, int]:
    return await (await app.library.get_store(trashed.project)).count_live()


def _confirm_name(name: str, counted: list[tuple[TrashedProject, Mapping[str, int]]]) -> None:
    """Show what is deleted, and ask a person for the name."""
    if not sys.stdin.isatty():
        raise Refused("This deletes data permanently.", hint="Confirm in a terminal, or pass --yes.")
    for each, held in counted:
        at = format_local(each.deleted_at)[:10]
        echo(f'Project "{name}", deleted on {at}, has {format_counts(held)}.', err=True)
    echo("This deletes it permanently, and you cannot undo it.", err=True)
    if click.prompt("Type the name of the project", err=True, type=str).strip() != name:
        raise Refused("The name differs. Nothing was deleted.", hint="Run the command again.")


def _describe(trashed: TrashedProject, held: Mapping[str, int]) -> dict[str, Any]:
    at = format_iso(trashed.deleted_at)
    return {"id": trashed.project.id, "name": trashed.name, "deleted_at": at, "counts": dict(held)}
