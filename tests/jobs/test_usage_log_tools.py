import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path

import pytest

from everkept.core.mcp import ToolUsage
from everkept.engines.memory.library import MemoryLibrary
from everkept.engines.sqlite.library import SqliteLibrary
from everkept.errors import ReadOnly, StoreBusy
from everkept.jobs import usage_log
from everkept.jobs.usage_log import BatchedUsage
from records import DAY_ONE

PATIENCE = 30  # seconds until a test stops waiting


def once(tool: str, milliseconds: float = 2.0, *, errors: int = 0, at: int = DAY_ONE) -> ToolUsage:
    return ToolUsage(tool, 1, errors, milliseconds, milliseconds, at)


async def test_calls_are_counted_by_tool_and_stored_at_the_end() -> None:
    library = MemoryLibrary()
    await library.add_usage([once("read", 1.0)])
    book = BatchedUsage(lambda: library)
    book.note("search", 4.0, failed=False, at=DAY_ONE)
    book.note("search", 2.0, failed=True, at=DAY_ONE + 1)
    book.note("read", 3.0, failed=False, at=DAY_ONE + 2)
    counted = [ToolUsage("read", 2, 0, 4.0, 3.0, DAY_ONE + 2), ToolUsage("search", 2, 1, 6.0, 4.0, DAY_ONE + 1)]
    assert await library.list_usage() == [once("read", 1.0)]
    await book.close()
    assert await library.list_usage() == counted


async def test_a_book_without_notes_closes_and_makes_nothing(tmp_path: Path) -> None:
    library = SqliteLibrary(tmp_path / "data")
    await BatchedUsage(lambda: library).close()
    await library.close()
    assert not (tmp_path / "data").exists()


async def test_what_is_called_after_the_end_is_not_counted() -> None:
    library = MemoryLibrary()
    book = BatchedUsage(lambda: library)
    await book.close()
    book.note("search", 1.0, failed=False, at=DAY_ONE)
    assert await library.list_usage() == []


class Slow(MemoryLibrary):
    """Stores when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.may_go_on = asyncio.Event(), asyncio.Event()
        self.batches: asyncio.Queue[list[ToolUsage]] = asyncio.Queue()

    async def add_usage(self, rows: Sequence[ToolUsage]) -> None:
        self.begun.set()
        await self.may_go_on.wait()
        await super().add_usage(rows)
        self.batches.put_nowait(list(rows))


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage_log, "USAGE_SECONDS", 0.0)


@pytest.mark.usefixtures("at_once")
async def test_nothing_is_doubled_or_lost_while_a_batch_is_stored() -> None:
    library = Slow()
    book = BatchedUsage(lambda: library)
    book.note("search", 2.0, failed=False, at=DAY_ONE)
    async with asyncio.timeout(PATIENCE):
        await library.begun.wait()
        book.note("search", 2.0, failed=False, at=DAY_ONE)
        library.may_go_on.set()
        # The second one is stored without another call or the end.
        assert [[u.calls for u in await library.batches.get()] for _ in range(2)] == [[1], [1]]
    assert [u.calls for u in await library.list_usage()] == [2]
    await book.close()
    assert [u.calls for u in await library.list_usage()] == [2]


class Failing(MemoryLibrary):
    """Cannot be written until somebody mends it."""

    def __init__(self) -> None:
        super().__init__()
        self.is_broken = True
        self.failures = asyncio.Semaphore(0)

    async def add_usage(self, rows: Sequence[ToolUsage]) -> None:
        if self.is_broken:
            self.failures.release()
            raise StoreBusy("Another process writes.")
        await super().add_usage(rows)


@pytest.mark.usefixtures("at_once")
async def test_what_could_not_be_stored_is_stored_with_the_next_call(caplog: pytest.LogCaptureFixture) -> None:
    library = Failing()
    book = BatchedUsage(lambda: library)
    for _ in range(3):
        book.note("search", 2.0, failed=False, at=DAY_ONE)
        async with asyncio.timeout(PATIENCE):
            await library.failures.acquire()
    assert len([record for record in caplog.records if record.levelno >= logging.WARNING]) == 1
    library.is_broken = False
    book.note("search", 2.0, failed=False, at=DAY_ONE)
    await book.close()
    assert [u.calls for u in await library.list_usage()] == [4]


class Broken(MemoryLibrary):
    async def add_usage(self, rows: Sequence[ToolUsage]) -> None:
        raise ReadOnly("_meta.db cannot be written.")


async def test_who_calls_does_not_suffer_when_nothing_can_be_stored(caplog: pytest.LogCaptureFixture) -> None:
    book = BatchedUsage(Broken)
    book.note("search", 2.0, failed=True, at=DAY_ONE)
    await book.close()
    assert "not stored" in caplog.text
