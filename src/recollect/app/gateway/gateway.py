"""The gateway at work: its tools as the file has them now, over the servers behind them."""

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from recollect.app.gateway import file
from recollect.app.gateway.busy import Busy
from recollect.app.gateway.clashes import refuse_clashes
from recollect.core.sessions import Call
from recollect.core.times import Clock
from recollect.core.upstreams import Reach, Upstream
from recollect.errors import RecollectError
from recollect.families.gateway.model import GatewayConfig
from recollect.families.gateway.toolset import GatewayTools
from recollect.tools.tool import Result, Tool
from recollect.tools.toolset import Toolset, combined, filtered

FAULTY = "The gateway's file has a fault: tell the user to run `recollect gateway check`."
INTERVAL = 1.0  # seconds between two looks at the file
LISTING = 5.0  # seconds that a list of tools waits for servers that are passed through

Open = Callable[[Reach], Upstream]

log = logging.getLogger(__name__)


class Counting(Protocol):
    """Where calls are counted."""

    def note(self, tool: str, milliseconds: float, *, failed: bool, at: int) -> None: ...


@dataclass(slots=True)
class _Served:
    """What one state of the file came to."""

    config: GatewayConfig
    family: GatewayTools
    upstreams: Mapping[str, Busy]
    mapped: list[Tool]
    passed: dict[str, list[Tool]] = field(default_factory=dict[str, list[Tool]])

    @property
    def passing(self) -> list[str]:
        """The upstreams whose tools are passed through."""
        return [name for name, each in self.config.upstreams.items() if each.pass_through]


