"""`everkept import history`: past conversations of assistants."""

import asyncio
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from everkept.app.app import App
from everkept.app.history import ImportRequest
from everkept.cli.import_sources import report_interruption_of_import
from everkept.cli.options import add_common_options, parse_typed_time
from everkept.cli.runner import echo, print_first, print_json, run_with_app, show_progress
from everkept.core.text import format_count
from everkept.families.history.ingest.checkpoints import ImportCounts
from everkept.families.history.ingest.checkpoints import ImportReport as Conversations
from everkept.tools.schema import to_json

WATCH_SECONDS = 2.0  # between two checks of the transcripts


@click.command("history")
@add_common_options
@click.argument("files", nargs=-1, type=click.Path(path_type=Path))
@click.option("--source", "sources", multiple=True, metavar="NAME", help="Import only from this assistant.")
@click.option("--since", metavar="TIME", help="Only conversations since this time, such as 2026-03-01.")
@click.option("--watch", is_flag=True, help="Keep running and import new turns as they appear.")
@click.option("--embed", is_flag=True, help="Compute embeddings right away.")
def import_history(
    as_json: bool,
    files: tuple[Path, ...],
    sources: tuple[str, ...],
    since: str | None,
    watch: bool,
    embed: bool,
    **flags: Any,
) -> None:
    """Import past conversations of your assistants.

    Finds transcripts of Claude Code, Codex CLI, Gemini CLI and Cursor on this machine, or reads FILES. With `--source
    jsonl FILE`, reads lines with session, author, timestamp and text. Run it again at any time: it adds only what is
    new and resumes after an interruption.
    """
    wanted = ImportRequest(sources, files, parse_typed_time(since, "since"))

    async def once(app: App) -> Conversations:
        outcome = await _import_transcripts(app, wanted)
        if embed:
            with show_progress("Embedding") as progress:
                embedded = await app.history.embed(progress)
            if embedded and not as_json:
                echo(f"Embedded {format_count(embedded, 'text')}.")
        return outcome

    async def work(app: App) -> Conversations:
        outcome = await once(app)
        print_conversations(outcome, await app.history.count_pending(), as_json=as_json)
        if watch:
            echo("Watching for new conversations. Press Ctrl-C to stop.", err=True)
        while watch:
            await asyncio.sleep(WATCH_SECONDS)
            latest = await once(app)
            if not (latest.total.turns or latest.total.turns_changed):
                continue
            if as_json:
                print_conversations(latest, await app.history.count_pending(), as_json=True)
            else:
                when = datetime.now(UTC).astimezone().strftime("%H:%M:%S")
                echo(f"{when}  {_format_news(latest.total)}")
        return outcome

    with report_interruption_of_import("read"):
        outcome = run_with_app(work, writes=True, **flags)
    if files and _is_unreadable(outcome.total):
        echo("everkept: found no conversation in the file.", err=True)
        sys.exit(1)


def import_unread(**flags: Any) -> tuple[Conversations, int]:
    """Import what is new in all transcripts. Return also the number of texts without an embedding."""

    async def work(app: App) -> tuple[Conversations, int]:
        return await _import_transcripts(app, ImportRequest()), await app.history.count_pending()

    with report_interruption_of_import("read"):
        return run_with_app(work, writes=True, **flags)


async def _import_transcripts(app: App, wanted: ImportRequest) -> Conversations:
    with show_progress("Reading conversations") as progress:
        return await app.history.import_transcripts(wanted, progress)


def _is_unreadable(total: ImportCounts) -> bool:
    """Return whether the named files contain no conversation."""
    found = total.turns + total.turns_changed + total.turns_left_out + total.unchanged
    return not found and bool(total.failed or total.skipped)


def _format_news(total: ImportCounts) -> str:
    parts = [(total.turns, "new turn"), (total.turns_changed, "changed turn")]
    return ", ".join(format_count(count, what) for count, what in parts if count)


def print_conversations(outcome: Conversations, waiting: int, *, as_json: bool) -> None:
    total = outcome.total
    if as_json:
        print_json({**to_json(outcome), "total": to_json(total), "without_vectors": waiting})
        return
    if not total.transcripts:
        echo("Found no conversations on this machine.")
        return
    echo(
        f"Read {total.read} of {format_count(total.transcripts, 'transcript')}"
        f" ({total.unchanged} unchanged): {format_count(total.conversations, 'new conversation')},"
        f" {format_count(total.turns, 'new turn')}, "
        f"{format_count(total.code, 'piece', 'pieces')} of code,"
        f" {format_count(total.decisions, 'decision')}."
    )
    for line in _list_remarks(total):
        echo(f"  {line}", err=True)
    print_first([f"{failure.name} cannot be read: {failure.reason}" for failure in outcome.failures])
    if waiting:
        echo(
            f"{format_count(waiting, 'text')} can be found by words now, and by meaning after embedding. "
            "To embed now, run `everkept index`."
        )


def _list_remarks(total: ImportCounts) -> Iterator[str]:
    if total.turns_changed or total.turns_removed:
        yield f"changed {format_count(total.turns_changed, 'turn')}, removed {total.turns_removed}"
    if total.conversations_left_out or total.turns_left_out:
        yield (
            f"skipped {format_count(total.conversations_left_out, 'conversation')}, "
            f"{format_count(total.turns_left_out, 'turn')}: "
            "excluded, off, marked, deleted, or too old"
        )
    if total.masked:
        yield f"masked: {_format_counts(total.masked)}"
    if total.skipped:
        yield f"skipped records: {_format_counts(total.skipped)}"


def _format_counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))
