"""Measures the same work on each engine, straight through the port.

    python bench/engines.py --quick
    python bench/engines.py --write-docs
    python bench/engines.py --large --write-docs

Each engine loads as many memories as it can in the time it is given, up to the size that is asked
for, and is then asked the same questions. Every engine has a process of its own; a database server
has another one, which is counted apart.
"""

import argparse
import asyncio
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psutil

import page
from everkept.core.answers import Hops
from everkept.core.ports import Library, RecordStore, RecordVector
from everkept.core.records import Batch, Insert, Record, RecordFilter, RecordLink, Weights
from everkept.core.times import read_clock
from everkept.language.words import parse_query

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "support"))

SIZES = (1_000, 5_000, 20_000)
QUICK_SIZES = (500,)
LARGE_SIZES = (10_000, 100_000, 1_000_000)
TIME_TO_LOAD = 300.0  # seconds
LONG_TO_LOAD = 2_400.0
BATCH = 100
LARGE_BATCH = 1_000
DIMENSIONS = 384
MODEL = "bench"
SCOPES = 10
ENTITIES = 1_000
EDGES = 5_000
HOPS = 3
QUESTIONS = 40
BEST = 50  # of what is found
COMPARED = 10  # of them, with what comparing every vector finds
COMPARISONS = 10
WORDS = 20_000
CLUSTERS = 500

_TITLES = {
    "memory": "memory",
    "sqlite": "SQLite",
    "postgres": "PostgreSQL",
    "surreal-file": "SurrealDB 2 file",
    "surreal-2": "SurrealDB 2 served",
    "surreal-3": "SurrealDB 3 served",
}
_LARGE = ("sqlite", "postgres")
_EXPLAINED = """\
Written by `python bench/engines.py --write-docs`. Every engine gets the same memories of 20 to 60 words, each with an
embedding of 384 numbers in clusters. They are loaded in batches of 100, for at most five minutes.

- *Store* is one acknowledged memory, saved to disk.
- *Words* finds the best 50 memories with any of three words in one of ten scopes. *Meaning* finds the nearest 50
  embeddings in it. *Both* runs the two together.
- *Three hops* follows the links of one of 1,000 entities with 5,000 links.
- *Open* is the first query of a new process, after its modules are loaded.
- *Recall* is the share of the ten nearest embeddings that was found.
- Memory is that of Everkept's process and of the database server, if there is one.

PostgreSQL 18 with pgvector runs on this machine with its default settings, with every commit saved to disk. SurrealDB
2.3.10 runs in Everkept's process with a file. It and 3.2.4 also run behind a stand-in for the wire protocol; a real
`surreal start` was not tested.

{measured_with}
"""
_EXPLAINED_LARGE = """\
Written by `python bench/engines.py --large --write-docs`. The work is the same as under [Engines](#engines), with as
many memories as a large team has, in one project, loaded in batches of 1,000. There is one client and one process;
PostgreSQL runs on the same machine. It builds its index of embeddings after the load and then keeps it current.

{measured_with}
"""


@dataclass(slots=True)
class Figures:
    """What one engine did; times are milliseconds."""

    loaded: int = 0
    per_second: float = 0.0
    indexed_s: float = 0.0
    timings: dict[str, page.Timing] = field(default_factory=dict[str, page.Timing])
    disk_mb: float = 0.0
    rss_mb: float = 0.0
    server_mb: float = 0.0
    recall: float = 0.0


