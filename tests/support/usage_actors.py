"""Processes that count calls of tools beside the one that is tested."""

import asyncio
from pathlib import Path

from actors import heard, say
from everkept.core.mcp import ToolUsage
from everkept.engines.sqlite.library import SqliteLibrary


def count_when_told(folder: str, tool: str, times: int) -> None:
    """Adds one call after the other, as fast as it can."""

    async def run() -> None:
        library = SqliteLibrary(Path(folder))
        await library.list_usage()
        say("ready")
        heard()
        for number in range(times):
            await library.add_usage([ToolUsage(tool, 1, number % 2, 1.0, float(number), number)])
        await library.close()

    asyncio.run(run())
