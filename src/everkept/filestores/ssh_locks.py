"""The steps of a lock over SFTP, whose exclusive create is that of the server's disk."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

import asyncssh

from everkept.core.times import Clock
from everkept.errors import Unavailable
from everkept.filestores.locking import claim_of
from everkept.filestores.names import temporary
from everkept.filestores.ssh_changes import with_folder
from everkept.filestores.ssh_connection import SshConnection
from everkept.filestores.ssh_failures import translated
from everkept.filestores.ssh_paths import joined
from everkept.filestores.ssh_session import MISSING, SftpSession

Result = TypeVar("Result")


class SshLockFiles:
    """Implements LockFiles. `now` tells whether a lease that was left behind still lasts."""

    def __init__(self, connection: SshConnection, root: str, now: Clock) -> None:
        self._connection, self._root, self._now = connection, root, now
        #: The marks of claims of ours that nobody holds, and that a lost connection left.
        self._left_behind: dict[str, bytes] = {}

    async def create(self, name: str, content: bytes) -> bool:
        if name in self._left_behind:
            await self._tidy(name)
        claim = _Claim(joined(self._root, name), content)
        try:
            return await self._run(name, claim.make)
        except Unavailable:
            self._left_behind[name] = content
            raise

    async def read(self, name: str) -> tuple[bytes, int] | None:
        async def work(session: SftpSession, again: bool) -> tuple[bytes, int] | None:
            return await session.peek(joined(self._root, name))

        return await self._run(name, work)

    async def rewrite(self, name: str, mark: bytes, content: bytes) -> bool:
        async def work(session: SftpSession, again: bool) -> bool:
            try:
                return await session.rewrite(joined(self._root, name), mark, content)
            except MISSING:
                return False

        return await self._run(name, work)

    async def remove(self, name: str, mark: bytes) -> bool:
        path = joined(self._root, name)

        async def work(session: SftpSession, again: bool) -> bool:
            found = await session.peek(path)
            if found is None or mark not in found[0]:
                return again and found is None
            try:
                await session.remove_file(path)
            except MISSING:
                return again
            return True

        try:
            return await self._run(name, work)
        except Unavailable:
            self._left_behind[name] = mark
            raise

    async def _tidy(self, name: str) -> None:
        """Removes a claim as its holder would have, which is right until its lease is over."""
        mark = self._left_behind[name]
        found = await self.read(name)
        claim = claim_of(name, *found) if found and mark in found[0] else None
        if claim and claim.until is not None and self._now() < claim.until:
            await self.remove(name, mark)
        self._left_behind.pop(name, None)

    async def _run(
        self, name: str, work: Callable[[SftpSession, bool], Awaitable[Result]]
    ) -> Result:
        try:
            return await self._connection.run(work)
        except asyncssh.SFTPError as error:
            host = self._connection.place.host
            # Nobody but us knows of the lock file: it is the folder that may not be changed.
            raise translated(error, host, "", root=self._root, writing=True) from error


class _Claim:
    """A file that is made by one at a time. It may be begun again after the connection was lost.

    It appears with its content, as a second name of a draft: the connection could be lost between
    making a file and writing into it, and an empty one tells nobody that it is ours.
    """

    def __init__(self, path: str, content: bytes) -> None:
        self._path, self._content = path, content
        self._folder, _, name = path.rpartition("/")
        self._draft = joined(self._folder, temporary(name))

    async def make(self, session: SftpSession, again: bool) -> bool:
        if again:
            await session.discard(self._draft)
            if await self._is_ours(session):
                return True
        try:
            await with_folder(session, self._folder, partial(self._draw, session))
            try:
                await self._appear(session)
            finally:
                await session.discard(self._draft)
        except FileExistsError:
            return again and await self._is_ours(session)
        return True

    async def _draw(self, session: SftpSession) -> None:
        await session.create(self._draft, self._content, is_lasting=False)

    async def _appear(self, session: SftpSession) -> None:
        try:
            await session.link(self._draft, self._path)
        except (asyncssh.SFTPOpUnsupported, asyncssh.SFTPPermissionDenied, asyncssh.SFTPFailure):
            # Neither every server nor every disk gives a file a second name.
            await session.create(self._path, self._content, is_lasting=False)

    async def _is_ours(self, session: SftpSession) -> bool:
        found = await session.peek(self._path)
        return found is not None and found[0] == self._content
