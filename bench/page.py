"""docs/benchmarks.md, of which each benchmark writes a section, and the forms its figures take."""

import os
import platform
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table

from everkept import __version__

DOCS = Path(__file__).resolve().parents[1] / "docs" / "benchmarks.md"
Row = tuple[str, ...]

_EXPLAINED = """\
# Benchmarks

Run a benchmark yourself:

```sh
python bench/graph.py --quick
```

All servers run as real processes over stdio, called by the same client. Compared servers run in the same run. A figure
is the best of three rounds. Times are milliseconds from the request to the whole answer: p50, and p95 in parentheses.
The ratio is Everkept's figure divided by the peer's. Machines differ; ratios differ less.
"""
_SECTION = re.compile(r"^(?=## )", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Timing:
    """Milliseconds."""

    p50: float
    p95: float


def keep_best(timings: dict[str, Timing], name: str, durations: Iterable[float]) -> None:
    """Of several rounds the one with the best median; the durations are seconds."""
    ordered = sorted(durations)
    timing = Timing(ordered[len(ordered) // 2] * 1000, ordered[min(len(ordered) - 1, len(ordered) * 95 // 100)] * 1000)
    known = timings.get(name)
    if known is None or timing.p50 < known.p50:
        timings[name] = timing


def parsed_sizes(text: str) -> tuple[int, ...]:
    """What `--sizes` takes: numbers, with commas between them."""
    return tuple(int(size.replace("_", "")) for size in text.split(","))


def write_section(title: str, text: str) -> None:
    """Puts the section in the place of the one with this title, or at the end.

    Its own headings are of the third level; those of the second part the page.
    """
    page = DOCS.read_text("utf-8") if DOCS.exists() else ""
    _, *sections = _SECTION.split(page)
    heading = f"## {title}\n"
    section = f"{heading}\n{text.strip()}\n"
    places = [place for place, known in enumerate(sections) if known.startswith(heading)]
    if places:
        sections[places[0]] = section
    else:
        sections.append(section)
    DOCS.write_text("\n".join([_EXPLAINED, *(f"{part.rstrip()}\n" for part in sections)]), "utf-8")


def markdown_table(head: Row, rows: Iterable[Row]) -> str:
    rule = "|---|" + "--:|" * (len(head) - 1)
    return "\n".join([_line(head), rule, *map(_line, rows)]) + "\n"


def print_table(title: str, head: Row, rows: Iterable[Row]) -> None:
    table = Table(*head, title=title)
    for row in rows:
        table.add_row(*row)
    Console().print(table)


def timing_cell(timing: Timing | None) -> str:
    return "" if timing is None else f"{short(timing.p50)} ({short(timing.p95)})"


def short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def ratio(own: float | None, other: float | None) -> str:
    return f"{own / other:.2f}" if own is not None and other else ""


def measured_with(peers: Sequence[str]) -> str:
    """When, with what and on what."""
    also = "".join(f"; {peer}" for peer in peers)
    cores = f"{os.cpu_count()} cores of {_processor()}"
    system = f"{platform.system()}, Python {platform.python_version()}"
    day = datetime.now(UTC).date()
    return f"Measured on {day} with Everkept {__version__} on {cores}, {system}{also}."


def _line(cells: Row) -> str:
    return f"| {' | '.join(cells)} |"


def _processor() -> str:
    described = Path("/proc/cpuinfo")
    if described.exists():
        for line in described.read_text("utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
