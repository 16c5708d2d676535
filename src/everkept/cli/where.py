"""`everkept where`: which project is used in this folder, and why."""

from typing import Any

import click

from everkept.app.app import App
from everkept.cli.options import add_common_options
from everkept.cli.runner import echo, print_json, run_with_app
from everkept.core.folder_project import FolderProject, explain_folder_project, format_lost, get_choice_key, read_choice
from everkept.settings import AUTO

PROJECT_CHOSEN = "This folder now uses project {name} (the assistant's server and hooks too)."
PROJECT_RELEASED = "This folder uses its own project again (the assistant's server and hooks too)."
FOR_ONE_COMMAND = "For one command, pass `--project NAME`."
CHANGE_HINT = f"To use another project here, run `everkept switch-project NAME`. {FOR_ONE_COMMAND}"
RELEASE_HINT = "To use the folder's own project again, run `everkept switch-project auto`."
CONFIGURED_HINT = f"To see where the setting comes from, run `everkept config`. {FOR_ONE_COMMAND}"


@click.command()
@add_common_options
def where(as_json: bool, **flags: Any) -> None:
    """Show which project this folder uses, why, and how to change it.

    Commands, the assistant's server and its hooks use the same project in a folder.
    """

    async def work(app: App) -> dict[str, Any]:
        named, folder = app.settings.project, app.settings.path
        if named not in (None, AUTO):
            known = {project.name for project in await app.library.list_projects(None)}
            reason = "--project names it." if flags["project"] else "The setting `project` names it."
            hint = CHANGE_HINT if flags["project"] else CONFIGURED_HINT
            return _describe(str(named), str(folder or ""), reason, hint, exists=named in known)
        found = await explain_folder_project(app.library, folder)
        hint = f"{CHANGE_HINT} {RELEASE_HINT}" if found.choice is not None and not found.lost else CHANGE_HINT
        key = get_choice_key(folder) if found.home is None else found.home.key
        told = _describe(found.name, key, _explain(found), hint, exists=found.project is not None)
        if found.project is not None and found.project.is_off:
            told |= {"off": True}
        return told | ({"lost": found.lost} if found.lost else {})

    told = run_with_app(work, makes_nothing=True, **flags)
    if as_json:
        print_json(told)
        return
    created = "" if told["exists"] else " (the first write creates it)"
    echo(f"Project: {told['project']}{created}{' (off)' if told.get('off') else ''}")
    echo(f"Folder:  {told['folder']}")
    echo(f"Why:     {told['reason']}")
    echo(told["hint"])


async def read_chosen(app: App) -> str | None:
    """Return the project that a command chose for this folder."""
    choice = await read_choice(app.library, get_choice_key(app.settings.path))
    return None if choice is None else choice.project


def _describe(project: str, folder: str, reason: str, hint: str, *, exists: bool) -> dict[str, Any]:
    return {"project": project, "folder": folder, "reason": reason, "exists": exists, "hint": hint}


def _explain(found: FolderProject) -> str:
    if found.lost is not None:
        return format_lost(found)
    if found.choice is not None:
        return "You chose it for this folder with `everkept switch-project` or `everkept create-project`."
    if found.home is None:
        return "This folder is neither in a repository nor has a file such as pyproject.toml or package.json."
    if found.home.marker == ".git":
        return "It belongs to this repository."
    if found.home.marker:
        return f"It belongs to this folder, which has {found.home.marker}."
    return "It is linked to this folder."
