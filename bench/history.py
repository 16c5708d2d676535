"""Measures past conversations: taking them in, and finding them again over MCP.

    python bench/history.py --sizes 10000,100000
    python bench/history.py --cache PATH --write-docs

The import is the command, on transcripts as Claude Code writes them. A folder for the cache keeps
what is filled, which takes minutes at the largest size; empty it when the schema has changed.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil

import page
from everkept.app.app import App
from everkept.cli.selftest_workers import JSON, SelftestConnection
from everkept.embedders.onnx import OnnxEmbedder
from everkept.settings import read_settings
from history_workload import Conversations, give_vectors
from page import Timing, keep_best, parsed_sizes
from servers import own_environment

SIZES = (10_000, 100_000, 1_000_000)
EMBEDDED = 2_000  # turns whose import is measured with their vectors
ROUNDS = 3
CALLS = 150  # in one round, unless they take longer than
BUDGET = 6.0  # seconds
LOOKS = 0.02  # seconds between two looks at the memory of an import
MB = 1_000_000

_EXPLAINED = """\
Written by `python bench/history.py --write-docs`. Turns have 20 to 60 words with the frequencies of real text. There
are forty turns per conversation, in fifty projects. Every fifth turn has a function in a fenced block.

- *Import* is `everkept import history` on files in Claude Code's format, in turns per second for the whole process.
- Recalls are calls to a server over stdio, with the embedding of the question. No question is asked twice.
- *Again* is a question whose answer is still cached.

{embedded}

