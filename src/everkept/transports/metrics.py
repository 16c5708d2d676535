"""Health of the server, and its counters in the text format of Prometheus (version 0.0.4).

It contains no names of users or projects, and no label with a value from a caller.
"""

import asyncio
import json
import sys
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from everkept.core.library import Condition
from everkept.core.ports import Library
from everkept.errors import EverkeptError
from everkept.transports.connection import JSON
from everkept.transports.dispatch import Dispatcher, Handler, ProtocolError, Reply, Request, RequestResult
from everkept.transports.http_exchange import (
    ASGIApp,
    Message,
    Receive,
    Refusal,
    Send,
    get_account,
    restrict_to_get,
    send_answer,
    send_refusal,
)
from everkept.transports.http_listener import ConnectionCounts
from everkept.transports.rate_limits import SecondsClock
from everkept.values import Value, field

HEALTH_PATH, READY_PATH = "/health", "/ready"
READY_TIMEOUT_SECONDS = 1.0  # for the library's answer
READY_CACHE_SECONDS = 1.0  # that one answer stays valid, because asking needs no token
PROBE_NOTE = "ready"  # a note that is never written

NO_STORE_HEADERS = ((b"cache-control", b"no-store"),)


def build_health_routes(
    library: Callable[[], Library], *, patience: float = READY_TIMEOUT_SECONDS, clock: SecondsClock = time.monotonic
) -> dict[str, ASGIApp]:
    """Return the routes. They reveal nothing about stored data, so they need no token."""
    readiness = _Readiness(library, patience, clock)
    return {HEALTH_PATH: restrict_to_get(_answer_health), READY_PATH: restrict_to_get(readiness.answer)}


async def _answer_health(_scope: Message, _receive: Receive, send: Send) -> None:
    await _send_status(send, 200, "ok")


class _Readiness:
    """Readiness check: one at a time, and at most one per second."""

    def __init__(self, library: Callable[[], Library], patience: float, clock: SecondsClock) -> None:
        self._library = library
        self._patience = patience
        self._clock = clock
        self._asking = asyncio.Lock()
        self._status: str | None = None
        self._until = 0.0

    async def answer(self, _scope: Message, _receive: Receive, send: Send) -> None:
        async with self._asking:
            if self._status is None or self._clock() >= self._until:
                self._status = await self._probe_library()
                self._until = self._clock() + READY_CACHE_SECONDS
            status = self._status
        await _send_status(send, 503 if status == "unavailable" else 200, status)

    async def _probe_library(self) -> str:
        try:
            async with asyncio.timeout(self._patience):
                library = self._library()
                await library.get_note(PROBE_NOTE)
        except (TimeoutError, EverkeptError):
            return "unavailable"
        return "ready" if library.condition.status == "connected" else "degraded"


async def _send_status(send: Send, status: int, word: str) -> None:
    await send_answer(send, status, json.dumps({"status": word}).encode(), headers=NO_STORE_HEADERS)


CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
BUCKET_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
UNKNOWN_TOOL = "unknown"
MAX_OUTCOMES = 64  # of all tools; codes of other servers must not fill the memory
OTHER_OUTCOME = "other"
STATM_PATH = Path("/proc/self/statm")  # Linux: pages; the second number is the resident ones

Labels = tuple[tuple[str, str], ...]


