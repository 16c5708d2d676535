"""Measures the memories over MCP, side by side with mcp-memory-service where it is installed.

    python bench/memories.py --sizes 1000,10000
    python bench/memories.py --peer-venv PATH --cache PATH --write-docs

The peer is installed by `pip install mcp-memory-service` into a virtual environment of its own,
made by a Python whose sqlite3 can load extensions. A folder for the cache keeps the filled data,
which takes minutes to make; empty it when the schema has changed.
"""

import argparse
import json
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import psutil

from everkept.cli.selftest_workers import SelftestConnection
from memory_report import print_table, write_docs
from memory_servers import BY_WORDS, HYBRID, Everkept, MemoryServer, MemoryService
from memory_workload import MemoryWorkload
from page import Timing, keep_best, parsed_sizes

SIZES = (1_000, 10_000, 100_000, 1_000_000)
ROUNDS = 3  # each figure is the best of them, against noise from outside
CALLS = 200  # in one round, unless they take longer than
BUDGET = 4.0  # seconds
FEW_CALLS = 6  # of what cannot be repeated often: each takes another session
PAUSE = 0.05  # seconds between two stores, in which the vector of the first is made
STARTS = 3
PROCESSES = 3
RECALLS_PER_STORE = 4  # where several processes work at once
CONSOLIDATE = "consolidate a session"


@dataclass(slots=True)
class Figures:
    """What was measured of one server at one size. Memory and disk are in MB."""

    timings: dict[str, Timing] = field(default_factory=dict[str, Timing])
    cpu: dict[str, float] = field(default_factory=dict[str, float])  # ms of the server's, a call
    found: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    rss_idle: float = 0.0
    rss_by_words: float = 0.0  # after recalls that need no model
    rss_after_calls: float = 0.0
    rss_together: float = 0.0  # of all processes on the same data
    disk: float = 0.0
    acknowledged: int = 0  # stored by all processes together
    lost: int = 0
    warnings: dict[str, int] = field(default_factory=dict[str, int])


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--sizes", type=parsed_sizes, default=SIZES, help="memories, with commas")
    parser.add_argument("--seconds", type=float, default=5.0, help="of three processes at once")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--peer-venv", type=Path, help="where mcp-memory-service is installed")
    parser.add_argument("--cache", type=Path, help="folder that keeps the filled data")
    parser.add_argument("--write-docs", action="store_true", help="write to docs/benchmarks.md")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = parser.parse_args()
    peer = MemoryService(options.peer_venv.absolute()) if options.peer_venv else None
    results: dict[int, dict[str, Figures]] = {}
    for size in options.sizes:
        with tempfile.TemporaryDirectory(prefix="everkept-bench-") as folder:
            ours = Everkept(Path(folder) / "bytecode")
            servers = [ours, peer] if peer is not None and size <= peer.largest else [ours]
            bench = Bench(size, Path(folder), options.cache, options.rounds, options.seconds)
            results[size] = bench.measured(servers)
            results[size][ours.name].warnings = dict(ours.warnings)
        if not options.json:
            print_table(size, results[size])
    if options.json:
        print(json.dumps({s: {n: asdict(f) for n, f in r.items()} for s, r in results.items()}))
    if options.write_docs:
        write_docs(results, options.seconds, peer.version() if peer else None)


@dataclass(frozen=True, slots=True)
class Bench:
    """One size, measured with each server in turn."""

    size: int
    folder: Path
    cache: Path | None
    rounds: int
    seconds: float

    def measured(self, servers: Sequence[MemoryServer]) -> dict[str, Figures]:
        results = {server.name: Figures() for server in servers}
        workloads = {server.name: MemoryWorkload(self.size) for server in servers}
        for server in servers:
            data = self._filled(server)
            results[server.name].disk = _disk(data)
            server.start(data).close()  # the first start of all writes the bytecode
        for number in range(self.rounds):
            for server in servers:
                self._say(f"round {number + 1} of {self.rounds}, {server.name}")
                data = self._data(server)
                _measure_starts(server, data, workloads[server.name], results[server.name])
                _measure_calls(server, data, workloads[server.name], results[server.name])
        for server in servers:
            self._say(f"{PROCESSES} processes, {server.name}")
            data = self._data(server)
            _measure_together(server, data, self.size, results[server.name], self.seconds)
        return results

    def _filled(self, server: MemoryServer) -> Path:
        """A copy of the cached data, which stays as it is; without a cache, made on the spot."""
        data = self._data(server)
        if self.cache is None:
            self._fill(server, data)
            return data
        kept = self.cache / f"{server.name}-{self.size}"
        if not kept.exists():
            draft = kept.with_suffix(".draft")
            shutil.rmtree(draft, ignore_errors=True)
            self._fill(server, draft)
            draft.rename(kept)
        shutil.copytree(kept, data)
        return data

    def _fill(self, server: MemoryServer, data: Path) -> None:
        self._say(f"filling {server.name}")
        data.mkdir(parents=True)
        server.fill(data, MemoryWorkload(self.size))

    def _data(self, server: MemoryServer) -> Path:
        return self.folder / server.name

    def _say(self, what: str) -> None:
        print(f"{self.size:,} memories: {what}", file=sys.stderr, flush=True)


