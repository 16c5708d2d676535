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
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
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
from everkept.cli.selftest_faults import CAN_FILL_DISK, SelftestDatabase, fill_disk, free_disk
from everkept.cli.selftest_ledger import SelftestFact, SelftestLedger, SelftestVerdict, judge
from everkept.cli.selftest_servers import CAN_FORK, JUMPING_SERVER, ServerFork
from everkept.cli.selftest_workers import (
    BOARD_NAME,
    ENTITY_TYPE,
    HUB_NAME,
    PROJECT_NAMES,
    CallFailed,
    ProjectMover,
    SelftestClient,
    SelftestConnection,
    SelftestReader,
    SelftestWriter,
    ServerGone,
)
from everkept.core.sessions import Session
from everkept.core.text import format_count
from everkept.errors import InvalidInput, Unavailable
from everkept.settings import Settings, build_unset_environment, read_settings
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
        {"query": "what did we pick for storing orders?", "limit": 2, "explain": True},
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
            out.print(f"{entry.effect}.", markup=False)
            render(found)
            out.print("\nThis was a temporary folder. To connect your assistant, run `everkept setup`.")
        return told

    with tempfile.TemporaryDirectory(prefix="everkept-demo-") as folder:
        here = {"data_dir": Path(folder), "deployment_mode": "embedded-file"}
        told = run_with_app(work, **here, engine=engine or "sqlite", **flags)
    if as_json:
        print_json({"steps": told})


TICK_SECONDS = 0.05
LIFE_SECONDS = 3.0  # of a server on average, until it is killed
STARTING_SHARE = 0.05  # of the kills, which may hit a server that starts
FULL_DISK_SECONDS = 5.0  # on average between full disks
MAX_FULL_SECONDS = 1.0
DATABASE_SECONDS = 30.0  # on average between faults of the database, so that pending writes are sent in between
MAX_OUTAGE_SECONDS = 3.0
HOUR_SECONDS = 3_600.0
ANSWER_SECONDS = 60.0  # without an answer, which count as a failure

ShowProgress = Callable[[float, int, int], None]  # receives seconds since the start, acknowledged calls and kills


class SelftestRun(Value):
    """Events of a run, and what the acknowledgements promised."""

    ledger: SelftestLedger
    seconds: float
    latencies: list[float]  # of acknowledged calls, in seconds, ascending
    reads: int
    local_reads: int
    kills: int
    database_kills: int
    full_disks: int
    clocks: int  # servers whose clock jumped
    moves: int
    refusals: Counter[str]  # of calls, by code
    problems: list[str]


def run_selftest(
    data_dir: Path,
    writers: int,
    seconds: float,
    log: IO[bytes],
    show: ShowProgress,
    *,
    readers: int = 0,
    database: SelftestDatabase | None = None,
) -> SelftestRun:
    """Run the selftest. No server is left when it returns, but the database."""
    stage = _SelftestRunner(data_dir, log, database)
    try:
        return stage.run(writers, readers, seconds, show)
    finally:
        stage.stop()


