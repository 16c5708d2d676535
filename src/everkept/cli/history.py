"""`everkept history`, `off` and `on`: stored conversations, and projects that are off."""

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path, PureWindowsPath
from typing import Any

import click

from everkept.app.app import App
from everkept.app.history import select_topmost
from everkept.cli.completion import complete_conversations
from everkept.cli.options import CountRange, add_common_options
from everkept.cli.render import build_console, build_table, print_details, print_item
from everkept.cli.runner import confirm, echo, print_json, run_with_app, show_progress
from everkept.core.answers import SearchRecord
from everkept.core.folder_project import list_choices
from everkept.core.projects import Project
from everkept.core.records import Record
from everkept.core.sessions import Session
from everkept.core.short_ids import shorten_ids
from everkept.core.text import clip_text, format_count
from everkept.core.times import format_iso, format_local, parse_time
from everkept.errors import InvalidInput, NotFound
from everkept.families.history.ingest.removal import RemovalReport
from everkept.families.history.searches import match_named_projects
from everkept.tools.schema import to_json
from everkept.values import replace

_SEPARATOR = re.compile(r"[/\\]")


@click.group()
def history() -> None:
    """List, exclude or delete past conversations."""


@history.command("list")
@add_common_options
@click.option("--limit", type=CountRange(1, 10_000), default=20, show_default=True)
def list_conversations(as_json: bool, limit: int, project: str | None, **flags: Any) -> None:
    """List conversations, newest first."""
    found = run_with_app(lambda app: app.history.list_conversations(limit, project), **flags)
    rows = [_describe_conversation(record) for record in found]
    if as_json:
        print_json({"conversations": rows})
    elif not rows:
        echo("No conversations imported yet. To import them, run `everkept import history`.")
    else:
        out, short = build_console(), shorten_ids([row["id"] for row in rows])
        for row in rows:
            place = row["project_path"] or "no project"
            told = [format_local(parse_time(row["ended"])), row["source"], place, format_count(row["turns"], "turn")]
            print_item(out, row["title"] or "Untitled conversation")
            print_details(out, " · ".join([*told, short[row["id"]]]))


@history.command()
@add_common_options
@click.option(
    "--conversation",
    "conversations",
    multiple=True,
    metavar="ID",
    shell_complete=complete_conversations,
    help="Conversation to delete. Repeatable.",
)
@click.option("--searches", is_flag=True, help="Delete the log of past searches.")
@click.option("--yes", is_flag=True, help="Skip the confirmation prompt.")
def forget(
    as_json: bool, project: str | None, conversations: tuple[str, ...], searches: bool, yes: bool, **flags: Any
) -> None:
    """Permanently delete conversations.

    Pass --project FOLDER for all conversations of a folder, or --conversation ID. Deleted conversations are never
    imported again. The folder is excluded until you run `everkept history include FOLDER`.
    """
    if not (project or conversations or searches):
        raise InvalidInput("Specify what to delete.", hint="Pass --project FOLDER, --conversation ID or --searches.")

    async def work(app: App) -> tuple[RemovalReport, list[str], int] | None:
        folders = await app.history.find_folders(project) if project else {}
        titles = await app.history.read_titles(conversations)
        if not confirm(f"Permanently delete {_format_selection(folders, titles.values(), searches)}?", yes=yes):
            return None
        with show_progress("Forgetting") as progress:
            gone = await app.history.forget(list(folders), list(titles), progress)
        asked = await app.history.forget_searches() if searches else 0
        return gone, select_topmost(list(folders)), asked

    outcome = run_with_app(work, writes=True, **flags)
    if outcome is None:
        return
    gone, folders, asked = outcome
    if as_json:
        print_json({**to_json(gone), "excluded": folders, "searches": asked})
        return
    if project or conversations:
        removed = format_count(gone.conversations, "conversation")
        echo(f"Permanently deleted {removed} with {format_count(gone.turns, 'turn')}.")
        if not gone.complete:
            echo("Another process is still reading the old data. Run the command again later.", err=True)
    for folder in folders:
        echo(f"{folder} is now excluded. To include it again, run `everkept history include`.")
    if searches:
        echo(f"Permanently deleted {format_count(asked, 'search', 'searches')}.")


