"""Measures two ways to keep many projects in PostgreSQL: a schema for each, or one for all.

    python bench/layouts.py --projects 1000 --records 100

Both have the same columns and indexes; with one schema for all, every table begins with the
number of its project. No code of ours is between: this is what the decision rests on.
"""

import argparse
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import psycopg

import page

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "support"))

QUESTIONS = 200
WORDS = 2_000
_VOCABULARY = [f"word{number}" for number in range(WORDS)]

_TABLES = """
CREATE TABLE {p}records ({s} id text NOT NULL, age bigint NOT NULL, kind text NOT NULL,
    name_key text, parent text, scope text NOT NULL, session text, text text NOT NULL,
    created_at bigint NOT NULL, deleted_at bigint, words tsvector NOT NULL, PRIMARY KEY ({k} id));
CREATE INDEX ON {p}records ({k} age);
CREATE INDEX ON {p}records ({k} kind, name_key);
CREATE INDEX ON {p}records ({k} parent);
CREATE INDEX ON {p}records ({k} session);
CREATE INDEX ON {p}records USING gin (words);
CREATE TABLE {p}links ({s} id text NOT NULL, source text NOT NULL, verb text NOT NULL,
    target text NOT NULL, PRIMARY KEY ({k} id));
CREATE INDEX ON {p}links ({k} source);
CREATE INDEX ON {p}links ({k} target);
CREATE TABLE {p}changes ({s} seq bigint NOT NULL, at bigint NOT NULL, tool text NOT NULL,
    PRIMARY KEY ({k} seq));
CREATE TABLE {p}edits ({s} seq bigint NOT NULL, position integer NOT NULL, item text,
    before text, PRIMARY KEY ({k} seq, position));
CREATE INDEX ON {p}edits ({k} item);
CREATE TABLE {p}vectors ({s} record text NOT NULL, v halfvec NOT NULL, PRIMARY KEY ({k} record));
CREATE TABLE {p}accesses ({s} record text NOT NULL, count integer NOT NULL,
    PRIMARY KEY ({k} record));
"""


class Layout:
    """One of the two ways; `prefix` and `key` are what its statements differ by."""

    def __init__(self, connection: psycopg.Connection, *, apart: bool) -> None:
        self.connection = connection
        self.apart = apart
        if not apart:
            connection.execute("CREATE SCHEMA rows; SET search_path = rows, public")
            connection.execute(_TABLES.format(p="", s="store integer NOT NULL,", k="store,"))

    def make(self, project: int) -> None:
        if self.apart:
            self.connection.execute(f"CREATE SCHEMA p{project}")
            self.connection.execute(_TABLES.format(p=f"p{project}.", s="", k=""))

    def table(self, project: int, name: str) -> str:
        return f"p{project}.{name}" if self.apart else name

    def mark(self, project: int) -> str:
        """A word that all records of a project share, and none of another has."""
        return "" if self.apart else f"p{project}p"

    def condition(self, project: int) -> str:
        return "true" if self.apart else f"store = {project}"

    def fill(self, project: int, records: int, rng: random.Random) -> None:
        first = "" if self.apart else f"{project},"
        names = "" if self.apart else "store,"
        with self.connection.cursor() as cursor:
            rows = [
                (f"r{n}", n, f"name {n}", " ".join(f"word{rng.randrange(WORDS)}" for _ in range(30)))
                for n in range(records)
            ]
            cursor.executemany(
                f"INSERT INTO {self.table(project, 'records')} ({names} id, age, kind, name_key, "
                f"scope, text, created_at, words) VALUES ({first} %s, %s, 'memory', %s, 'project', "
                "%s, 1, to_tsvector('simple', %s))",
                [(*row, f"{self.mark(project)} {row[3]}") for row in rows],
            )

    def insert(self, project: int, number: int) -> None:
        first = "" if self.apart else f"{project},"
        names = "" if self.apart else "store,"
        self.connection.execute(
            f"INSERT INTO {self.table(project, 'records')} ({names} id, age, kind, scope, text, "
            f"created_at, words) VALUES ({first} %s, %s, 'memory', 'project', 'a text', 1, "
            "to_tsvector('simple', 'a text'))",
            (f"new{number}", 10**6 + number),
        )

    def get(self, project: int, number: int) -> None:
        self.connection.execute(
            f"SELECT text FROM {self.table(project, 'records')} WHERE {self.condition(project)} AND id = %s",
            (f"r{number % 50}",),
        ).fetchall()

    def search(self, project: int, number: int) -> None:
        query = f"word{number % WORDS} | word{(7 * number) % WORDS}"
        self._find(project, f"{self.mark(project)} & ({query})" if self.mark(project) else query)

    def search_unmarked(self, project: int, number: int) -> None:
        self._find(project, f"word{number % WORDS} | word{(7 * number) % WORDS}")

    def _find(self, project: int, query: str) -> None:
        self.connection.execute(
            f"SELECT id FROM {self.table(project, 'records')} WHERE {self.condition(project)} "
            "AND words @@ (%s)::tsquery LIMIT 50",
            (query,),
        ).fetchall()


def _median(work: Callable[[int, int], None], projects: int) -> float:
    rng, durations = random.Random(3), list[float]()
    for number in range(QUESTIONS):
        started = time.perf_counter()
        work(rng.randrange(projects), number)
        durations.append((time.perf_counter() - started) * 1000)
    return statistics.median(durations)


def _measured(url: str, *, apart: bool, projects: int, records: int) -> dict[str, float]:
    figures: dict[str, float] = {}
    with psycopg.connect(url, autocommit=True) as connection:
        layout, rng, makings = Layout(connection, apart=apart), random.Random(1), list[float]()
        for project in range(projects):
            started = time.perf_counter()
            layout.make(project)
            makings.append((time.perf_counter() - started) * 1000)
            layout.fill(project, records, rng)
        figures["Make a project, ms"] = statistics.median(makings)
        connection.execute("VACUUM ANALYZE")
    with psycopg.connect(url, autocommit=True) as connection:
        layout.connection = connection
        if not apart:
            connection.execute("SET search_path = rows, public")
        figures["Store, ms"] = _median(layout.insert, projects)
        figures["Read one, ms"] = _median(layout.get, projects)
        figures["Words, ms"] = _median(layout.search, projects)
        figures["Words without a mark, ms"] = _median(layout.search_unmarked, projects)
        for project in range(projects):
            layout.get(project, 1)
        backend = connection.info.backend_pid
        figures["Memory of a connection, MB"] = psutil.Process(backend).memory_info().rss / 1e6
        row = connection.execute("SELECT pg_database_size(current_database())").fetchone()
        assert row is not None
        figures["Disk, MB"] = row[0] / 1e6
    from postgres_server import BINARIES

    started = time.perf_counter()
    command = [BINARIES / "pg_dump", "-f", os.devnull, url]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    figures["pg_dump, s"] = time.perf_counter() - started
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--projects", type=int, default=1_000)
    parser.add_argument("--records", type=int, default=100)
    given = parser.parse_args()
    from postgres_server import shared

    server, results = shared(), list[dict[str, float]]()
    for apart in (True, False):
        name = "apart" if apart else "together"
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        url = server.url.rsplit("/", 1)[0] + "/" + name
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("CREATE EXTENSION vector")
        results.append(_measured(url, apart=apart, projects=given.projects, records=given.records))
    rows = [(key, *(f"{each[key]:,.2f}" for each in results)) for key in results[0]]
    page.print_table(
        f"{given.projects:,} projects of {given.records:,} records", ("", "a schema each", "one for all"), rows
    )


if __name__ == "__main__":
    main()
