"""The gateway: the tools of its current file, served by the servers behind it."""

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
    """Tools that are passed through, listed again each time.

    While a server does not answer, its last tools stay. If two servers have a tool of the same name, the first server
    in the file wins.
    """

    def __init__(
        self, config: GatewayConfig, family: GatewayTools, taken: Collection[str], made: Callable[[Tool], Tool]
    ) -> None:
        """`taken` holds names that are in use. `made` builds each tool."""
        self.failures: dict[str, EverkeptError] = {}  # of the servers that did not answer last time
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
        """List a server's tools again and return whether they changed. Raises TimeoutError after `patience`."""
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
        """Return why a server that may have this tool did not list its tools."""
        for upstream, way in self._ways.items():
            failure = self.failures.get(upstream)
            may_have = name.startswith(way.prefix) or name in way.rename.values()
            if failure is not None and upstream not in self._listed and may_have:
                return failure
        return None

    def _note_failure(self, upstream: str, error: EverkeptError) -> None:
        if upstream not in self.failures:
            log.warning("gateway tools of %s not listed: %s", upstream, escape_name(str(error)))
        self.failures[upstream] = error

    def _log_clash(self, upstream: str, name: str) -> None:
        if (upstream, name) not in self._told:
            self._told.add((upstream, name))
            log.warning(
                "gateway tool %s of %s not offered: the name is in use, so set a `prefix`", escape_name(name), upstream
            )


def _list_definitions(tools: Sequence[Tool]) -> list[JSON | None]:
    return [tool.listing for tool in tools]


class CountedUpstream:
    """An upstream that counts its calls, so that it can close after the last one."""

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
        """Wait for the calls in progress, then close."""
        try:
            await self._is_idle.wait()  # each call has its own time limit
        finally:
            await self._upstream.close()

    async def close(self) -> None:
        await self._upstream.close()


FAULT_INSTRUCTIONS = "The gateway file is faulty. Ask the user to run `everkept gateway check`."
WATCH_SECONDS = 1.0  # between two checks of the file
# between two checks of a server's tools
REFRESH_PAUSES_SECONDS = 0.2, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0
LISTING_SECONDS = 5.0  # how long a list of tools waits for servers whose tools are passed through

OpenUpstream = Callable[[UpstreamSettings], Upstream]


class CallCounter(Protocol):
    """Counts calls of gateway tools."""

    def note(self, tool: str, milliseconds: float, *, failed: bool, at: int) -> None: ...


class _ServedConfig(Value):
    """The tools and servers of one version of the file."""

    config: GatewayConfig
    upstreams: Mapping[str, CountedUpstream]
    mapped: list[Tool]
    passing: PassedTools

    def list_tools(self) -> list[Tool]:
        return [*self.mapped, *self.passing.list_tools()]


class Gateway:
    """Tools from a file that may change at any time. Close it when done.

    If the file cannot be used, the earlier tools stay and `fault` holds the error.
    """

    def __init__(
        self,
        path: Path,
        open_upstream: OpenUpstream,
        counting: CallCounter,
        clock: Clock,
        taken: Callable[[], Collection[str]] = tuple,
    ) -> None:
        """`taken` returns the names of the other tools that are served."""
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
        self._looking: dict[str, bool] = {}  # upstreams in progress, and whether to list their tools again

    @property
    def instructions(self) -> str | None:
        """The file's instructions to assistants, or a note that the file is faulty."""
        self._load_once()
        if self.fault is not None:
            return FAULT_INSTRUCTIONS
        return self._served.config.instructions if self._served else None

    @property
    def failures(self) -> Mapping[str, EverkeptError]:
        """Errors of the servers whose tools are passed through, by server name."""
        return self._served.passing.failures if self._served else {}

    def find_failure(self, name: str) -> EverkeptError | None:
        """Return why a tool is missing, if it may belong to a server that never answered."""
        return self._served.passing.find_failure(name) if self._served else None

    def check(self) -> None:
        """Raise the error of the file, if it has one."""
        self._load_once()
        if self.fault is not None:
            raise self.fault

    def list_tools(self) -> list[Tool]:
        """Return the tools that are known now."""
        self._load_once()
        return self._served.list_tools() if self._served else []

    def combine_tools(self, own: Toolset, *, only_reads: bool) -> Toolset:
        """Combine Everkept's own tools with those of the gateway."""
        self._load_once()
        known = self._joined.get(only_reads)
        if known is None or known[0] != self._revision:
            tools = self.list_tools()
            offered = select_tools(tools, lambda tool: tool.is_read_only) if only_reads else tools
            known = self._joined[only_reads] = (self._revision, combine(own, offered))
        return known[1]

    async def refresh(self, patience: float | None = LISTING_SECONDS) -> None:
        """Ask the servers whose tools are passed through.

        A slow server keeps its tools, and listeners are notified when it answers.
        """
        self._load_once()
        served = self._served
        if served is not None:
            upstreams = served.passing.upstreams
            await asyncio.gather(*(self._refresh_upstream(served, name, patience) for name in upstreams))

    def start(self, *, at_once: bool) -> None:
        """Watch the file. Servers with `at-start` wait for the first client, unless `at_once` is set."""
        self._spawn(self._watch(), "gateway file")
        if at_once:
            self.welcome()

    def welcome(self) -> None:
        """Start the servers that wait for the first client."""
        if not self._is_welcome:
            self._is_welcome = True
            if self._should_start():
                self._load_once()
                self._start_upstreams()

    def on_change(self, tell: Callable[[], None]) -> Callable[[], None]:
        """Call `tell` when the tools change. Return a function that stops it."""
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
        """Load the file and return whether the tools changed. A file that cannot be used changes nothing."""
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
        """Build the tools of a file. Servers with an unchanged entry stay connected."""
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
            except Exception:  # a canceled call is neither a success nor a failure
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
        """List an upstream's tools again, after it reconnected or announced a change."""
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
                # A server that announces changes all the time is asked rarely.
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
                # An error in one check must not end the watch.
                log.exception("gateway file %s not checked", self.path)

    def _check_file(self, unsure: gateway_file.GatewayFileState | None) -> gateway_file.GatewayFileState | None:
        """Check the file and return its state if it is faulty.

        It may be half written, so it is checked once more before the error is reported.
        """
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
    """List the definitions of the tools, and the servers whose tools are passed through."""
    passing: list[JSON | None] = [{name: each.pass_through} for name, each in served.config.upstreams.items()]
    return [*(tool.listing for tool in served.mapped), *passing]


def build_gateway(settings: Settings, own: Callable[[], Toolset], usage: CallCounter, clock: Clock) -> Gateway:
    """Build the gateway without reading its file or starting a server."""

    def taken() -> set[str]:
        return {name for tool in own() for name in (tool.name, *tool.aliases)}

    return Gateway(get_gateway_path(settings), _open_upstream, usage, clock, taken)


def _open_upstream(reach: UpstreamSettings) -> Upstream:
    from everkept.upstreams.upstream import open_upstream

    return open_upstream(reach, read_upstream_environment())
