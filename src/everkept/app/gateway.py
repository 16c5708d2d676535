"""The gateway: its tools as the file has them now, over the servers behind them."""

import asyncio
import logging
import time
from asyncio import sleep as pause
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from everkept.app import gateway_file
from everkept.app.gateway_file import refuse_clashes
from everkept.core.mcp import JSON, Upstream, UpstreamSettings
from everkept.core.sessions import Report, ToolCall
from everkept.core.times import Clock
from everkept.errors import EverkeptError, UpstreamUnavailable, escape_name
from everkept.families.gateway.model import GatewayConfig, PassThrough
from everkept.families.gateway.toolset import GatewayTools
from everkept.settings import Settings, get_gateway_path, read_upstream_environment
from everkept.tools.tool import Tool, ToolResult, Toolset, combine, select_tools
from everkept.values import Value, replace

log = logging.getLogger(__name__)


class PassedTools:
    """Asked for anew each time; what a server said last stands while it does not answer.

    Where two have a tool of one name, it is that of the server which stands first in the file.
    """

    def __init__(
        self, config: GatewayConfig, family: GatewayTools, taken: Collection[str], made: Callable[[Tool], Tool]
    ) -> None:
        """`taken` are names that are not to be had; `made` is what becomes of each tool."""
        self.failures: dict[str, EverkeptError] = {}  # of those that did not answer last time
        self._ways: dict[str, PassThrough] = {
            name: each.pass_through for name, each in config.upstreams.items() if each.pass_through is not None
        }
        self._family = family
        self._taken = taken
        self._made = made
        self._listed: dict[str, list[Tool]] = {}
        self._told: set[tuple[str, str]] = set()

    @property
    def upstreams(self) -> list[str]:
        return list(self._ways)

    def list_tools(self) -> list[Tool]:
        taken = set(self._taken)
        kept: list[Tool] = []
        for upstream in self._ways:
            for tool in self._listed.get(upstream, []):
                if tool.name in taken:
                    self._log_clash(upstream, tool.name)
                else:
                    taken.add(tool.name)
                    kept.append(tool)
        return kept

    async def refresh(self, upstream: str, patience: float | None) -> bool:
        """Whether the tools are others now. TimeoutError where it takes longer than that."""
        before = _list_definitions(self.list_tools())
        try:
            async with asyncio.timeout(patience):
                listed = await self._family.list_passed_tools(upstream)
        except TimeoutError:
            self._note_failure(upstream, UpstreamUnavailable(upstream, "has not listed its tools yet."))
            raise
        except EverkeptError as error:
            self._note_failure(upstream, error)
            return False
        self.failures.pop(upstream, None)
        self._listed[upstream] = [self._made(tool) for tool in listed]
        return _list_definitions(self.list_tools()) != before

    def find_failure(self, name: str) -> EverkeptError | None:
        """Why a name is unknown that a server might have which never said what it has."""
        for upstream, way in self._ways.items():
            failure = self.failures.get(upstream)
            may_have = name.startswith(way.prefix) or name in way.rename.values()
            if failure is not None and upstream not in self._listed and may_have:
                return failure
        return None

    def _note_failure(self, upstream: str, error: EverkeptError) -> None:
        if upstream not in self.failures:
            log.warning("gateway: tools of %s: %s", upstream, escape_name(str(error)))
        self.failures[upstream] = error

    def _log_clash(self, upstream: str, name: str) -> None:
        if (upstream, name) not in self._told:
            self._told.add((upstream, name))
            log.warning(
                "gateway: %s of %s is not offered: there is a tool of that name; a `prefix` tells them apart",
                escape_name(name),
                upstream,
            )


def _list_definitions(tools: Sequence[Tool]) -> list[JSON | None]:
    return [tool.listing for tool in tools]


