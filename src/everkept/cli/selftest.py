"""`everkept selftest`: proves on this machine that nothing acknowledged is lost."""

import asyncio
import json
import shutil
import signal
import sys
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from everkept.cli.options import common
from everkept.cli.trial.ledger import Verdict, judge
from everkept.cli.trial.run import Show, Trial, run_trial
from everkept.cli.wire import ServerGone
from everkept.errors import Unavailable


@click.command()
@common
@click.option("--writers", type=click.IntRange(1, 64), default=8, show_default=True)
@click.option("--seconds", type=click.FloatRange(0.1), default=30.0, show_default=True)
def selftest(
    writers: int, seconds: float, data_dir: str | None, as_json: bool, **_flags: Any
) -> None:
    """Kill servers while they write, and count what was lost.

    Several servers write into two projects that are archived and restored meanwhile. Exit
    status 0: everything that was acknowledged is there, once, and every database is sound. It works
    in a temporary folder, made inside --data-dir where that is given, such as on a disk in doubt.
    """
    folder = _new_folder(data_dir)
    log_path = folder / "servers.log"
    try:
        with _ended_by_terminate(), log_path.open("wb") as log:
            with _progress(seconds) as show:
                trial = run_trial(folder, writers, seconds, log, show)
            verdict = asyncio.run(judge(folder, trial.ledger))
    except ServerGone as error:
        last_words = log_path.read_text("utf-8", "replace").strip()[-2_000:]
        shutil.rmtree(folder, ignore_errors=True)
        raise Unavailable("A server ended before it had answered.", hint=last_words) from error
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    is_good = verdict.is_good and not trial.problems
    report = _report(writers, trial, verdict) | {"ok": is_good}
    if is_good:
        shutil.rmtree(folder, ignore_errors=True)
    else:
        report["data"] = str(folder)
    click.echo(json.dumps(report, indent=2)) if as_json else _print(report)
    sys.exit(0 if is_good else 1)


def _new_folder(parent: str | None) -> Path:
    try:
        return Path(tempfile.mkdtemp(prefix="everkept-selftest-", dir=parent))
    except OSError as error:
        where = parent or tempfile.gettempdir()
        raise Unavailable(f"{where} cannot be written ({error.strerror}).") from error


def _report(writers: int, trial: Trial, verdict: Verdict) -> dict[str, Any]:
    calls = len(trial.latencies)
    return {
        "writers": writers,
        "seconds": round(trial.seconds, 1),
        "kills": trial.kills,
        "moves": trial.moves,
        "refused": trial.refused,
        "calls": calls,
        "calls_per_second": round(calls / trial.seconds, 1),
        "p50_ms": _percentile(trial.latencies, 50),
        "p95_ms": _percentile(trial.latencies, 95),
        "acknowledged": verdict.acknowledged,
        "found": verdict.found,
        "lost": verdict.lost,
        "duplicates": verdict.duplicates,
        "torn": verdict.torn,
        "unasked": verdict.unasked,
        "searched": verdict.searched,
        "unsearchable": verdict.unsearchable,
        "changes": verdict.changes,
        "problems": [*trial.problems, *verdict.problems],
    }


def _percentile(ordered: Sequence[float], percent: int) -> float | None:
    """In milliseconds."""
    if not ordered:
        return None
    return round(ordered[min(len(ordered) - 1, len(ordered) * percent // 100)] * 1000, 2)


_ROWS = (
    (
        "{calls:,} calls acknowledged",
        "{calls_per_second} a second, p50 {p50_ms} ms, p95 {p95_ms} ms",
    ),
    ("{kills:,} servers killed", "{moves:,} times a project was archived and restored"),
    ("{refused:,} calls refused", "as their project was put away or busy"),
    ("{acknowledged:,} facts acknowledged", "{found:,} found, {lost:,} lost, {duplicates:,} twice"),
    ("{torn:,} calls half done", "of those that a kill left unanswered"),
    ("{unasked:,} facts unasked", "stored although no call for them was accepted"),
    ("{searched:,} searched by a word", "{unsearchable:,} not found"),
    ("{changes:,} changes in the log", "held against the calls and the tables"),
)


def _print(report: dict[str, Any]) -> None:
    table = Table(box=None, show_header=False)
    for name, value in _ROWS:
        table.add_row(name.format(**report), value.format(**report))
    console = Console()
    console.print(table)
    for problem in report["problems"][:20]:
        console.print(f"Problem: {problem}", markup=False)
    if report["ok"]:
        console.print("Nothing was lost, and every database is sound.")
    else:
        console.print(f"FAILED. The data is kept in {report['data']}", markup=False)


@contextmanager
def _progress(seconds: float) -> Generator[Show, None, None]:
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as progress:
        task = progress.add_task("starting servers", total=seconds)

        def show(elapsed: float, calls: int, kills: int) -> None:
            description = f"{calls:,} calls acknowledged, {kills:,} servers killed"
            progress.update(task, completed=elapsed, description=description)

        yield show


@contextmanager
def _ended_by_terminate() -> Generator[None, None, None]:
    """A polite end tidies up like Ctrl-C."""

    def leave(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
