"""Memories for people: remember, recall, edit, pin, forget, context."""

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from everkept.app.app import App
from everkept.app.bank import read_author
from everkept.cli.completion import complete_memories, complete_tags
from everkept.cli.options import (
    CountRange,
    add_common_options,
    join_words,
    normalize_typed_time,
    parse_typed_time,
    split_tags,
)
from everkept.cli.render import build_console, print_memories
from everkept.cli.runner import (
    confirm,
    echo,
    print_json,
    read_session,
    report_interruption,
    require_project,
    run_with_app,
    show_progress,
    to_command_words,
)
from everkept.cli.runner import report_error as report_problem
from everkept.core.records import Record, RecordFilter
from everkept.core.text import clip_text, format_count
from everkept.errors import InvalidInput, NotFound, Refused
from everkept.families.memories.model import MEMORY
from everkept.jobs.memory_access import IndexResult
from everkept.settings import AUTO

FC = TypeVar("FC", bound=Callable[..., Any])

TYPES = ("episodic", "semantic", "procedural", "working")
SCOPES = ("session", "project", "user")
STRATEGIES = ("hybrid", "vector", "keyword", "graph")
CATCH_UP_SECONDS = 3.0  # for pending embeddings before a command

scope_option = click.option(
    "--scope", type=click.Choice(SCOPES), multiple=True, help="Search only this scope. Repeatable. Default: all."
)
type_option = click.option(
    "--type", "types", type=click.Choice(TYPES), multiple=True, help="Search only this type. Repeatable. Default: all."
)


def _split_tags(_context: click.Context, _parameter: click.Parameter, typed: Sequence[str]) -> tuple[str, ...]:
    return tuple(split_tags(typed))


def build_tag_option(help_text: str, *names: str) -> Callable[[FC], FC]:
    """Return an option for tags, which people repeat or separate with commas."""
    return click.option(
        *names, multiple=True, metavar="TAG", callback=_split_tags, shell_complete=complete_tags, help=help_text
    )


tag_option = build_tag_option(
    "Only memories with one of these tags. Repeatable, or TAG,TAG.", "--tag", "--tags", "tags"
)
since_option = click.option(
    "--since", metavar="TIME", help="Only memories from this time on, such as 2026-03-01 or last week."
)
until_option = click.option("--until", metavar="TIME", help="Only memories up to this time.")


@click.command()
@add_common_options
@click.argument("text", nargs=-1, required=True)
@click.option("--type", "kind", type=click.Choice(TYPES), default="semantic", show_default=True)
@click.option("--scope", type=click.Choice(SCOPES), default="project", show_default=True)
@click.option("--importance", type=click.FloatRange(0, 1), help="Importance from 0 to 1. Default: 0.5.")
@build_tag_option("Tag to add. Repeatable, or TAG,TAG.", "--tag", "--tags", "tags")
@click.option("--author", help="Name of the person who said it. Default: you, by git's `user.name`.")
@click.option("--when", "occurred_at", metavar="TIME", help="When it happened. Default: now.")
@click.option(
    "--supersedes", metavar="ID", shell_complete=complete_memories, help="Id of the memory this one replaces."
)
@click.option("--pin", is_flag=True, help="Pin the memory, so that it never fades.")
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
    """Store TEXT as a memory. Use `-` to read it from standard input."""
    arguments = {
        "content": join_words(text),
        "type": kind,
        "scope": scope,
        "importance": importance,
        "tags": list(tags) or None,
        "supersedes": supersedes,
        "pinned": True if pin else None,
        "occurred_at": normalize_typed_time(occurred_at, "when"),
    }

    async def work(app: App) -> tuple[dict[str, Any], str]:
        if scope == "session" and not app.settings.session_id:
            raise InvalidInput(
                "A command has no session.",
                hint="Pass --scope project or user, or set EVERKEPT_SESSION_ID.",
                argument="scope",
                value=scope,
            )
        stored = await _call_tool(
            app, "store_memory", arguments | {"author": author or await read_author(app.settings)}
        )
        return stored, scope if scope == "user" else f"{scope} {await _get_project_name(app)}"

    stored, where = run_with_app(work, writes=True, **flags)
    if as_json:
        print_json(stored)
        return
    verb = "Already stored" if stored.get("existing") else "Remembered"
    echo(f"{verb}: {stored['memory_id']} ({stored['type']}, {where})")
    if changed := stored.get("updated"):
        echo(f"Changed: {', '.join(changed)}")
    _print_warnings(stored)


