"""Compares the first answers of a start, which the last one left, with the real ones.

A client that was told something else is notified, and every further answer is the real one.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import cast

from everkept.core.protocol import HANDSHAKE_VERSIONS, encode_small
from everkept.first_answers import Kept, Start, packed, prune
from everkept.transports.connection import JSON, TOOLS_CHANGED
from everkept.transports.dispatch import Dispatcher, Reply, Request

CHECK_SECONDS = 0.5  # after the list was answered: the calls that follow it come first

log = logging.getLogger(__name__)

#: Names the files that decide the first answers; None if more than files decides them.
DecisiveFiles = Callable[[], Iterable[str] | None]


def check_answers(dispatcher: Dispatcher, start: Start, files: DecisiveFiles) -> None:
    """From now on keep first answers, and compare those that were given."""
    check = _Check(dispatcher, start, files)
    dispatcher.methods |= {"initialize": check.initialize, "tools/list": check.list_tools}


def keep(path: Path, answers: Kept, files: Iterable[str]) -> None:
    """Keep answers for the next start, which depend on these files; raise OSError if it cannot."""
    # Imported here: only a start whose answers are new needs it.
    from everkept.core import disk

    disk.make_folder(path.parent)
    prune(str(path.parent))
    disk.replace(path, packed(answers, files), is_synced=False)


class _Check:
    def __init__(self, dispatcher: Dispatcher, start: Start, files: DecisiveFiles) -> None:
        self._initialize = dispatcher.methods["initialize"]
        self._list_tools = dispatcher.methods["tools/list"]
        self._path = start.path
        self._flags = start.flags
        self._files = files
        self._kept = start.kept  # None once a client has its list
        self._handshake = b""
        self._task: asyncio.Task[None] | None = None

    async def initialize(self, request: Request) -> JSON:
        result = cast(JSON, await self._initialize(request))
        # Clients listen for a correction only if it was announced.
        tools: JSON = {**result["capabilities"]["tools"], "listChanged": True}
        result |= {"capabilities": {**result["capabilities"], "tools": tools}}
        rest = {name: value for name, value in result.items() if name != "protocolVersion"}
        self._handshake = encode_small(rest)[1:]
        return result

    async def list_tools(self, request: Request) -> Reply:
        # A client without a handshake cannot be notified, so it gets no answer but the real one.
        if request.is_stateless or not self._handshake:
            return await self._list_tools(request)
        kept, self._kept = self._kept, None
        if kept is not None and request.params.get("cursor") is None:
            self._task = asyncio.create_task(self._check(kept, request), name="answer check")
            return json.loads(kept.tools)
        result = await self._list_tools(request)
        if self._task is None:  # nothing was kept, or it was not used
            asyncio.get_running_loop().call_soon(self._keep, self._answers(result))
        return result

    async def _check(self, kept: Kept, request: Request) -> None:
        await asyncio.sleep(CHECK_SECONDS)
        while not request.connection.turns.is_idle:  # noqa: ASYNC110 - calls come and go
            await asyncio.sleep(CHECK_SECONDS)
        try:
            real = self._answers(await self._list_tools(request))
        except Exception:  # whatever is wrong, the client must not keep the list
            log.exception("the list of tools from the last start is wrong")
            self._forget()
        else:
            if (real.handshake, real.tools) == (kept.handshake, kept.tools):
                return
            self._keep(real)
            if real.tools == kept.tools:
                return
        await request.announce(TOOLS_CHANGED, {})

    def _answers(self, listed: Reply) -> Kept:
        tools = encode_small(cast(JSON, listed))
        return Kept(list(HANDSHAKE_VERSIONS), self._handshake, tools, self._flags)

    def _keep(self, answers: Kept) -> None:
        files = self._files()
        if files is None or self._path is None:
            self._forget()
            return
        try:
            keep(Path(self._path), answers, files)
        except OSError as error:
            log.debug("cannot keep the first answers for the next start: %s", error)

    def _forget(self) -> None:
        if self._path is not None:
            with suppress(OSError):
                Path(self._path).unlink()
