"""When a server is connected, how often, and how long a call waits for it."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any

import pytest

from everkept.core.mcp import UpstreamProgram, UpstreamSettings
from everkept.errors import UpstreamUnavailable
from everkept.upstreams.link import UpstreamLink
from everkept.upstreams.upstream import ConnectionOwner
from upstreams import Clock

PATIENCE = 30
NEVER = (1000.0,)
CLIENT = ContextVar("client", default="")
JSON = dict[str, Any]


class Line:
    """A link that ends when the test says so."""

    def __init__(self) -> None:
        self.end: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def request(self, method: str, params: Mapping[str, Any], report: Any = None) -> JSON:
        return {}

    async def probe(self) -> None: ...

    async def wait_ended(self) -> str:
        return await asyncio.shield(self.end)


class Exchange:
    """Connects as the test wants: `plan` says what happens at each attempt, at last a link."""

    def __init__(self, *plan: Exception | None) -> None:
        self.plan = list(plan)
        self.links: list[Line] = []
        self.attempts = 0
        self.open = 0
        self.attempted = asyncio.Condition()
        self.gate = asyncio.Event()
        self.gate.set()
        self.exit = asyncio.Event()
        self.exit.set()
        self.notes: list[str] = []
        self.tasks: set[asyncio.Task[Any] | None] = set()
        self.client = ""  # that was known when the link was opened

    @asynccontextmanager
    async def connect(
        self, reach: UpstreamSettings, environment: Mapping[str, str], changed: Callable[[], None]
    ) -> AsyncGenerator[UpstreamLink, None]:
        self.tasks.add(asyncio.current_task())
        self.client = CLIENT.get()
        self.attempts += 1
        async with self.attempted:
            self.attempted.notify_all()
        try:
            await self.gate.wait()
        except asyncio.CancelledError as given_up:
            for note in self.notes:
                given_up.add_note(note)
            raise
        failure = self.plan.pop(0) if self.plan else None
        if failure is not None:
            raise failure
        link = Line()
        self.links.append(link)
        self.open += 1
        try:
            yield link
        finally:
            self.tasks.add(asyncio.current_task())
            await self.exit.wait()
            self.open -= 1

    async def reached(self, attempts: int) -> None:
        async with asyncio.timeout(PATIENCE), self.attempted:
            await self.attempted.wait_for(lambda: self.attempts >= attempts)


async def turns() -> None:
    """Enough turns of the loop for whatever may happen without time."""
    for _ in range(20):
        await asyncio.sleep(0)


def failed(reason: str = "is away.") -> UpstreamUnavailable:
    return UpstreamUnavailable("notes", reason, hint="Call it back.")


@pytest.fixture
async def owned() -> AsyncIterator[Callable[..., ConnectionOwner]]:
    owners: list[ConnectionOwner] = []

    def make(exchange: Exchange, pauses: tuple[float, ...] = (0.0,), **reach: Any) -> ConnectionOwner:
        told = UpstreamSettings("notes", UpstreamProgram("x"), **({"connect_timeout": PATIENCE} | reach))
        owners.append(ConnectionOwner(told, {}, exchange.connect, pauses))
        return owners[-1]

    yield make
    for owner in owners:
        await owner.close()


Make = Callable[..., ConnectionOwner]


async def test_nothing_is_connected_before_the_first_use(owned: Make) -> None:
    exchange = Exchange()
    owner = owned(exchange)
    await asyncio.sleep(0)
    assert exchange.attempts == 0
    assert await owner.wait_link() is exchange.links[0]
    assert await owner.wait_link() is exchange.links[0]
    assert exchange.attempts == 1


async def test_a_start_connects_and_waits_for_nothing(owned: Make) -> None:
    exchange = Exchange()
    owner = owned(exchange)
    owner.start()
    await exchange.reached(1)
    assert await owner.wait_link() is exchange.links[0]


async def test_all_who_come_meanwhile_share_one_attempt(owned: Make) -> None:
    exchange = Exchange()
    exchange.gate.clear()
    owner = owned(exchange)
    waiting = [asyncio.create_task(owner.wait_link()) for _ in range(5)]
    await exchange.reached(1)
    exchange.gate.set()
    assert set(await asyncio.gather(*waiting)) == set(exchange.links)
    assert len(exchange.links) == 1


async def test_one_task_enters_and_leaves_every_connection(owned: Make) -> None:
    exchange = Exchange()
    owner = owned(exchange)
    for _ in range(3):
        link = await owner.wait_link()
        owner.release(link, "is not wanted")
    await owner.close()
    assert len(exchange.tasks) == 1
    assert exchange.open == 0


async def test_nothing_of_the_client_that_came_first_is_known_to_the_connection(owned: Make) -> None:
    exchange = Exchange()
    CLIENT.set("somebody")
    await owned(exchange).wait_link()
    assert exchange.client == ""


async def test_after_a_link_has_ended_the_next_call_connects_at_once(owned: Make) -> None:
    exchange = Exchange()
    owner = owned(exchange, NEVER)
    await owner.wait_link()
    exchange.links[0].end.set_result("ended")
    await turns()
    assert exchange.attempts == 1
    assert await owner.wait_link() is exchange.links[1]


async def test_a_failure_is_told_to_all_who_waited(owned: Make) -> None:
    exchange = Exchange(failed())
    exchange.gate.clear()
    owner = owned(exchange, NEVER)
    waiting = [asyncio.create_task(owner.wait_link()) for _ in range(3)]
    await exchange.reached(1)
    exchange.gate.set()
    for error in await asyncio.gather(*waiting, return_exceptions=True):
        assert isinstance(error, UpstreamUnavailable)
        assert error.message == "notes is away."


async def test_in_a_long_pause_a_call_fails_at_once_with_the_last_reason(owned: Make) -> None:
    exchange = Exchange(failed())
    owner = owned(exchange, NEVER)
    for _ in range(3):
        with pytest.raises(UpstreamUnavailable) as error:
            await owner.wait_link()
    assert "is away" in error.value.message
    assert error.value.hint == "Call it back."
    assert 990 < error.value.facts["retry_in_seconds"] <= 1000
    await turns()
    assert exchange.attempts == 1


async def test_a_short_pause_is_waited_for(owned: Make) -> None:
    exchange = Exchange(failed())
    owner = owned(exchange, (0.05,))
    with pytest.raises(UpstreamUnavailable):
        await owner.wait_link()
    assert await owner.wait_link() is exchange.links[0]


async def test_pauses_grow_with_failures_and_shrink_with_success(owned: Make) -> None:
    exchange = Exchange(failed(), failed(), None, failed(), failed())
    owner = owned(exchange, (0.0, 0.0, *NEVER))
    for _ in range(2):
        with pytest.raises(UpstreamUnavailable):
            await owner.wait_link()
    owner.release(await owner.wait_link(), "is not wanted")
    for _ in range(2):
        with pytest.raises(UpstreamUnavailable):
            await owner.wait_link()
    # A third failure in a row would have been followed by the long pause.
    assert await owner.wait_link() is exchange.links[-1]


async def test_one_that_is_to_be_there_all_the_time_is_connected_again_by_itself(owned: Make) -> None:
    exchange = Exchange(failed(), None, failed())
    owner = owned(exchange, starts_at_once=True)
    owner.start()
    await exchange.reached(2)
    await owner.wait_link()
    exchange.links[0].end.set_result("ended")
    await exchange.reached(4)
    assert exchange.attempts == 4


@pytest.mark.parametrize("starts_at_once", [False, True])
async def test_one_that_always_ends_at_once_is_not_connected_in_a_hurry(owned: Make, starts_at_once: bool) -> None:
    exchange = Exchange()
    owner = owned(exchange, (0.0, *NEVER), starts_at_once=starts_at_once)
    for _ in range(3):
        owner.release(await owner.wait_link(), "ended with status 1")
    await turns()
    with pytest.raises(UpstreamUnavailable) as error:
        await owner.wait_link()
    assert error.value.message.endswith("notes ended with status 1.")
    assert 990 < error.value.facts["retry_in_seconds"] <= 1000
    assert exchange.attempts == 3


async def test_failures_between_short_connections_make_the_pauses_no_shorter(owned: Make) -> None:
    exchange = Exchange(None, failed(), None, failed())
    owner = owned(exchange, (0.0, *NEVER))
    for _ in range(2):
        owner.release(await owner.wait_link(), "ended")
        with pytest.raises(UpstreamUnavailable):
            await owner.wait_link()
    with pytest.raises(UpstreamUnavailable) as error:
        await owner.wait_link()
    assert error.value.facts["retry_in_seconds"] > 990


@pytest.mark.parametrize(("answers", "seconds"), [(True, 31), (True, 29), (False, 31)])
async def test_a_connection_that_was_of_use_for_a_while_makes_up_for_earlier_ones(
    owned: Make, monkeypatch: pytest.MonkeyPatch, answers: bool, seconds: float
) -> None:
    clock, exchange = Clock(monkeypatch), Exchange()
    owner = owned(exchange, NEVER)
    owner.release(await owner.wait_link(), "ended")
    link = await owner.wait_link()
    if answers:
        owner.note_activity(link)
    await clock.goes_on(seconds)
    owner.release(link, "ended")
    if answers and seconds > 30:
        await owner.wait_link()
    else:
        with pytest.raises(UpstreamUnavailable):
            await owner.wait_link()


async def test_one_that_nobody_wants_any_more_is_not_connected_again(owned: Make) -> None:
    exchange = Exchange()
    exchange.gate.clear()
    owner = owned(exchange)
    waiting = [asyncio.create_task(owner.wait_link()) for _ in range(2)]
    await exchange.reached(1)
    waiting.append(asyncio.create_task(owner.wait_link()))  # while it is being connected
    await turns()
    exchange.gate.set()
    await asyncio.gather(*waiting)
    owner.start()  # it is
    exchange.links[0].end.set_result("ended")
    await turns()
    assert exchange.attempts == 1


async def test_one_that_nobody_waits_for_is_not_connected_after_its_pause(
    owned: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, exchange = Clock(monkeypatch), Exchange(failed())
    owner = owned(exchange, NEVER)
    for _ in range(3):
        with pytest.raises(UpstreamUnavailable):
            await owner.wait_link()
    await clock.goes_on(1001)
    assert exchange.attempts == 1
    await owner.wait_link()


async def test_words_of_a_server_forge_no_line_of_the_log(owned: Make, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    owner = owned(Exchange(failed("said: No.\nERROR forged \x1b[2J")))
    with pytest.raises(UpstreamUnavailable):
        await owner.wait_link()
    owner.release(await owner.wait_link(), "ended: password=Tr0ub4dor&3xyz\nforged")
    await turns()
    assert len(caplog.messages) == 2
    assert all(message.isprintable() for message in caplog.messages)
    assert "Tr0ub4dor" not in caplog.text


async def test_a_connection_that_takes_too_long_is_given_up(owned: Make) -> None:
    exchange = Exchange()
    exchange.gate.clear()
    owner = owned(exchange, NEVER, connect_timeout=0.05)
    with pytest.raises(UpstreamUnavailable) as error:
        await owner.wait_link()
    assert error.value.message == "notes was not ready within 0.05 s."
    assert "stderr" not in (error.value.hint or "")
    assert error.value.retry_possible


async def test_what_was_written_until_a_connection_was_given_up_is_said(owned: Make) -> None:
    exchange = Exchange()
    exchange.gate.clear()
    exchange.notes.append("no network")
    with pytest.raises(UpstreamUnavailable) as error:
        await owned(exchange, NEVER, connect_timeout=0.05).wait_link()
    assert error.value.message.endswith("0.05 s. It wrote: no network.")


async def test_the_end_waits_for_a_connection_that_is_being_left(owned: Make) -> None:
    exchange = Exchange()
    exchange.exit.clear()
    owner = owned(exchange)
    owner.release(await owner.wait_link(), "ended")
    closing = asyncio.create_task(owner.close())
    await turns()
    assert exchange.open == 1
    exchange.exit.set()
    await closing
    assert exchange.open == 0


async def test_the_first_reason_of_an_end_is_the_one(owned: Make) -> None:
    owner = owned(Exchange())
    link = await owner.wait_link()
    assert owner.release(link, "hung") == "hung"
    assert owner.release(link, "was left") == "hung"
    other = await owner.wait_link()
    await owner.close()
    assert owner.release(other, "was left") == "was closed by Everkept"


@pytest.mark.parametrize("may_pass", [True, False])
async def test_in_a_pause_a_call_may_be_tried_again_where_that_may_help(owned: Make, may_pass: bool) -> None:
    owner = owned(Exchange(UpstreamUnavailable("notes", "is.", retry_possible=may_pass)), NEVER)
    for _ in range(2):
        with pytest.raises(UpstreamUnavailable) as error:
            await owner.wait_link()
        assert error.value.retry_possible == may_pass


async def test_news_are_told_of_a_connection_that_is_not_the_first(owned: Make) -> None:
    exchange = Exchange()
    owner, told = owned(exchange), asyncio.Event()
    owner.add_listener(told.set)
    link = await owner.wait_link()
    await asyncio.sleep(0)
    assert not told.is_set()
    owner.release(link, "ended")
    await owner.wait_link()
    async with asyncio.timeout(PATIENCE):
        await told.wait()


async def test_news_are_told_of_the_first_one_if_it_took_several_attempts(owned: Make) -> None:
    owner, told = owned(Exchange(failed())), asyncio.Event()
    owner.add_listener(told.set)
    with pytest.raises(UpstreamUnavailable):
        await owner.wait_link()
    await owner.wait_link()
    async with asyncio.timeout(PATIENCE):
        await told.wait()


async def test_a_link_that_is_another_by_now_is_kept(owned: Make) -> None:
    exchange = Exchange()
    owner = owned(exchange)
    old = await owner.wait_link()
    owner.release(old, "ended")
    new = await owner.wait_link()
    owner.release(old, "ended")
    assert await owner.wait_link() is new


async def test_a_bug_is_logged_and_the_next_one_who_asks_starts_anew(
    owned: Make, caplog: pytest.LogCaptureFixture
) -> None:
    exchange = Exchange(RuntimeError("a bug"))
    owner = owned(exchange)
    with pytest.raises(UpstreamUnavailable):
        await owner.wait_link()
    assert any(record.exc_info for record in caplog.records)
    assert await owner.wait_link() is exchange.links[0]


@pytest.mark.parametrize("state", ["unused", "connecting", "linked", "pausing", "ending"])
async def test_the_end_comes_in_every_state_and_leaves_nothing(owned: Make, state: str) -> None:
    before = asyncio.all_tasks()
    exchange = Exchange(*([failed()] if state == "pausing" else []))
    owner, waiting = owned(exchange, NEVER), None
    if state == "connecting":
        exchange.gate.clear()
        waiting = asyncio.create_task(owner.wait_link())
        await exchange.reached(1)
    elif state == "pausing":
        with pytest.raises(UpstreamUnavailable):
            await owner.wait_link()
    elif state != "unused":
        link = await owner.wait_link()
        if state == "ending":
            owner.release(link, "ended")
    async with asyncio.timeout(PATIENCE):
        await asyncio.gather(owner.close(), owner.close())
        if waiting is not None:
            with pytest.raises(UpstreamUnavailable):
                await waiting
    await asyncio.sleep(0)
    assert exchange.open == 0
    assert asyncio.all_tasks() <= before
    with pytest.raises(UpstreamUnavailable):
        await owner.wait_link()
    owner.start()
    assert asyncio.all_tasks() <= before