@history.command()
@add_common_options
@click.argument("folder")
def exclude(as_json: bool, folder: str, **flags: Any) -> None:
    """Stop importing conversations from FOLDER and its subfolders.

    `*` matches any name. Conversations already imported stay; delete them with `everkept history forget`.
    """
    names = _resolve_folders(folder)

    async def work(app: App) -> bool:
        return any([await app.history.exclude(name) for name in names])

    changed = run_with_app(work, writes=True, **flags)
    if as_json:
        print_json({"excluded": names, "changed": changed})
    else:
        state = "now excluded" if changed else "already excluded"
        echo(f"{' and '.join(names)}: {state}.")


@history.command()
@add_common_options
@click.argument("folder")
def include(as_json: bool, folder: str, **flags: Any) -> None:
    """Import conversations of FOLDER again.

    The next import adds them. Deleted conversations stay deleted.
    """

    async def work(app: App) -> list[str]:
        known = await app.history.list_excluded()
        meant = [name for name in known if name in _resolve_folders(folder)]
        meant = meant or match_named_projects(folder, known)
        if not meant:
            raise NotFound("excluded folder", folder, hint="List them with `everkept history excluded`.")
        for name in meant:
            await app.history.include(name)
        return meant

    names = run_with_app(work, writes=True, **flags)
    if as_json:
        print_json({"included": names})
    else:
        echo(f"{' and '.join(names)}: included again. The next import adds its conversations, except deleted ones.")


@history.command()
@add_common_options
def excluded(as_json: bool, **flags: Any) -> None:
    """List excluded folders."""

    async def work(app: App) -> list[dict[str, str]]:
        by_command = [{"folder": f, "by": "command"} for f in await app.history.list_excluded()]
        of_settings = [{"folder": f, "by": "history_exclude"} for f in app.history.configured_exclusions]
        return of_settings + by_command

    rows = run_with_app(work, **flags)
    if as_json:
        print_json({"excluded": rows})
    elif rows:
        build_console().print(build_table("excluded", rows))
    else:
        echo("No folders are excluded.")


@history.command()
@add_common_options
@click.option("--limit", type=CountRange(1, 10_000), default=20, show_default=True)
def searches(as_json: bool, limit: int, **flags: Any) -> None:
    """List past searches, newest first. They are stored only on this machine."""
    found = run_with_app(lambda app: app.history.list_searches(limit), **flags)
    rows = [_describe_search(search) for search in found]
    if as_json:
        print_json({"searches": rows})
    elif rows:
        shown = [row | {"at": format_local(parse_time(row["at"]))} for row in rows]
        columns = ("at", "tool", "query", "results")
        build_console().print(build_table("searches", [{c: row[c] for c in columns} for row in shown]))
    else:
        echo("No searches yet.")


def _describe_conversation(record: Record) -> dict[str, Any]:
    facets = record.facets
    return {
        "id": record.id,
        "session_id": record.session,
        "title": clip_text(record.name or "", 80),
        "source": facets.get("source", ""),
        "project_path": record.scope,
        "turns": facets.get("turns", 0),
        "started": format_iso(record.effective_at),
        "ended": format_iso(facets.get("ended") or record.effective_at),
    }


def _describe_search(search: SearchRecord) -> dict[str, Any]:
    return {
        "at": format_iso(search.at),
        "tool": search.tool,
        "query": search.query,
        "filters": dict(search.filters),
        "results": search.results,
        "milliseconds": search.milliseconds,
    }


def _format_selection(folders: Mapping[str, int], titles: Iterable[str], searches: bool) -> str:
    parts = [f"{format_count(n, 'conversation')} of {folder}" for folder, n in folders.items()]
    parts += [f'the conversation "{title}"' for title in titles]
    return " and ".join([*parts, "the log of past searches"] if searches else parts)


