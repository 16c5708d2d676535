import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import apsw
import pytest

from everkept.engines.sqlite.connection import Connection, connect, create
from everkept.engines.sqlite.database import MAX_LOG_PAGES, MAX_SHORT_STREAK, Database
from everkept.engines.sqlite.schema import PROJECT
from everkept.errors import Conflict, ReadOnly, Unavailable

ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n"
# Few instructions, each of which takes long: what a search in large texts does.
LARGE = ENDLESS.replace("FROM n)", "FROM n LIMIT 1000)").replace("count(*)", "count(lower(hex(zeroblob(50000 + x))))")
LONG = ENDLESS.replace("FROM n)", "FROM n LIMIT 100000)")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "project.db"
    create(path, PROJECT)
    return path


def generation(db: Connection) -> int:
    return db.execute("SELECT value FROM meta WHERE key = 'generation'").get


def raise_generation(db: Connection) -> None:
    db.execute("UPDATE meta SET value = value + 1 WHERE key = 'generation'")


async def test_a_closed_database_opens_again_by_itself(path: Path) -> None:
    database = Database(path, PROJECT)
    await database.write(raise_generation)
    await database.close()
    assert await database.read(generation) == 2
    await database.close()


async def test_closing_leaves_the_file_alone_in_its_folder(path: Path) -> None:
    database = Database(path, PROJECT)
    for interrupt in (False, True):
        await database.write(raise_generation)
        await database.read(generation)
        await database.close(interrupt=interrupt)
        assert [found.name for found in sorted(path.parent.iterdir())] == ["project.db"]


async def test_a_call_that_comes_while_the_database_is_closing_is_answered(path: Path) -> None:
    database = Database(path, PROJECT)
    is_writing, may_end = threading.Event(), threading.Event()

    def slow(db: Connection) -> None:
        raise_generation(db)
        is_writing.set()
        may_end.wait()

    writing = asyncio.create_task(database.write(slow))
    await asyncio.to_thread(is_writing.wait)
    closing = asyncio.create_task(database.close())
    later = asyncio.create_task(database.write(raise_generation))
    await asyncio.sleep(0)
    may_end.set()
    await asyncio.gather(writing, closing, later)
    assert await database.read(generation) == 3
    await database.close()


async def test_an_interrupted_call_ends_with_an_error_and_nothing_is_stored(path: Path) -> None:
    database = Database(path, PROJECT)
    has_begun = threading.Event()

    def endless(db: Connection) -> None:
        raise_generation(db)
        has_begun.set()
        db.execute(ENDLESS).fetchall()

    writing = asyncio.create_task(database.write(endless))
    await asyncio.to_thread(has_begun.wait)
    await database.close(interrupt=True)
    with pytest.raises(Unavailable):
        await writing
    assert await database.read(generation) == 1
    await database.close()


async def test_a_cancelled_call_ends_before_the_next_one_begins(path: Path) -> None:
    database = Database(path, PROJECT)
    is_writing, may_end = threading.Event(), threading.Event()

    def slow(db: Connection) -> None:
        is_writing.set()
        may_end.wait()
        raise_generation(db)

    writing = asyncio.create_task(database.write(slow))
    await asyncio.to_thread(is_writing.wait)
    writing.cancel()
    later = asyncio.create_task(database.write(generation))
    await asyncio.sleep(0)
    may_end.set()
    assert await later == 2
    await database.close()


async def test_a_database_for_reading_refuses_to_write(path: Path) -> None:
    database = Database(path, PROJECT, read_only=True)
    for attempt in (database.write(generation), database.maintain(generation)):
        with pytest.raises(ReadOnly):
            await attempt
    assert await database.read(generation) == 1
    await database.close()


async def test_no_question_waits_for_what_is_read_aside(path: Path) -> None:
    database = Database(path, PROJECT)
    is_reading, may_end = threading.Event(), threading.Event()

    def slow(db: Connection) -> int:
        is_reading.set()
        may_end.wait()
        return generation(db)

    reading = asyncio.create_task(database.read(slow, aside=True))
    await asyncio.to_thread(is_reading.wait)
    assert await database.read(generation) == 1
    await database.write(raise_generation)
    may_end.set()
    assert await reading == 2
    await database.close()
    assert not database.is_open
    assert [found.name for found in sorted(path.parent.iterdir())] == ["project.db"]


async def test_what_is_read_aside_ends_when_the_database_is_closed(path: Path) -> None:
    database = Database(path, PROJECT)
    has_begun = threading.Event()

    def endless(db: Connection) -> None:
        has_begun.set()
        db.execute(ENDLESS).fetchall()

    reading = asyncio.create_task(database.read(endless, aside=True))
    await asyncio.to_thread(has_begun.wait)
    await database.close(interrupt=True)
    with pytest.raises(Unavailable):
        await reading


def thread_of(db: Connection) -> int:
    """Where a question is answered."""
    generation(db)
    return threading.get_ident()


async def test_a_short_question_is_answered_in_the_callers_thread(path: Path) -> None:
    database, own = Database(path, PROJECT), threading.get_ident()
    assert await database.read(thread_of) != own  # which opens the connection
    assert await database.read(thread_of) == own
    assert await database.read(thread_of, long=True) != own
    assert await database.read(thread_of, aside=True) != own
    await database.close()
    assert await database.read(thread_of) != own
    await database.close()


