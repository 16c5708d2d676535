"""Memories for people: remember, recall, list, edit, pin, context."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from everkept.app.app import App
from everkept.cli.moments import moment, moment_text
from everkept.cli.options import Count, common
from everkept.cli.render import console, print_memories
from everkept.cli.runner import bar, command_session, expect_project, print_json, run_with_app
from everkept.cli.runner import report as report_problem
from everkept.core.records import Record, Where
from everkept.errors import InvalidInput, NotFound
from everkept.families.memories.model import MEMORY, MemoryView
from everkept.jobs.maintenance import Indexed
from everkept.settings import AUTO
from everkept.tools.schema import to_json

TYPES = ("episodic", "semantic", "procedural", "working")
SCOPES = ("session", "project", "user")
STRATEGIES = ("hybrid", "vector", "keyword", "graph")
CATCH_UP = 3.0  # seconds that a command gives to texts which wait for their vectors

_scope = click.option("--scope", type=click.Choice(SCOPES), multiple=True, help="Only these.")
_type = click.option("--type", "types", type=click.Choice(TYPES), multiple=True, help="Only these.")
_tag = click.option("--tag", "tags", multiple=True, metavar="TAG", help="With any of these tags.")
_since = click.option("--since", metavar="TIME", help="2026-03-01, yesterday, last week, …")
_until = click.option("--until", metavar="TIME", help="Likewise.")


@click.command()
@common
@click.argument("text", nargs=-1, required=True)
@click.option("--type", "kind", type=click.Choice(TYPES), default="semantic", show_default=True)
@click.option("--scope", type=click.Choice(SCOPES), default="project", show_default=True)
@click.option("--importance", type=click.FloatRange(0, 1), help="0 to 1. Default: 0.5.")
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="A label; may be repeated.")
@click.option("--author", help="Who said it.")
@click.option("--when", "occurred_at", metavar="TIME", help="When it happened.")
@click.option("--supersedes", metavar="ID", help="The memory that this one replaces.")
@click.option("--pin", is_flag=True, help="Never let it fade.")
def remember(
    as_json: bool,
    text: tuple[str, ...],
    kind: str,
    tags: tuple[str, ...],
    pin: bool,
    occurred_at: str | None,
    scope: str,
    importance: float | None,
    author: str | None,
    supersedes: str | None,
    **flags: Any,
) -> None:
    """Store a memory: TEXT, or `-` for standard input."""
    arguments = {
        "content": sys.stdin.read() if text == ("-",) else " ".join(text),
        "type": kind,
        "scope": scope,
        "importance": importance,
        "tags": list(tags) or None,
        "author": author,
        "supersedes": supersedes,
        "pinned": True if pin else None,
        "occurred_at": moment_text(occurred_at, "when"),
    }

    async def work(app: App) -> tuple[dict[str, Any], str]:
        if scope == "session" and not app.settings.session_id:
            raise InvalidInput(
                "A command has no session of its own.",
                hint="Choose --scope project or user, or let EVERKEPT_SESSION_ID name a session.",
                argument="scope",
                value=scope,
            )
        stored = await _call(app, "store_memory", arguments)
        return stored, scope if scope == "user" else f"{scope} {await _project_name(app)}"

    stored, where = run_with_app(work, writes=True, **flags)
    if as_json:
        print_json(stored)
        return
    verb = "Known already" if stored.get("existing") else "Remembered"
    click.echo(f"{verb}: {stored['memory_id']} ({stored['type']}, {where})")
    if changed := stored.get("updated"):
        click.echo(f"Changed: {', '.join(changed)}")
    _warn(stored)


@click.command()
@common
@click.argument("query", nargs=-1, required=True)
@_scope
@_type
@_tag
@_since
@_until
@click.option("--strategy", type=click.Choice(STRATEGIES), default="hybrid", show_default=True)
@click.option("--limit", type=Count(1, 50), default=10, show_default=True)
@click.option("--as-of", metavar="TIME", help="What was known then.")
@click.option("--forgotten", is_flag=True, help="Forgotten ones too.")
def recall(
    as_json: bool,
    query: tuple[str, ...],
    scope: Sequence[str],
    types: Sequence[str],
    tags: Sequence[str],
    since: str | None,
    until: str | None,
    strategy: str,
    limit: int,
    as_of: str | None,
    forgotten: bool,
    **flags: Any,
) -> None:
    """Find memories that fit QUERY, best first, with the reasons."""
    if not " ".join(query).strip():
        raise InvalidInput("`query` is blank.", argument="query", value=" ".join(query))

    async def work(app: App) -> dict[str, Any]:
        arguments = {
            "query": " ".join(query),
            "scope": list(scope) or None,
            "type": list(types) or None,
            "tags": list(tags) or None,
            "strategy": strategy,
            "limit": limit,
            "time_range": _given(
                {
                    "after": moment_text(since, "since"),
                    "before": moment_text(until, "until", end=True),
                }
            )
            or None,
            "as_of": moment_text(as_of, "as_of", end=True),
            "include_forgotten": forgotten or None,
            "explain": True,
        }
        await expect_project(app, flags)
        await app.shelf.catch_up(await command_session(app), CATCH_UP)
        return await _call(app, "recall_memories", arguments)

    found = run_with_app(work, **flags)
    if as_json:
        print_json(found)
        return
    print_memories(console(), found["memories"])
    _warn(found)


@click.command("list")
@common
@_scope
@_type
@_tag
@_since
@_until
@click.option("--pinned", is_flag=True, help="Only pinned ones.")
@click.option("--automatic", is_flag=True, help="Only those that hooks have stored by themselves.")
@click.option("--forgotten", is_flag=True, help="Only forgotten ones.")
@click.option("--all-projects", is_flag=True, help="Of every project that is not off.")
@click.option("--limit", type=Count(1, 10_000), default=20, show_default=True)
def list_(
    as_json: bool,
    scope: Sequence[str],
    types: Sequence[str],
    tags: Sequence[str],
    since: str | None,
    until: str | None,
    pinned: bool,
    automatic: bool,
    forgotten: bool,
    all_projects: bool,
    limit: int,
    **flags: Any,
) -> None:
    """List memories, newest first, those of all sessions included.

    They are those of the project and your own; with --all-projects, those of all projects.
    """
    where = Where(
        scopes=tuple(scope),
        types=tuple(types),
        tags=tuple(tags),
        after=moment(since, "since"),
        before=moment(until, "until", end=True),
        pinned=pinned,
        automatic=automatic,
        deleted=forgotten,
    )

    async def work(app: App) -> tuple[str, list[dict[str, Any]]]:
        await expect_project(app, flags)
        session = await command_session(app)
        found = await app.shelf.newest(session, where, limit, everywhere=all_projects)
        listed = [_listed(record, name if all_projects else None) for name, record in found]
        project = None if all_projects else await app.shelf.project(session)
        return project.name if project else "this folder", listed

    meant, memories = run_with_app(work, **flags)
    if as_json:
        print_json({"memories": memories})
        return
    if automatic and not all_projects:
        click.echo(f"Automatic memories of {meant} and of your own; --all-projects lists all.")
    print_memories(console(), memories)


@click.command()
@common
@click.argument("memory_id")
@click.option("--content", help="The new text. Without any option an editor opens.")
@click.option("--importance", type=click.FloatRange(0, 1), help="0 to 1.")
@click.option("--tag", "add", multiple=True, metavar="TAG", help="A label to add.")
@click.option("--untag", "remove", multiple=True, metavar="TAG", help="A label to remove.")
def edit(
    as_json: bool,
    memory_id: str,
    content: str | None,
    importance: float | None,
    add: Sequence[str],
    remove: Sequence[str],
    **flags: Any,
) -> None:
    """Change a memory; `everkept undo` takes it back."""

    async def work(app: App) -> dict[str, Any]:
        arguments = {
            "memory_id": memory_id,
            "content": content,
            "importance": importance,
            "tags": _given({"add": list(add), "remove": list(remove)}) or None,
        }
        if not _given(arguments).keys() - {"memory_id"}:
            arguments["content"] = _edited(await _text(app, memory_id))
        return await _call(app, "update_memory", arguments)

    changed = run_with_app(work, writes=True, **flags)
    if as_json:
        print_json(changed)
        return
    fields = ", ".join(changed["updated_fields"])
    click.echo(f"Changed {fields}." if fields else "Nothing changed.")
    _warn(changed)


@click.command()
@common
@click.argument("memory_id")
@click.option("--off", is_flag=True, help="Let it fade again.")
def pin(as_json: bool, memory_id: str, off: bool, **flags: Any) -> None:
    """Pin a memory: it does not fade, and comes first in the context."""
    arguments = {"memory_id": memory_id, "pinned": not off}
    changed = run_with_app(lambda app: _call(app, "update_memory", arguments), writes=True, **flags)
    if as_json:
        print_json(changed)
    else:
        click.echo(f"{'Unpinned' if off else 'Pinned'} {changed['memory_id']}.")


@click.command()
@common
@click.argument("task", nargs=-1)
@click.option("--file", "files", type=Path, multiple=True, help="A file you work on.")
@click.option("--max-tokens", type=Count(100, 8000), default=2000, show_default=True)
def context(
    as_json: bool, task: Sequence[str], files: Sequence[Path], max_tokens: int, **flags: Any
) -> None:
    """Print what an assistant should know for TASK, within a budget."""

    async def work(app: App) -> dict[str, Any]:
        await expect_project(app, flags)
        await app.shelf.catch_up(await command_session(app), CATCH_UP)
        arguments = {
            "task_description": " ".join(task) or None,
            "files_in_context": [str(file) for file in files] or None,
            "max_tokens": max_tokens,
        }
        return await _call(app, "get_memory_context", arguments)

    built = run_with_app(work, **flags)
    if as_json:
        print_json(built)
    else:
        click.echo(built["context_block"] or "Nothing is remembered for this yet.")


@click.command()
@common
def index(as_json: bool, **flags: Any) -> None:
    """Give every text that waits its vector now, so that it is found by meaning.

    Texts are memories of all projects or of one --project, past conversations, and sections of
    the memory bank's files.
    """

    async def work(app: App) -> Indexed:
        named = flags.get("project")
        only = None if named == AUTO else named
        with bar("Embedding") as report:
            return await app.shelf.index(await command_session(app), report, only)

    outcome = run_with_app(work, writes=True, **flags)
    done, problems = outcome.done, outcome.problems
    if as_json:
        told = {"problems": [problem.envelope() for problem in problems]} if problems else {}
        print_json({"embedded": done, **told})
    elif done or not problems:
        counted = "1 text" if done == 1 else f"{done:,} texts"
        click.echo(f"Embedded {counted}." if done else "Nothing was waiting.")
    if problems:
        sys.exit(min([report_problem(problem) for problem in problems]))


async def _call(app: App, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    given = {name: value for name, value in arguments.items() if value is not None}
    return (await app.call(await command_session(app), tool, given)).structured


async def _project_name(app: App) -> str:
    session = await command_session(app)
    project = await app.shelf.project(session)
    return project.name if project else "(made at the first write)"


async def _text(app: App, memory_id: str) -> str:
    record = await app.shelf.get(await command_session(app), memory_id)
    if record is None or record.kind != MEMORY:
        raise NotFound("memory", memory_id, hint="`everkept list` shows ids.")
    return record.text


def _listed(record: Record, project: str | None) -> dict[str, Any]:
    """As recall shows it, without a score: nothing was asked."""
    shown = to_json(MemoryView.of(record, 0.0))
    place = {} if project is None else {"project": project}
    return {key: value for key, value in shown.items() if key != "relevance_score"} | place


def _given(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value not in (None, [], {})}


def _edited(text: str) -> str:
    if not sys.stdin.isatty() and not sys.stdout.isatty():
        raise click.UsageError("There is no terminal for an editor: say --content.")
    changed = click.edit(text, extension=".md")
    if changed is None:
        raise click.Abort
    return changed.rstrip("\n")


def _warn(answer: dict[str, Any]) -> None:
    for warning in answer.get("warnings", []):
        click.echo(f"everkept: {warning['message']}", err=True)
