import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from asgi_client import asked
from everkept.app.app import App
from everkept.core.library import Condition
from everkept.core.sessions import Account, Session
from everkept.settings import Settings
from everkept.transports.connection import JSON, ClientConnection
from everkept.transports.dispatch import Dispatcher, ProtocolError
from everkept.transports.http_exchange import ACCOUNT_KEY, Refusal
from everkept.transports.metrics import BUCKET_SECONDS, MAX_OUTCOMES, Metrics

AWAY = Condition("surreal", "remote", "degraded", place="wss://db.example", waiting=7)
LINE = re.compile(r'[a-z_]+(\{([a-z]+="(\\.|[^"\\])*",?)+\})? [0-9.e+-]+')


@pytest.fixture
async def dispatcher(tmp_path: Path) -> AsyncIterator[Dispatcher]:
    app = App(Settings(tmp_path, embedding_model="none"))
    yield Dispatcher(app)
    await app.close()


async def handled(dispatcher: Dispatcher, name: str, /, **arguments: object) -> JSON:
    async def unheard(_method: str, _params: JSON) -> None: ...

    connection = ClientConnection(Session())
    params = {"name": name, "arguments": arguments}
    answer = await dispatcher.handle(connection, 1, "tools/call", params, notify=unheard, announce=unheard)
    return answer.as_json()


def sample(text: str, name: str) -> float:
    """The value of the one line that begins so."""
    [value] = [line.split()[-1] for line in text.splitlines() if line.startswith(f"{name} ")]
    return float(value)


async def test_calls_are_counted_by_tool_and_outcome(dispatcher: Dispatcher) -> None:
    metrics = Metrics(lambda: dispatcher.app.library.condition)
    metrics.watch(dispatcher)
    await handled(dispatcher, "list_projects")
    await handled(dispatcher, "list_projects")
    await handled(dispatcher, "switch_project", name="a secret name")
    with pytest.raises(ProtocolError):
        await handled(dispatcher, "made_up")
    text = metrics.format_text()
    assert sample(text, 'everkept_calls_total{tool="list_projects",outcome="ok"}') == 2
    assert sample(text, 'everkept_calls_total{tool="switch_project",outcome="not_found"}') == 1
    assert sample(text, 'everkept_calls_total{tool="unknown",outcome="invalid_request"}') == 1
    assert sample(text, 'everkept_call_duration_seconds_count{tool="list_projects"}') == 2
    assert "made_up" not in text
    assert "secret" not in text


async def test_every_line_is_one_that_prometheus_reads(dispatcher: Dispatcher) -> None:
    metrics = Metrics(lambda: dispatcher.app.library.condition)
    metrics.watch(dispatcher)
    await handled(dispatcher, "list_projects")
    metrics.count_refusal(Refusal(401, "no"))
    text = metrics.format_text()
    assert text.endswith("\n")
    told: set[str] = set()
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            told.add(line.split()[2])
        elif not line.startswith("# HELP "):
            assert LINE.fullmatch(line), line
            assert re.sub(r"_(bucket|sum|count)\b.*|[ {].*", "", line) in told
    assert sample(text, "process_start_time_seconds") > 0


def test_a_duration_is_counted_in_every_bucket_that_holds_it() -> None:
    metrics = Metrics(lambda: AWAY)
    for seconds in (0.005, 0.006, 99.0):
        metrics.count_call("t", "ok", seconds)
    text = metrics.format_text()
    counts = [
        sample(text, f'everkept_call_duration_seconds_bucket{{tool="t",le="{bound}"}}')
        for bound in (*BUCKET_SECONDS, "+Inf")
    ]
    assert counts == [1] + [2] * (len(BUCKET_SECONDS) - 1) + [3]
    assert sample(text, 'everkept_call_duration_seconds_sum{tool="t"}') == pytest.approx(99.011)


def test_labels_cannot_grow_without_end() -> None:
    metrics = Metrics(lambda: AWAY)
    for number in range(10 * MAX_OUTCOMES):
        metrics.count_call("t", f"code {number}", 0)
    lines = [line for line in metrics.format_text().splitlines() if line.startswith("everkept_calls")]
    assert len(lines) == MAX_OUTCOMES + 1
    assert sample(metrics.format_text(), 'everkept_calls_total{tool="t",outcome="other"}') > 0


def test_what_waits_and_who_is_there_is_shown_and_not_where() -> None:
    metrics = Metrics(lambda: AWAY)
    metrics.open_requests = lambda: 3
    metrics.count_refusal(Refusal(429, "too often"))
    with metrics.open_session():
        text = metrics.format_text()
    assert sample(text, "everkept_journal_waiting") == 7
    assert sample(text, "everkept_degraded") == 1
    assert sample(text, "everkept_open_requests") == 3
    assert sample(text, "everkept_open_sessions") == 1
    assert sample(text, 'everkept_refused_total{status="429"}') == 1
    assert sample(metrics.format_text(), "everkept_open_sessions") == 0
    assert "example" not in text


async def test_the_page_is_the_owners_alone() -> None:
    metrics = Metrics(lambda: AWAY)
    shown = await asked(metrics.page)
    assert shown.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert shown.body.decode().startswith("# HELP")
    refused = await asked(metrics.page, scope={ACCOUNT_KEY: Account("anna")})
    assert (refused.status, b"HELP" in refused.body) == (403, False)
