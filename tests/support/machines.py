"""Several machines with a server each, all on one PostgreSQL, and clients that call them."""

import asyncio
import itertools
import os
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import Any, TypeVar

from database_places import postgres_url
from everkept.core.ports import RecordStore
from everkept.core.records import RecordFilter
from everkept.engines.postgres.database import Database
from everkept.engines.postgres.library import PostgresLibrary
from everkept.engines.postgres.schema import LAYOUT, Layout
from postgres_server import USER, Server
from server_processes import HANG, HttpServer, command, environment, wait_for_database

T = TypeVar("T")

PROJECT = "team"
ALL = 100_000
PAUSE = 0.1  # seconds between two stores of a client: what waits while the database is away stays small
PATIENCE = 150  # seconds; attempts to reach a database are 30 of them apart

_NEWER = "import sys, team_actors; team_actors.run_newer(*sys.argv[1:])"


class Lost(Exception):
    """No answer came: whether the call was done is not known."""


class Refusal(Exception):
    """The answer was an error, which is its only argument."""


class Machine:
    """A folder of its own, and a server that may be killed and started again on it."""

    def __init__(self, folder: Path, port: int, schema: str) -> None:
        self.data = folder / "data"
        self._home = folder / "home"
        self._home.mkdir(parents=True)
        self._place = {
            "EVERKEPT_ENGINE": "postgres",
            "EVERKEPT_DATABASE_URL": postgres_url(port),
            "EVERKEPT_DATABASE_USER": USER,
            "EVERKEPT_NAMESPACE": schema,
            "EVERKEPT_EMBEDDING_MODEL": "none",
            "EVERKEPT_DATABASE_TIMEOUT": str(HANG),
        }
        self.server: HttpServer | None = None

    def start(self, *, newer: bool = False) -> HttpServer:
        """With `newer` by a version of the program that is yet to come."""
        chosen = ("serve", "--transport", "http", "--port", 0, "--no-token", "--project", PROJECT)
        process = subprocess.Popen(
            self._command(*chosen, newer=newer),
            encoding="utf-8",
            env=self._environment(),
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
        )
        try:
            self.server = HttpServer(process)
        except BaseException:
            _end(process)
            raise
        return self.server

    def run(self, *arguments: object) -> "subprocess.CompletedProcess[str]":
        """A command on this machine."""
        return subprocess.run(
            self._command(*arguments),
            capture_output=True,
            check=False,
            encoding="utf-8",
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            timeout=HANG,
        )

    def kill(self) -> None:
        """Without a moment for anything."""
        server, self.server = self.server, None
        assert server is not None
        server.process.kill()
        server.join()
        _end(server.process)

    def stop(self) -> str:
        """In order; gives what it has said."""
        server, self.server = self.server, None
        if server is None:
            return ""
        try:
            server.stop()
        finally:
            _end(server.process)
        return "".join(server.said)

    def call(self, tool: str, **arguments: Any) -> Any:
        """The structured answer of a tool. Raises Lost and Refusal."""
        server = self.server
        if server is None:
            raise Lost("it does not run")
        given = {"name": tool, "arguments": arguments}
        try:
            status, message = server.ask("tools/call", given)
        except (OSError, HTTPException) as error:
            raise Lost(tool) from error
        assert status == 200, message
        assert "result" in message, message
        result = message["result"]
        if result["isError"]:
            raise Refusal(result["structuredContent"])
        return result["structuredContent"]

    def store(self, content: str) -> str:
        """The id of a new memory."""
        answer = self.call("store_memory", content=content, type="semantic", scope="project")
        return answer["memory_id"]

    def recalled(self, query: str) -> list[str]:
        answer = self.call("recall_memories", query=query, strategy="keyword", limit=50)
        return [memory["content"] for memory in answer["memories"]]

    def wait_for_database(self) -> None:
        """Until it is reached, and nothing waits to be written into it."""
        wait_for_database(partial(self.call, "get_memory_status"), PATIENCE)

    def _command(self, *arguments: object, newer: bool = False) -> list[str]:
        given = command(*arguments, "--data-dir", self.data)
        if newer:
            given[1:3] = ["-c", _NEWER]
        return given

    def _environment(self) -> dict[str, str]:
        home = str(self._home)
        path = os.pathsep.join((str(Path(__file__).parent), *sys.path))
        places = {"HOME": home, "USERPROFILE": home, "PYTHONPATH": path}
        return environment() | self._place | places


