"""`everkept off` and `everkept on`: whether anything of a project is kept or given out."""

from datetime import datetime
from typing import Any

import click

from everkept.app.app import App
from everkept.cli.options import common
from everkept.cli.runner import SELECTED_PROJECT, print_json, run_with_app
from everkept.core.projects import Project
from everkept.core.sessions import Session
from everkept.core.times import iso
from everkept.values import replace

OFF = """\
Nothing of it is stored or given out: hooks keep still, memory and graph tools refuse, and its
conversations are neither taken in nor found. What is said meanwhile is never taken in. What was
stored before stays, and is there again after `everkept on`."""
GONE = "Nothing was stored in it, so it is gone; the first memory makes it anew."
NO_FOLDER = "It belongs to no folder, so which conversations are its own is not known: they go on."
MADE = "off.made "  # begins the notes of projects that were made to be off


@click.command()
@common
def off(as_json: bool, **flags: Any) -> None:
    """Switch the project of this folder off: nothing of it is stored or given out."""
    _switch(as_json, flags, off=True)


@click.command()
@common
def on(as_json: bool, **flags: Any) -> None:
    """Switch the project of this folder on again."""
    _switch(as_json, flags, off=False)


def _switch(as_json: bool, flags: dict[str, Any], *, off: bool) -> None:
    async def work(app: App) -> tuple[Project, Project, str] | None:
        before = await _meant(app, flags.get("project"), off=off)
        if before is None:
            return None
        if not off and await _is_only_made_to_be_off(app, before):
            await app.library.delete(before.name)  # while it is off, so that nobody fills it
            await app.library.set_note(MADE + before.id, None)
            return before, replace(before, off_since=None), GONE
        after = await app.library.switch(before.name, off=off)
        folders = await app.library.workspaces_of(after)
        return before, after, "" if not off else OFF if folders else f"{OFF}\n{NO_FOLDER}"

    done = run_with_app(work, writes=True, **flags)
    if done is None:
        _tell_that_there_is_none(as_json=as_json)
        return
    before, after, meaning = done
    changed = before.is_off != after.is_off
    if as_json:
        since = None if after.off_since is None else iso(after.off_since)
        told = {"project": after.name, "off": after.is_off, "changed": changed, "since": since}
        print_json({**told, **({"removed": True} if meaning == GONE else {})})
        return
    click.echo(_told(after, changed=changed))
    if meaning and changed:
        click.echo(meaning)


async def _meant(app: App, named: str | None, *, off: bool) -> Project | None:
    """A name must be one that there is: a mistyped one would leave the project on that is meant.

    The project of a folder is made to be off; one that is not there is on.
    """
    if named is not None:
        return await app.library.project(named)
    session = Session(client="command line", is_conversation=False)
    found = await app.shelf.project(session)
    if found is not None or not off:
        return found
    made = await app.shelf.standing_project(session)
    await app.library.set_note(MADE + made.id, iso(made.created_at))
    return made


async def _is_only_made_to_be_off(app: App, project: Project) -> bool:
    """Whether nobody has put anything into it or chosen it since."""
    if not project.is_off or await app.library.note(MADE + project.id) is None:
        return False
    if project.name in (await app.library.notes(SELECTED_PROJECT)).values():
        return False
    _, store = await app.library.open(project.name)
    return await store.revision() == 0


def _tell_that_there_is_none(*, as_json: bool) -> None:
    if as_json:
        print_json({"project": None, "off": False, "changed": False, "since": None})
    else:
        click.echo("Nothing is stored of this folder yet, and nothing is off; nothing was changed.")


def _told(project: Project, *, changed: bool) -> str:
    if project.off_since is not None:
        since = datetime.fromtimestamp(project.off_since / 1e6).strftime("%Y-%m-%d %H:%M")
        return f'Project "{project.name}" is {"" if changed else "already "}off since {since}.'
    return f'Project "{project.name}" is on{" again" if changed else "; nothing was changed"}.'
