"""Attempts to reach a database again that went away."""

import asyncio
import logging
from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from everkept.engines.standby.failover import (
    ADD_WAIT_SECONDS,
    NEVER_REACHED,
    SENT_PER_ADDED,
    Availability,
    FirstContactMarker,
    RetryPolicy,
)
from everkept.errors import QueryTimeout, StoreTooNew, StoreUnreachable
from standby import EVERY, PATIENCE, Time
from upstreams import until

GONE = StoreUnreachable("Nobody is there.")


class Database:
    """Answers or not, as a test says."""

    def __init__(self, *, is_known: bool = True) -> None:
        self.error: Exception | None = GONE
        self.asked = 0
        self.time = Time()
        self.told: list[str] = []
        self._turned = asyncio.Event()
        self.brings = asyncio.Event()
        self.brings.set()
        self.fails: Exception | None = None  # when something is brought over
        ticks = count(1)
        pace = RetryPolicy(self.time.pause, every=EVERY, patience=PATIENCE)
        self.folder = TemporaryDirectory(ignore_cleanup_errors=True)
        self.first_contact = FirstContactMarker(Path(self.folder.name))
        if is_known:
            self.first_contact.create()
        self.reaching = Availability(
            self.ask,
            self.bring,
            clock=lambda: next(ticks),
            pace=pace,
            on_change=self.turn,
            first_contact=self.first_contact,
        )

    async def ask(self) -> None:
        self.asked += 1
        if self.error is not None:
            raise self.error

    async def bring(self) -> None:
        await self.brings.wait()
        if self.fails is not None:
            raise self.fails
        self.reaching.note_connected("3 writes were brought over")

    def turn(self) -> None:
        self.told.append(self.reaching.status)
        self._turned.set()

    async def becomes(self, status: str) -> None:
        async with asyncio.timeout(60):
            while self.reaching.status != status:
                self._turned.clear()
                await self._turned.wait()


@pytest.fixture
async def database() -> AsyncIterator[Database]:
    made = Database()
    yield made
    await made.reaching.close()
    made.folder.cleanup()


async def test_nobody_waits_for_what_is_there(database: Database) -> None:
    assert await database.reaching.is_reachable()
    assert (database.reaching.since, database.reaching.reason) == (None, "")
    assert database.asked == 0


async def test_the_first_attempt_is_made_at_once(database: Database) -> None:
    database.error = None
    database.reaching.note_unreachable(GONE)
    assert await database.reaching.is_reachable()
    assert database.told == ["reconnecting", "connected"]


async def test_attempts_follow_their_schedule_and_then_each_other(database: Database) -> None:
    database.reaching.note_unreachable(GONE)
    for number, wait in enumerate((1.0, 2.0, 4.0, 8.0), start=1):
        await database.time.sees(wait)
        assert (database.asked, database.reaching.status) == (number, "reconnecting")
        await database.time.comes(wait)
    for number in (5, 6, 7):
        await database.time.sees(EVERY)
        assert (database.asked, database.reaching.status) == (number, "degraded")
        if number == 7:
            database.error = None
        await database.time.comes(EVERY)
    await database.becomes("connected")
    assert database.told == ["reconnecting", "degraded", "connected"]


async def test_it_says_since_when_and_why(database: Database) -> None:
    database.reaching.note_unreachable(GONE)
    await database.time.sees(1.0)
    since = database.reaching.since
    database.error = QueryTimeout("It hangs.")
    await database.time.comes(1.0)
    await database.time.sees(2.0)
    assert (database.reaching.since, database.reaching.reason) == (since, "It hangs.")


async def test_a_call_waits_for_the_first_attempts_and_no_longer(database: Database) -> None:
    database.reaching.note_unreachable(GONE)
    waiting = asyncio.create_task(database.reaching.is_reachable())
    await database.time.sees(1.0)
    assert not waiting.done()
    await database.time.comes(PATIENCE)
    assert not await waiting
    assert not await database.reaching.is_reachable()


async def test_a_call_is_saved_by_an_attempt_that_comes_in_time(database: Database) -> None:
    database.reaching.note_unreachable(GONE)
    waiting = asyncio.create_task(database.reaching.is_reachable())
    await database.time.sees(1.0)
    database.error = None
    await database.time.comes(1.0)
    assert await waiting


async def test_it_is_not_back_before_what_waited_is_brought_over(database: Database) -> None:
    database.error = None
    database.brings.clear()
    database.reaching.note_unreachable(GONE)
    await database.time.comes(PATIENCE)
    assert not await database.reaching.is_reachable()
    database.brings.set()
    await database.becomes("connected")


async def test_who_adds_to_what_is_brought_over_makes_way_for_a_moment(database: Database) -> None:
    await database.reaching.wait_to_add()  # nobody waits while nothing is brought over
    database.error = None
    database.brings.clear()
    database.reaching.note_unreachable(GONE)
    await database.time.sees(PATIENCE)
    await database.time.rushes(database.reaching.wait_to_add(), ADD_WAIT_SECONDS)
    waiting = asyncio.create_task(database.reaching.wait_to_add())
    await database.time.sees(ADD_WAIT_SECONDS)
    database.brings.set()
    await waiting
    assert database.time.asleep(ADD_WAIT_SECONDS) == 0


async def test_one_is_added_for_two_that_were_brought_over(database: Database) -> None:
    database.error = None
    database.brings.clear()
    database.reaching.note_unreachable(GONE)
    await database.time.sees(PATIENCE)
    waiting = [asyncio.create_task(database.reaching.wait_to_add()) for _ in range(3)]
    await database.time.sees(ADD_WAIT_SECONDS, 3)
    database.reaching.note_sent(1)
    database.reaching.note_sent(SENT_PER_ADDED)
    await waiting[0]
    assert not any(each.done() for each in waiting[1:])
    await database.time.comes(ADD_WAIT_SECONDS, 2)
    await asyncio.gather(*waiting)
    late = asyncio.create_task(database.reaching.wait_to_add())
    await database.time.sees(ADD_WAIT_SECONDS)
    database.reaching.note_sent(SENT_PER_ADDED)  # who did not wait for it has no share in it
    await late


