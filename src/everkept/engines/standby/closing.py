"""Ending what may hang."""

import asyncio
from collections.abc import Awaitable
from contextlib import suppress

TIME_TO_CLOSE = 0.4  # seconds for each half of it: who ends a program waits for one


async def briefly(*endings: Awaitable[None]) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(TIME_TO_CLOSE):
            await asyncio.gather(*endings, return_exceptions=True)