@click.command()
@add_common_options
@click.argument("query", nargs=-1, required=True)
@scope_option
@type_option
@tag_option
@since_option
@until_option
@click.option("--strategy", type=click.Choice(STRATEGIES), default="hybrid", show_default=True)
@click.option("--limit", type=CountRange(1, 50), default=10, show_default=True)
@click.option("--as-of", metavar="TIME", help="Search what was stored at this time.")
@click.option("--forgotten", is_flag=True, help="Include forgotten memories.")
@click.option("--superseded", is_flag=True, help="Include older versions of updated facts.")
@click.option("--all-projects", is_flag=True, help="Search every project that is not turned off.")
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
    superseded: bool,
    all_projects: bool,
    **flags: Any,
) -> None:
    """Search memories and show why each one matched, best first."""
    if not " ".join(query).strip():
        raise InvalidInput(
            "`query` is empty.", hint="Specify what to search for.", argument="query", value=" ".join(query)
        )

    async def work(app: App) -> dict[str, Any]:
        arguments = {
            "query": " ".join(query),
            "scope": list(scope) or None,
            "type": list(types) or None,
            "tags": list(tags) or None,
            "strategy": strategy,
            "limit": limit,
            "time_range": _drop_empty(
                {
                    "after": normalize_typed_time(since, "since"),
                    "before": normalize_typed_time(until, "until", end=True),
                }
            )
            or None,
            "as_of": normalize_typed_time(as_of, "as_of", end=True),
            "include_forgotten": forgotten or None,
            "include_superseded": superseded or None,
            "explain": True,
            "all_projects": all_projects or None,
        }
        await require_project(app, flags)
        await app.memory_access.catch_up(await read_session(app), CATCH_UP_SECONDS)
        return await _call_tool(app, "recall_memories", arguments)

    found = run_with_app(work, **flags)
    if as_json:
        print_json(found)
        return
    print_memories(build_console(), found["memories"], " ".join(query))
    _print_warnings(found)


@click.command()
@add_common_options
@click.argument("memory_id", metavar="ID", shell_complete=complete_memories)
@click.argument("text", nargs=-1)
@click.option("--content", help="New text, in place of TEXT.")
@click.option("--importance", type=click.FloatRange(0, 1), help="New importance, from 0 to 1.")
@build_tag_option("Tag to add. Repeatable, or TAG,TAG.", "--tag", "--tags", "add")
@build_tag_option("Tag to remove. Repeatable, or TAG,TAG.", "--untag", "remove")
def edit(
    as_json: bool,
    memory_id: str,
    text: tuple[str, ...],
    content: str | None,
    importance: float | None,
    add: Sequence[str],
    remove: Sequence[str],
    **flags: Any,
) -> None:
    """Change the memory with this ID to TEXT. To reverse the change, run `everkept undo`.

    Without TEXT and options, opens your editor. Use `-` to read TEXT from standard input.
    """
    if text and content is not None:
        raise InvalidInput("TEXT and --content both give the new text.", hint="Omit one of them.", argument="content")
    content = join_words(text) if text else content

    async def work(app: App) -> dict[str, Any]:
        arguments = {
            "memory_id": memory_id,
            "content": content,
            "importance": importance,
            "tags": _drop_empty({"add": list(add), "remove": list(remove)}) or None,
        }
        if not _drop_empty(arguments).keys() - {"memory_id"}:
            arguments["content"] = _edit_text(await _read_text(app, memory_id))
        return await _call_tool(app, "update_memory", arguments)

    changed = run_with_app(work, writes=True, **flags)
    if as_json:
        print_json(changed)
        return
    fields = ", ".join(changed["updated_fields"])
    echo(f"Changed {fields}." if fields else "Nothing changed.")
    _print_warnings(changed)


@click.command()
@add_common_options
@click.argument("memory_id", metavar="ID", shell_complete=complete_memories)
@click.option("--off", is_flag=True, help="Unpin the memory.")
def pin(as_json: bool, memory_id: str, off: bool, **flags: Any) -> None:
    """Keep a memory from fading.

    A pinned memory also comes first in context blocks.
    """
    arguments = {"memory_id": memory_id, "pinned": not off}
    changed = run_with_app(lambda app: _call_tool(app, "update_memory", arguments), writes=True, **flags)
    if as_json:
        print_json(changed)
    else:
        echo(f"{'Unpinned' if off else 'Pinned'} {changed['memory_id']}.")


