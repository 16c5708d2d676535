"""`everkept demo` and `selftest`: trials in a temporary folder."""

import asyncio
import json
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from everkept.app.app import App
from everkept.cli.options import add_common_options
from everkept.cli.render import build_console, render
from everkept.cli.runner import print_json, run_with_app
from everkept.cli.selftest_workers import (
    ENTITY_TYPE,
    HUB_NAME,
    PROJECT_NAMES,
    ProjectMover,
    SelftestClient,
    SelftestFact,
    SelftestLedger,
    SelftestVerdict,
    SelftestWriter,
    ServerGone,
    judge,
)
from everkept.core.sessions import Session
from everkept.core.text import format_count
from everkept.errors import Unavailable
from everkept.values import Value

MODEL_SECONDS = 10.0  # to load the model, because the demo embeds its own texts

DEMO_STEPS: tuple[tuple[str, str, Mapping[str, Any]], ...] = (
    ("Each project has its own memory.", "create_project", {"name": "shop"}),
    (
        "The assistant stores a decision.",
        "store_memory",
        {
            "content": "We chose PostgreSQL 17 for the order data because of its row locks.",
            "type": "semantic",
            "scope": "project",
            "tags": ["decision"],
            "related_entities": [{"name": "Orders DB", "type": "database", "relationship": "describes"}],
        },
    ),
    (
        "A preference of the user applies to every project.",
        "store_memory",
        {"content": "Write commit messages in the imperative mood.", "type": "procedural", "scope": "user"},
    ),
    (
        "Secrets are masked before they are stored.",
        "store_memory",
        {
            "content": "Staging deploys with token ghp_" + "Ab3" * 12 + " from the build machine.",
            "type": "procedural",
            "scope": "project",
        },
    ),
    (
        "Next week, in another session, in other words:",
        "recall_memories",
        {"query": "which database keeps the purchases?", "limit": 2, "explain": True},
    ),
    (
        "The knowledge graph stores how things are related …",
        "create_entities",
        {
            "entities": [
                {
                    "name": "Shop API",
                    "entity_type": "service",
                    "observations": ["Listens on port 8443", "Written in C++ and Python"],
                }
            ]
        },
    ),
    (
        "… next to the memories about them.",
        "create_relations",
        {"relations": [{"from": "Shop API", "to": "Orders DB", "relation_type": "reads_from"}]},
    ),
    ("From one entity to everything around it.", "search_knowledge_graph", {"entity": "Shop API"}),
    ("Special characters work.", "search_nodes", {"query": "C++"}),
    ("An entity is deleted by mistake …", "delete_entities", {"names": ["Orders DB"]}),
)


@click.command()
@add_common_options
def demo(
    as_json: bool, data_dir: str | None, project: str | None, engine: str | None, database_url: str | None, **flags: Any
) -> None:
    """Try storing and recalling in a temporary folder."""

    async def work(app: App) -> list[dict[str, Any]]:
        session = Session(client="demo")
        told: list[dict[str, Any]] = []
        out = build_console()
        for sentence, name, arguments in DEMO_STEPS:
            await app.memory_access.catch_up(session, MODEL_SECONDS)
            result = await app.call(session, name, arguments)
            told.append({"tool": name, "arguments": arguments, "result": result.facts})
            if not as_json:
                out.print(f"\n[bold]{sentence}[/bold]  [dim]{name}[/dim]")
                render(result)
        entry = await app.change_log.undo(None, None, "demo")
        found = await app.call(session, "open_nodes", {"names": ["Orders DB"]})
        told.append({"tool": "undo", "result": found.facts})
        if not as_json:
            out.print("\n[bold]… and `everkept undo` restores it.[/bold]  [dim]undo[/dim]")
            out.print(f"Undone: {entry.change.tool} {entry.summary}", markup=False)
            render(found)
            out.print("\nThis was a temporary folder. To connect your assistant, run `everkept setup`.")
        return told

    with tempfile.TemporaryDirectory(prefix="everkept-demo-") as folder:
        here = {"data_dir": Path(folder), "deployment_mode": "embedded-file"}
        told = run_with_app(work, **here, engine=engine or "sqlite", **flags)
    if as_json:
        print_json({"steps": told})


TICK_SECONDS = 0.05
KILL_SECONDS = 0.3  # on average
HOUR_SECONDS = 3_600.0
ANSWER_SECONDS = 30.0  # without an answer, which count as a failure

ShowProgress = Callable[[float, int, int], None]  # receives seconds since the start, acknowledged calls and kills


