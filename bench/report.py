"""The figures of the knowledge graph as tables: on the terminal, and on the page."""

from collections.abc import Mapping
from typing import Protocol

import page
from page import Row, Timing
from servers import Ours, Peer, node_version, peer_version


class Figures(Protocol):
    @property
    def timings(self) -> Mapping[str, Timing]: ...

    rss_at_start: float
    rss_after_calls: float
    writes_per_second: float
    acknowledged: int
    found: int


Results = Mapping[int, Mapping[str, Figures]]

_HEAD = ("", "Everkept", "server-memory", "ratio")
_EXPLAINED = """\
Written by `python bench/graph.py --write-docs`. `--quick` takes two minutes, and `--no-peer` needs no Node. The peer is
`@modelcontextprotocol/server-memory`.

Each entity has one relation and two observations of 8 to 20 words. The words come from a vocabulary of 20,000 with the
frequencies of real text.

- *Start* ends with the answer to `initialize`. The very first start, which fills the cache, does not count.
- *Store* is one acknowledged `create_entities` call with one entity and two observations.
- *Common word* occurs in every tenth entity. Everkept returns the best 20, the peer returns all.
- *Read everything* is the whole graph. Everkept returns it in pages of 1,000.
- *Eight writers* are eight server processes that write to the same graph for {seconds:g} seconds. Then a new process
  counts how many acknowledged writes are there.
- *Dialect* is `--dialect server-memory`, which returns all matches, like the peer.

{measured_with}
"""


def print_table(size: int, figures: Mapping[str, Figures]) -> None:
    page.print_table(f"{size:,} entities", _HEAD, _rows(figures))


def write_docs(results: Results, seconds: float) -> None:
    has_peer = any(Peer.name in figures for figures in results.values())
    peers = [f"server-memory {peer_version()} on Node {node_version()}"] if has_peer else []
    parts = [_EXPLAINED.format(seconds=seconds, measured_with=page.measured_with(peers))]
    for size, figures in results.items():
        parts.append(f"### {size:,} entities\n\n{page.markdown_table(_HEAD, _rows(figures))}")
    page.write_section("Knowledge graph", "\n".join(parts))


def _rows(results: Mapping[str, Figures]) -> list[Row]:
    ours, peer = results[Ours.name], results.get(Peer.name)
    rows: list[Row] = []
    for name, timing in ours.timings.items():
        other = peer.timings[name] if peer else None
        ratio = page.ratio(timing.p50, other.p50) if other else ""
        rows.append((name.capitalize(), page.timing_cell(timing), page.timing_cell(other), ratio))
    for name, attribute, form in (
        ("Memory after start, MB", "rss_at_start", "{:.0f}"),
        ("Memory after the calls, MB", "rss_after_calls", "{:.0f}"),
        ("Eight writers, acknowledged a second", "writes_per_second", "{:,.0f}"),
    ):
        own = getattr(ours, attribute)
        other = getattr(peer, attribute) if peer else None
        shown = "" if other is None else form.format(other)
        rows.append((name, form.format(own), shown, page.ratio(own, other)))
    lost = "Eight writers, acknowledged but lost"
    rows.append((lost, _lost(ours), _lost(peer) if peer else "", ""))
    return rows


def _lost(figures: Figures) -> str:
    return f"{figures.acknowledged - figures.found:,} of {figures.acknowledged:,}"
