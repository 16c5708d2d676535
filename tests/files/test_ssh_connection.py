"""Connections that are shared, lost and opened again, and what is never half done meanwhile."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

import asyncssh
import pytest

from everkept.core.files import FileStore
from everkept.errors import Unavailable
from everkept.files.lease_lock import LockTerms
from everkept.files.resolver import SshConnections
from everkept.values import replace
from ssh_servers import LOOPBACK, SERVERS, BadLine, Keys, SshServer, Way, asyncssh_server, bad_line

OLD, NEW = b"old" * 1000, b"new" * 40_000


@dataclass
class Far:
    """A store at the other end of a bad line, and its folder as the server sees it."""

    folder: Path
    line: BadLine
    server: SshServer
    connections: SshConnections = field(init=False)

    def __post_init__(self) -> None:
        self.connections = SshConnections(self.server.options)

    async def store(self, name: str = "files") -> FileStore:
        path = self.server.served(self.folder.parent / name)
        return await self.connections.open_folder(self.server.user, LOOPBACK, self.line.port, path)

    async def warm(self) -> FileStore:
        """A store whose connection is open."""
        store = await self.store()
        await store.read_info()
        return store


@pytest.fixture(params=SERVERS)
async def far(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Far]:
    keys = Keys.made_in(tmp_path / "keys")
    folder = tmp_path / "files"
    folder.mkdir()
    async with SERVERS[request.param](tmp_path, keys) as server, bad_line(server.port) as line:
        keys.make_known(line.port)
        far = Far(folder, line, server)
        yield far
        await far.connections.close()


async def cost(far: Far, work: Callable[[], Awaitable[object]]) -> dict[Way, int]:
    """How many bytes it takes, there and back."""
    before = dict(far.line.passed)
    await work()
    return {way: count - before[way] for way, count in far.line.passed.items()}


def cuts(count: int) -> list[int]:
    """Everywhere among the first requests, and here and there in what follows."""
    return [*range(1, min(count, 900), 41), *range(900, count, max(1, count // 8)), count]


WAYS = pytest.mark.parametrize("way", ["there", "back"])


@WAYS
async def test_a_write_that_is_cut_anywhere_is_done_again_as_a_whole(far: Far, way: Way) -> None:
    store = await far.warm()
    await store.write("note.md", OLD)
    spent = await cost(far, lambda: store.write("note.md", NEW))
    for count in cuts(spent[way]):
        (far.folder / "note.md").write_bytes(OLD)
        far.line.break_after(count, way=way)
        await store.write("note.md", NEW)
        far.line.mend()
        assert await store.read("note.md") == NEW
    assert [path.name for path in far.folder.iterdir()] == ["note.md"]


@WAYS
async def test_a_write_without_a_second_chance_leaves_the_old_or_the_new(far: Far, way: Way) -> None:
    store = await far.warm()
    await store.write("note.md", OLD)
    spent = await cost(far, lambda: store.write("note.md", NEW))
    seen: set[bytes] = set()
    for count in cuts(spent[way]):
        (far.folder / "note.md").write_bytes(OLD)
        far.line.break_after(count, way=way)
        far.line.is_down = True
        with suppress(Unavailable):
            await store.write("note.md", NEW)
        seen.add((far.folder / "note.md").read_bytes())
        far.line.mend()
        assert await store.read("note.md") in (OLD, NEW)
    assert seen == {OLD, NEW}


@WAYS
async def test_what_is_appended_is_there_once_wherever_the_line_is_cut(far: Far, way: Way) -> None:
    store = await far.warm()
    spent = await cost(far, lambda: store.append("log", b"x" * 5000))
    (far.folder / "log").unlink()
    written = b""
    for number, count in enumerate(cuts(spent[way])):
        entry = b"%06d\n" % number * 700
        far.line.break_after(count, way=way)
        await store.append("log", entry)
        far.line.mend()
        written += entry
        assert (far.folder / "log").read_bytes() == written


@WAYS
async def test_a_rename_is_done_once_wherever_the_line_is_cut(far: Far, way: Way) -> None:
    store = await far.warm()
    await store.write("0.md", OLD)
    spent = await cost(far, lambda: store.rename("0.md", "1.md"))
    for number, count in enumerate(cuts(spent[way]), start=1):
        far.line.break_after(count, way=way)
        await store.rename(f"{number}.md", f"{number + 1}.md")
        far.line.mend()
        assert [path.name for path in far.folder.iterdir()] == [f"{number + 1}.md"]


@WAYS
async def test_a_folder_is_removed_wherever_the_line_is_cut(far: Far, way: Way) -> None:
    store = await far.warm()

    async def fill() -> None:
        for name in ("a", "b/c", "b/d"):
            await store.write(f"full/{name}", b"")

    await fill()
    spent = await cost(far, lambda: store.remove("full"))
    for count in cuts(spent[way]):
        await fill()
        far.line.break_after(count, way=way)
        await store.remove("full")
        far.line.mend()
        assert list(far.folder.iterdir()) == []


@WAYS
async def test_a_lock_is_taken_and_given_back_wherever_the_line_is_cut(far: Far, way: Way) -> None:
    store = await far.warm()

    async def work() -> None:
        async with store.lock("bank"):
            await store.append("log", b".")

    spent = await cost(far, work)
    counts = cuts(spent[way])
    for count in counts:
        far.line.break_after(count, way=way)
        await work()
        far.line.mend()
    assert await store.read("log") == b"." * (len(counts) + 1)
    assert [path.name for path in far.folder.iterdir()] == ["log"]


async def test_a_lock_that_could_not_be_taken_is_free_when_the_line_is_mended(far: Far) -> None:
    store = await far.warm()

    async def work() -> None:
        async with store.lock("bank"):
            pass

    spent = await cost(far, work)
    for count in range(1, spent["back"], 29):
        far.line.break_after(count, way="back")
        far.line.is_down = True
        with suppress(Unavailable):
            await work()
        far.line.mend()
        async with store.lock("bank"):
            await store.append("log", b".")
        (far.folder / "log").unlink()


async def test_all_folders_of_a_user_share_one_connection(far: Far) -> None:
    stores = [await far.store(name) for name in ("files", "others", "more")]
    await asyncio.gather(*(store.write("note.md", NEW) for store in stores))
    assert [await store.read("note.md") for store in stores] == [NEW] * 3
    assert far.line.connections == 1


async def test_nothing_is_opened_before_it_is_needed(far: Far) -> None:
    await far.store()
    assert far.line.connections == 0


async def test_many_calls_that_lose_their_connection_open_one_together(far: Far) -> None:
    store = await far.warm()
    far.line.break_after(3000)
    await asyncio.gather(*(store.write(f"{number}.md", NEW) for number in range(8)))
    assert far.line.has_broken
    assert far.line.connections == 2
    assert {info.size for info in await store.list()} == {len(NEW)}


async def test_a_connection_that_is_lost_twice_is_an_error_that_says_so(far: Far) -> None:
    login = await cost(far, far.warm)
    store = await far.store()
    await store.write("note.md", OLD)
    far.line.break_after(len(NEW) // 2, login["there"] + len(NEW) // 2)
    with pytest.raises(Unavailable) as caught:
        await store.write("note.md", NEW)
    assert far.line.has_broken
    assert caught.value.retry_possible
    assert await store.read("note.md") == OLD
    assert far.line.connections == 3


async def test_a_server_that_was_started_again_is_found_by_the_next_call(tmp_path: Path) -> None:
    keys = Keys.made_in(tmp_path / "keys")
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(asyncssh_server(tmp_path, keys))
        connections = SshConnections(server.options)
        store = await connections.open_folder(server.user, LOOPBACK, server.port, "/files")
        await store.write("note.md", OLD)
        await stack.aclose()
        with pytest.raises(Unavailable):
            await store.read("note.md")
        async with asyncssh_server(tmp_path, keys, port=server.port):
            assert await store.read("note.md") == OLD
            await connections.close()


async def test_a_server_that_stops_answering_is_given_up(tmp_path: Path) -> None:
    answers = asyncio.Event()

    class Sleepy(asyncssh.SFTPServer):
        async def realpath(self, path: bytes) -> bytes:  # type: ignore[override]
            await answers.wait()
            return path

    keys = Keys.made_in(tmp_path / "keys")
    async with asyncssh_server(tmp_path, keys, sftp=Sleepy) as server:
        connections = SshConnections(replace(server.options, answer_seconds=1))
        store = await connections.open_folder(server.user, LOOPBACK, server.port, str(tmp_path / "files"))
        with pytest.raises(Unavailable) as caught:
            await store.write("note.md", NEW)
        assert caught.value.retry_possible
        answers.set()
        await store.write("note.md", NEW)
        assert await store.read("note.md") == NEW
        await connections.close()


async def test_a_write_whose_caller_is_cancelled_is_whole(far: Far) -> None:
    store = await far.warm()
    for turns in range(0, 120, 7):
        (far.folder / "note.md").write_bytes(OLD)
        writing = asyncio.create_task(store.write("note.md", NEW))
        for _ in range(turns):
            await asyncio.sleep(0)
        writing.cancel()
        await asyncio.wait([writing])
        assert (far.folder / "note.md").read_bytes() in (OLD, NEW)
        assert [path.name for path in far.folder.iterdir()] == ["note.md"]


async def test_connections_that_were_closed_open_again_for_who_still_asks(far: Far) -> None:
    store = await far.warm()
    await store.write("note.md", OLD)
    await far.connections.close()
    assert await store.read("note.md") == OLD


async def test_locks_hold_between_two_connections(far: Far) -> None:
    first = await far.warm()
    other = SshConnections(far.server.options, terms=LockTerms(patience=0.05))
    second = await other.open_folder(far.server.user, LOOPBACK, far.line.port, far.server.served(far.folder))
    async with first.lock("bank"):
        with pytest.raises(Unavailable):
            async with second.lock("bank"):
                pass
    async with second.lock("bank"):
        await second.write("note.md", NEW)
    await other.close()
