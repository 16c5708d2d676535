"""Measures the memory bank over MCP, beside the server that the public one grew out of.

    python bench/bank.py --quick
    python bench/bank.py --write-docs

Every figure comes from real servers on standard input and output, spoken to by the same client.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import page
from bank_servers import Ancestor, BankFolder, BankServer, Everkept, ancestor_version
from everkept.cli.selftest_workers import SelftestConnection
from page import Row, Timing, keep_best, parsed_sizes
from servers import node_version

FILES = (10, 1_000, 10_000)
ENTITIES = (100, 1_000, 10_000)
QUICK = (10, 100)
ROUNDS = 3
CALLS = 200  # in one round, unless they take longer than
BUDGET = 3.0  # seconds

Timings = dict[str, dict[str, Timing]]  # by server, then by what was done

_HEAD = ("", "Everkept", "memory-bank-mcp", "ratio")
_EXPLAINED = """\
Written by `python bench/bank.py --write-docs`. The peer is `{package}`, the predecessor of the public memory bank
server. It reads and writes the same files, without search and graph. The public server itself is not published as a
package. Its graph took 80 ms for an upsert at 1,000 entities.

A bank has the five core files and notes of about 120 words.

- *Write* replaces one file and waits until it is on disk; the peer does not wait.
- *Track progress* edits two files.
- *Search* finds literal matches in all files, then ranked sections. *Digest* is the summary of the core files.
- *Upsert* is one acknowledged entity, with its line in `graph/graph.jsonl`.

{measured_with}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--files", type=parsed_sizes, help="files of a bank, with commas")
    parser.add_argument("--entities", type=parsed_sizes, help="entities of a graph, with commas")
    parser.add_argument("--quick", action="store_true", help="small sizes")
    parser.add_argument("--no-peer", action="store_true", help="our server alone")
    parser.add_argument("--write-docs", action="store_true", help="write docs/benchmarks.md")
    options = parser.parse_args()
    parts: list[str] = []
    with tempfile.TemporaryDirectory(prefix="everkept-bench-") as folder:
        servers: list[BankServer] = [Everkept(Path(folder) / "bytecode")]
        servers += [] if options.no_peer else [Ancestor()]
        for size in options.files or (QUICK if options.quick else FILES):
            timings = _files(Path(folder) / f"files-{size}", size, servers)
            parts.append(_shown(f"{size:,} files", timings))
        for size in options.entities or (QUICK if options.quick else ENTITIES):
            timings = {servers[0].name: _graph(Path(folder) / f"graph-{size}", size, servers[0])}
            parts.append(_shown(f"{size:,} entities", timings))
    if options.write_docs:
        peers = [] if options.no_peer else [f"memory-bank-mcp {ancestor_version()}"]
        peers += [f"Node {node_version()}"] if peers else []
        explained = _EXPLAINED.format(package="@movibe/memory-bank-mcp", measured_with=page.measured_with(peers))
        page.write_section("Memory bank", "\n".join([explained, *parts]))


def _files(folder: Path, size: int, servers: list[BankServer]) -> Timings:
    timings: Timings = {server.name: {} for server in servers}
    banks = {server.name: BankFolder(folder / server.name, size) for server in servers}
    for number in range(ROUNDS):
        for server in servers:
            _say(f"{size:,} files: round {number + 1} of {ROUNDS}, {server.name}")
            bank = banks[server.name]
            wire = server.start(folder / "data", bank)
            for name, operation in server.operations.items():
                durations = _timed(partial(operation, wire, bank))
                keep_best(timings[server.name], name, durations)
            wire.close()
    return timings


def _graph(folder: Path, size: int, server: BankServer) -> dict[str, Timing]:
    bank = BankFolder(folder / "home", 5)
    wire = server.start(folder / "data", bank)
    _say(f"{size:,} entities: filling the graph")
    for number in range(size):
        _upsert(wire, f"entity {number}", bank)
        wire.call("graph_add_observation", {"entity": f"entity {number}", "text": bank.words(10)})
    timings: dict[str, Timing] = {}
    made = iter(range(10**9))
    for number in range(ROUNDS):
        _say(f"{size:,} entities: round {number + 1} of {ROUNDS}")
        calls: Mapping[str, Callable[[], object]] = {
            "upsert, new": lambda: _upsert(wire, f"new {next(made)}", bank),
            "upsert, known": lambda: _upsert(wire, f"entity {next(made) % size}", bank),
            "add observation": lambda: wire.call(
                "graph_add_observation", {"entity": f"entity {next(made) % size}", "text": bank.words(10)}
            ),
            "link": lambda: wire.call(
                "graph_link_entities",
                {
                    "from": f"entity {next(made) % size}",
                    "relationType": "uses",
                    "to": f"entity {(next(made) * 7) % size}",
                },
            ),
            "graph search": lambda: wire.call("graph_search", {"query": bank.words(2)}),
            "open a node": lambda: wire.call("graph_open_nodes", {"nodes": [f"entity {next(made) % size}"]}),
        }
        for name, call in calls.items():
            keep_best(timings, name, _timed(call))
    wire.close()
    return timings


def _upsert(wire: SelftestConnection, name: str, bank: BankFolder) -> object:
    arguments = {"name": name, "entityType": "service", "attrs": {"team": bank.words(1)}}
    return wire.call("graph_upsert_entity", arguments)


def _timed(call: Callable[[], object]) -> list[float]:
    call()
    durations: list[float] = []
    deadline = time.perf_counter() + BUDGET
    while len(durations) < CALLS and (not durations or time.perf_counter() < deadline):
        began = time.perf_counter()
        call()
        durations.append(time.perf_counter() - began)
    return durations


def _shown(title: str, timings: Timings) -> str:
    """The table on the terminal, and as it stands on the page."""
    rows = _rows(timings)
    page.print_table(title, _HEAD, rows)
    return f"### {title}\n\n{page.markdown_table(_HEAD, rows)}"


def _rows(timings: Timings) -> list[Row]:
    ours, peer = timings["everkept"], timings.get("memory-bank-mcp", {})
    rows: list[Row] = []
    for name, timing in ours.items():
        other = peer.get(name)
        ratio = page.ratio(timing.p50, other.p50) if other else ""
        rows.append((name.capitalize(), page.timing_cell(timing), page.timing_cell(other), ratio))
    return rows


def _say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
