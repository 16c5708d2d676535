"""A connection to an SSH server: opened at first use, shared, and opened again when it is lost."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import asyncssh

from everkept.errors import Unavailable
from everkept.filestores.ssh_place import SshOptions, SshPlace
from everkept.filestores.ssh_session import LOST, SftpSession

Result = TypeVar("Result")


class SshConnection:
    """All folders of one user on one server work through it."""

    def __init__(self, place: SshPlace, options: SshOptions) -> None:
        self.place = place
        self._options = options
        self._session: SftpSession | None = None
        self._opening = asyncio.Lock()

    async def run(self, work: Callable[[SftpSession, bool], Awaitable[Result]]) -> Result:
        """What `work` gives; it is done again, once, when the connection is lost meanwhile.

        Its second argument says that it was begun before: what the server did of it, and whether
        it still does some of it, nobody knows.
        """
        session = await self._opened()
        try:
            return await work(session, False)
        except LOST:
            self._drop(session)
        try:
            session = await self._opened()
        except Unavailable as error:
            raise self._lost(error.message) from None
        try:
            return await work(session, True)
        except LOST as error:
            self._drop(session)
            reason = "it did not answer in time" if isinstance(error, TimeoutError) else str(error)
            raise self._lost(f"a second try ended in the same way: {reason}.") from None

    def _lost(self, then: str) -> Unavailable:
        return Unavailable(
            f"The connection to {self.place} was lost; {then}",
            hint="If this was a change, look whether it was made, and repeat it if not.",
            host=self.place.host,
        )

    async def close(self) -> None:
        session, self._session = self._session, None
        if session:
            await session.close()

    async def _opened(self) -> SftpSession:
        async with self._opening:
            if self._session is None or not self._session.is_open:
                self._session = await self._new()
            return self._session

    async def _new(self) -> SftpSession:
        try:
            return await SftpSession.opened(self.place, self._options)
        except (asyncssh.Error, *LOST) as error:
            raise Unavailable(
                f"{self.place} can be reached, and opens no SFTP session: {error or 'no answer'}.",
                hint="Files are kept over SFTP; the server has to offer it.",
                host=self.place.host,
            ) from None

    def _drop(self, session: SftpSession) -> None:
        """Another task may have opened the next one already."""
        session.abort()
        if self._session is session:
            self._session = None
