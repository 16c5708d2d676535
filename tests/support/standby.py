"""A database that goes away when a test says so, and time that passes when a test says so."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

from everkept.accounts.grants import read_rights
from everkept.core.library import CatalogChange, CatalogQuestion, Condition
from everkept.core.ports import Library, RecordStore
from everkept.core.projects import Project
from everkept.core.records import Batch, Change
from everkept.core.store import StoreQuestion, Upkeep
from everkept.core.times import Clock
from everkept.engines.memory.library import MemoryLibrary
from everkept.engines.memory.store import MemoryStore
from everkept.engines.sqlite.library import SqliteLibrary
from everkept.engines.standby.journal import Journal
from everkept.engines.standby.library import StandbyLibrary
from everkept.engines.standby.replica_follower import DELAY_SECONDS
from everkept.errors import StoreUnreachable
from records import DAY_ONE, MILLISECOND

T = TypeVar("T")

BOUND = 60.0  # seconds: nothing here takes as long, unless it hangs
PATIENCE = 1.5  # another number than those of the attempts, so that a test can tell them apart
EVERY = 30.0


class Time:
    """Nobody sleeps by the clock: who pauses goes on when a test says that the time has come."""

    def __init__(self) -> None:
        self._sleepers: dict[int, tuple[float, asyncio.Event]] = {}
        self._numbers = count()
        self._fell_asleep = asyncio.Event()

    async def pause(self, seconds: float) -> None:
        number, woken = next(self._numbers), asyncio.Event()
        self._sleepers[number] = (seconds, woken)
        self._fell_asleep.set()
        try:
            await woken.wait()
        finally:
            self._sleepers.pop(number, None)

    async def comes(self, seconds: float, sleepers: int = 1) -> None:
        """Waits until somebody pauses for so long, and wakes who does."""
        await self.sees(seconds, sleepers)
        for _, woken in [each for each in self._sleepers.values() if each[0] == seconds]:
            woken.set()

    async def sees(self, seconds: float, sleepers: int = 1) -> None:
        """Waits until somebody pauses for so long."""
        async with asyncio.timeout(BOUND):
            while self.asleep(seconds) < sleepers:
                self._fell_asleep.clear()
                await self._fell_asleep.wait()

    async def rushes(self, work: Awaitable[T], *seconds: float) -> T:
        """Wakes whoever pauses, or pauses for so long, until something is done."""
        working = asyncio.ensure_future(work)
        async with asyncio.timeout(BOUND):
            while not working.done():
                self._fell_asleep.clear()
                for pausing, woken in list(self._sleepers.values()):
                    if not seconds or pausing in seconds:
                        woken.set()
                falling = asyncio.ensure_future(self._fell_asleep.wait())
                await asyncio.wait([working, falling], return_when=asyncio.FIRST_COMPLETED)
                falling.cancel()
        return await working

    def asleep(self, seconds: float) -> int:
        sleeping = (each for each in self._sleepers.values() if not each[1].is_set())
        return sum(each[0] == seconds for each in sleeping)


class Line:
    """The way to a database. Everything behind it is there or away as the line is."""

    def __init__(self) -> None:
        self.is_cut = False
        self.asked: Counter[str] = Counter()
        self._breaks_in: str | None = None
        self._hangs_in: str | None = None
        self.hangs = asyncio.Event()

    def cut(self) -> None:
        self.is_cut = True

    def mend(self) -> None:
        self.is_cut = False
        self._breaks_in = self._hangs_in = None

    def breaks_in(self, name: str) -> None:
        """The next call of that name is done, and its answer never comes."""
        self._breaks_in = name

    def hangs_in(self, name: str) -> None:
        """The next call of that name never comes to an end."""
        self._hangs_in = name

    async def passes(self, name: str, work: Coroutine[Any, Any, T]) -> T:
        """The answer of the other end to a call of that name."""
        try:
            await self._send(name)
            answer = await work
        finally:
            work.close()
        await self._answer(name)
        return answer

    async def _send(self, name: str) -> None:
        await asyncio.sleep(0)
        self._expect_whole()
        self.asked[name] += 1
        if self._hangs_in == name:
            self.hangs.set()
            await asyncio.Event().wait()

    async def _answer(self, name: str) -> None:
        await asyncio.sleep(0)
        if self._breaks_in == name:
            self._breaks_in = None
            self.cut()
        self._expect_whole()

    def _expect_whole(self) -> None:
        if self.is_cut:
            raise StoreUnreachable("The line is cut.")

    def to(self, library: Library) -> Library:
        return _FarLibrary(self, library)


class _FarLibrary(Library):
    """A library at the other end of the line; its calls have the names of their questions."""

    def __init__(self, line: Line, library: Library) -> None:
        self._line = line
        self._library = library

    async def ask(self, question: CatalogQuestion[T]) -> T:
        return await self._line.passes(type(question).__name__, self._library.ask(question))

    async def apply(self, change: CatalogChange[T]) -> T:
        return await self._line.passes(type(change).__name__, self._library.apply(change))

    async def open(self, name: str) -> tuple[Project, RecordStore]:
        project, store = await self._line.passes("open", self._library.open(name))
        return project, _FarStore(self._line, store)

    async def get_store(self, project: Project) -> RecordStore:
        return await self._open_store("store_of", self._library.get_store(project))

    async def open_user_store(self) -> RecordStore:
        return await self._open_store("user", self._library.open_user_store())

    async def open_history_store(self) -> RecordStore:
        return await self._open_store("history", self._library.open_history_store())

    async def on_change(self, hear: Callable[[], None]) -> bool:
        return await self._line.passes("on_change", self._library.on_change(hear))

    @property
    def condition(self) -> Condition:
        return self._library.condition

    async def close(self) -> None:
        await self._library.close()

    async def _open_store(self, name: str, asked: Coroutine[Any, Any, RecordStore]) -> RecordStore:
        return _FarStore(self._line, await self._line.passes(name, asked))


class _FarStore(RecordStore):
    """A store at the other end of the line; its calls have the names of their questions."""

    def __init__(self, line: Line, store: RecordStore) -> None:
        self._line = line
        self._store = store

    async def ask(self, question: StoreQuestion[T]) -> T:
        return await self._line.passes(type(question).__name__, self._store.ask(question))

    async def commit(self, batch: Batch) -> Change:
        return await self._line.passes("commit", self._store.commit(batch))

    async def maintain(self, upkeep: Upkeep[T]) -> T:
        return await self._line.passes(type(upkeep).__name__, self._store.maintain(upkeep))


class Standing:
    """A database in memory at the end of a line, and a folder for what stands in for it."""

    def __init__(self, folder: Path, database: MemoryLibrary | None = None, clock: Clock | None = None) -> None:
        ticks = count(DAY_ONE, MILLISECOND)
        self.clock: Clock = clock or (lambda: next(ticks))
        self.database = database or MemoryLibrary(self.clock)
        self.line = Line()
        self.time = Time()
        self.replica = SqliteLibrary(folder / "replica", clock=self.clock)
        self.journal = Journal(folder / "journal.db")
        self.told: list[Condition] = []
        self._turned = asyncio.Event()
        self.library = StandbyLibrary(
            self.line.to(self.database),
            self.replica,
            self.journal,
            clock=self.clock,
            pause=self.time.pause,
            patience=PATIENCE,
            every=EVERY,
            on_change=self._turn,
            rights_of=read_rights,
        )

    def _turn(self, condition: Condition) -> None:
        self.told.append(condition)
        self._turned.set()

    async def becomes(self, status: str) -> None:
        async with asyncio.timeout(BOUND):
            while self.library.condition.status != status:
                self._turned.clear()
                await self._turned.wait()

    async def followed(self) -> None:
        """The copy has come as far as the database: it was looked at, and found to be level."""
        await self.time.comes(DELAY_SECONDS)
        await self.time.sees(EVERY)

    async def goes(self) -> None:
        """It goes away and stays so, until nobody waits for it any more."""
        self.line.cut()
        asking = asyncio.create_task(self.library.list_projects())
        await self.time.comes(PATIENCE)
        await asking

    async def returns(self, after: float = 1.0) -> None:
        """It is found to be there by an attempt after so many seconds."""
        await self.time.sees(after)
        self.line.mend()
        await self.time.comes(after)
        await self.becomes("connected")

    async def store(self, name: str = "project") -> RecordStore:
        return (await self.library.open(name))[1]

    async def stored(self, name: str = "project") -> MemoryStore:
        """What the database itself has, whatever the line is like."""
        return (await self.database.open(name))[1]


@asynccontextmanager
async def standing_by(
    folder: Path, database: MemoryLibrary | None = None, clock: Clock | None = None
) -> AsyncGenerator[Standing, None]:
    standing = Standing(folder, database, clock)
    try:
        yield standing
    finally:
        await standing.library.close()


def over_server(
    url: str, namespace: str, folder: Path, *, on_change: Any = None, patience: float = 0.2
) -> StandbyLibrary:
    """As a program has it that uses a server, with less patience."""
    return StandbyLibrary(
        _on_postgres(url, namespace) if url.startswith("postgres") else _on_surreal(url, namespace),
        SqliteLibrary(folder / "replica"),
        Journal(folder / "journal.db"),
        schedule=(0, 0.05, 0.1),
        every=0.1,
        patience=patience,
        on_change=on_change,
    )


def _on_surreal(url: str, namespace: str) -> Library:
    from everkept.engines.surreal.connection import Credentials
    from everkept.engines.surreal.drivers import SocketConnection
    from everkept.engines.surreal.library import SurrealLibrary
    from surreal_server import PASSWORD, USER

    connection = SocketConnection(url, namespace, Credentials(USER, PASSWORD), time_limit=3.0, connect_limit=3.0)
    return SurrealLibrary(connection, database="default", mode="local-server", place=url)


def _on_postgres(url: str, namespace: str) -> Library:
    from everkept.engines.postgres.library import PostgresLibrary, open_database

    opened = open_database(url, namespace, time_limit=3.0, connect_limit=3.0)
    return PostgresLibrary(opened, mode="local-server", place=url)