class _SelftestRunner:
    def __init__(self, data_dir: Path, log: IO[bytes], database: SelftestDatabase | None) -> None:
        self._data_dir = data_dir
        self._log = log
        self._database = database
        self._stop = threading.Event()
        self._abort = threading.Event()
        self._clients: list[SelftestClient] = []
        self._threads: list[threading.Thread] = []
        self._finished: list[object] = []
        self._problems: list[str] = []
        self._kills = 0
        self._full_disks = 0
        self._fork: ServerFork | None = None
        self._launch = self._choose_launch()

    def run(self, size: int, reader_count: int, seconds: float, show: ShowProgress) -> SelftestRun:
        ledger = self._prepare()
        writers = [
            SelftestWriter(self._build_client(str(number)), number, self._stop, random.Random())
            for number in range(1, size + 1)
        ]

        def list_shared() -> list[SelftestFact]:
            return [fact for writer in writers for fact in writer.shared]

        readers = [
            SelftestReader(self._build_client(f"reader {number}"), list_shared, self._stop)
            for number in range(1, reader_count + 1)
        ]
        mover = ProjectMover(self._build_client("mover"), self._stop, self._abort, random.Random())
        for client in self._clients:
            client.begin()
        began = time.monotonic()
        workers = (*writers, *readers, mover)
        for run in (*(worker.run for worker in workers), *([self._break_database] * (self._database is not None))):
            self._threads.append(threading.Thread(target=self._run_worker, args=(run,), daemon=True))
            self._threads[-1].start()
        with suppress(KeyboardInterrupt):  # the first one ends the faults; what was acknowledged is counted
            self._break_randomly(
                began + seconds, lambda now: show(now - began, sum(len(w.latencies) for w in writers), self._kills)
            )
        elapsed = time.monotonic() - began
        self._await_workers()
        for writer in writers:
            ledger.include(writer.ledger)
        return SelftestRun(
            ledger,
            elapsed,
            sorted(latency for writer in writers for latency in writer.latencies),
            sum(reader.reads for reader in readers),
            sum(reader.local_reads for reader in readers),
            self._kills,
            self._database.kills if self._database else 0,
            self._full_disks,
            sum(client.starts for client in self._clients),
            mover.moves,
            sum((writer.refusals for writer in writers), Counter[str]()),
            _count_alike(self._problems + [problem for worker in workers for problem in worker.problems]),
        )

    def stop(self) -> None:
        """Stop all processes, also after an interruption."""
        self._stop.set()
        self._abort.set()
        for thread in self._threads:
            while thread.is_alive():
                self._kill_all()
                thread.join(TICK_SECONDS)
        self._kill_all()
        for client in self._clients:
            client.wire.close()
        if self._fork is not None:
            self._fork.close()

    def _build_client(self, name: str) -> SelftestClient:
        self._clients.append(SelftestClient(self._launch, name))
        return self._clients[-1]

    def _choose_launch(self) -> Callable[[], SelftestConnection]:
        """Return how servers are started: forked if possible, which takes a seventh of the time."""
        place: Mapping[str, str] = self._database.settings if self._database else {}
        flags = {"data_dir": self._data_dir, "transport": "stdio", "dialect": "everkept", "toolsets": "graph", **place}
        arguments = [part for key, value in flags.items() for part in (f"--{key.replace('_', '-')}", str(value))]
        environment = build_unset_environment() | dict(self._database.environment if self._database else {})
        command = (sys.executable, *JUMPING_SERVER, *arguments)
        if not CAN_FORK:
            return lambda: SelftestConnection(command, environment=environment, log=self._log)
        fork = self._fork = ServerFork(arguments, environment, self._log, "postgres" if self._database else "sqlite")
        return lambda: SelftestConnection(command, process=fork.start())

    def _prepare(self) -> SelftestLedger:
        """Create the projects, with the entities that all writers share."""
        client = self._build_client("setup")
        client.begin()
        ledger = SelftestLedger()
        for project in PROJECT_NAMES:
            client.call("create_project", {"name": project})
            ledger.attempt(project)
            shared = [{"name": name, "entity_type": ENTITY_TYPE} for name in (HUB_NAME, BOARD_NAME)]
            client.call("create_entities", {"project": project, "entities": shared})
            ledger.acknowledge(project, stored=[SelftestFact(project, each["name"]) for each in shared])
        self._clients.remove(client)
        client.wire.close()
        return ledger

    def _run_worker(self, run: Callable[[], None]) -> None:
        run()
        self._finished.append(run)

    def _break_randomly(self, deadline: float, show: Callable[[float], None]) -> None:
        """Kill a random server now and then, and fill the disk of one, until the time is over."""
        now = time.monotonic()
        kill_seconds = LIFE_SECONDS / len(self._clients)
        next_kill, next_full = now + _choose_pause(kill_seconds), now + _choose_pause(FULL_DISK_SECONDS)
        full: dict[int, float] = {}  # processes, and when their disk has space again
        try:
            while (now := time.monotonic()) < deadline:
                if now > next_kill and (wire := self._choose_victim()):
                    self._kills += wire.kill()
                    next_kill = now + _choose_pause(kill_seconds)
                if now > next_full and CAN_FILL_DISK:
                    pid = random.choice(self._clients).wire.pid
                    fill_disk([pid])
                    full[pid] = now + random.uniform(0.0, MAX_FULL_SECONDS)
                    self._full_disks += 1
                    next_full = now + _choose_pause(FULL_DISK_SECONDS)
                over = [pid for pid, until in full.items() if until < now]
                free_disk(over)
                for pid in over:
                    del full[pid]
                self._kill_silent()
                show(now)
                time.sleep(min(TICK_SECONDS, next_kill - now) if next_kill > now else TICK_SECONDS)
        finally:
            free_disk(full)

    def _choose_victim(self) -> SelftestConnection | None:
        """Return a random server. Most of them have answered several calls, also on a machine that is slow."""
        wires = [client.wire for client in self._clients]
        working = [wire for wire in wires if wire.answers > wire.least_answers]
        if not working:
            return None
        return random.choice(wires if random.random() < STARTING_SHARE else working)

    def _break_database(self) -> None:
        """Kill the database now and then, or fill its disk, and start it again."""
        database = self._database
        assert database is not None
        while not self._stop.wait(_choose_pause(DATABASE_SECONDS)):
            outage = random.uniform(0.0, MAX_OUTAGE_SECONDS)
            if CAN_FILL_DISK and random.random() < 0.3:
                fill_disk(database.list_processes())
                self._full_disks += 1
                self._stop.wait(outage)
                free_disk(database.list_processes())
                database.ensure_running()
            else:
                database.kill()
                self._stop.wait(outage)
                database.start()

    def _await_workers(self) -> None:
        """Wait for the last call of each worker, and for the mover to restore its project."""
        self._stop.set()
        for thread in self._threads:
            while thread.is_alive():
                self._kill_silent()
                thread.join(TICK_SECONDS)
        if len(self._finished) < len(self._threads):
            self._problems.append("a thread of the selftest failed; see its traceback")

    def _kill_silent(self) -> None:
        for client in self._clients:
            since = client.wire.waiting_since
            if since is not None and time.monotonic() - since > ANSWER_SECONDS:
                self._problems.append(f"a server did not answer for {ANSWER_SECONDS:.0f} seconds")
                client.wire.kill()

    def _kill_all(self) -> None:
        for client in self._clients:
            client.wire.kill()