class CountedUpstream:
    """An upstream that knows how many calls it has, and ends after the last."""

    def __init__(self, reach: UpstreamSettings, upstream: Upstream) -> None:
        self.reach = reach
        self._upstream = upstream
        self._calls = 0
        self._is_idle = asyncio.Event()
        self._is_idle.set()

    @property
    def name(self) -> str:
        return self.reach.name

    def start(self) -> None:
        self._upstream.start()

    async def list_tools(self) -> list[JSON]:
        return await self._upstream.list_tools()

    async def call(self, tool: str, arguments: Mapping[str, Any], report: Report | None = None) -> JSON:
        self._calls += 1
        self._is_idle.clear()
        try:
            return await self._upstream.call(tool, arguments, report)
        finally:
            self._calls -= 1
            if not self._calls:
                self._is_idle.set()

    def on_tools_changed(self, tell: Callable[[], None]) -> None:
        self._upstream.on_tools_changed(tell)

    async def retire(self) -> None:
        """Lets the calls under way come to an end, then closes."""
        try:
            await self._is_idle.wait()  # each call has a time limit of its own
        finally:
            await self._upstream.close()

    async def close(self) -> None:
        await self._upstream.close()


FAULT_INSTRUCTIONS = "The gateway's file has a fault: tell the user to run `everkept gateway check`."
WATCH_SECONDS = 1.0  # seconds between two looks at the file
# seconds between looks at what a server has
REFRESH_PAUSES_SECONDS = 0.2, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0
LISTING_SECONDS = 5.0  # seconds that a list of tools waits for servers that are passed through

OpenUpstream = Callable[[UpstreamSettings], Upstream]


class CallCounter(Protocol):
    """Where calls are counted."""

    def note(self, tool: str, milliseconds: float, *, failed: bool, at: int) -> None: ...


class _ServedConfig(Value):
    """What one state of the file came to."""

    config: GatewayConfig
    upstreams: Mapping[str, CountedUpstream]
    mapped: list[Tool]
    passing: PassedTools

    def list_tools(self) -> list[Tool]:
        return [*self.mapped, *self.passing.list_tools()]