@click.command()
@add_common_options
@click.argument("task", nargs=-1)
@click.option("--file", "files", type=Path, multiple=True, help="File you are working on. Repeatable.")
@click.option("--max-tokens", type=CountRange(100, 8000), default=2000, show_default=True)
def context(as_json: bool, task: Sequence[str], files: Sequence[Path], max_tokens: int, **flags: Any) -> None:
    """Print the context block an assistant would get for TASK."""

    async def work(app: App) -> dict[str, Any]:
        await require_project(app, flags)
        await app.memory_access.catch_up(await read_session(app), CATCH_UP_SECONDS)
        arguments = {
            "task_description": " ".join(task) or None,
            "files_in_context": [str(file) for file in files] or None,
            "max_tokens": max_tokens,
        }
        return await _call_tool(app, "get_memory_context", arguments)

    built = run_with_app(work, **flags)
    if as_json:
        print_json(built)
    else:
        echo(built["context_block"] or "No memories match this task yet.")


@click.command()
@click.option("--minutes", type=click.FloatRange(min=0, min_open=True), help="Stop after so many; the rest waits.")
@add_common_options
def index(minutes: float | None, as_json: bool, **flags: Any) -> None:
    """Compute missing embeddings now.

    Searches by meaning then find all text. Covers memories, past conversations and memory bank files. Without this
    command, a running server does it in the background. To stop, press Ctrl-C. Finished work is kept, and the next run
    continues.
    """
    seconds = None if minutes is None else 60 * minutes

    async def work(app: App) -> IndexResult:
        named = flags.get("project")
        only = None if named == AUTO else named
        with show_progress("Embedding") as report:
            return await app.memory_access.index(await read_session(app), report, only, seconds)

    with report_interruption(lambda: "Finished embeddings are kept. To continue, run `everkept index`."):
        outcome = run_with_app(work, writes=True, **flags)
    done, problems = outcome.done, outcome.problems
    if as_json:
        told = {"problems": [problem.to_envelope() for problem in problems]} if problems else {}
        pending = {"pending": outcome.pending} if outcome.pending else {}
        print_json({"embedded": done, **pending, **told})
    elif done or not problems:
        left = f" {format_count(outcome.pending, 'text')} pending." if outcome.pending else ""
        echo(
            (f"Embedded {format_count(done, 'text')}." if done or left else "All texts already have embeddings.") + left
        )
    if problems:
        sys.exit(min([report_problem(problem) for problem in problems]))


