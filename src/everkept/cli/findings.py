"""Results of searches and parts of conversations for people: plain text with the found words marked."""

from collections.abc import Mapping, Sequence
from typing import Any

import click
from rich.console import Console
from rich.text import Text

from everkept.app.app import App
from everkept.cli.options import CountRange, add_common_options
from everkept.cli.render import build_console, highlight, print_details, print_item
from everkept.cli.runner import print_json, read_session, require_project, run_with_app, to_command_words
from everkept.core.short_ids import shorten_ids
from everkept.core.text import clip_text, format_count
from everkept.core.times import format_ago, format_local, parse_time, read_clock
from everkept.errors import InvalidInput
from everkept.families.memories.memory_identity import MEMORY_PREFIX
from everkept.language.plain_text import strip_markup, to_plain_text

Row = Mapping[str, Any]

MAX_SHOWN_CHARACTERS = 400  # of a result
MAX_CODE_LINES = 12
SOLUTION_MARK = "→ "


def print_search(out: Console, facts: Row, query: str) -> None:
    """Print the answer of a search in past conversations."""
    results: Sequence[Row] = facts["results"]
    out.print(Text(strip_markup(facts["summary"])))
    short = shorten_ids([str(result["id"]) for result in results])
    for result in results:
        context: Row = result["context"]
        kind = result["type"] if result["type"] != "conversation" else ""
        about = [kind, result.get("language"), result.get("file"), context.get("author"), context.get("branch")]
        out.print()
        _print_content(out, result, query)
        if solved := result.get("resolution"):
            print_details(out, highlight(SOLUTION_MARK + _shorten(to_plain_text(solved["content"])), query))
        _print_facts(out, result, context, about, short[str(result["id"])])
    total = facts["stats"]["total_results"]
    _print_end(out, facts, has_turns=bool(results))
    if facts.get("next_cursor"):
        out.print(Text(f"{total - len(results)} more match. To see more, pass --limit, at most 50.", style="dim"))


def print_everything(out: Console, facts: Row, query: str) -> None:
    """Print the answer of a search in everything."""
    groups: Sequence[Row] = facts.get("groups") or ()
    results: list[Row] = [*facts["results"], *(each for group in groups for each in group["results"])]
    if not results:
        out.print(Text(f'Nothing found about "{clip_text(query)}".'))
    short = shorten_ids([str(result["id"]) for result in results], MEMORY_PREFIX)
    for number, result in enumerate(results):
        if number:
            out.print()
        _print_content(out, result, query)
        about = [result["type"], result.get("language"), result.get("file")]
        _print_facts(out, result, result["context"], about, short[str(result["id"])])
    _print_end(out, facts, has_turns=any(result["found_in"] in ("conversations", "code") for result in results))


def print_conversation(out: Console, facts: Row) -> None:
    """Print turns of a conversation."""
    out.print(Text(facts["title"] or "Untitled conversation", style="bold"))
    about = [facts["source"], facts["project_path"], facts.get("branch"), format_count(facts["total_turns"], "turn")]
    print_details(out, " · ".join(filter(None, [*about, format_local(parse_time(facts["started"]))])))
    turns: Sequence[Row] = facts["turns"]
    short = shorten_ids([str(turn["id"]) for turn in turns])
    for turn in turns:
        out.print()
        mark = "  ← " + short[turn["id"]] if turn.get("is_asked") else ""
        head = Text(turn["author"], style="bold") + Text(
            f"  {format_local(parse_time(turn['timestamp']))}", style="dim"
        )
        out.print(head + Text(mark, style="bold yellow"))
        print_details(out, to_plain_text(turn["text"]), "default")
        if turn.get("clipped"):
            print_details(out, f"… {format_count(turn['clipped'], 'more character')}: read-conversation {turn['id']}")
        for name in ("files", "tools"):
            if turn.get(name):
                print_details(out, f"{name}: {', '.join(turn[name])}")
        for piece in turn.get("code") or ():
            if piece.get("text"):
                print_details(out, _cut_lines(piece["text"]), "cyan")
    for name, label in (("previous_cursor", "earlier"), ("next_cursor", "later")):
        if facts.get(name):
            out.print(Text(f"For {label} turns, pass --cursor {facts[name]}", style="dim"), soft_wrap=True)


def print_found(out: Console, facts: Row, query: str) -> None:
    """Print the answer of a tool of the history."""
    if "turns" in facts:
        print_conversation(out, facts)
    elif "summary" in facts:
        print_search(out, facts, query)
    else:
        print_everything(out, facts, query)


def _print_content(out: Console, result: Row, query: str) -> None:
    is_code = result["type"] == "code"
    text = _cut_lines(str(result["content"])) if is_code else _shorten(to_plain_text(str(result["content"])))
    print_item(out, highlight(text, query))


def _print_facts(out: Console, result: Row, context: Row, about: Sequence[str | None], short: str) -> None:
    when = context.get("timestamp")
    ago = format_ago(parse_time(when), read_clock()) if when else ""
    title = str(result.get("title") or "")
    told = to_plain_text(str(result["content"]))
    named = "" if told.startswith(title.rstrip("…")) else clip_text(title, 60)
    elsewhere = "" if result["source"] == "local" else str(result["source"])
    facts = [*about, ago, context.get("project_path"), named, elsewhere, short]
    print_details(out, " · ".join(dict.fromkeys(str(fact) for fact in facts if fact)))


def _print_end(out: Console, facts: Row, *, has_turns: bool) -> None:
    warnings: Sequence[Row] = facts.get("warnings") or ()
    if warnings or has_turns:
        out.print()
    for warning in warnings:
        out.print(Text(to_command_words(str(warning["message"])), style="yellow"))
    if has_turns:
        out.print(Text("To read the conversation around one, run `everkept read-conversation ID`.", style="dim"))


def _shorten(text: str) -> str:
    return text if len(text) <= MAX_SHOWN_CHARACTERS else f"{text[:MAX_SHOWN_CHARACTERS].rstrip()}…"


def _cut_lines(code: str) -> str:
    lines = code.strip("\n").splitlines()
    more = [f"… {format_count(len(lines) - MAX_CODE_LINES, 'more line')}"] if len(lines) > MAX_CODE_LINES else []
    return "\n".join([*lines[:MAX_CODE_LINES], *more])


@click.command()
@add_common_options
@click.argument("text", nargs=-1, required=True)
@click.option("--limit", type=CountRange(1, 50), default=10, show_default=True)
@click.option("--all-projects", is_flag=True, help="Search memories and graph of every project that is not off.")
def find(as_json: bool, text: tuple[str, ...], limit: int, all_projects: bool, **flags: Any) -> None:
    """Search memories, graph, conversations and memory bank for TEXT, best first.

    Conversations of all projects are always searched.
    """
    query = " ".join(text)
    if not query.strip():
        raise InvalidInput("TEXT is empty.", hint="Specify what to search for.", argument="text", value=query)

    async def work(app: App) -> dict[str, Any]:
        await require_project(app, flags)
        session = await read_session(app)
        options = {"limit": limit} | ({"all_projects": True} if all_projects else {})
        return (await app.call(session, "unified_memory_search", {"query": query, "options": options})).facts

    found = run_with_app(work, **flags)
    if as_json:
        print_json(found)
    else:
        print_everything(build_console(), found, query)
