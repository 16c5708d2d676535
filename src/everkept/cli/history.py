"""`everkept history`, `off` and `on`: what is kept of conversations and projects, and what not."""

import os
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path, PureWindowsPath
from typing import Any

import click

from everkept.app.app import App
from everkept.app.history import topmost
from everkept.cli.options import Count, common
from everkept.cli.render import console, table_of
from everkept.cli.runner import SELECTED_PROJECT, bar, confirmed, print_json, run_with_app
from everkept.core.answers import Search
from everkept.core.projects import Project
from everkept.core.records import Record
from everkept.core.sessions import Session
from everkept.core.text import clipped, counted
from everkept.core.times import iso
from everkept.errors import InvalidInput, NotFound
from everkept.families.history.ingest.removal import Forgotten
from everkept.families.history.search_filters import projects_named
from everkept.tools.schema import to_json
from everkept.values import replace

_SEPARATOR = re.compile(r"[/\\]")


@click.group()
def history() -> None:
    """Past conversations: what is kept, what is left out."""


@history.command("list")
@common
@click.option("--limit", type=Count(1, 10_000), default=20, show_default=True)
def list_(as_json: bool, limit: int, project: str | None, **flags: Any) -> None:
    """List conversations, the newest first."""
    found = run_with_app(lambda app: app.past.conversations(limit, project), **flags)
    rows = [_conversation(record) for record in found]
    if as_json:
        print_json({"conversations": rows})
    elif not rows:
        click.echo("No conversation is kept yet: `everkept import history` takes them in.")
    else:
        for row in rows:
            when = row["ended"][:16].replace("T", " ")
            place = row["project_path"] or "no project"
            click.echo(f"{when}  {row['source']}  {place}  {counted(row['turns'], 'turn')}")
            click.echo(f"  {row['id']}  {row['title']}")


@history.command()
@common
@click.option("--conversation", "conversations", multiple=True, metavar="ID", help="This one.")
@click.option("--searches", is_flag=True, help="What was searched for, instead.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def forget(
    as_json: bool,
    project: str | None,
    conversations: tuple[str, ...],
    searches: bool,
    yes: bool,
    **flags: Any,
) -> None:
    """Remove conversations for good: those of a --project, or single ones.

    A project is its folder, or the last part of it. What is forgotten is not taken in again; of a
    project nothing new is either, until `everkept history include` names its folder.
    """
    if not (project or conversations or searches):
        raise InvalidInput(
            "Nothing is named.", hint="Say --project FOLDER, --conversation ID or --searches."
        )

    async def work(app: App) -> tuple[Forgotten, list[str], int] | None:
        folders = await app.past.folders(project) if project else {}
        titles = await app.past.titles(conversations)
        if not confirmed(f"Remove {_named(folders, titles, searches)} for good?", yes=yes):
            return None
        with bar("Forgetting") as progress:
            gone = await app.past.forget(list(folders), conversations, progress)
        asked = await app.past.forget_searches() if searches else 0
        return gone, topmost(list(folders)), asked

    outcome = run_with_app(work, writes=True, **flags)
    if outcome is None:
        return
    gone, folders, asked = outcome
    if as_json:
        print_json({**to_json(gone), "excluded": folders, "searches": asked})
        return
    if project or conversations:
        removed = counted(gone.conversations, "conversation")
        click.echo(f"Removed {removed} with {counted(gone.turns, 'turn')}.")
        if not gone.complete:
            click.echo("A reader keeps old pages alive; run it again later.", err=True)
    for folder in folders:
        click.echo(f"{folder} is left out from now on; `everkept history include` ends that.")
    if searches:
        click.echo(f"Removed {counted(asked, 'search', 'searches')}.")


@history.command()
@common
@click.argument("folder")
def exclude(as_json: bool, folder: str, **flags: Any) -> None:
    """Take no conversation of FOLDER in any more, nor of what lies below it.

    `*` stands for any name. What is in stays; `everkept history forget` removes it.
    """
    names = _folders(folder)

    async def work(app: App) -> bool:
        return any([await app.past.exclude(name) for name in names])

    changed = run_with_app(work, writes=True, **flags)
    if as_json:
        print_json({"excluded": names, "changed": changed})
    else:
        state = "left out from now on" if changed else "left out already"
        click.echo(f"{' and '.join(names)}: {state}.")


