"""`everkept review`: candidates from conversations and automatic memories, to keep, edit or drop."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import click
from rich.text import Text

from everkept.app.app import App
from everkept.app.candidates import Candidate
from everkept.cli.options import CountRange, add_common_options
from everkept.cli.render import build_console, print_details, print_item
from everkept.cli.runner import echo, print_json, read_session, require_project, run_with_app
from everkept.core.projects import find_workspace_key, find_workspace_root
from everkept.core.records import Record, RecordFilter
from everkept.core.short_ids import shorten_ids
from everkept.core.text import clip_text, format_count, replace_controls
from everkept.core.times import format_ago, format_iso, read_clock
from everkept.errors import AmbiguousId, InvalidInput, NotFound
from everkept.families.memories.memory_identity import MEMORY_PREFIX
from everkept.values import Value

MAX_SHOWN_CHARACTERS = 300
MAX_ITEMS = 10_000  # to choose from with an id
Action = Literal["keep", "edit", "drop"]
CHOICES: Mapping[str, Action | Literal["skip", "quit"]] = {
    "k": "keep",
    "e": "edit",
    "d": "drop",
    "s": "skip",
    "q": "quit",
}
RESULTS: Mapping[Action, str] = {"keep": "Kept", "edit": "Kept the edited", "drop": "Dropped"}


class ReviewItem(Value):
    """Something to review: a candidate, or a memory that a hook stored."""

    id: str
    kind: str  # rule, preference, decision, or automatic
    text: str
    source: str
    at: int
    candidate: Candidate | None = None
    project: str | None = None  # of an automatic memory

    def to_json(self) -> dict[str, Any]:
        told = {"id": self.id, "kind": self.kind, "text": self.text, "source": self.source, "at": format_iso(self.at)}
        of_turn = {} if self.candidate is None else {"turn": self.candidate.turn, "folder": self.candidate.folder}
        return told | {name: value for name, value in of_turn.items() if value}


@click.command()
@add_common_options
@click.option("--keep", multiple=True, metavar="ID", help="Store this candidate, or pin this memory. Repeatable.")
@click.option("--drop", multiple=True, metavar="ID", help="Drop this candidate, or forget this memory. Repeatable.")
@click.option("--edit", nargs=2, multiple=True, metavar="ID TEXT", help="Keep it with another text. Repeatable.")
@click.option("--all-projects", is_flag=True, help="Include conversations and memories of all projects.")
@click.option("--limit", type=CountRange(1, 1_000), default=20, show_default=True)
def review(
    as_json: bool,
    keep: Sequence[str],
    drop: Sequence[str],
    edit: Sequence[tuple[str, str]],
    all_projects: bool,
    limit: int,
    **flags: Any,
) -> None:
    """Review what may be worth remembering: keep, edit or drop it.

    Lists rules, preferences and decisions that you stated in conversations ("we always ...", "I prefer ..."), and
    memories that hooks stored. In a terminal, asks about each one. Nothing is stored unless you keep it.
    """
    decisions: list[tuple[Action, Sequence[tuple[str, str | None]]]] = [
        ("keep", [(each, None) for each in keep]),
        ("drop", [(each, None) for each in drop]),
        ("edit", edit),
    ]
    wanted: list[tuple[Action, str, str | None]] = [
        (act, each, text) for act, given in decisions for each, text in given
    ]

    async def work(app: App) -> list[dict[str, Any]]:
        await require_project(app, flags)
        items = await _list_items(app, MAX_ITEMS if wanted else limit, all_projects=all_projects)
        if wanted:
            meant = [_find_item(items, each) for _, each, _ in wanted]  # all of them, before anything changes
            return [await _apply(app, item, act, text) for item, (act, _, text) in zip(meant, wanted, strict=True)]
        if sys.stdin.isatty() and not as_json and not app.settings.read_only:
            return await _ask_about_each(app, items)
        if not as_json:
            _print_items(items)
        return [item.to_json() for item in items]

    told = run_with_app(work, writes=bool(wanted), **flags)
    if as_json:
        print_json({"done" if wanted else "items": told})
    elif wanted:
        for each in told:
            echo(_format_result(each))


async def _list_items(app: App, limit: int, *, all_projects: bool) -> list[ReviewItem]:
    """Return candidates first, then automatic memories, each newest first."""
    root = None if all_projects or app.settings.path is None else find_workspace_root(app.settings.path)
    folder = None if all_projects else root or app.settings.path
    found = [_describe_candidate(each) for each in await app.candidates.find(limit, folder=folder)]
    session = await read_session(app)
    automatic = await app.memory_access.list_automatic(session, RecordFilter(), everywhere=all_projects)
    memories = [(project, record) for project, records in automatic.items() for record in records]
    memories.sort(key=lambda each: each[1].created_at, reverse=True)
    return [*found, *(_describe_memory(project, record) for project, record in memories)][:limit]


def _describe_candidate(candidate: Candidate) -> ReviewItem:
    source = f'conversation "{clip_text(candidate.title, 60)}"' if candidate.title else "a conversation"
    return ReviewItem(candidate.id, candidate.kind, candidate.text, source, candidate.at, candidate)


def _describe_memory(project: str, record: Record) -> ReviewItem:
    source = "stored by a hook" + (f" in project {project}" if project else "")
    return ReviewItem(record.id, "automatic", record.text, source, record.created_at, project=project)


def _find_item(items: Sequence[ReviewItem], given: str) -> ReviewItem:
    found = [item for item in items if item.id.startswith(given) or item.id.partition(":")[2].startswith(given)]
    if not found:
        raise NotFound("candidate", given, hint="List ids with `everkept review`.")
    if len(found) > 1:
        raise AmbiguousId("candidate", given, {item.id: clip_text(item.text) for item in found})
    return found[0]


async def _apply(app: App, item: ReviewItem, action: Action, text: str | None) -> dict[str, Any]:
    """Carry out one decision and return what was done."""
    if text is not None and not text.strip():
        raise InvalidInput("The new text is empty.", hint="To drop it, pass --drop ID.", argument="--edit")
    told: dict[str, Any] = {"id": item.id, "action": action}
    session = await read_session(app)
    if item.candidate is not None:
        if action != "drop":
            told["memory_id"] = await _store(app, item.candidate, text or item.text)
        await app.candidates.mark_reviewed([item.id], told.get("memory_id", action))
        return told
    if action == "drop":
        await app.call(session, "forget_memory", {"memory_id": item.id})
    else:
        change = {"pinned": True} if text is None else {"content": text}
        await app.call(session, "update_memory", {"memory_id": item.id, **change})
    return told


async def _store(app: App, candidate: Candidate, text: str) -> str:
    """Store a candidate: a preference for all projects, the rest in the project of its conversation."""
    arguments: dict[str, Any] = {
        "content": text,
        "scope": "user" if candidate.kind == "preference" else "project",
        "tags": [candidate.kind],
        "metadata": {"turn": candidate.turn, "conversation": candidate.conversation},
    }
    key = None if candidate.folder is None else find_workspace_key(candidate.folder)
    project = None if key is None else await app.library.find_workspace_project(key)
    if project is not None and app.settings.project is None:
        arguments["project"] = project.name
    return str((await app.call(await read_session(app), "store_memory", arguments)).facts["memory_id"])


async def _ask_about_each(app: App, items: Sequence[ReviewItem]) -> list[dict[str, Any]]:
    done: list[dict[str, Any]] = []
    if not items:
        echo("Nothing to review.")
    for number, item in enumerate(items, 1):
        _print_items([item])
        prompt = f"{number} of {len(items)}: keep, edit, drop, skip or quit"
        letter = click.prompt(prompt, type=click.Choice([*CHOICES]), default="s", err=True)
        choice = CHOICES[letter]
        if choice == "quit":
            break
        if choice == "skip":
            continue
        text = _ask_text(item) if choice == "edit" else None
        done.append(await _apply(app, item, choice, text))
        echo(_format_result(done[-1]))
    if items:
        echo(f"Reviewed {format_count(len(done), 'item')}. To undo a change, run `everkept undo`.")
    return done


def _ask_text(item: ReviewItem) -> str:
    # click would show the control characters of a conversation.
    shown = replace_controls(clip_text(item.text))
    return str(click.prompt("New text", default=item.text, show_default=shown, err=True))


def _print_items(items: Sequence[ReviewItem]) -> None:
    out = build_console()
    if not items:
        echo("Nothing to review.")
    short = shorten_ids([item.id for item in items], MEMORY_PREFIX)
    for item in items:
        print_item(out, clip_text(item.text, MAX_SHOWN_CHARACTERS), Text(f"{short[item.id]}  ", style="cyan"))
        print_details(out, f"{item.kind}; {item.source}, {format_ago(item.at, read_clock())}")
    if len(items) > 1:
        echo("To decide, run `everkept review --keep ID`, `--drop ID` or `--edit ID TEXT`.")


def _format_result(told: Mapping[str, Any]) -> str:
    memory = f" as {told['memory_id']}" if "memory_id" in told and told["memory_id"] != told["id"] else ""
    return f"{RESULTS[told['action']]} {told['id']}{memory}."
