"""The figures as tables: on the terminal, and as docs/benchmarks.md."""

import os
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from rich.console import Console
from rich.table import Table

from recollect import __version__
from servers import CHECKOUT, Ours, Peer, node_version, peer_version

DOCS = CHECKOUT / "docs" / "benchmarks.md"
Row = tuple[str, str, str, str]


class Timing(Protocol):
    p50: float
    p95: float


class Figures(Protocol):
    timings: dict[str, Timing]
    rss_at_start: float
    rss_after_calls: float
    writes_per_second: float
    acknowledged: int
    found: int


Results = Mapping[int, Mapping[str, Figures]]

_HEAD = ("", "Recollect", "server-memory", "ratio")
_EXPLAINED = """\
# Benchmarks

Written by `python bench/graph.py --write-docs`; `--quick` takes two minutes, `--no-peer` needs no
Node. Both servers run as real processes on standard input and output, spoken to by the same
client, in the same run. A figure is the best of three rounds; times are milliseconds, p50 and in
parentheses p95, from the request to the whole answer. The ratio is Recollect's figure divided by
that of the peer, `@modelcontextprotocol/server-memory`: machines differ, ratios do so less.

Each entity has two observations of 8 to 20 words, drawn from a vocabulary of 20,000 with the
uneven frequencies of real text, and one relation. *Store* is one `create_entities` call with one
entity and two observations, acknowledged. *Common word* stands in every tenth entity: Recollect
answers with the best 20, the peer with all. *Read everything* is the whole graph, which Recollect
gives in pages of 1,000. *Eight writers* are eight server processes that write into the same graph
for {seconds:g} seconds; afterwards a fresh one counts how much of what was acknowledged is there.

Measured on {date} with Recollect {version} on {machine}{peer}.
"""


def print_table(size: int, figures: Mapping[str, Figures]) -> None:
    table = Table(*_HEAD, title=f"{size:,} entities")
    for row in _rows(figures):
        table.add_row(*row)
    Console().print(table)


def write_docs(results: Results, seconds: float) -> None:
    has_peer = any(Peer.name in figures for figures in results.values())
    peer = f"; server-memory {peer_version()} on Node {node_version()}" if has_peer else ""
    parts = [
        _EXPLAINED.format(
            seconds=seconds,
            date=datetime.now(UTC).date(),
            version=__version__,
            machine=_machine(),
            peer=peer,
        )
    ]
    for size, figures in results.items():
        parts.append(f"\n## {size:,} entities\n\n| {' | '.join(_HEAD)} |\n|---|--:|--:|--:|\n")
        parts += [f"| {' | '.join(row)} |\n" for row in _rows(figures)]
    DOCS.write_text("".join(parts), "utf-8")


def _rows(results: Mapping[str, Figures]) -> list[Row]:
    ours, peer = results[Ours.name], results.get(Peer.name)
    rows: list[Row] = []
    for name, timing in ours.timings.items():
        other = peer.timings[name] if peer else None
        ratio = _ratio(timing.p50, other.p50) if other else ""
        rows.append((name.capitalize(), _timing(timing), _timing(other) if other else "", ratio))
    for name, attribute, form in (
        ("Memory after start, MB", "rss_at_start", "{:.0f}"),
        ("Memory after the calls, MB", "rss_after_calls", "{:.0f}"),
        ("Eight writers, acknowledged a second", "writes_per_second", "{:,.0f}"),
    ):
        own = getattr(ours, attribute)
        other = getattr(peer, attribute) if peer else None
        shown = "" if other is None else form.format(other)
        ratio = "" if other is None else _ratio(own, other)
        rows.append((name, form.format(own), shown, ratio))
    lost = "Eight writers, acknowledged but lost"
    rows.append((lost, _lost(ours), _lost(peer) if peer else "", ""))
    return rows


def _timing(timing: Timing) -> str:
    return f"{_short(timing.p50)} ({_short(timing.p95)})"


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _ratio(own: float, other: float) -> str:
    return f"{own / other:.2f}" if other else ""


def _lost(figures: Figures) -> str:
    return f"{figures.acknowledged - figures.found:,} of {figures.acknowledged:,}"


def _machine() -> str:
    return (
        f"{os.cpu_count()} cores of {_processor()}, {platform.system()}, "
        f"Python {platform.python_version()}"
    )


def _processor() -> str:
    described = Path("/proc/cpuinfo")
    if described.exists():
        for line in described.read_text("utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