class Gateway:
    """Tools made from a file, which may change under way. Close it when done.

    A file that cannot be used leaves what was before, and its `fault`.
    """

    def __init__(
        self,
        path: Path,
        open_upstream: Open,
        counting: Counting,
        clock: Clock,
        taken: Callable[[], Collection[str]] = tuple,
    ) -> None:
        """`taken` gives the names of the tools that these are served beside."""
        self.path = path
        self.fault: RecollectError | None = None
        self._open = open_upstream
        self._counting = counting
        self._clock = clock
        self._taken = taken
        self._served: _Served | None = None
        self._seen: file.State | None = None
        self._is_loaded = False
        self._revision = 0
        self._joined: dict[bool, tuple[int, Toolset]] = {}
        self._listeners: set[Callable[[], None]] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._looking: dict[str, bool] = {}  # upstreams, and whether to look once more

    @property
    def instructions(self) -> str | None:
        """What its file has to say to assistants, or that there is something wrong with it."""
        try:
            # The handshake comes before there is any need of the tools.
            config = self._served.config if self._served else file.load(self.path).config
        except RecollectError:
            return FAULTY
        return config.instructions if self.fault is None else FAULTY

    @property
    def is_passing(self) -> bool:
        """Whether some tools are known only by asking a server."""
        self._load_once()
        return self._served is not None and bool(self._served.passing)

    def check(self) -> None:
        """Raises what is wrong with the file."""
        self._load_once()
        if self.fault is not None:
            raise self.fault

    def tools(self) -> list[Tool]:
        """Those that are known now."""
        self._load_once()
        if self._served is None:
            return []
        passed = [tool for tools in self._served.passed.values() for tool in tools]
        return [*self._served.mapped, *passed]

    def beside(self, own: Toolset, *, only_reads: bool) -> Toolset:
        """Our own tools, and then those of the gateway."""
        self._load_once()
        known = self._joined.get(only_reads)
        if known is None or known[0] != self._revision:
            tools = self.tools()
            offered = filtered(tools, lambda tool: tool.only_reads) if only_reads else tools
            known = self._joined[only_reads] = (self._revision, combined(own, offered))
        return known[1]

    async def refresh(self, patience: float | None = LISTING) -> None:
        """Asks the servers that are passed through what they have; one that takes long is left
        out, and listeners are told when it has answered."""
        self._load_once()
        served = self._served
        if served is not None and served.passing:
            await asyncio.gather(*(self._list(served, name, patience) for name in served.passing))

    def start(self) -> None:
        """Watches the file, and starts what is to be started at once."""
        self._spawn(self._watch(), "gateway file")

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
            self._seen = file.state(self.path)
            self._load()

    def _load(self) -> bool:
        """Whether the file could be used; else what was before stays."""
        try:
            config, warnings = file.load(self.path)
            refuse_clashes(self.path, config, self._taken())
        except RecollectError as error:
            self.fault = error
            log.warning("gateway: %s", error)
            return False
        self.fault = None
        for warning in warnings:
            log.info("gateway: %s, %s", self.path, warning)
        self._serve(config)
        return True

    def _serve(self, config: GatewayConfig) -> None:
        """Servers that are reached as before stay connected."""
        before = dict(self._served.upstreams) if self._served else {}
        upstreams: dict[str, Busy] = {}
        for name, each in config.upstreams.items():
            kept = before.get(name)
            if kept is not None and kept.reach == each.reach:
                upstreams[name] = before.pop(name)
            else:
                upstreams[name] = Busy(each.reach, self._open(each.reach))
                upstreams[name].on_tools_changed(lambda name=name: self._look_again(name))
        family = GatewayTools(config, upstreams)
        mapped = [self._counted(tool) for tool in family.mapped_tools()]
        self._served = _Served(config, family, upstreams, mapped)
        self._revision += 1
        for retired in before.values():
            self._spawn(retired.retire(), f"end of upstream {retired.name}")

    def _counted(self, tool: Tool) -> Tool:
        async def run(call: Call, arguments: Mapping[str, Any]) -> Result:
            started = time.perf_counter()
            failed = True
            try:
                result = await tool.run(call, arguments)
                failed = result.is_error
                return result
            finally:
                elapsed = (time.perf_counter() - started) * 1000
                self._counting.note(tool.name, elapsed, failed=failed, at=self._clock())

        return replace(tool, run=run)

    async def _list(self, served: _Served, upstream: str, patience: float | None) -> None:
        try:
            async with asyncio.timeout(patience):
                listed = await served.family.passed_tools(upstream)
        except TimeoutError:
            log.info("gateway: %s takes long to list its tools", upstream)
            self._look_again(upstream)
            listed = []
        except RecollectError as error:
            log.warning("gateway: tools of %s are not offered: %s", upstream, error)
            listed = []
        others = [
            tool for name, tools in served.passed.items() if name != upstream for tool in tools
        ]
        tools = self._without_clashes(upstream, listed, [*served.mapped, *others])
        before = served.passed.get(upstream, [])
        served.passed[upstream] = tools
        if served is self._served and _listings(before) != _listings(tools):
            self._revision += 1

    def _without_clashes(
        self, upstream: str, tools: Sequence[Tool], others: Sequence[Tool]
    ) -> list[Tool]:
        taken = {*self._taken(), *(tool.name for tool in others)}
        kept: list[Tool] = []
        for tool in tools:
            if tool.name in taken:
                log.warning(
                    "gateway: %s of %s is not offered: there is a tool of that name; "
                    "a `prefix` tells them apart",
                    tool.name,
                    upstream,
                )
            else:
                kept.append(self._counted(tool))
            taken.add(tool.name)
        return kept

    def _look_again(self, upstream: str) -> None:
        """After an upstream was connected anew, or said that its tools are others."""
        if upstream in self._looking:
            self._looking[upstream] = True
        elif self._served is not None and upstream in self._served.passing:
            self._looking[upstream] = True
            self._spawn(self._list_again(upstream), f"tools of upstream {upstream}")

    async def _list_again(self, upstream: str) -> None:
        try:
            while self._looking[upstream] and (served := self._served) is not None:
                self._looking[upstream] = False
                before = self._revision
                if upstream in served.passing:
                    await self._list(served, upstream, None)
                if self._revision != before:
                    self._tell()
        finally:
            del self._looking[upstream]

    async def _watch(self) -> None:
        if self._wants_start():
            self._load_once()
            self._start_upstreams()
        unsure: file.State | None = None
        while True:
            await asyncio.sleep(INTERVAL)
            self._load_once()
            now = file.state(self.path)
            if now == self._seen:
                continue
            # What does not make sense may be half written: it gets another look before the word.
            if unsure != now and not self._makes_sense():
                unsure = now
                continue
            self._seen, unsure = now, None
            if self._load():
                log.info("gateway: %s was read again", self.path)
                self._start_upstreams()
                self._tell()

    def _makes_sense(self) -> bool:
        try:
            file.load(self.path)
        except RecollectError:
            return False
        return True

    def _wants_start(self) -> bool:
        try:
            upstreams = file.load(self.path).config.upstreams.values()
        except RecollectError:
            return False
        return any(upstream.reach.starts_at_once for upstream in upstreams)

    def _start_upstreams(self) -> None:
        for upstream in self._served.upstreams.values() if self._served else ():
            if upstream.reach.starts_at_once:
                upstream.start()

    def _tell(self) -> None:
        for tell in list(self._listeners):
            tell()

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("gateway: %s failed", task.get_name(), exc_info=error)


def _listings(tools: Sequence[Tool]) -> list[Any]:
    return [tool.listing for tool in tools]
