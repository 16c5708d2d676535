"""Calls at the same time, and what became of each."""

import asyncio
from collections.abc import Awaitable

from everkept.errors import EverkeptError


async def outcomes(*attempts: Awaitable[object]) -> list[str]:
    """What became of each: the code of its error, or `done`."""

    async def ended(attempt: Awaitable[object]) -> str:
        try:
            await attempt
        except EverkeptError as error:
            return error.code
        return "done"

    return await asyncio.gather(*map(ended, attempts))