class Texts:
    """Memories by number, the same for every engine."""

    def __init__(self) -> None:
        rng = random.Random(8)
        letters = "abcdefghijklmnopqrstuvwxyz"
        self._words = ["".join(rng.choices(letters, k=rng.randint(4, 10))) for _ in range(WORDS)]
        self._chances = np.cumsum(1.0 / np.arange(1, WORDS + 1)).tolist()
        centres = np.random.default_rng(8).standard_normal((CLUSTERS, DIMENSIONS))
        self._centres = centres / np.linalg.norm(centres, axis=1, keepdims=True)

    def text(self, number: int) -> str:
        rng = random.Random(number)
        count = rng.randint(20, 60)
        return " ".join(rng.choices(self._words, cum_weights=self._chances, k=count))

    def query(self, number: int) -> str:
        rng = random.Random(-1 - number)
        return " ".join(rng.choices(self._words[10:2_000], k=3))

    def vector(self, number: int) -> Any:
        """Every cluster has memories in all scopes."""
        rng = np.random.default_rng(number)
        centre = self._centres[number // SCOPES % CLUSTERS]
        mixed = centre + 0.03 * rng.standard_normal(DIMENSIONS)
        return (mixed / np.linalg.norm(mixed)).astype(np.float32)

    def record(self, number: int) -> Record:
        at = 1_700_000_000_000_000 + number
        scope = f"scope{number % SCOPES}"
        return Record(f"m{number}", "memory", at, at, text=self.text(number), scope=scope)


async def _load(store: RecordStore, texts: Texts, size: int, limit: float, figures: Figures) -> None:
    batch = LARGE_BATCH if size in LARGE_SIZES else BATCH
    started = time.perf_counter()
    while figures.loaded < size and time.perf_counter() - started < limit:
        numbers = range(figures.loaded, min(figures.loaded + batch, size))
        steps = tuple(Insert(texts.record(number)) for number in numbers)
        await store.commit(Batch(steps, read_clock(), "bench"))
        await store.put_vectors(MODEL, [RecordVector(f"m{number}", 1, texts.vector(number)) for number in numbers])
        figures.loaded += len(numbers)
    figures.per_second = figures.loaded / (time.perf_counter() - started)


async def _link(store: RecordStore) -> None:
    rng = random.Random(4)
    at = read_clock()
    records = [Record(f"e{n}", "entity", at, at, name=f"entity {n}", name_key=f"entity {n}") for n in range(ENTITIES)]
    ends = {(rng.randrange(ENTITIES), rng.randrange(ENTITIES)) for _ in range(EDGES)}
    links = [RecordLink(f"l{a}-{b}", f"e{a}", "uses", f"e{b}", at) for a, b in sorted(ends)]
    for items in (records, links):
        for start in range(0, len(items), BATCH):
            steps = tuple(Insert(item) for item in items[start : start + BATCH])
            await store.commit(Batch(steps, at, "bench"))


async def _index(library: Library, figures: Figures) -> None:
    """What is made in the background otherwise, while answers take longer."""
    from everkept.engines.postgres.library import PostgresLibrary

    if isinstance(library, PostgresLibrary):
        started = time.perf_counter()
        await library.wait_until_settled()
        figures.indexed_s = time.perf_counter() - started


async def _timed(figures: Figures, name: str, ask: Callable[[int], Awaitable[Any]], count: int = QUESTIONS) -> None:
    durations: list[float] = []
    for number in range(count):
        started = time.perf_counter()
        await ask(number)
        durations.append(time.perf_counter() - started)
    page.keep_best(figures.timings, name, durations[count // 8 :])


async def _hops(store: RecordStore, number: int) -> int:
    walked = await store.walk([f"e{number}"], Hops(HOPS, "out"))
    return sum(map(len, walked))


async def _ask(store: RecordStore, texts: Texts, figures: Figures) -> None:
    def where(number: int) -> RecordFilter:
        return RecordFilter(kinds=("memory",), scopes=(f"scope{number % SCOPES}",))

    async def words(number: int) -> Any:
        query = parse_query(texts.query(number)).build_any_query()
        assert query is not None
        return await store.match(query, where(number), Weights(), BEST)

    async def meaning(number: int) -> Any:
        asked = texts.vector(10**8 + number * SCOPES)
        return await store.find_near(MODEL, asked, where(number), BEST)

    async def both(number: int) -> Any:
        return await asyncio.gather(words(number), meaning(number))

    async def put(number: int) -> Any:
        record = texts.record(10**7 + number)
        return await store.commit(Batch((Insert(record),), read_clock(), "bench"))

    async def get(number: int) -> Any:
        return await store.get([f"m{number * 7 % figures.loaded}"])

    await _timed(figures, "Store", put)
    await _timed(figures, "Read one", get)
    await _timed(figures, "Words", words)
    await _timed(figures, "Meaning", meaning)
    await _timed(figures, "Both", both)
    await _timed(figures, "Three hops", lambda number: _hops(store, number))


async def _recall(store: RecordStore, texts: Texts, figures: Figures) -> None:
    """Of one scope; its vectors are made anew, so that nothing is asked of the engine."""
    numbers = range(0, figures.loaded, SCOPES)
    every = np.stack([texts.vector(number) for number in numbers])
    where, found = RecordFilter(kinds=("memory",), scopes=("scope0",)), 0
    for number in range(COMPARISONS):
        vector = texts.vector(2 * 10**8 + number * SCOPES)
        nearest = np.argsort(-(every @ vector))[:COMPARED]
        wanted = {f"m{numbers[place]}" for place in nearest.tolist()}
        got = await store.find_near(MODEL, vector, where, BEST)
        found += len(wanted & {match.id for match in got[:COMPARED]})
    figures.recall = found / (COMPARISONS * min(COMPARED, len(numbers)))


@asynccontextmanager
async def _opened(name: str, folder: Path) -> AsyncGenerator[tuple[Callable[[], Library], int], None]:
    """How a library of the engine is made, and the process of its server, or 0."""
    if name == "memory":
        from everkept.engines.memory.library import MemoryLibrary

        library = MemoryLibrary()
        yield lambda: library, 0
    elif name == "sqlite":
        from everkept.engines.sqlite.library import SqliteLibrary

        yield lambda: SqliteLibrary(folder, synchronous="full"), 0
    elif name == "surreal-file":
        from everkept.engines.surreal.drivers import EmbeddedConnection
        from everkept.engines.surreal.library import SurrealLibrary

        def embedded() -> Library:
            connection = EmbeddedConnection(folder, "bench", time_limit=600)
            return SurrealLibrary(connection, mode="embedded-file", place=str(folder))

        yield embedded, 0
    elif name == "postgres":
        async with _postgres() as made:
            yield made
    else:
        async with _served(int(name[-1]), folder) as made:
            yield made


@asynccontextmanager
async def _served(core: int, folder: Path) -> AsyncGenerator[tuple[Callable[[], Library], int], None]:
    from everkept.engines.surreal.drivers import Credentials, SocketConnection
    from everkept.engines.surreal.library import SurrealLibrary
    from surreal_server import PASSWORD, USER, served

    async with served(core=core, folder=folder) as server:

        def connected() -> Library:
            connection = SocketConnection(server.url, "bench", Credentials(USER, PASSWORD), time_limit=600)
            return SurrealLibrary(connection, mode="local-server", place=server.url)

        yield connected, server.pid


@asynccontextmanager
async def _postgres() -> AsyncGenerator[tuple[Callable[[], Library], int], None]:
    from everkept.engines.postgres.library import PostgresLibrary
    from postgres_server import served

    async with served(settings=("fsync=on",)) as server:

        def connected() -> Library:
            database = server.database("bench", time_limit=600)
            return PostgresLibrary(database, mode="local-server", place=server.url)

        yield connected, server.pid


async def _measure(name: str, size: int, folder: Path, limit: float) -> Figures:
    figures, texts = Figures(), Texts()
    async with _opened(name, folder) as (make, server):
        library = make()
        await library.create("bench", "")
        _, store = await library.open("bench")
        await _load(store, texts, size, limit, figures)
        await _link(store)
        await _index(library, figures)
        await _ask(store, texts, figures)
        await _recall(store, texts, figures)
        figures.rss_mb = psutil.Process().memory_info().rss / 1e6
        figures.server_mb = psutil.Process(server).memory_info().rss / 1e6 if server else 0.0
        # A database server has files of its own, and says itself how large they are.
        figures.disk_mb = await store.measure_size() / 1e6 if name == "postgres" else 0.0
        if name != "memory":
            await library.close()
            await _timed(figures, "Open", lambda _: _first(make), count=3)
        figures.disk_mb = figures.disk_mb or _megabytes(folder)
    return figures


def _megabytes(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6


async def _first(make: Callable[[], Library]) -> None:
    library = make()
    _, store = await library.open("bench")
    await store.get(["m1"])
    await library.close()


def _in_child(name: str, size: int, limit: float) -> Figures:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--child", name, "--sizes", str(size)]
        command += ["--time-to-load", str(limit)]
        done = subprocess.run(
            [*command, "--folder", str(Path(folder) / "data")],
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            check=True,
        )
    made: dict[str, Any] = json.loads(done.stdout)
    timings = {each: page.Timing(**timing) for each, timing in made.pop("timings").items()}
    return Figures(**made, timings=timings)


def _rows(results: dict[str, Figures]) -> list[page.Row]:
    def row(title: str, form: Callable[[Figures], str]) -> page.Row:
        return (title, *map(form, results.values()))

    names = ("Store", "Read one", "Words", "Meaning", "Both", "Three hops", "Open")
    return [
        row("Loaded", lambda f: f"{f.loaded:,}"),
        row("Loaded a second", lambda f: f"{f.per_second:,.0f}"),
        row("Index made in, s", lambda f: f"{f.indexed_s:,.0f}" if f.indexed_s > 1 else ""),
        *(row(name, lambda f, n=name: page.timing_cell(f.timings.get(n))) for name in names),
        row("Recall", lambda f: f"{f.recall:.3f}"),
        row("Disk, MB", lambda f: f"{f.disk_mb:,.0f}" if f.disk_mb else ""),
        row("Memory, MB", lambda f: f"{f.rss_mb:,.0f}"),
        row("Memory of the server, MB", lambda f: f"{f.server_mb:,.0f}" if f.server_mb else ""),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=page.parsed_sizes)
    parser.add_argument("--engines")
    parser.add_argument("--time-to-load", type=float)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--write-docs", action="store_true")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        figures = asyncio.run(_measure(given.child, given.sizes[0], given.folder, given.time_to_load))
        print(json.dumps(asdict(figures)))
        return
    usual = QUICK_SIZES if given.quick else LARGE_SIZES if given.large else SIZES
    sizes: Sequence[int] = given.sizes or usual
    names = given.engines.split(",") if given.engines else _LARGE if given.large else _TITLES
    limit = given.time_to_load or (LONG_TO_LOAD if given.large else TIME_TO_LOAD)
    explained = _EXPLAINED_LARGE if given.large else _EXPLAINED
    parts = [explained.format(measured_with=page.measured_with([]))]
    for size in sizes:
        results: dict[str, Figures] = {}
        for name in names:
            results[name] = _in_child(name, size, limit)
            head = ("", *(_TITLES[name] for name in results))
            page.print_table(f"{size:,} memories", head, _rows(results))
        head = ("", *(_TITLES[name] for name in results))
        parts.append(f"### {size:,} memories\n\n{page.markdown_table(head, _rows(results))}")
    if given.write_docs:
        page.write_section("Larger stores" if given.large else "Engines", "\n".join(parts))


if __name__ == "__main__":
    main()
