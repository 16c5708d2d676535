"""Removes what is left of deleted projects: by whoever deleted them, or else by a server that hears
of it."""

import asyncio
import logging

from everkept.engines.postgres.catalogue import leftovers
from everkept.engines.postgres.connecting.cursor import Cursor, cursor_on
from everkept.engines.postgres.connecting.database import Database
from everkept.engines.postgres.connecting.dialing import Connection
from everkept.engines.postgres.connecting.failures import Pooled
from everkept.engines.postgres.searching.vector_index import orphans, remove_orphans
from everkept.errors import EverkeptError

AGAIN = 5.0  # seconds after which is looked whether another has removed what it was removing

log = logging.getLogger(__name__)


class Remover:
    """One for a library. Nothing of it is begun before somebody asks for it."""

    def __init__(self, database: Database, *, again: float = AGAIN) -> None:
        self._database = database
        self._again = again
        self._is_wanted = False
        self._removing: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def look(self) -> None:
        """Something may be left. Returns at once."""
        self._is_wanted = True
        if self._removing is None or self._removing.done():
            self._removing = asyncio.create_task(self._remove())

    async def removed(self) -> None:
        """Waits until nothing is left but what another removes; who stops waiting ends nothing."""
        self.look()
        while self._removing is not None and not self._removing.done():
            await asyncio.wait([self._removing])

    async def close(self) -> None:
        """What is half done is begun anew by whoever looks next."""
        self._stop_timer()
        if self._removing is not None:
            self._removing.cancel()
            await asyncio.wait([self._removing])
            self._stop_timer()

    async def _remove(self) -> None:
        while self._is_wanted:
            self._is_wanted = False
            try:
                is_left = await self._database.read(_is_something_left)
                if is_left and await self._database.apart(_remove):
                    self._look_later()
            except Pooled:
                return  # the database has said so, once
            except (EverkeptError, RuntimeError) as error:  # the project is gone all the same
                log.warning("What is left of deleted projects is not removed: %s", error)

    def _look_later(self) -> None:
        self._stop_timer()
        self._timer = asyncio.get_running_loop().call_later(self._again, self.look)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _is_something_left(cursor: Cursor) -> bool:
    return leftovers.are_left(cursor) or bool(orphans(cursor))


def _remove(connection: Connection) -> bool:
    """Whether there is some that another removes just now."""
    leftovers.remove(connection)
    remove_orphans(connection)
    return leftovers.are_left(cursor_on(connection))
