"""A real database server that is killed, frozen and cut off: nothing is lost or doubled."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from everkept.core.library import Condition, track_replica_use
from everkept.core.ports import Library, RecordStore
from everkept.engines.standby.library import StandbyLibrary
from failing_databases import KINDS, Server, library_on, proxied, served
from processes import Actor
from records import batch, entity
from standby import over_server
from surreal_server import CORES, PATIENCE, fresh_namespace
from surreal_server import served as served_by_surreal

WRITERS = 3
PAUSE = 0.03  # seconds between two stores of a writer: what waits while the database is away stays small


class Load:
    """Several tasks that store one record after the other, and remember what was acknowledged."""

    def __init__(self, folder: Path, url: str, namespace: str, first: int = 0) -> None:
        self._turned = asyncio.Event()
        self.statuses: list[str] = []
        self.library = over_server(url, namespace, folder, on_change=self._turn)
        self.stored: dict[int, list[str]] = {writer: [] for writer in range(first, first + WRITERS)}
        self._more = asyncio.Event()
        self._is_over = False
        self._writers: list[asyncio.Task[None]] = []

    def _turn(self, condition: Condition) -> None:
        self.statuses.append(condition.status)
        self._turned.set()

    def start(self) -> None:
        self._writers = [asyncio.create_task(self._write(writer)) for writer in self.stored]

    async def _write(self, writer: int) -> None:
        store = await self.library.open_user_store()
        while not self._is_over:
            name = f"{writer}-{len(self.stored[writer])}"
            await store.commit(batch(entity(name), client=str(writer)))
            self.stored[writer].append(name)
            self._more.set()
            await asyncio.sleep(PAUSE)

    async def goes_on(self, count: int = 12) -> None:
        """Waits until so many more records are stored, wherever that is."""
        wanted = self.count() + count
        async with asyncio.timeout(PATIENCE):
            while self.count() < wanted:
                self._more.clear()
                await self._more.wait()

    def count(self) -> int:
        return sum(len(names) for names in self.stored.values())

    async def becomes(self, *statuses: str) -> None:
        async with asyncio.timeout(PATIENCE):
            while self.library.condition.status not in statuses:
                self._turned.clear()
                await self._turned.wait()

    async def end(self) -> None:
        self._is_over = True
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*self._writers)
        await self.library.list_projects()
        await self.becomes("connected")


@asynccontextmanager
async def loaded(folder: Path, url: str, namespace: str, first: int = 0) -> AsyncGenerator[Load, None]:
    load = Load(folder, url, namespace, first)
    try:
        load.start()
        yield load
        await load.end()
        assert load.library.condition.waiting == load.library.condition.set_aside == 0
    finally:
        await load.library.close()


async def inserted(server: Server, namespace: str) -> list[tuple[str, str]]:
    """Who has stored what, in the order of the log."""
    store: RecordStore = await library_on(server, namespace).open_user_store()
    found = [
        (change.client, edit.id or "") for change in await store.read_changes(limit=100_000) for edit in change.edits
    ]
    assert await store.find_faults() == []
    assert len(await store.get([name for _, name in found])) == len(found)
    return found


def check(found: list[tuple[str, str]], stored: dict[int, list[str]]) -> None:
    """Each once, and those of each writer in their order."""
    assert max(Counter(found).values()) == 1
    for writer, names in stored.items():
        theirs = [name for client, name in found if client == str(writer)]
        assert theirs == names


@pytest.mark.parametrize("kind", KINDS)
async def test_a_database_that_is_killed_under_load_loses_nothing(kind: str, tmp_path: Path) -> None:
    namespace = fresh_namespace()
    async with served(kind, tmp_path / "data") as server:
        async with loaded(tmp_path / "standby", server.url, namespace) as load:
            await load.goes_on()
            await server.kill()
            await load.becomes("reconnecting", "degraded")
            await load.goes_on()
            await server.restart()
            await load.becomes("connected")
            await load.goes_on()
        check(await inserted(server, namespace), load.stored)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_database_that_freezes_under_load_loses_nothing(kind: str, tmp_path: Path) -> None:
    namespace = fresh_namespace()
    async with served(kind) as server:
        async with loaded(tmp_path, server.url, namespace) as load:
            await load.goes_on()
            server.pause()
            await load.becomes("reconnecting", "degraded")
            await load.goes_on()
            server.resume()
            await load.becomes("connected")
            await load.goes_on()
        check(await inserted(server, namespace), load.stored)


@pytest.mark.parametrize("kind", KINDS)
async def test_two_machines_bring_over_what_each_of_them_has_kept(kind: str, tmp_path: Path) -> None:
    namespace = fresh_namespace()
    async with served(kind, tmp_path / "data") as server:
        async with (
            loaded(tmp_path / "one", server.url, namespace) as one,
            loaded(tmp_path / "other", server.url, namespace, first=WRITERS) as other,
        ):
            await one.goes_on()
            await other.goes_on()
            await server.kill()
            for load in (one, other):
                await load.becomes("reconnecting", "degraded")
                await load.goes_on()
            await server.restart()
            for load in (one, other):
                await load.becomes("connected")
                await load.goes_on()
        check(await inserted(server, namespace), one.stored | other.stored)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_line_that_breaks_anywhere_in_a_commit_loses_nothing(kind: str, tmp_path: Path) -> None:
    namespace = fresh_namespace()
    async with served(kind) as server, proxied(server) as proxy:
        async with loaded(tmp_path, proxy.url, namespace) as load:
            await load.goes_on()
            for count in range(1, 6_000, 397):
                proxy.cut_after(count, "up" if count % 2 else "down")
                async with asyncio.timeout(PATIENCE):
                    await proxy.was_cut.wait()
                await load.goes_on(3)
        check(await inserted(server, namespace), load.stored)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_program_that_ends_while_it_is_away_goes_on_where_it_was(kind: str, tmp_path: Path) -> None:
    namespace = fresh_namespace()
    async with served(kind, tmp_path / "data") as server:
        folder = tmp_path / "standby"
        library = over_server(server.url, namespace, folder)
        await (await library.open_user_store()).commit(batch(entity("first")))
        await copied(library, folder, "first")
        await library.close()
        await server.kill()
        for name in ("second", "third"):
            library = over_server(server.url, namespace, folder)
            with track_replica_use() as noted:
                store = await library.open_user_store()
                await store.commit(batch(entity(name)))
                assert len(await store.get(["first", name])) == 2
            assert noted.kept_here
            assert noted.from_replica
            await library.close()
        await server.restart()
        library = over_server(server.url, namespace, folder, patience=PATIENCE)
        assert library.condition.waiting == 2
        await library.set_note("what waits", "goes before")
        with track_replica_use() as noted:
            assert len(await (await library.open_user_store()).get(["first", "second", "third"])) == 3
        assert not noted.is_degraded
        assert library.condition.waiting == 0
        await library.close()
        found = await inserted(server, namespace)
        assert [name for _, name in found] == ["first", "second", "third"]


async def copied(library: StandbyLibrary, folder: Path, name: str) -> None:
    """Waits until the copy has a record."""
    from everkept.engines.sqlite.library import SqliteLibrary

    replica = SqliteLibrary(folder / "replica")
    try:
        await until(lambda: has(replica, name))
    finally:
        await replica.close()


async def has(library: Library, name: str) -> bool:
    return bool(await (await library.open_user_store()).get([name]))


async def until(ask: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not await ask():  # noqa: ASYNC110 (another process would have to tell)
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("core", CORES)
async def test_what_a_server_without_files_had_is_kept_when_it_begins_anew(core: int, tmp_path: Path) -> None:
    from everkept.engines.sqlite.library import SqliteLibrary

    async with served_by_surreal(core) as server:
        library = over_server(server.url, fresh_namespace(), tmp_path)
        await (await library.open_user_store()).commit(batch(entity("first")))
        await copied(library, tmp_path, "first")
        await server.restart()
        await until(lambda: has_kept_copy(library))
        before = SqliteLibrary(Path(library.condition.copy_kept))
        assert await has(before, "first")
        await before.close()
        await library.close()


async def has_kept_copy(library: StandbyLibrary) -> bool:
    await library.list_projects()
    return library.condition.copy_kept != ""


@pytest.mark.parametrize("kind", KINDS)
async def test_several_programs_share_what_waits(kind: str, tmp_path: Path) -> None:
    """The database is killed under them, and one of them is."""
    namespace = fresh_namespace()
    async with served(kind, tmp_path / "data") as server:
        arguments = (server.url, namespace, tmp_path / "standby")
        actors = [Actor("standby_actors:store_until_killed", *arguments, who, 40) for who in "abc"]
        said: list[list[str]] = [[], [], []]
        for heard, actor in zip(said, actors, strict=True):
            heard += [await asyncio.to_thread(actor.hear) for _ in range(10)]
        await server.kill()
        for heard, actor in zip(said, actors, strict=True):
            heard += [await asyncio.to_thread(actor.hear) for _ in range(10)]
        actors[0].process.kill()
        await server.restart()
        for heard, actor in zip(said, actors, strict=True):
            while name := await asyncio.to_thread(actor.hear):
                heard.append(name)
            await asyncio.to_thread(actor.finish if actor is not actors[0] else actor.kill)
        library = over_server(*arguments, patience=PATIENCE)
        await library.set_note("what waits", "goes before")
        assert library.condition.waiting == library.condition.set_aside == 0
        await library.close()
        found = await inserted(server, namespace)
        assert max(Counter(found).values()) == 1
        for who, heard in zip("abc", said, strict=True):
            theirs = [name for client, name in found if client == who]
            assert theirs[: len(heard)] == heard
            assert len(theirs) - len(heard) <= (who == "a")  # it was killed before it could say so
