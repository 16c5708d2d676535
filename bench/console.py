"""Measures the console in a real browser: the first page, a long list, and a large graph.

    tools/browser --collect-only -q   # installs the browser and its packages once
    python bench/console.py --write-docs

Needs Chromium, or TEST_CHROMIUM with the program. Figures are of software drawing, without a GPU.
"""

import argparse
import asyncio
import os
import random
import shutil
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import page

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from browsers import CHROMIUM, Console, ConsoleProcess, Pages, console_process, start_browser
from console_worlds import STATEMENTS, fill_large_graph
from everkept.core.times import read_clock
from everkept.engines.sqlite.library import SqliteLibrary
from records import batch, memory

MEMORIES = 10_000
ENTITIES, RELATIONS = 5_000, 10_000
ROUNDS = 3
PROJECT = "bench"
T = TypeVar("T")
MINUTE = 60_000_000
SHOWN_PAGES = ("overview", "search?q=row+locks", "memories", "graph", "log")

# When the first row can be seen, in milliseconds since the navigation began.
FIRST_ROW = """
new MutationObserver((_, self) => {
  if (!document.querySelector('.virtual .open')) return;
  self.disconnect();
  requestAnimationFrame(() => setTimeout(() => (window.paintedAt = performance.now())));
}).observe(document, { childList: true, subtree: true });
"""
# Do one step in each frame; return how long each took.
FRAMES = """
async ([count, kind]) => {
  const canvas = document.querySelector('canvas.graph');
  const send = (type, clientX) =>
    canvas.dispatchEvent(new PointerEvent(type, { pointerId: 1, clientX, clientY: 300, bubbles: true }));
  if (kind === 'pan') { canvas.setPointerCapture = () => undefined; send('pointerdown', 300); }
  const times = [];
  let last = performance.now();
  for (let step = 0; step < count; step++) {
    if (kind === 'pan') send('pointermove', 300 + 5 * (step % 40));
    else scrollBy(0, 900);
    await new Promise(requestAnimationFrame);
    const now = performance.now();
    times.push(now - last);
    last = now;
  }
  if (kind === 'pan') send('pointerup', 300);
  return times;
}
"""

_EXPLAINED = """\
Written by `python bench/console.py --write-docs`, with Chromium {version} and without a GPU, on the machine of the
server. Times are the median of {rounds} rounds, and for frames p50 (p95).

- *First rows* is the time from the navigation to the first painted rows of {memories:,} memories, with an empty cache.
- *Scrolled* moves by a window's height in each frame, and rows are read on the way.
- *Settled* is the time until the layout of {entities:,} entities and {relations:,} relations ends, beside the page.

{table}
| page, with an empty cache | requests | KB |
|---|--:|--:|
{pages}

{measured_with}
"""


async def fill_memories(data_dir: Path) -> None:
    words, chance, now = STATEMENTS.split(), random.Random(1), read_clock()
    library = SqliteLibrary(data_dir)
    await library.create(PROJECT, "")
    _, store = await library.open(PROJECT)
    rows = [
        memory(" ".join(chance.choices(words, k=14)), tags=(chance.choice(words),), created_at=now - number * MINUTE)
        for number in range(MEMORIES)
    ]
    for start in range(0, len(rows), 1_000):
        await store.commit(batch(*rows[start : start + 1_000]))
    await library.close()


class Bench:
    def __init__(self, pages: Pages, process: ConsoleProcess) -> None:
        self._pages = pages
        self._process = process

    def open(self, place: str, *, script: str = "") -> Console:
        shown, watch = self._pages.open(self._process.origin)
        console = Console(shown, watch)
        if script:
            shown.add_init_script(script)
        console.begin(self._process.token, place)
        return console

    def measure_first_rows(self) -> float:
        console = self.open("#/memories", script=FIRST_ROW)
        console.page.wait_for_function("() => window.paintedAt")
        return self._close(console, console.page.evaluate("() => window.paintedAt"))

    def measure_scrolling(self) -> list[float]:
        console = self.open("#/memories")
        return self._close(console, console.page.evaluate(FRAMES, [120, "scroll"]))

    def measure_graph(self) -> tuple[float, list[float]]:
        """Return the milliseconds until the layout is settled, and those of each frame while panning."""
        console = self.open("#/overview")
        begun = console.page.evaluate("() => performance.now()")
        console.go("graph", {"project": "large", "whole": "1"})
        settled = console.page.evaluate("() => performance.now()") - begun
        return self._close(console, (settled, console.page.evaluate(FRAMES, [120, "pan"])))

    def count_bytes(self, place: str) -> tuple[int, int]:
        console = self.open(f"#/{place}")
        requests = [each for each in console.watch.requests if not each.endswith("/watch")]
        return self._close(console, (len(requests), console.watch.received))

    def _close(self, console: Console, result: T) -> T:
        console.page.context.close()
        return result


def describe_frames(times: Sequence[float]) -> str:
    ordered = sorted(times)
    return f"{page.short(statistics.median(ordered))} ({page.short(ordered[len(ordered) * 95 // 100])})"


def measure(folder: Path) -> str:
    data_dir = folder / "data"
    asyncio.run(fill_memories(data_dir))
    fill_large_graph(data_dir, ENTITIES, RELATIONS)
    with console_process(data_dir, "--path", folder, HOME=str(folder)) as process, start_browser() as browser:
        bench = Bench(Pages(browser), process)
        bench.measure_first_rows()  # the first read fills the server's table of memories
        first = statistics.median(bench.measure_first_rows() for _ in range(ROUNDS))
        scrolled = [each for _ in range(ROUNDS) for each in bench.measure_scrolling()]
        graphs = [bench.measure_graph() for _ in range(ROUNDS)]
        panned = [each for _, times in graphs for each in times]
        counted = [(place.partition("?")[0], *bench.count_bytes(place)) for place in SHOWN_PAGES]
        version = browser.version
    rows = [
        (f"First rows of {MEMORIES:,} memories, ms", page.short(first)),
        (f"Frame while {MEMORIES:,} memories are scrolled, ms", describe_frames(scrolled)),
        (f"Graph of {ENTITIES:,} entities settled, s", page.short(statistics.median(s for s, _ in graphs) / 1000)),
        (f"Frame while {ENTITIES:,} entities are panned, ms", describe_frames(panned)),
    ]
    page.print_table("Console", ("", "Everkept"), rows)
    return _EXPLAINED.format(
        version=version,
        rounds=ROUNDS,
        memories=MEMORIES,
        entities=ENTITIES,
        relations=RELATIONS,
        table=page.markdown_table(("", "Everkept"), rows),
        pages="\n".join(f"| {name} | {requests} | {size / 1000:.0f} |" for name, requests, size in counted),
        measured_with=page.measured_with(()),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write-docs", action="store_true", help="write docs/benchmarks.md")
    options = parser.parse_args()
    os.environ["EVERKEPT_CONFIG"] = "none"
    os.environ.setdefault(CHROMIUM, shutil.which("chromium") or "")
    with tempfile.TemporaryDirectory(prefix="everkept-bench-") as folder:
        text = measure(Path(folder))
    if options.write_docs:
        page.write_section("Console", text)


if __name__ == "__main__":
    main()