class _Durations(Value, frozen=False):
    """Durations of the calls of one tool."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BUCKET_SECONDS) + 1))
    total: float = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(BUCKET_SECONDS, seconds)] += 1
        self.total += seconds


class Metrics:
    """Counters from the start of a server to its end, which only the owner sees."""

    def __init__(self, condition: Callable[[], Condition], limits: Mapping[str, float] | None = None) -> None:
        """`limits` are settings that the owner can compare with the counts."""
        self.open_requests: Callable[[], int] = lambda: 0
        self.connections: ConnectionCounts | None = None
        self._condition = condition
        self._limits = limits or {}
        self._calls: Counter[tuple[str, str]] = Counter()
        self._durations: dict[str, _Durations] = {}
        self._outcomes: set[str] = set()
        self._refused: Counter[int] = Counter()
        self._sessions = 0
        self._started = time.time()
        self.page = restrict_to_get(self._serve_page)

    def watch(self, dispatcher: Dispatcher) -> None:
        """Count the calls of tools from now on."""
        call = dispatcher.methods["tools/call"]
        dispatcher.methods["tools/call"] = self._count_calls(dispatcher, call)

    @contextmanager
    def open_session(self) -> Generator[None, None, None]:
        self._sessions += 1
        try:
            yield
        finally:
            self._sessions -= 1

    def count_refusal(self, refusal: Refusal) -> None:
        self._refused[refusal.status] += 1

    def count_call(self, tool: str, outcome: str, seconds: float) -> None:
        if outcome not in self._outcomes and len(self._outcomes) >= MAX_OUTCOMES:
            outcome = OTHER_OUTCOME
        self._outcomes.add(outcome)
        self._calls[tool, outcome] += 1
        self._durations.setdefault(tool, _Durations()).add(seconds)

    def format_text(self) -> str:
        return "".join(f"{line}\n" for family in self._format_families() for line in family)

    def _count_calls(self, dispatcher: Dispatcher, handler: Handler) -> Handler:
        async def call(request: Request) -> Reply:
            asked = request.params.get("name")
            started = time.perf_counter()
            outcome = "failed"
            try:
                result = await handler(request)
                outcome = get_outcome(result)
            except ProtocolError:
                outcome = "invalid_request"
                raise
            else:
                return result
            finally:
                tools = dispatcher.tools
                is_known = isinstance(asked, str) and asked in tools
                tool = tools.get(str(asked)).name if is_known else UNKNOWN_TOOL
                self.count_call(tool, outcome, time.perf_counter() - started)

        return call

    async def _serve_page(self, scope: Message, receive: Receive, send: Send) -> None:
        if get_account(scope) is not None:
            await send_refusal(send, Refusal(403, "Only a token of the owner may see the metrics."))
        else:
            await send_answer(send, 200, self.format_text().encode(), CONTENT_TYPE)

    def _format_families(self) -> Iterator[Iterator[str]]:
        condition = self._condition()
        yield _format_family(
            "calls_total",
            "counter",
            "Tool calls by outcome.",
            [((("tool", tool), ("outcome", how)), n) for (tool, how), n in self._calls.items()],
        )
        yield self._format_histogram()
        yield _format_gauge("open_requests", "Requests under way.", self.open_requests())
        yield _format_gauge("open_sessions", "Open sessions.", self._sessions)
        yield _format_family(
            "refused_total",
            "counter",
            "Requests refused before the protocol, by status.",
            [((("status", str(status)),), count) for status, count in self._refused.items()],
        )
        yield _format_family(
            "limit",
            "gauge",
            "Limits of accounts and connections, by the names of their settings.",
            [((("setting", name),), value) for name, value in self._limits.items()],
        )
        if self.connections is not None:
            yield from _format_connections(self.connections)
        yield _format_gauge("journal_waiting", "Pending writes.", condition.waiting)
        yield _format_gauge("journal_set_aside", "Rejected writes.", condition.set_aside)
        is_degraded = int(condition.status != "connected")
        yield _format_gauge("degraded", "1 if the database is unreachable.", is_degraded)
        yield self._format_process()

    def _format_histogram(self) -> Iterator[str]:
        name = "everkept_call_duration_seconds"
        yield from _format_head(name, "histogram", "Duration of tool calls.")
        for tool, durations in self._durations.items():
            count = 0
            for bound, number in zip((*BUCKET_SECONDS, "+Inf"), durations.counts, strict=True):
                count += number
                yield _format_line(f"{name}_bucket", (("tool", tool), ("le", str(bound))), count)
            yield _format_line(f"{name}_sum", (("tool", tool),), durations.total)
            yield _format_line(f"{name}_count", (("tool", tool),), count)

    def _format_process(self) -> Iterator[str]:
        started, resident = "process_start_time_seconds", "process_resident_memory_bytes"
        yield from _format_head(started, "gauge", "Start time of the process.")
        yield _format_line(started, (), self._started)
        memory = read_resident_bytes()
        if memory is not None:
            yield from _format_head(resident, "gauge", "Memory of the process.")
            yield _format_line(resident, (), memory)


def _format_connections(counts: ConnectionCounts) -> Iterator[Iterator[str]]:
    limits = counts.limits
    yield _format_gauge("open_connections", "Open connections.", counts.open)
    yield _format_gauge("connections_limit", "Connections that may be open.", limits.connections)
    yield _format_gauge("connections_per_address_limit", "Of one address.", limits.per_address)
    yield _format_family(
        "connections_refused_total",
        "counter",
        "Connections that were refused or made place for another, by reason.",
        [((("reason", reason),), count) for reason, count in counts.refused.items()],
    )
    yield _format_family(
        "connections_closed_total",
        "counter",
        "Connections that the server closed, by the deadline that passed.",
        [((("reason", reason),), count) for reason, count in counts.closed.items()],
    )


def get_outcome(result: Reply) -> str:
    """Return the outcome of a tool call: `ok`, or the code of its error."""
    if isinstance(result, RequestResult) or result.get("isError") is not True:
        return "ok"
    structured: Any = result.get("structuredContent")
    code = cast(JSON, structured).get("error") if isinstance(structured, dict) else None
    # An error of another server has any text or nothing as its code.
    return code if isinstance(code, str) and code.replace("_", "").isalnum() else "refused"


def read_resident_bytes() -> int | None:
    """Return the resident bytes, on macOS their maximum, or None if only another program knows."""
    if sys.platform == "linux":
        import resource

        pages = int(STATM_PATH.read_text(encoding="ascii").split()[1])
        return pages * resource.getpagesize()
    if sys.platform == "darwin":
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return None


def _format_family(name: str, kind: str, what: str, values: Sequence[tuple[Labels, float]]) -> Iterator[str]:
    name = f"everkept_{name}"
    yield from _format_head(name, kind, what)
    for labels, value in values:
        yield _format_line(name, labels, value)


def _format_gauge(name: str, what: str, value: float) -> Iterator[str]:
    return _format_family(name, "gauge", what, [((), value)])


def _format_head(name: str, kind: str, what: str) -> Iterator[str]:
    yield f"# HELP {name} {what}"
    yield f"# TYPE {name} {kind}"


def _format_line(name: str, labels: Labels, value: float) -> str:
    told = ",".join(f'{label}="{_escape_label(text)}"' for label, text in labels)
    return f"{name}{{{told}}} {value}" if told else f"{name} {value}"


def _escape_label(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
