"""A server that calls may still be under way at, when it is no longer wanted."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from everkept.core.sessions import Report
from everkept.core.upstreams import JSON, Reach, Upstream


class Busy:
    """An upstream that knows how many calls it has, and ends after the last."""

    def __init__(self, reach: Reach, upstream: Upstream) -> None:
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

    async def tools(self) -> list[JSON]:
        return await self._upstream.tools()

    async def call(
        self, tool: str, arguments: Mapping[str, Any], report: Report | None = None
    ) -> JSON:
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