def _measure_starts(server: MemoryServer, data: Path, workload: MemoryWorkload, figures: Figures) -> None:
    times: dict[str, list[float]] = {"start": [], "first recall": [], "first by meaning": []}
    for _ in range(STARTS):
        began = time.perf_counter()
        wire = server.start(data)
        times["start"].append(time.perf_counter() - began)
        figures.rss_idle = _rss(wire)
        server.operations[HYBRID](wire, workload)
        times["first recall"].append(time.perf_counter() - began)
        server.wait_until_ready(wire, workload)
        times["first by meaning"].append(time.perf_counter() - began)
        wire.close()
    for name, durations in times.items():
        keep_best(figures.timings, name, durations)


def _measure_calls(server: MemoryServer, data: Path, workload: MemoryWorkload, figures: Figures) -> None:
    wire = server.start(data)
    _measure(figures, wire, BY_WORDS, lambda: server.operations[BY_WORDS](wire, workload))
    figures.rss_by_words = _rss(wire)
    server.wait_until_ready(wire, workload)
    for name, operation in server.operations.items():
        if name != BY_WORDS:
            most = FEW_CALLS if name == CONSOLIDATE else CALLS
            _measure(figures, wire, name, lambda call=operation: call(wire, workload), most)
    stored: list[str] = []

    def store() -> None:
        stored.append(server.store(wire, workload.new_memory()))

    _measure(figures, wire, "store", store, pause=PAUSE)
    _measure(figures, wire, "store, without a pause", store)
    figures.rss_after_calls = _rss(wire)
    for memory_id in stored:  # the next round finds the same size
        server.forget(wire, memory_id)
    wire.close()


def _measure(
    figures: Figures,
    wire: SelftestConnection,
    name: str,
    call: Callable[[], bool | None],
    most: int = CALLS,
    pause: float = 0.0,
) -> None:
    call()
    durations: list[float] = []
    found: list[bool] = []
    spent = _cpu(wire)
    deadline = time.perf_counter() + BUDGET
    while len(durations) < most and (not durations or time.perf_counter() < deadline):
        time.sleep(pause)
        began = time.perf_counter()
        hit = call()
        durations.append(time.perf_counter() - began)
        if hit is not None:
            found.append(hit)
    spent = (_cpu(wire) - spent) / len(durations) * 1000
    figures.cpu[name] = min(spent, figures.cpu.get(name, spent))
    keep_best(figures.timings, name, durations)
    if found:
        hits, asked = figures.found.get(name, (0, 0))
        figures.found[name] = hits + sum(found), asked + len(found)


def _measure_together(server: MemoryServer, data: Path, size: int, figures: Figures, seconds: float) -> None:
    """Each process recalls and stores, all on the same data; what they stored is counted after."""
    wires = [server.start(data) for _ in range(PROCESSES)]
    workloads = [MemoryWorkload(size, seed=number + 1) for number in range(PROCESSES)]
    for wire, workload in zip(wires, workloads, strict=True):
        server.wait_until_ready(wire, workload)
    before = server.count(wires[0])
    recalls: list[float] = []
    stores: list[float] = []
    begin = threading.Barrier(PROCESSES)

    def work(wire: SelftestConnection, workload: MemoryWorkload) -> None:
        begin.wait()
        deadline = time.perf_counter() + seconds
        while time.perf_counter() < deadline:
            began = time.perf_counter()
            server.store(wire, workload.new_memory())
            stores.append(time.perf_counter() - began)
            for _ in range(RECALLS_PER_STORE):
                began = time.perf_counter()
                server.operations[HYBRID](wire, workload)
                recalls.append(time.perf_counter() - began)

    threads = [threading.Thread(target=work, args=pair) for pair in zip(wires, workloads, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    figures.rss_together = sum(map(_rss, wires))
    for wire in wires:
        wire.close()
    fresh = server.start(data)
    figures.acknowledged = len(stores)
    figures.lost = before + len(stores) - server.count(fresh)
    fresh.close()
    keep_best(figures.timings, "recall, hybrid, three servers", recalls)
    keep_best(figures.timings, "store, three servers", stores)


def _rss(wire: SelftestConnection) -> float:
    """Of the server, without the launchers that some systems put before a program."""
    return max(process.memory_info().rss for process in _processes(wire)) / 1e6


def _cpu(wire: SelftestConnection) -> float:
    """Seconds so far. Says more than the clock where the machine is busy with other things."""
    return sum(sum(process.cpu_times()[:2]) for process in _processes(wire))


def _processes(wire: SelftestConnection) -> list[psutil.Process]:
    process = psutil.Process(wire.pid)
    return [process, *process.children(recursive=True)]


def _disk(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6


if __name__ == "__main__":
    main()
