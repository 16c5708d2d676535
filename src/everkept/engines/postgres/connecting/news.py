"""Waking whoever follows, soon after a commit and never in it: there they would take turns."""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from typing import Any

from everkept.engines.postgres.connecting.cursor import Cursor
from everkept.errors import EverkeptError

CHANNEL = "everkept"
PAUSE = 0.2  # seconds in which changes are gathered, however many there are

_TELL = (
    f"SELECT pg_notify('{CHANNEL}', current_schema() || ':' || coalesce(store::text, '')) "
    "FROM unnest(%s::integer[]) AS store"
)


def note_change(cursor: Cursor, store: int | None) -> None:
    """Tells the number of a store, once the transaction is committed; None is for the library."""
    cursor.news.add(store)


class Teller:
    """Tells at once what comes after a pause, and the rest together.

    It only wakes: what is not told is found by whoever looks by himself.
    """

    def __init__(self, read: Callable[[Callable[[Cursor], Any]], Awaitable[Any]]) -> None:
        self._read = read
        self._news: set[int | None] = set()
        self._telling: asyncio.Task[None] | None = None
        self._hurry = asyncio.Event()

    def note(self, news: Collection[int | None]) -> None:
        """Returns at once. It is told in the loop that runs now."""
        if not news:
            return
        self._news.update(news)
        if self._underway() is None:
            self._hurry = asyncio.Event()
            self._telling = asyncio.get_running_loop().create_task(self._tell())

    async def finish(self, limit: float) -> None:
        """Tells what is left, if that takes no longer."""
        if (telling := self._underway()) is not None:
            self._hurry.set()
            await asyncio.wait({telling}, timeout=limit)

    def drop(self) -> None:
        """Nothing is told any more of what was noted so far."""
        self._news.clear()
        if (telling := self._underway()) is not None:
            telling.cancel()
        self._telling = None

    def _underway(self) -> asyncio.Task[None] | None:
        telling = self._telling
        is_ours = telling is not None and telling.get_loop() is asyncio.get_running_loop()
        return telling if telling is not None and is_ours and not telling.done() else None

    async def _tell(self) -> None:
        while self._news:
            news, self._news = self._news, set()
            with suppress(EverkeptError):
                await self._read(lambda cursor, news=news: cursor.ask_last(_TELL, [list(news)]))
            with suppress(TimeoutError):
                async with asyncio.timeout(PAUSE):
                    await self._hurry.wait()