async def _call_tool(app: App, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    given = {name: value for name, value in arguments.items() if value is not None}
    return (await app.call(await read_session(app), tool, given)).facts


async def _get_project_name(app: App) -> str:
    session = await read_session(app)
    project = await app.memory_access.find_project(session)
    return project.name if project else "(created at the first write)"


async def _read_text(app: App, memory_id: str) -> str:
    record = await app.memory_access.find_memory(await read_session(app), memory_id)
    if record is None or record.kind != MEMORY:
        raise NotFound("memory", memory_id, hint="List ids with `everkept list`.")
    return record.text


def _drop_empty(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value not in (None, [], {})}


def _edit_text(text: str) -> str:
    if not sys.stdin.isatty() and not sys.stdout.isatty():
        raise InvalidInput("There is no terminal for an editor.", hint="Pass the new text after the id.")
    changed = click.edit(text, extension=".md")
    if changed is None:
        raise click.Abort
    return changed.rstrip("\n")


def _print_warnings(answer: dict[str, Any]) -> None:
    for warning in answer.get("warnings", []):
        echo(f"everkept: {to_command_words(str(warning['message']))}", err=True)


MAX_SHOWN_MEMORIES = 3  # in a question


@click.command()
@add_common_options
@click.argument("memory_id", metavar="[ID]", required=False, shell_complete=complete_memories)
@click.option("--reason", help="Reason to record with the memory.")
@click.option("--automatic", is_flag=True, help="Forget memories that hooks stored automatically.")
@click.option("--before", metavar="TIME", help="With --automatic: only memories from before this time.")
@click.option("--session", metavar="ID", help="With --automatic: only memories of this session.")
@click.option("--all-projects", is_flag=True, help="With --automatic: in every project that is not turned off.")
@click.option("--yes", is_flag=True, help="Skip the confirmation prompt.")
def forget(
    as_json: bool,
    memory_id: str | None,
    reason: str | None,
    automatic: bool,
    before: str | None,
    session: str | None,
    all_projects: bool,
    yes: bool,
    **flags: Any,
) -> None:
    """Hide a memory from recall. To reverse this, run `everkept undo`. To delete it permanently, run `everkept purge`.

    With --automatic, forgets the memories that hooks stored in this project and in your user scope. Pinned memories are
    kept.
    """
    if automatic:
        _check_alone({"ID": memory_id, "--reason": reason})
        meant = _build_filter(before, session)
        _forget_automatic(meant, everywhere=all_projects, as_json=as_json, yes=yes, **flags)
    elif memory_id is None or before or session or all_projects:
        raise InvalidInput(
            "Specify which memories to forget.",
            hint="Pass an ID, or --automatic with --before TIME, --session ID or --all-projects.",
            argument="memory_id",
        )
    else:
        _forget_one(memory_id, reason, as_json=as_json, **flags)


def _forget_one(memory_id: str, reason: str | None, *, as_json: bool, **flags: Any) -> None:
    arguments = {"memory_id": memory_id} | ({"reason": reason} if reason else {})

    async def work(app: App) -> dict[str, Any]:
        called = await app.call(await read_session(app), "forget_memory", arguments)
        return called.facts

    gone = run_with_app(work, writes=True, **flags)
    if as_json:
        print_json(gone)
    else:
        echo(f"Forgotten: {gone['memory_id']}")


def _build_filter(before: str | None, session_id: str | None) -> RecordFilter:
    until = parse_typed_time(before, "before")
    return RecordFilter(
        before=None if until is None else until - 1, sessions=None if session_id is None else (session_id,)
    )


def _forget_automatic(where: RecordFilter, *, everywhere: bool, as_json: bool, yes: bool, **flags: Any) -> None:
    async def work(app: App) -> tuple[str, dict[str, int] | None]:
        session = await read_session(app)
        found = await app.memory_access.list_automatic(session, where, everywhere=everywhere)
        if not found:
            project = await app.memory_access.find_project(session)
            return project.name if project else "this folder", {}
        if not _confirm(_format_question(found), yes=yes):
            return "", None
        return "", await app.memory_access.forget_automatic(session, found, everywhere=everywhere)

    project, gone = run_with_app(work, writes=True, **flags)
    if as_json:
        print_json({"forgotten": sum((gone or {}).values())})
    elif gone:
        is_plain = len(gone) == 1 and not everywhere and flags.get("project") is None
        echo(_format_forgotten(gone, is_plain=is_plain))
    elif gone is None:
        echo("Nothing changed.")
    else:
        place = "any project" if everywhere else f"{project} or your user scope"
        echo(f"No automatic memories match in {place}. Nothing changed.")


def _format_question(found: Mapping[str, Sequence[Record]]) -> str:
    texts = [clip_text(record.text, 60) for records in found.values() for record in records]
    more = "; …" if len(texts) > MAX_SHOWN_MEMORIES else ""
    counts = {name: len(records) for name, records in found.items()}
    return f"Forget {_format_counts(counts)} ({'; '.join(texts[-MAX_SHOWN_MEMORIES:])}{more})?"


def _format_counts(counts: Mapping[str, int]) -> str:
    """Return `3 automatic memories of shop`, or the count of each place."""
    many = format_count(sum(counts.values()), "automatic memory", "automatic memories")
    if len(counts) == 1:
        return f"{many} of {next(iter(counts))}"
    places = [f"{count:,} of {name}" for name, count in counts.items()]
    return f"{many}, {', '.join(places[:-1])} and {places[-1]}"


def _format_forgotten(gone: Mapping[str, int], *, is_plain: bool) -> str:
    """Return the result with the way back. Each place has its own change, which a plain undo may not reverse."""
    if is_plain:
        return f"Forgot {_format_counts(gone)}. To reverse this, run `everkept undo`."
    if len(gone) == 1:
        back = f'To reverse this, run `everkept undo --project "{next(iter(gone))}"`'
    else:
        back = "To reverse it for one project, run `everkept undo --project NAME`"
    return f"Forgot {_format_counts(gone)}. {back}."


def _confirm(question: str, *, yes: bool) -> bool:
    if not yes and not sys.stdin.isatty():
        raise Refused("This hides several memories.", hint="Confirm in a terminal, or pass --yes.")
    return confirm(question, yes=yes)


def _check_alone(given: Mapping[str, str | None]) -> None:
    for name, value in given.items():
        if value is not None:
            raise InvalidInput(
                f"--automatic selects many memories, and {name} one.",
                hint="Omit one of them.",
                argument=name,
                value=value,
            )