class SelftestRun(Value):
    """What happened, and what the acknowledgements promised."""

    ledger: SelftestLedger
    seconds: float
    latencies: list[float]  # of acknowledged calls, in seconds, ascending
    kills: int
    moves: int
    refused: int
    problems: list[str]


def run_selftest(data_dir: Path, writers: int, seconds: float, log: IO[bytes], show: ShowProgress) -> SelftestRun:
    """Run the selftest. No server is left when it returns."""
    stage = _SelftestRunner(data_dir, log)
    try:
        return stage.run(writers, seconds, show)
    finally:
        stage.stop()


class _SelftestRunner:
    def __init__(self, data_dir: Path, log: IO[bytes]) -> None:
        self._data_dir = data_dir
        self._log = log
        self._stop = threading.Event()
        self._clients: list[SelftestClient] = []
        self._threads: list[threading.Thread] = []
        self._finished: list[SelftestWriter | ProjectMover] = []
        self._problems: list[str] = []
        self._kills = 0

    def run(self, size: int, seconds: float, show: ShowProgress) -> SelftestRun:
        ledger = self._prepare()
        writers = [
            SelftestWriter(self._build_client(str(number)), number, self._stop, random.Random())
            for number in range(1, size + 1)
        ]
        mover = ProjectMover(self._build_client("mover"), self._stop, random.Random())
        for client in self._clients:
            client.begin()
        began = time.monotonic()
        for worker in (*writers, mover):
            self._threads.append(threading.Thread(target=self._run_worker, args=(worker,), daemon=True))
            self._threads[-1].start()
        self._kill_randomly(
            began + seconds, lambda now: show(now - began, sum(len(w.latencies) for w in writers), self._kills)
        )
        elapsed = time.monotonic() - began
        self._await_workers()
        for writer in writers:
            ledger.include(writer.ledger)
            self._problems += writer.problems
        return SelftestRun(
            ledger,
            elapsed,
            sorted(latency for writer in writers for latency in writer.latencies),
            self._kills,
            mover.moves,
            sum(writer.refused for writer in writers),
            self._problems + mover.problems,
        )

    def stop(self) -> None:
        """Stop all processes, also after an interruption."""
        self._stop.set()
        for thread in self._threads:
            while thread.is_alive():
                self._kill_all()
                thread.join(TICK_SECONDS)
        self._kill_all()
        for client in self._clients:
            client.wire.close()

    def _build_client(self, name: str) -> SelftestClient:
        self._clients.append(SelftestClient(self._data_dir, name, self._log))
        return self._clients[-1]

    def _prepare(self) -> SelftestLedger:
        """Create the projects, with the entity that all writers share."""
        client = self._build_client("setup")
        client.begin()
        ledger = SelftestLedger()
        for project in PROJECT_NAMES:
            client.call("create_project", {"name": project})
            ledger.attempt(project)
            hub = {"name": HUB_NAME, "entity_type": ENTITY_TYPE}
            client.call("create_entities", {"project": project, "entities": [hub]})
            ledger.acknowledge(project, stored=[SelftestFact(project, HUB_NAME)])
        self._clients.remove(client)
        client.wire.close()
        return ledger

    def _run_worker(self, worker: SelftestWriter | ProjectMover) -> None:
        worker.run()
        self._finished.append(worker)

    def _kill_randomly(self, deadline: float, show: Callable[[float], None]) -> None:
        """Kill a random server now and then until the time is over."""
        now = time.monotonic()
        next_kill = now + random.expovariate(1 / KILL_SECONDS)
        while (now := time.monotonic()) < deadline:
            if now > next_kill:
                self._kills += random.choice(self._clients).wire.kill()
                next_kill = now + random.expovariate(1 / KILL_SECONDS)
            self._kill_silent()
            show(now)
            time.sleep(min(TICK_SECONDS, max(0.0, next_kill - now)))

    def _await_workers(self) -> None:
        """Wait for the last call of each worker, and for the mover to restore its project."""
        self._stop.set()
        for thread in self._threads:
            while thread.is_alive():
                self._kill_silent()
                thread.join(TICK_SECONDS)
        if len(self._finished) < len(self._threads):
            self._problems.append("a writer of the selftest failed; see its traceback")

    def _kill_silent(self) -> None:
        for client in self._clients:
            since = client.wire.waiting_since
            if since is not None and time.monotonic() - since > ANSWER_SECONDS:
                self._problems.append(f"a server did not answer for {ANSWER_SECONDS:.0f} seconds")
                client.wire.kill()

    def _kill_all(self) -> None:
        for client in self._clients:
            client.wire.kill()