def _resolve_folders(typed: str) -> list[str]:
    """Return a folder in the forms that transcripts use: as typed, and behind links.

    Patterns stay as typed, and so do bare names, which match folders of that name anywhere.
    """
    name = typed.strip().rstrip("/\\") or typed.strip()
    if not name:
        raise InvalidInput("The folder is empty.", hint="Pass the path of a folder.", argument="folder", value=typed)
    if "*" in name or "?" in name or not _SEPARATOR.search(name):
        return [name]
    path = Path(name).expanduser()
    if not path.is_absolute() and PureWindowsPath(name).is_absolute():
        return [name]  # a path of another system, which transcripts may come from
    whole = Path(os.path.normpath(Path.cwd() / path))
    if not path.is_absolute() and not whole.is_dir():
        raise InvalidInput(
            f"Cannot find the folder {whole}.",
            hint="Use the whole path of a folder, a pattern with *, or a bare name.",
            argument="folder",
            value=typed,
        )
    return list(dict.fromkeys((str(whole), os.path.realpath(whole))))


OFF_EXPLANATION = """\
While it is off, nothing is stored or recalled: hooks do nothing, memory and graph tools refuse, and
its conversations are not imported or found. What is said in that time is never imported. Stored data
is kept. To use it again, run `everkept on`."""
PROJECT_REMOVED = "The project was empty, so it was removed. Storing a memory creates it again."
NO_FOLDER = "The project has no folder, so its conversations are unknown and still imported."
CREATED_OFF_NOTE = "off.made "  # prefix of notes about projects that were created to be off


@click.command()
@add_common_options
def off(as_json: bool, **flags: Any) -> None:
    """Turn memory off for this folder's project."""
    _switch(as_json, flags, off=True)


@click.command()
@add_common_options
def on(as_json: bool, **flags: Any) -> None:
    """Turn memory back on for this folder's project."""
    _switch(as_json, flags, off=False)


def _switch(as_json: bool, flags: dict[str, Any], *, off: bool) -> None:
    async def work(app: App) -> tuple[Project, Project, str] | None:
        before = await _find_project(app, flags.get("project"), off=off)
        if before is None:
            return None
        if not off and await _is_unused(app, before):
            await app.library.delete(before.name)  # while it is off, so that nothing is added
            await app.library.set_note(CREATED_OFF_NOTE + before.id, None)
            return before, replace(before, off_since=None), PROJECT_REMOVED
        after = await app.library.set_off(before.name, off=off)
        folders = await app.library.list_workspaces(after)
        return (before, after, "" if not off else OFF_EXPLANATION if folders else f"{OFF_EXPLANATION}\n{NO_FOLDER}")

    done = run_with_app(work, writes=True, **flags)
    if done is None:
        _print_no_project(as_json=as_json)
        return
    before, after, meaning = done
    changed = before.is_off != after.is_off
    if as_json:
        since = None if after.off_since is None else format_iso(after.off_since)
        told = {"project": after.name, "off": after.is_off, "changed": changed, "since": since}
        print_json({**told, **({"removed": True} if meaning == PROJECT_REMOVED else {})})
        return
    echo(_format_state(after, changed=changed))
    if meaning and changed:
        echo(meaning)


async def _find_project(app: App, named: str | None, *, off: bool) -> Project | None:
    """Return the project. Its name must exist, because a typo would leave the intended project on.

    `off` creates the project of a folder; `on` does not need one.
    """
    if named is not None:
        return await app.library.get_project(named)
    session = Session(client="command line", is_conversation=False)
    found = await app.memory_access.find_project(session)
    if found is not None or not off:
        return found
    made = await app.memory_access.ensure_project(session)
    await app.library.set_note(CREATED_OFF_NOTE + made.id, format_iso(made.created_at))
    return made


async def _is_unused(app: App, project: Project) -> bool:
    """Return whether the project is still empty and unused."""
    if not project.is_off or await app.library.get_note(CREATED_OFF_NOTE + project.id) is None:
        return False
    if any(project.name == choice.project for choice in (await list_choices(app.library)).values()):
        return False
    _, store = await app.library.open(project.name)
    return await store.get_revision() == 0


def _print_no_project(*, as_json: bool) -> None:
    if as_json:
        print_json({"project": None, "off": False, "changed": False, "since": None})
    else:
        echo("This folder has no project and memory is not off here. Nothing changed.")


def _format_state(project: Project, *, changed: bool) -> str:
    if project.off_since is not None:
        since = format_local(project.off_since)
        return f'Project "{project.name}" is {"" if changed else "already "}off since {since}.'
    return f'Project "{project.name}" is on{" again" if changed else ". Nothing changed"}.'