@pytest.mark.parametrize(("statement", "answer"), [(LONG, 100_000), (LARGE, 1_000)])
async def test_a_question_that_turns_out_to_be_long_moves_to_its_thread(
    path: Path, statement: str, answer: int
) -> None:
    database, threads = Database(path, PROJECT), list[int]()

    def long(db: Connection) -> int:
        threads.append(threading.get_ident())
        return db.execute(statement).get

    await database.read(generation)
    assert await database.read(long) == answer
    assert threads[0] == threading.get_ident()
    assert threads[1:] != threads[:1]
    assert len(threads) == 2
    assert await database.read(thread_of) == threading.get_ident()
    await database.close()


async def test_a_question_that_would_wait_for_a_lock_moves_to_its_thread(path: Path) -> None:
    database, threads = Database(path, PROJECT), list[int]()

    def locked(db: Connection) -> int:
        threads.append(threading.get_ident())
        if len(threads) == 1:
            raise apsw.BusyError
        return generation(db)

    await database.read(generation)
    assert await database.read(locked) == 1
    assert threads[0] == threading.get_ident() != threads[1]
    await database.close()


async def test_a_question_waits_for_the_one_that_still_runs_for_a_canceled_caller(path: Path) -> None:
    database = Database(path, PROJECT)
    is_reading, may_end = threading.Event(), threading.Event()

    def slow(db: Connection) -> None:
        is_reading.set()
        may_end.wait()

    reading = asyncio.create_task(database.read(slow, long=True))
    await asyncio.to_thread(is_reading.wait)
    reading.cancel()
    later = asyncio.create_task(database.read(thread_of))
    await asyncio.wait([reading])
    assert not later.done()
    may_end.set()
    assert await later != threading.get_ident()
    await database.close()


async def test_short_questions_in_a_row_leave_others_their_turn(path: Path) -> None:
    database, turns = Database(path, PROJECT), list[int]()

    async def ask_often() -> None:
        for number in range(2 * MAX_SHORT_STREAK):
            turns.append(number)
            await database.read(generation)

    async def wait_for_a_turn() -> int:
        return len(turns)

    await database.read(generation)
    _, seen = await asyncio.gather(ask_often(), wait_for_a_turn())
    assert seen == MAX_SHORT_STREAK + 1
    await database.close()


def size_of(path: Path) -> int:
    return path.stat().st_size


def write_a_little(db: Connection) -> int:
    raise_generation(db)
    return threading.get_ident()


@pytest.fixture
async def hasty(path: Path) -> AsyncIterator[Database]:
    """One that makes short writes in the caller's thread, and has begun its log."""
    database = Database(path, PROJECT, inline_writes=True)
    for _ in range(2):
        assert await database.write(raise_generation, short=True) is None
    yield database
    await database.close()


async def test_a_short_write_is_made_in_the_callers_thread_where_that_is_wanted(path: Path, hasty: Database) -> None:
    own = threading.get_ident()
    assert await hasty.write(write_a_little, short=True) == own
    assert await hasty.write(write_a_little) != own
    assert await hasty.read(generation) == 5
    for context in (Database(path, PROJECT), Database(path, PROJECT, inline_writes=True, synchronous="full")):
        for _ in range(3):
            assert await context.write(write_a_little, short=True) != own
        await context.close()


async def test_the_first_write_to_a_log_is_made_in_its_thread(path: Path) -> None:
    database, own = Database(path, PROJECT, inline_writes=True), threading.get_ident()
    threads = [await database.write(write_a_little, short=True) for _ in range(3)]
    assert [thread == own for thread in threads] == [False, True, True]
    await database.close()


async def test_a_write_that_would_wait_for_another_process_moves_to_its_thread(path: Path, hasty: Database) -> None:
    other = connect(path, PROJECT)
    other.execute("BEGIN IMMEDIATE")
    writing = asyncio.create_task(hasty.write(write_a_little, short=True))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not writing.done()
    other.execute("ROLLBACK")
    assert await writing != threading.get_ident()
    other.close()
    assert await hasty.read(generation) == 4


async def test_a_write_that_turns_out_to_be_long_is_made_once_in_its_thread(hasty: Database) -> None:
    threads: list[int] = []

    def long(db: Connection) -> None:
        threads.append(write_a_little(db))
        db.execute(LONG).fetchall()

    await hasty.write(long, short=True)
    assert threads[0] == threading.get_ident() != threads[1]
    assert await hasty.read(generation) == 4


async def test_a_write_that_fails_in_the_callers_thread_leaves_nothing(hasty: Database) -> None:
    def fails(db: Connection) -> None:
        raise_generation(db)
        raise Conflict("no")

    with pytest.raises(Conflict):
        await hasty.write(fails, short=True)
    assert await hasty.read(generation) == 3
    assert await hasty.write(write_a_little, short=True) == threading.get_ident()


async def test_a_long_log_is_folded_in_and_never_in_the_callers_thread(path: Path, hasty: Database) -> None:
    def fill(db: Connection) -> int:
        db.execute("INSERT INTO meta VALUES (hex(randomblob(8)), zeroblob(400000))")
        return threading.get_ident()

    log, own = path.with_name("project.db-wal"), threading.get_ident()
    threads: list[int] = []
    while not threads or threads[-1] == own:
        threads.append(await hasty.write(fill, short=True))
    assert size_of(log) > MAX_LOG_PAGES * 4096  # until the next write begins it again
    assert len(threads) == MAX_LOG_PAGES // 100 + 1
    threads = [await hasty.write(write_a_little, short=True) for _ in range(2)]
    assert [thread == own for thread in threads] == [False, True]
    assert size_of(path) > MAX_LOG_PAGES * 4000