@click.command()
@add_common_options
@click.option("--writers", type=click.IntRange(1, 64), default=8, show_default=True)
@click.option("--seconds", type=click.FloatRange(0.1), default=30.0, show_default=True)
@click.option("--hours", type=click.FloatRange(0.001), help="Run this long instead.")
def selftest(
    writers: int, seconds: float, hours: float | None, data_dir: str | None, as_json: bool, **_flags: Any
) -> None:
    """Kill servers while they write, and count lost writes.

    Several servers write to two projects that are archived and restored at the same time. Exits with 0 if each
    acknowledged write exists exactly once and every database is intact. Uses a temporary folder, which is inside
    --data-dir if you pass it, for example to test a disk.
    """
    seconds = seconds if hours is None else hours * HOUR_SECONDS
    folder = _create_folder(data_dir)
    log_path = folder / "servers.log"
    try:
        with _handle_terminate(), log_path.open("wb") as log:
            with _show_progress(seconds) as show:
                trial = run_selftest(folder, writers, seconds, log, show)
            verdict = asyncio.run(judge(folder, trial.ledger))
    except ServerGone as error:
        last_words = log_path.read_text("utf-8", "replace").strip()[-2_000:]
        shutil.rmtree(folder, ignore_errors=True)
        raise Unavailable("A server ended before it answered.", hint=last_words) from error
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    is_good = verdict.is_good and not trial.problems
    report = _build_report(writers, trial, verdict) | {"ok": is_good}
    if is_good:
        shutil.rmtree(folder, ignore_errors=True)
    else:
        report["data"] = str(folder)
    click.echo(json.dumps(report, indent=2)) if as_json else _print_report(report)
    sys.exit(0 if is_good else 1)


def _create_folder(parent: str | None) -> Path:
    try:
        return Path(tempfile.mkdtemp(prefix="everkept-selftest-", dir=parent))
    except OSError as error:
        where = parent or tempfile.gettempdir()
        raise Unavailable(f"{where} cannot be written ({error.strerror}).") from error


def _build_report(writers: int, trial: SelftestRun, verdict: SelftestVerdict) -> dict[str, Any]:
    calls = len(trial.latencies)
    return {
        "writers": writers,
        "seconds": round(trial.seconds, 1),
        "kills": trial.kills,
        "moves": trial.moves,
        "refused": trial.refused,
        "calls": calls,
        "calls_per_second": round(calls / trial.seconds, 1),
        "p50_ms": _compute_percentile(trial.latencies, 50),
        "p95_ms": _compute_percentile(trial.latencies, 95),
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


def _compute_percentile(ordered: Sequence[float], percent: int) -> float | None:
    """Return milliseconds."""
    if not ordered:
        return None
    return round(ordered[min(len(ordered) - 1, len(ordered) * percent // 100)] * 1000, 2)


_REPORT_ROWS = (
    ("{calls:,} calls acknowledged", "{calls_per_second} a second, p50 {p50_ms} ms, p95 {p95_ms} ms"),
    ("{kills:,} servers killed", "{moves:,} times a project was archived and restored"),
    ("{refused:,} calls refused", "because the project was archived or busy"),
    ("{acknowledged:,} facts acknowledged", "{found:,} found, {lost:,} lost, {duplicates:,} twice"),
    ("{torn:,} calls half done", "of the calls that a kill left unanswered"),
    ("{unasked:,} facts unasked", "stored without an accepted call"),
    ("{searched:,} searched by a word", "{unsearchable:,} not found"),
    ("{changes:,} changes in the log", "compared with the calls and the tables"),
)


def _print_report(report: dict[str, Any]) -> None:
    table = Table(box=None, show_header=False)
    for name, value in _REPORT_ROWS:
        table.add_row(name.format(**report), value.format(**report))
    console = Console()
    console.print(table)
    for problem in report["problems"][:20]:
        console.print(f"Problem: {problem}", markup=False)
    if report["ok"]:
        console.print("No acknowledged write was lost, and every database is intact.")
    else:
        console.print(f"FAILED. The data is kept in {report['data']}", markup=False)


@contextmanager
def _show_progress(seconds: float) -> Generator[ShowProgress, None, None]:
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("starting servers", total=seconds)

        def show(elapsed: float, calls: int, kills: int) -> None:
            description = f"{format_count(calls, 'call')} acknowledged, {format_count(kills, 'server')} killed"
            progress.update(task, completed=elapsed, description=description)

        yield show


@contextmanager
def _handle_terminate() -> Generator[None, None, None]:
    """Clean up after a request to end, as after Ctrl-C."""

    def leave(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
