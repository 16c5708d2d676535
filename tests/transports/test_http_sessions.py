import pytest

from clocks import Clock
from everkept.core.library import Condition
from everkept.core.sessions import Account
from everkept.transports import http_sessions
from everkept.transports.http_exchange import RequestRejected
from everkept.transports.http_sessions import IDLE_SECONDS, EventLog, HttpSessions
from everkept.transports.metrics import Metrics


@pytest.fixture
def clock() -> Clock:
    return Clock()


async def test_a_session_that_is_idle_expires(clock: Clock) -> None:
    sessions = HttpSessions(clock=clock)
    idle, used, held = (sessions.open(None, None) for _ in range(3))
    with sessions.hold(held):
        clock.now = IDLE_SECONDS
        with sessions.hold(used):
            clock.now += 1
        sessions.sweep()
        with pytest.raises(RequestRejected) as caught:
            sessions.find(idle.id, None)
        assert caught.value.refusal.status == 404
        assert sessions.find(used.id, None) is used
        assert sessions.find(held.id, None) is held
        clock.now += IDLE_SECONDS + 1
        sessions.sweep()
        assert len(sessions) == 1
    clock.now += IDLE_SECONDS + 1
    sessions.sweep()
    assert len(sessions) == 0


async def test_sweeping_forgets_events_too(clock: Clock) -> None:
    log = EventLog(clock=clock)
    sessions = HttpSessions(log=log, clock=clock)
    session = sessions.open(None, None)
    stream = session.open_stream()
    stream.add(b"x")
    stream.end()
    sessions.close(session)
    assert log.size
    clock.now = 3600.0
    sessions.sweep()
    assert log.size == 0
    sessions.close_all()


async def test_there_is_a_limit_to_open_sessions(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_sessions, "MAX_SESSIONS", 2)
    sessions = HttpSessions(clock=clock)
    first = sessions.open(None, None)
    sessions.open(None, None)
    with pytest.raises(RequestRejected) as caught:
        sessions.open(None, None)
    assert caught.value.refusal.status == 503
    sessions.close(first)
    sessions.open(None, None)
    sessions.close_all()
    assert len(sessions) == 0


async def test_open_sessions_are_counted(clock: Clock) -> None:
    metrics = Metrics(lambda: Condition("sqlite", "local"))
    sessions = HttpSessions(metrics, clock=clock)
    one, two = sessions.open(None, None), sessions.open(None, None)
    assert "everkept_open_sessions 2" in metrics.format_text()
    sessions.close(one)
    sessions.close(one)
    assert "everkept_open_sessions 1" in metrics.format_text()
    sessions.close(two)
    sessions.close_all()
    assert "everkept_open_sessions 0" in metrics.format_text()


async def test_the_timer_runs_only_while_there_is_something_to_forget(clock: Clock) -> None:
    sessions = HttpSessions(clock=clock)
    assert not sessions.is_sweeping
    session = sessions.open(None, None)
    assert sessions.is_sweeping
    sessions.close(session)
    sessions.sweep()
    assert not sessions.is_sweeping
    sessions.open(None, None)
    assert sessions.is_sweeping
    sessions.close_all()
    assert not sessions.is_sweeping


async def test_ids_of_sessions_cannot_be_guessed(clock: Clock) -> None:
    sessions = HttpSessions(clock=clock)
    ids = {sessions.open(None, None).id for _ in range(50)}
    assert len(ids) == 50
    assert {len(each) for each in ids} == {32}
    sessions.close_all()


async def test_a_token_of_an_account_has_a_limit_of_sessions(clock: Clock) -> None:
    sessions = HttpSessions(per_token=2, idle_seconds=10, clock=clock)
    anna = Account("anna")
    first = sessions.open(anna, "hers")
    clock.now += 1
    second = sessions.open(anna, "hers")
    other = sessions.open(anna, "her other")
    third = sessions.open(anna, "hers")
    with pytest.raises(RequestRejected):  # it was idle longest
        sessions.find(first.id, "hers")
    assert sessions.find(second.id, "hers") is second
    assert sessions.find(other.id, "her other") is other
    with sessions.hold(second), sessions.hold(third):
        with pytest.raises(RequestRejected) as caught:
            sessions.open(anna, "hers")
        assert caught.value.refusal.status == 429
        assert caught.value.refusal.headers[0][0] == b"retry-after"
    # The owner has no such limit.
    assert len([sessions.open(None, "mine") for _ in range(5)]) == 5
    clock.now += 11
    sessions.sweep()
    assert len(sessions) == 0