def _count_alike(problems: Iterable[str]) -> list[str]:
    return [text if count == 1 else f"{text} ({count:,}×)" for text, count in Counter(problems).items()]


def _choose_pause(average: float) -> float:
    return random.expovariate(1 / average)


@click.command()
@add_common_options
@click.option("--writers", type=click.IntRange(1, 64), default=8, show_default=True)
@click.option("--readers", type=click.IntRange(0, 64), default=2, show_default=True)
@click.option("--seconds", type=click.FloatRange(0.1), default=30.0, show_default=True)
@click.option("--hours", type=click.FloatRange(0.001), help="Run this long instead.")
def selftest(
    writers: int,
    readers: int,
    seconds: float,
    hours: float | None,
    data_dir: str | None,
    engine: str | None,
    as_json: bool,
    **_flags: Any,
) -> None:
    """Kill servers while they write, and count lost writes.

    Several servers with wrong clocks write to two projects that are archived and restored at the same time. Exits with
    0 if each acknowledged write exists exactly once and every database is intact. Ctrl-C ends it early and still
    counts; a second Ctrl-C leaves. Uses a temporary folder, which is inside --data-dir if you pass it, for example to
    test a disk. With --engine postgres, it starts the PostgreSQL whose programs are on PATH, and kills it too.
    """
    if engine not in (None, "sqlite", "postgres"):
        raise InvalidInput(
            f"The selftest does not know {engine}.", hint="Use sqlite or postgres.", argument="--engine", value=engine
        )
    seconds = seconds if hours is None else hours * HOUR_SECONDS
    folder = _create_folder(data_dir)
    log_path = folder / "servers.log"
    try:
        with _handle_terminate(), ExitStack() as stack:
            log = stack.enter_context(log_path.open("wb"))
            database = None
            if engine == "postgres":
                database = SelftestDatabase(data_dir)
                stack.callback(database.remove)
            with _show_progress(seconds) as show:
                trial = run_selftest(folder, writers, seconds, log, show, readers=readers, database=database)
            if database is not None:
                database.ensure_running()
            verdict = asyncio.run(judge(_read_selftest_settings(folder, database), trial.ledger))
            is_good = verdict.is_good and not trial.problems
            kept = [str(folder)]
            if database is not None and not is_good:
                stack.pop_all()
                log.close()
                kept.append(str(database.stop()))
    except ServerGone as error:
        last_words = log_path.read_text("utf-8", "replace").strip()[-2_000:]
        shutil.rmtree(folder, ignore_errors=True)
        raise Unavailable("A server ended before it answered.", hint=last_words) from error
    except CallFailed as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise Unavailable(f"The selftest cannot start: {error}") from error
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    report = _build_report(writers, readers, trial, verdict) | {"engine": engine or "sqlite", "ok": is_good}
    if is_good:
        shutil.rmtree(folder, ignore_errors=True)
    else:
        report["data"] = " and ".join(kept)
    click.echo(json.dumps(report, indent=2)) if as_json else _print_report(report)
    sys.exit(0 if is_good else 1)