async def test_who_makes_way_goes_on_when_it_went_away_again(database: Database) -> None:
    database.error = None
    database.brings.clear()
    database.fails = GONE
    database.reaching.note_unreachable(GONE)
    await database.time.sees(PATIENCE)
    waiting = asyncio.create_task(database.reaching.wait_to_add())
    await database.time.sees(ADD_WAIT_SECONDS)
    database.brings.set()
    await waiting
    assert not database.reaching.is_connected


async def test_nobody_waits_for_a_database_that_is_too_new(database: Database) -> None:
    database.error = StoreTooNew("It is too new.", hint="Install a newer one.", version=2)
    database.reaching.expect_supported()
    database.reaching.note_unreachable(GONE)
    assert not await database.reaching.is_reachable()
    with pytest.raises(StoreTooNew) as raised:
        database.reaching.expect_supported()
    assert raised.value.to_envelope() == database.error.to_envelope()
    database.error = GONE  # and gone: what is known of it is still true
    await database.time.comes(1)
    await database.time.sees(2)
    with pytest.raises(StoreTooNew):
        database.reaching.expect_supported()
    database.error = None
    await database.time.comes(2)
    await database.becomes("connected")
    database.reaching.expect_supported()


async def test_it_may_go_again_as_soon_as_it_is_back(database: Database) -> None:
    database.error = None
    database.reaching.note_unreachable(GONE)
    await database.becomes("connected")
    database.error = GONE
    database.reaching.note_unreachable(GONE)
    waiting = asyncio.create_task(database.reaching.is_reachable())
    await database.time.sees(PATIENCE, sleepers=2)  # that of the first time counts for nothing
    await database.time.comes(PATIENCE)
    assert not await waiting


async def test_each_turn_is_told_once_in_the_log(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    for _ in range(3):
        database.reaching.note_unreachable(GONE)
    for wait in (1.0, 2.0, 4.0, 8.0, EVERY, EVERY):
        await database.time.comes(wait)
    await database.time.sees(EVERY)
    database.reaching.note_unreachable(GONE)
    database.error = None
    await database.time.comes(EVERY)
    await database.becomes("connected")
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 3
    assert "Nobody is there." in said[0]
    assert "every 30 seconds" in said[1]
    assert "3 writes" in said[2]


async def test_a_bug_in_an_attempt_is_not_the_last_one(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    database.error = ValueError("never thought of")
    database.reaching.note_unreachable(GONE)
    await database.time.sees(1.0)
    assert "never thought of" in database.reaching.reason
    database.error = None
    await database.time.comes(1.0)
    await database.becomes("connected")


async def test_to_catch_up_is_no_news_where_it_goes_well(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    database.error = None
    database.reaching.catch_up("Something waits.")
    assert await database.reaching.is_reachable()
    assert not caplog.records


async def test_who_waits_when_it_is_closed_is_answered(database: Database) -> None:
    database.reaching.note_unreachable(GONE)
    waiting = asyncio.create_task(database.reaching.is_reachable())
    await database.time.sees(1.0)
    await database.reaching.close()
    assert not await waiting
    assert database.time.asleep(1.0) == 0


async def test_who_was_never_lost_has_only_things_to_catch_up(database: Database) -> None:
    database.error = None
    database.brings.clear()
    database.reaching.catch_up("Something waits.")
    assert database.reaching.absence.is_catching_up
    database.brings.set()
    await database.becomes("connected")


async def test_who_is_found_to_be_away_while_things_wait_is_away(database: Database) -> None:
    database.reaching.catch_up("Something waits.")
    await database.time.sees(1.0)
    assert not database.reaching.absence.is_catching_up


async def test_who_was_lost_is_away_until_what_waited_is_brought(database: Database) -> None:
    database.reaching.note_unreachable(GONE)
    since = database.reaching.since
    await database.time.sees(1.0)
    assert not database.reaching.absence.is_catching_up
    database.error = None
    database.brings.clear()
    await database.time.comes(1.0)
    await until(lambda: database.reaching.absence.is_catching_up)
    assert database.reaching.absence.since == since
    database.brings.set()
    await database.becomes("connected")


async def test_what_cannot_be_brought_over_is_not_said_to_be_away(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    database.error = QueryTimeout("It takes too long.")
    database.reaching.catch_up("Something waits.")
    for wait in (1.0, 2.0, 4.0, 8.0):
        await database.time.comes(wait)
    await database.time.sees(EVERY)
    [said] = [record.getMessage() for record in caplog.records]
    assert "away" not in said
    assert "It takes too long." in said


async def test_one_that_was_never_reached_is_told_to_be_so(caplog: pytest.LogCaptureFixture) -> None:
    database = Database(is_known=False)
    reaching = database.reaching
    assert not reaching.is_never_reached
    reaching.note_unreachable(GONE)
    assert (reaching.is_never_reached, reaching.absence.never_reached) == (True, True)
    assert reaching.reason == f"Nobody is there. {NEVER_REACHED}"
    assert NEVER_REACHED in caplog.text
    database.error = None
    await database.becomes("connected")
    reaching.note_unreachable(GONE)
    assert (reaching.reason, reaching.absence.never_reached) == ("Nobody is there.", False)
    assert FirstContactMarker(Path(database.folder.name)).is_present
    await reaching.close()
    database.folder.cleanup()
