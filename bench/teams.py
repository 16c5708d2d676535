"""Measures how much one and three servers do at once, as the number of their clients grows.

    python bench/teams.py --quick
    python bench/teams.py --write-docs

The servers are real ones over HTTP that share a database: PostgreSQL, or for comparison a folder
of SQLite. Each client is a thread with a connection of its own that asks as soon as it was
answered. Nothing is embedded meanwhile: what is measured is the way through the servers and the
database, and the clients share the machine with both.
"""

import argparse
import json
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import page

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from engines import Texts
from server_processes import META, MODERN, http_server, last_message

CLIENTS = (1, 2, 4, 8, 16, 32)
SERVERS = (1, 3)
SECONDS = 5.0
FILLED = 500  # memories before the first question
PROJECT = "bench"
TEXTS = Texts()

_EXPLAINED = """\
Written by `python bench/teams.py --write-docs`. The tables show calls per second of all clients together, over HTTP, to
one or three server processes that share one database. `store_memory` stores 20 to 60 words and waits until they are on
disk. `recall_memories` asks for the best ten with three words. All clients use one project and send the next call
after each answer. Clients, servers and database share two cores, which are busy from four clients on. So compare how
the figures hold as clients grow, not how large they are.

{measured_with}
"""


class Client:
    """A thread that calls one tool over and over."""

    def __init__(self, url: str, number: int, call: Callable[[random.Random], Any]) -> None:
        place = urlsplit(url)
        assert place.hostname is not None
        self._connection = HTTPConnection(place.hostname, place.port, timeout=60)
        self._path = place.path
        self._call = call
        self._random = random.Random(f"{number} {time.perf_counter()}")
        self.done = 0
        self._thread = threading.Thread(target=self._run)
        self._is_over = threading.Event()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._is_over.set()

    def join(self) -> None:
        self._thread.join()
        self._connection.close()

    def _run(self) -> None:
        while not self._is_over.is_set():
            name, arguments = self._call(self._random)
            self.ask(name, arguments)
            self.done += 1

    def ask(self, name: str, arguments: dict[str, Any]) -> Any:
        params = {"_meta": META, "name": name, "arguments": arguments}
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": MODERN,
            "Mcp-Method": "tools/call",
            "Mcp-Name": name,
        }
        self._connection.request("POST", self._path, json.dumps(body), headers)
        answer = last_message(self._connection.getresponse().read().decode("utf-8"))
        if "result" not in answer or answer["result"].get("isError"):
            raise RuntimeError(str(answer)[:500])
        return answer["result"]


def _write(rng: random.Random) -> tuple[str, dict[str, Any]]:
    content = f"{TEXTS.text(rng.getrandbits(40))} {rng.getrandbits(64):x}"
    return "store_memory", {"content": content, "type": "semantic", "scope": "project"}


def _read(rng: random.Random) -> tuple[str, dict[str, Any]]:
    return "recall_memories", {"query": TEXTS.query(rng.getrandbits(40)), "limit": 10}


def _rate(urls: Sequence[str], count: int, call: Callable[[random.Random], Any]) -> float:
    clients = [Client(urls[number % len(urls)], number, call) for number in range(count)]
    started = time.perf_counter()
    for client in clients:
        client.start()
    time.sleep(SECONDS)
    for client in clients:
        client.stop()
    for client in clients:
        client.join()
    return sum(client.done for client in clients) / (time.perf_counter() - started)


@contextmanager
def _database(engine: str, folder: Path) -> Generator[list[object], None, None]:
    """The options that name it."""
    if engine == "sqlite":
        yield []
        return
    from postgres_server import Server

    server = Server(settings=("fsync=on",))
    server.start()
    try:
        yield [
            *("--engine", "postgres", "--database-url", server.url.replace("postgres@", "")),
            *("--database-user", "postgres"),
        ]
    finally:
        server.end()


def _measured(engine: str, servers: int, clients: Sequence[int]) -> dict[str, list[float]]:
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        options = stack.enter_context(_database(engine, Path(folder)))
        started = [
            stack.enter_context(
                http_server(
                    Path(folder) / ("data" if engine == "sqlite" else f"data{number}"),
                    *("--no-token", "--toolsets", "memories", "--project", PROJECT),
                    *options,
                    EVERKEPT_EMBEDDING_MODEL="none",
                    EVERKEPT_SYNCHRONOUS="full",
                    EVERKEPT_LOG_LEVEL="warning",
                )
            )
            for number in range(servers)
        ]
        urls = [server.url for server in started]
        filler = Client(urls[0], 0, _write)
        for _ in range(FILLED):
            filler.ask(*_write(random.Random()))
        return {
            "writes": [_rate(urls, count, _write) for count in clients],
            "reads": [_rate(urls, count, _read) for count in clients],
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engines", default="postgres,sqlite")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--write-docs", action="store_true")
    given = parser.parse_args()
    clients = CLIENTS[:3] if given.quick else CLIENTS
    head = ("Calls a second", *(f"{count} clients" for count in clients))
    rows: list[page.Row] = []
    for engine in given.engines.split(","):
        for servers in SERVERS:
            for kind, rates in _measured(engine, servers, clients).items():
                title = f"{engine}, {servers} server{'s' * (servers > 1)}, {kind}"
                rows.append((title, *(f"{rate:,.0f}" for rate in rates)))
                page.print_table("Servers and clients", head, rows)
    if given.write_docs:
        explained = _EXPLAINED.format(measured_with=page.measured_with([]))
        page.write_section("Many servers", f"{explained}\n{page.markdown_table(head, rows)}")


if __name__ == "__main__":
    main()
