"""The figures of the memories as tables: on the terminal, and on the page."""

from collections.abc import Mapping
from typing import Protocol

import page
from memory_servers import BY_MEANING, BY_WORDS, HYBRID, Everkept, MemoryService
from memory_workload import MEMORIES_PER_ENTITY, SESSION_LENGTH, TRUE_VECTORS
from page import Row, Timing


class Figures(Protocol):
    @property
    def timings(self) -> Mapping[str, Timing]: ...

    found: dict[str, tuple[int, int]]
    rss_idle: float
    rss_by_words: float
    rss_after_calls: float
    rss_together: float
    disk: float
    acknowledged: int
    lost: int
    warnings: dict[str, int]


Results = Mapping[int, Mapping[str, Figures]]

_HEAD = ("", "Everkept", "mcp-memory-service", "ratio")
_EXPLAINED = """\
Written by `python bench/memories.py --write-docs`. `--sizes` sets the sizes, and `--peer-venv` names the virtual
environment of the peer, `mcp-memory-service`. The peer runs offline with a hash of the text as its embedding. That
costs almost nothing, so compare its times, not what it finds by meaning. Everkept embeds each query with its model.

A memory has 10 to 45 words, a third of them from the topic of its session. A session has {session} memories, and there
is one entity for every {entity} memories. The data is loaded in bulk; {true:,} memories have the embedding of their
text.

- *Store* is one acknowledged `store_memory` call with its entities. The embedding follows between two calls.
- *Recall* asks for the best 10 with 3 to 5 words of one of the {true:,} memories. *Found* is how often that memory is
  among them.
- *First recall* is the time from the start of the process to the answer; *first by meaning*, to the first answer that
  uses the model.
- *Context* is a block of at most 2,000 tokens: `get_memory_context`, and the peer's `get_bootstrap_profile`.
- *Walk* begins at an entity; for the peer, at a memory connected to the last ones that name the same entities.
- *Three servers* are three processes on the same data. Each stores one memory, recalls four times, and repeats that for
  {seconds:g} seconds.

The peer consolidates a period of time, not a session, so there is no comparison.

{measured_with}
"""
_SIZES = (
    ("Memory, idle, MB", "rss_idle"),
    ("Memory after recalls by words, MB", "rss_by_words"),
    ("Memory after all calls, MB", "rss_after_calls"),
    ("Memory, three servers, MB", "rss_together"),
    ("Disk, MB", "disk"),
)


def print_table(size: int, figures: Mapping[str, Figures]) -> None:
    page.print_table(f"{size:,} memories", _HEAD, _rows(figures))
    if figures[Everkept.name].warnings:
        print(_warnings(figures[Everkept.name]))


def write_docs(results: Results, seconds: float, peer_version: str | None) -> None:
    peers = [f"{MemoryService.name} {peer_version}"] if peer_version else []
    parts = [
        _EXPLAINED.format(
            session=SESSION_LENGTH,
            entity=MEMORIES_PER_ENTITY,
            true=TRUE_VECTORS,
            seconds=seconds,
            measured_with=page.measured_with(peers),
        )
    ]
    for size, figures in results.items():
        parts.append(f"### {size:,} memories\n\n{page.markdown_table(_HEAD, _rows(figures))}")
        if figures[Everkept.name].warnings:
            parts.append(_warnings(figures[Everkept.name]) + "\n")
    page.write_section("Memories", "\n".join(parts))


def _rows(results: Mapping[str, Figures]) -> list[Row]:
    ours, peer = results[Everkept.name], results.get(MemoryService.name)
    rows: list[Row] = []
    for name, timing in ours.timings.items():
        other = peer.timings.get(name) if peer else None
        ratio = page.ratio(timing.p50, other.p50) if other else ""
        rows.append((name.capitalize(), page.timing_cell(timing), page.timing_cell(other), ratio))
    for name, attribute in _SIZES:
        own, other = getattr(ours, attribute), getattr(peer, attribute) if peer else None
        shown = "" if other is None else f"{other:,.0f}"
        rows.append((name, f"{own:,.0f}", shown, page.ratio(own, other)))
    rows += [
        (name.replace("recall", "Found"), _found(ours, name), _found(peer, name), "")
        for name in (BY_WORDS, BY_MEANING, HYBRID)
    ]
    rows.append(("Three servers, acknowledged but lost", _lost(ours), _lost(peer), ""))
    return rows


def _found(figures: Figures | None, name: str) -> str:
    if figures is None or name not in figures.found:
        return ""
    hits, asked = figures.found[name]
    return f"{hits / asked:.0%}"


def _lost(figures: Figures | None) -> str:
    return "" if figures is None else f"{figures.lost:,} of {figures.acknowledged:,}"


def _warnings(figures: Figures) -> str:
    listed = ", ".join(f"{code} ({count:,})" for code, count in sorted(figures.warnings.items()))
    return f"Warnings in Everkept's answers: {listed}."