@history.command()
@common
@click.argument("folder")
def include(as_json: bool, folder: str, **flags: Any) -> None:
    """Take the conversations of FOLDER in again, with the next import.

    What was forgotten stays forgotten.
    """

    async def work(app: App) -> list[str]:
        known = await app.past.excluded()
        meant = [name for name in known if name in _folders(folder)]
        meant = meant or projects_named(folder, known)
        if not meant:
            raise NotFound(
                "folder that a command has left out",
                folder,
                hint="`everkept history excluded` shows them.",
            )
        for name in meant:
            await app.past.include(name)
        return meant

    names = run_with_app(work, writes=True, **flags)
    if as_json:
        print_json({"included": names})
    else:
        click.echo(
            f"{' and '.join(names)}: taken in again, with the next import; what was forgotten "
            "stays forgotten."
        )


@history.command()
@common
def excluded(as_json: bool, **flags: Any) -> None:
    """Show which folders are left out."""

    async def work(app: App) -> list[dict[str, str]]:
        by_command = [{"folder": f, "by": "command"} for f in await app.past.excluded()]
        of_settings = [{"folder": f, "by": "history_exclude"} for f in app.past.excluded_always]
        return of_settings + by_command

    rows = run_with_app(work, **flags)
    if as_json:
        print_json({"excluded": rows})
    elif rows:
        console().print(table_of("excluded", rows))
    else:
        click.echo("No folder is left out.")


@history.command()
@common
@click.option("--limit", type=Count(1, 10_000), default=20, show_default=True)
def searches(as_json: bool, limit: int, **flags: Any) -> None:
    """Show what was searched for, the newest first. It is kept on this machine alone."""
    found = run_with_app(lambda app: app.past.searches(limit), **flags)
    rows = [_search(search) for search in found]
    if as_json:
        print_json({"searches": rows})
    elif rows:
        shown = [row | {"at": row["at"][:16].replace("T", " ")} for row in rows]
        columns = ("at", "tool", "query", "results")
        console().print(table_of("searches", [{c: row[c] for c in columns} for row in shown]))
    else:
        click.echo("Nothing was searched for yet.")


def _conversation(record: Record) -> dict[str, Any]:
    facets = record.facets
    return {
        "id": record.id,
        "session_id": record.session,
        "title": clipped(record.name or "", 80),
        "source": facets.get("source", ""),
        "project_path": record.scope,
        "turns": facets.get("turns", 0),
        "started": iso(record.at),
        "ended": iso(facets.get("ended") or record.at),
    }


def _search(search: Search) -> dict[str, Any]:
    return {
        "at": iso(search.at),
        "tool": search.tool,
        "query": search.query,
        "filters": dict(search.filters),
        "results": search.results,
        "milliseconds": search.milliseconds,
    }


def _named(folders: Mapping[str, int], titles: Sequence[str], searches: bool) -> str:
    parts = [f"{counted(n, 'conversation')} of {folder}" for folder, n in folders.items()]
    parts += [f'the conversation "{title}"' for title in titles]
    return " and ".join([*parts, "all that was searched for"] if searches else parts)


def _folders(typed: str) -> list[str]:
    """A folder as transcripts may name it: as it is written, and where a link leads.

    Patterns stay as they are typed, and bare names, which mean folders of that name anywhere.
    """
    name = typed.strip().rstrip("/\\") or typed.strip()
    if not name:
        raise InvalidInput("The folder is blank.", argument="folder", value=typed)
    if "*" in name or "?" in name or not _SEPARATOR.search(name):
        return [name]
    path = Path(name).expanduser()
    if not path.is_absolute() and PureWindowsPath(name).is_absolute():
        return [name]  # a path of another system: transcripts may come from there
    whole = Path(os.path.normpath(Path.cwd() / path))
    if not path.is_absolute() and not whole.is_dir():
        raise InvalidInput(
            f"There is no folder {whole}.",
            hint="Name a folder by its whole path, a pattern with *, or a name alone.",
            argument="folder",
            value=typed,
        )
    return list(dict.fromkeys((str(whole), os.path.realpath(whole))))


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