class Gateway:
    """Tools made from a file, which may change under way. Close it when done.

    A file that cannot be used leaves what was before, and its `fault`.
    """

    def __init__(
        self,
        path: Path,
        open_upstream: OpenUpstream,
        counting: CallCounter,
        clock: Clock,
        taken: Callable[[], Collection[str]] = tuple,
    ) -> None:
        """`taken` gives the names of the tools that these are served beside."""
        self.path = path
        self.fault: EverkeptError | None = None
        self._open = open_upstream
        self._counting = counting
        self._clock = clock
        self._taken = taken
        self._served: _ServedConfig | None = None
        self._seen: gateway_file.GatewayFileState | None = None
        self._is_loaded = False
        self._is_welcome = False
        self._revision = 0
        self._joined: dict[bool, tuple[int, Toolset]] = {}
        self._listeners: set[Callable[[], None]] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._looking: dict[str, bool] = {}  # upstreams, and whether to look once more

    @property
    def instructions(self) -> str | None:
        """What its file has to say to assistants, or that there is something wrong with it."""
        self._load_once()
        if self.fault is not None:
            return FAULT_INSTRUCTIONS
        return self._served.config.instructions if self._served else None

    @property
    def failures(self) -> Mapping[str, EverkeptError]:
        """Why servers that are passed through did not say what they have, by name."""
        return self._served.passing.failures if self._served else {}

    def find_failure(self, name: str) -> EverkeptError | None:
        """Why a tool is not there, where it may be one of a server that never answered."""
        return self._served.passing.find_failure(name) if self._served else None

    def check(self) -> None:
        """Raises what is wrong with the file."""
        self._load_once()
        if self.fault is not None:
            raise self.fault

    def list_tools(self) -> list[Tool]:
        """Those that are known now."""
        self._load_once()
        return self._served.list_tools() if self._served else []

    def combine_tools(self, own: Toolset, *, only_reads: bool) -> Toolset:
        """Our own tools, and then those of the gateway."""
        self._load_once()
        known = self._joined.get(only_reads)
        if known is None or known[0] != self._revision:
            tools = self.list_tools()
            offered = select_tools(tools, lambda tool: tool.is_read_only) if only_reads else tools
            known = self._joined[only_reads] = (self._revision, combine(own, offered))
        return known[1]

    async def refresh(self, patience: float | None = LISTING_SECONDS) -> None:
        """Asks the servers that are passed through what they have; one that takes long keeps what
        it had, and listeners are told when it has answered."""
        self._load_once()
        served = self._served
        if served is not None:
            upstreams = served.passing.upstreams
            await asyncio.gather(*(self._refresh_upstream(served, name, patience) for name in upstreams))

    def start(self, *, at_once: bool) -> None:
        """Watches the file; the servers that are to be there from the start wait for the first
        client, unless they are wanted at once."""
        self._spawn(self._watch(), "gateway file")
        if at_once:
            self.welcome()

    def welcome(self) -> None:
        """A client is there that is to have these tools."""
        if not self._is_welcome:
            self._is_welcome = True
            if self._should_start():
                self._load_once()
                self._start_upstreams()

    def on_change(self, tell: Callable[[], None]) -> Callable[[], None]:
        """Has `tell` called when the tools have changed; returns the way to end that."""
        self._listeners.add(tell)
        return lambda: self._listeners.discard(tell)

    async def close(self) -> None:
        self._listeners.clear()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._served is not None:
            upstreams = self._served.upstreams.values()
            await asyncio.gather(*(upstream.close() for upstream in upstreams))

    def _load_once(self) -> None:
        if not self._is_loaded:
            self._is_loaded = True
            self._seen = gateway_file.read_state(self.path)
            self._load()

    def _load(self) -> bool:
        """Whether the tools are others than before; what cannot be used leaves them."""
        try:
            config, warnings = gateway_file.load(self.path)
            refuse_clashes(self.path, config, self._taken())
        except EverkeptError as error:
            self.fault = error
            log.warning("gateway: %s", escape_name(str(error)))
            return False
        self.fault = None
        before = self._served
        if before is not None and before.config == config:
            return False
        for warning in warnings:
            log.info("gateway: %s, %s", self.path, escape_name(str(warning)))
        self._served = served = self._build_served(config, dict(before.upstreams) if before else {})
        self._revision += 1
        return before is None or _list_served_definitions(before) != _list_served_definitions(served)

    def _build_served(self, config: GatewayConfig, before: dict[str, CountedUpstream]) -> _ServedConfig:
        """Servers that are reached as before stay connected."""
        upstreams: dict[str, CountedUpstream] = {}
        for name, each in config.upstreams.items():
            kept = before.get(name)
            if kept is not None and kept.reach == each.reach:
                upstreams[name] = before.pop(name)
            else:
                upstreams[name] = CountedUpstream(each.reach, self._open(each.reach))
                upstreams[name].on_tools_changed(lambda name=name: self._schedule_refresh(name))
        for retired in before.values():
            self._spawn(retired.retire(), f"end of upstream {retired.name}")
        family = GatewayTools(config, upstreams)
        mapped = [self._wrap_tool(tool) for tool in family.list_mapped_tools()]
        taken = {*self._taken(), *(tool.name for tool in mapped)}
        return _ServedConfig(config, upstreams, mapped, PassedTools(config, family, taken, self._wrap_tool))

    def _wrap_tool(self, tool: Tool) -> Tool:
        async def run(call: ToolCall, arguments: Mapping[str, Any]) -> ToolResult:
            started = time.perf_counter()
            try:
                result = await tool.run(call, arguments)
            except Exception:  # a call that was cancelled neither went well nor failed
                self._count_call(tool.name, started, failed=True)
                raise
            self._count_call(tool.name, started, failed=result.is_error)
            return result

        return replace(tool, run=run)

    def _count_call(self, tool: str, started: float, *, failed: bool) -> None:
        elapsed = (time.perf_counter() - started) * 1000
        self._counting.note(tool, elapsed, failed=failed, at=self._clock())

    async def _refresh_upstream(self, served: _ServedConfig, upstream: str, patience: float | None) -> bool:
        try:
            is_changed = await served.passing.refresh(upstream, patience)
        except TimeoutError:
            self._schedule_refresh(upstream)
            return False
        if is_changed and served is self._served:
            self._revision += 1
        return is_changed

    def _schedule_refresh(self, upstream: str) -> None:
        """After an upstream was connected anew, or said that its tools are others."""
        if upstream in self._looking:
            self._looking[upstream] = True
        elif self._served is not None and upstream in self._served.passing.upstreams:
            self._looking[upstream] = True
            self._spawn(self._refresh_repeatedly(upstream), f"tools of upstream {upstream}")

    async def _refresh_repeatedly(self, upstream: str) -> None:
        pauses = iter(REFRESH_PAUSES_SECONDS)
        try:
            while self._looking[upstream] and (served := self._served) is not None:
                self._looking[upstream] = False
                if upstream in served.passing.upstreams and await self._refresh_upstream(served, upstream, None):
                    self._notify_listeners()
                # A server that never stops saying that its tools have changed is asked seldom.
                await pause(next(pauses, REFRESH_PAUSES_SECONDS[-1]))
        finally:
            del self._looking[upstream]

    async def _watch(self) -> None:
        unsure: gateway_file.GatewayFileState | None = None
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            try:
                unsure = self._check_file(unsure)
            except Exception:
                # A fault in one look must not end the watch.
                log.exception("gateway: could not look at %s", self.path)

    def _check_file(self, unsure: gateway_file.GatewayFileState | None) -> gateway_file.GatewayFileState | None:
        """Returns the state that did not make sense: it may be half written, and gets another
        look before a word is said."""
        self._load_once()
        now = gateway_file.read_state(self.path)
        if now == self._seen:
            return None
        if unsure != now and not self._is_valid():
            return now
        self._seen = now
        if self._load():
            self._notify_listeners()
        if self._is_welcome:
            self._start_upstreams()
        return None

    def _is_valid(self) -> bool:
        try:
            gateway_file.load(self.path)
        except EverkeptError:
            return False
        return True

    def _should_start(self) -> bool:
        try:
            upstreams = gateway_file.load(self.path).config.upstreams.values()
        except EverkeptError:
            return False
        return any(upstream.reach.starts_at_once for upstream in upstreams)

    def _start_upstreams(self) -> None:
        for upstream in self._served.upstreams.values() if self._served else ():
            if upstream.reach.starts_at_once:
                upstream.start()

    def _notify_listeners(self) -> None:
        for tell in list(self._listeners):
            tell()

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._finish_task)

    def _finish_task(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("gateway: %s failed", task.get_name(), exc_info=error)


def _list_served_definitions(served: _ServedConfig) -> list[JSON | None]:
    """With where tools are passed through from, since what these are is not known yet."""
    passing: list[JSON | None] = [{name: each.pass_through} for name, each in served.config.upstreams.items()]
    return [*(tool.listing for tool in served.mapped), *passing]


def build_gateway(settings: Settings, own: Callable[[], Toolset], usage: CallCounter, clock: Clock) -> Gateway:
    """Reads no file and starts no server: that happens when its tools are first asked for."""

    def taken() -> set[str]:
        return {name for tool in own() for name in (tool.name, *tool.aliases)}

    return Gateway(get_gateway_path(settings), _open_upstream, usage, clock, taken)


def _open_upstream(reach: UpstreamSettings) -> Upstream:
    from everkept.upstreams.upstream import open_upstream

    return open_upstream(reach, read_upstream_environment())