def _read_selftest_settings(folder: Path, database: SelftestDatabase | None) -> Settings:
    if database is None:
        return read_settings({"data_dir": folder}, {})
    return read_settings({"data_dir": folder, **database.settings}, database.environment)


def _create_folder(parent: str | None) -> Path:
    try:
        return Path(tempfile.mkdtemp(prefix="everkept-selftest-", dir=parent))
    except OSError as error:
        where = parent or tempfile.gettempdir()
        raise Unavailable(f"{where} cannot be written ({error.strerror}).") from error


def _build_report(writers: int, readers: int, trial: SelftestRun, verdict: SelftestVerdict) -> dict[str, Any]:
    calls = len(trial.latencies)
    return {
        "writers": writers,
        "readers": readers,
        "seconds": round(trial.seconds, 1),
        "kills": trial.kills,
        "database_kills": trial.database_kills,
        "full_disks": trial.full_disks,
        "clocks": trial.clocks,
        "moves": trial.moves,
        "refused": trial.refusals.total(),
        "refusals": dict(trial.refusals.most_common()),
        "reads": trial.reads,
        "local_reads": trial.local_reads,
        "calls": calls,
        "calls_per_second": round(calls / trial.seconds, 1),
        "p50_ms": _compute_percentile(trial.latencies, 50),
        "p95_ms": _compute_percentile(trial.latencies, 95),
        "acknowledged": verdict.acknowledged,
        "found": verdict.found,
        "lost": verdict.lost,
        "duplicates": verdict.duplicates,
        "unanswered": verdict.unanswered,
        "partial": verdict.partial,
        "unexplained": verdict.unexplained,
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
    ("Servers killed", "{kills:,}"),
    ("Servers whose clock jumped", "{clocks:,}"),
    ("Database servers killed", "{database_kills:,}"),
    ("Full disks simulated", "{full_disks:,}"),
    ("Projects archived and restored", "{moves:,}"),
    ("Write calls acknowledged", "{calls:,} ({calls_per_second} a second, p50 {p50_ms} ms, p95 {p95_ms} ms)"),
    ("Write calls refused", "{refused:,} ({reasons})"),
    ("Write calls without an answer", "{unanswered:,}: {partial:,} of them stored in part"),
    ("Facts acknowledged", "{acknowledged:,}: {found:,} found, {lost:,} lost, {duplicates:,} stored twice"),
    ("Facts from no known call", "{unexplained:,}"),
    ("Reads compared with the answers", "{reads:,}"),
    ("Reads from a local copy, which may be older", "{local_reads:,}"),
    ("Facts searched for by word", "{searched:,}: {unsearchable:,} of them not found"),
    ("Changes in the log", "{changes:,}"),
)


def _print_report(report: dict[str, Any]) -> None:
    table = Table(box=None, show_header=False)
    reasons = ", ".join(f"{code} {count:,}" for code, count in report["refusals"].items()) or "none"
    for name, value in _REPORT_ROWS:
        table.add_row(name, value.format(reasons=reasons, **report))
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
    """Clean up after a request to end, or when the terminal is closed, as after Ctrl-C."""

    def leave(*_: object) -> None:
        raise KeyboardInterrupt

    numbers = [signal.SIGTERM] if sys.platform == "win32" else [signal.SIGTERM, signal.SIGHUP]
    before = {number: signal.signal(number, leave) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
