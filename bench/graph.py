"""Measures the knowledge graph over MCP, side by side with the official memory server.

    python bench/graph.py --quick
    python bench/graph.py --write-docs

Every figure comes from real servers on standard input and output, spoken to by the same client.
Machines are noisy and differ, so what counts is the ratio between the two in one run.
"""

import argparse
import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import psutil

from everkept.cli.selftest_workers import JSON, SelftestConnection
from page import Timing, keep_best, parsed_sizes
from report import print_table, write_docs
from servers import Ours, Peer, Server
from workload import Workload

SIZES = (100, 1_000, 10_000, 100_000)
QUICK_SIZES = (100, 1_000)
ROUNDS = 3  # each figure is the best of them, against noise from outside
CALLS = 200  # in one round, unless they take longer than
BUDGET = 4.0  # seconds
STARTS = 5
WRITERS = 8


@dataclass(slots=True)
class Figures:
    """What was measured of one server at one size."""

    timings: dict[str, Timing] = field(default_factory=dict[str, Timing])
    rss_at_start: float = 0.0  # MB
    rss_after_calls: float = 0.0
    writes_per_second: float = 0.0  # by all processes together, acknowledged
    acknowledged: int = 0
    found: int = 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sizes", type=parsed_sizes, help="entities, with commas")
    parser.add_argument("--seconds", type=float, default=5.0, help="of writing at once")
    parser.add_argument("--quick", action="store_true", help="small sizes, one second")
    parser.add_argument("--no-peer", action="store_true", help="our server alone")
    parser.add_argument("--write-docs", action="store_true", help="write docs/benchmarks.md")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = parser.parse_args()
    sizes = options.sizes or (QUICK_SIZES if options.quick else SIZES)
    seconds = 1.0 if options.quick else options.seconds
    kinds: list[type[Server]] = [Ours] if options.no_peer else [Ours, Peer]
    results: dict[int, dict[str, Figures]] = {}
    for size in sizes:
        results[size] = measured(size, [kind for kind in kinds if size <= kind.largest], seconds)
        if not options.json:
            print_table(size, results[size])
    if options.json:
        print(json.dumps({s: {n: asdict(f) for n, f in r.items()} for s, r in results.items()}))
    if options.write_docs:
        write_docs(results, seconds)


def measured(size: int, kinds: Sequence[type[Server]], seconds: float) -> dict[str, Figures]:
    with tempfile.TemporaryDirectory(prefix="everkept-bench-") as folder:
        workload = Workload(size)
        servers = [kind(Path(folder)) for kind in kinds]
        results = {server.name: Figures() for server in servers}
        for server in servers:
            _say(f"{size:,} entities: loading {server.name}")
            server.load(workload)
        for number in range(ROUNDS):
            for server in servers:
                _say(f"{size:,} entities: round {number + 1} of {ROUNDS}, {server.name}")
                _measure_calls(server, workload, results[server.name])
        for server in servers:
            _say(f"{size:,} entities: {WRITERS} writers, {server.name}")
            _measure_writers(server, results[server.name], seconds)
    return results


def _measure_calls(server: Server, workload: Workload, figures: Figures) -> None:
    steps: dict[str, Callable[[SelftestConnection], object]] = {
        "start": lambda _: None,
        "start and list": lambda wire: wire.request("tools/list", {}),
        "start, list and first call": lambda wire: wire.call("open_nodes", {"names": ["x"]}),
    }
    starts: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(STARTS):
        began = time.perf_counter()
        wire = server.start()
        for name, step in steps.items():
            step(wire)
            starts[name].append(time.perf_counter() - began)
        figures.rss_at_start = _rss(wire)
        wire.close()
    for name, durations in starts.items():
        keep_best(figures.timings, name, durations)
    wire = server.start()
    calls: dict[str, Callable[[], object]] = {
        "open": lambda: wire.call("open_nodes", {"names": [workload.some_name()]}),
        "search, rare word": lambda: _search(wire, workload.rare_word()),
        "search, common word": lambda: _search(wire, workload.common_word()),
        "search, two words": lambda: _search(wire, workload.two_words()),
    }
    for name, call in calls.items():
        keep_best(figures.timings, name, _timed(call))
    added: list[str] = []
    keep_best(figures.timings, "store", _timed(lambda: _store(wire, workload, added)))
    wire.call("delete_entities", {"entityNames": added})  # the next round finds the same size
    figures.rss_after_calls = _rss(wire)
    keep_best(figures.timings, "read everything", _timed(lambda: server.read_all(wire)))
    wire.close()
    _measure_dialect(server, workload, figures)


def _measure_dialect(server: Server, workload: Workload, figures: Figures) -> None:
    wire = server.start_dialect()
    calls: dict[str, Callable[[], object]] = {
        "open": lambda: wire.call("open_nodes", {"names": [workload.some_name()]}),
        "search, rare word": lambda: _search(wire, workload.rare_word()),
        "search, common word": lambda: _search(wire, workload.common_word()),
        "read everything": lambda: wire.call("read_graph", {}),
    }
    for name, call in calls.items():
        keep_best(figures.timings, f"dialect: {name}", _timed(call))
    wire.close()


def _store(wire: SelftestConnection, workload: Workload, added: list[str]) -> None:
    entity = workload.new_entity()
    wire.call("create_entities", {"entities": [entity]})
    added.append(entity["name"])


def _search(wire: SelftestConnection, query: str) -> JSON:
    return wire.call("search_nodes", {"query": query})


def _timed(call: Callable[[], object]) -> list[float]:
    call()
    durations: list[float] = []
    deadline = time.perf_counter() + BUDGET
    while len(durations) < CALLS and (not durations or time.perf_counter() < deadline):
        began = time.perf_counter()
        call()
        durations.append(time.perf_counter() - began)
    return durations


def _measure_writers(server: Server, figures: Figures, seconds: float) -> None:
    """All write at once into the same graph; what they were told is stored is counted after."""
    wires = [server.start() for _ in range(WRITERS)]
    acknowledged: list[list[str]] = [[] for _ in wires]
    begin = threading.Barrier(WRITERS + 1)

    def write(number: int) -> None:
        workload = Workload(0, seed=number)
        begin.wait()
        deadline = time.perf_counter() + seconds
        while time.perf_counter() < deadline:
            entity = workload.new_entity(f"writer {number} entity")
            wires[number].call("create_entities", {"entities": [entity]})
            acknowledged[number].append(entity["name"])

    threads = [threading.Thread(target=write, args=(number,)) for number in range(WRITERS)]
    for thread in threads:
        thread.start()
    begin.wait()
    began = time.perf_counter()
    for thread in threads:
        thread.join()
    elapsed = time.perf_counter() - began
    for wire in wires:
        wire.close()
    fresh = server.start()
    stored = server.read_all(fresh)
    fresh.close()
    names = {name for many in acknowledged for name in many}
    figures.acknowledged = len(names)
    figures.found = len(names & stored)
    figures.writes_per_second = len(names) / elapsed


def _rss(wire: SelftestConnection) -> float:
    return psutil.Process(wire.pid).memory_info().rss / 1e6


def _say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