@contextmanager
def machines(folder: Path, database: Server, schema: str, count: int) -> Generator[list[Machine], None, None]:
    """All of them serve; whatever runs is ended with the block."""
    made = [Machine(folder / f"machine {n}", database.port, schema) for n in range(count)]
    with ExitStack() as ends:
        for machine in made:
            ends.callback(machine.stop)
        together(lambda number: made[number].start(), count)
        made[0].call("create_project", name=PROJECT)
        yield made


@contextmanager
def database() -> Generator[Server, None, None]:
    """One that a test may kill."""
    server = Server()
    server.start()
    try:
        yield server
    finally:
        server.end()


class Load:
    """Clients that store again and again, each by another server when its own gives no answer.

    No two attempts store the same: so what is there twice was doubled by no client.
    """

    def __init__(self, servers: list[Machine]) -> None:
        self._servers = servers
        self.acknowledged: list[str] = []
        self._news = threading.Condition()
        self._is_over = threading.Event()
        self._goes_on = threading.Event()
        self._goes_on.set()

    def wait_for(self, more: int) -> None:
        """Until so many more were acknowledged than there are now."""
        with self._news:
            wanted = len(self.acknowledged) + more
            came = self._news.wait_for(lambda: len(self.acknowledged) >= wanted, PATIENCE)
            assert came, f"{len(self.acknowledged)} of {wanted} were acknowledged"

    @contextmanager
    def held(self) -> Generator[None, None, None]:
        """Nobody begins anything new: for what takes long under load, and is not about it."""
        self._goes_on.clear()
        try:
            yield
        finally:
            self._goes_on.set()

    @contextmanager
    def of(self, clients: int) -> Generator[None, None, None]:
        with ThreadPoolExecutor(clients) as crew:
            working = [crew.submit(self._store, number) for number in range(clients)]
            try:
                yield
            finally:
                self._is_over.set()
            for done in working:
                done.result()

    def _store(self, client: int) -> None:
        server = client
        for attempt in itertools.count():
            assert self._goes_on.wait(PATIENCE)
            if self._is_over.is_set():
                return
            content = f"Parcel {client}-{attempt} has arrived"
            try:
                self._servers[server % len(self._servers)].store(content)
            except Lost:
                server += 1
                continue
            with self._news:
                self.acknowledged.append(content)
                self._news.notify_all()
            self._is_over.wait(PAUSE)


def together(work: Callable[[int], object], count: int) -> None:
    """Each number in a thread of its own; the first failure of one is raised."""
    with ThreadPoolExecutor(count) as crew:
        for done in [crew.submit(work, number) for number in range(count)]:
            done.result()


def graph(machine: Machine) -> tuple[list[Any], list[Any]]:
    """Entities and relations, all of them."""
    page = machine.call("read_graph", limit=500)
    assert page.get("next_cursor") is None
    return page["entities"], page["relations"]


def contents(server: Server, schema: str, layout: Layout = LAYOUT) -> list[str]:
    """Of all memories of the project, as the database has them; nothing in it contradicts itself.

    No server is asked: what it has in hand is not what counts.
    """

    async def ask(store: RecordStore) -> list[str]:
        assert await store.find_faults() == []
        return [record.text for record in await store.scan(RecordFilter(kinds=("memory",)))]

    return _asked(server, schema, layout, ask)


def log_numbers(server: Server, schema: str) -> list[int]:
    """Of all changes of the project."""

    async def ask(store: RecordStore) -> list[int]:
        return [change.seq for change in await store.read_changes(limit=ALL)]

    return _asked(server, schema, LAYOUT, ask)


def _asked(server: Server, schema: str, layout: Layout, ask: Callable[[RecordStore], Awaitable[T]]) -> T:
    async def run() -> T:
        opened = Database(server.url, schema, layout=layout)
        library = PostgresLibrary(opened, mode="local-server", place=server.url)
        try:
            return await ask((await library.open(PROJECT))[1])
        finally:
            await library.close()

    return asyncio.run(run())


def _end(process: "subprocess.Popen[str]") -> None:
    if process.poll() is None:
        process.kill()
        process.wait(HANG)
    assert process.stderr is not None
    process.stderr.close()