{measured_with}
"""


@dataclass(slots=True)
class Figures:
    """What was measured at one size. Memory and disk are in MB."""

    turns_a_second: float = 0.0
    import_rss: float = 0.0
    transcripts: float = 0.0
    disk: float = 0.0
    timings: dict[str, Timing] = field(default_factory=dict[str, Timing])
    first: float = 0.0  # milliseconds of the first question after the start
    server_rss: float = 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--sizes", type=parsed_sizes, default=SIZES, help="turns, with commas")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--cache", type=Path, help="folder that keeps the filled data")
    parser.add_argument("--write-docs", action="store_true", help="write to docs/benchmarks.md")
    options = parser.parse_args()
    results: dict[int, Figures] = {}
    with tempfile.TemporaryDirectory(prefix="everkept-bench-") as folder:
        place = options.cache or Path(folder)
        environment = own_environment(Path(folder) / "bytecode")
        embedded = _import(Path(folder) / "embedded", EMBEDDED, environment, "--embed")
        for size in options.sizes:
            results[size] = _measured(place / str(size), size, options.rounds, environment)
            page.print_table(f"{size:,} turns", _HEAD[:2], _rows({size: results[size]}))
    told = f"With `--embed`, {EMBEDDED:,} turns came in at {embedded.turns_a_second:,.0f} a second "
    told += f"in {embedded.import_rss:,.0f} MB."
    print(told)
    if options.write_docs:
        head = ("", *(f"{size:,}" for size in results))
        explained = _EXPLAINED.format(embedded=told, measured_with=page.measured_with([]))
        page.write_section("History", f"{explained}\n{page.markdown_table(head, _rows(results))}")


def _measured(place: Path, size: int, rounds: int, environment: dict[str, str]) -> Figures:
    kept = place / "figures.json"
    if kept.exists():
        figures = Figures(**json.loads(kept.read_text("utf-8")))
    else:
        figures = _import(place, size, environment)
        _say(f"{size:,} turns: giving them vectors")
        asyncio.run(_embed(place / "data"))
        kept.write_text(json.dumps(_import_figures(figures)), "utf-8")
    _recalls(place / "data", size, rounds, environment, figures)
    data = place / "data"
    figures.disk = sum(path.stat().st_size for path in data.rglob("*") if path.is_file()) / MB
    return figures


def _import(place: Path, size: int, environment: dict[str, str], *flags: str) -> Figures:
    _say(f"{size:,} turns: writing transcripts")
    claude = place / "claude"
    written = Conversations(size).write(claude)
    _say(f"{size:,} turns: importing")
    command = [sys.executable, "-m", "everkept", "import", "history", "--source", "claude-code"]
    command += ["--data-dir", str(place / "data"), "--config", "none", *flags]
    began = time.perf_counter()
    process = subprocess.Popen(command, env=environment | {"CLAUDE_CONFIG_DIR": str(claude)}, stdout=subprocess.DEVNULL)
    peak = _peak_of(process)
    seconds = time.perf_counter() - began
    if process.returncode:
        sys.exit("the import failed")
    return Figures(size / seconds, peak / MB, written / MB)


def _peak_of(process: "subprocess.Popen[bytes]") -> int:
    """The largest memory it ever had, until it ends."""
    watched = psutil.Process(process.pid)
    ended = threading.Event()
    peak = 0

    def wait() -> None:
        process.wait()
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    while not ended.wait(LOOKS):
        try:
            peak = max(peak, watched.memory_info().rss)
        except psutil.NoSuchProcess:
            break
    ended.wait()
    return peak


async def _embed(data: Path) -> None:
    app = App(read_settings({"data_dir": data, "config": "none"}, {}))
    embedder = OnnxEmbedder()
    await give_vectors(await app.library.open_history_store(), embedder)
    await embedder.close()
    await app.close()


def _recalls(data: Path, size: int, rounds: int, environment: dict[str, str], figures: Figures) -> None:
    command = (sys.executable, "-m", "everkept", "serve", "--data-dir", str(data))
    context = environment | {"EVERKEPT_RECALL_TIME_LIMIT": "60", "EVERKEPT_CONFIG": "none"}
    wire = SelftestConnection(command, environment=context)
    wire.initialize("bench")
    questions = Conversations(size).questions()

    def ask(tool: str, argument: str, **more: object) -> JSON:
        return wire.call(tool, {argument: next(questions).text, **more})

    began = time.perf_counter()
    ask("recall_previous_discussions", "query")
    figures.first = (time.perf_counter() - began) * 1000
    again = next(questions).text
    calls: dict[str, Callable[[], object]] = {
        "recall": lambda: ask("recall_previous_discussions", "query"),
        "recall, one project": lambda: ask("recall_previous_discussions", "query", project_filter="project-7"),
        "recall, last month": lambda: ask("recall_previous_discussions", "query", time_range="month"),
        "recall, decisions": lambda: ask("recall_previous_discussions", "query", type="decision"),
        "again": lambda: wire.call("recall_previous_discussions", {"query": again}),
        "similar problems": lambda: ask("find_similar_problems", "problem_description"),
        "code": lambda: ask("search_code_history", "query"),
        "everything": lambda: ask("unified_memory_search", "query"),
    }
    for number in range(rounds):
        _say(f"{size:,} turns: round {number + 1} of {rounds}")
        for name, call in calls.items():
            keep_best(figures.timings, name, _timed(call))
    found = ask("recall_previous_discussions", "query")["results"][0]["id"]
    reading = {"id": found}
    keep_best(figures.timings, "read", _timed(lambda: wire.call("read_conversation", reading)))
    figures.server_rss = psutil.Process(wire.pid).memory_info().rss / MB
    wire.close()


def _timed(call: Callable[[], object]) -> list[float]:
    call()
    durations: list[float] = []
    deadline = time.perf_counter() + BUDGET
    while len(durations) < CALLS and (not durations or time.perf_counter() < deadline):
        began = time.perf_counter()
        call()
        durations.append(time.perf_counter() - began)
    return durations


def _import_figures(figures: Figures) -> dict[str, float]:
    names = ("turns_a_second", "import_rss", "transcripts")
    return {name: getattr(figures, name) for name in names}


_HEAD = ("", "Everkept")


def _rows(results: dict[int, Figures]) -> list[page.Row]:
    every = list(results.values())
    facts = (
        ("Import, turns a second", "turns_a_second"),
        ("Memory of the import, MB", "import_rss"),
        ("Transcripts, MB", "transcripts"),
        ("Data folder, MB", "disk"),
        ("First question after the start, ms", "first"),
        ("Memory of the server after the calls, MB", "server_rss"),
    )
    rows = [(name, *(f"{getattr(figures, attribute):,.0f}" for figures in every)) for name, attribute in facts]
    timed = [
        (name.capitalize(), *(page.timing_cell(figures.timings.get(name)) for figures in every))
        for name in every[0].timings
    ]
    return [*rows, *timed]


def _say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
