"""One application in its own thread, which every thread and every event loop can call."""

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from everkept.errors import InvalidInput, Refused, Unavailable
from everkept.patterns import compile_late
from everkept.settings import AUTO, OWN_TOOLSETS, Settings, read_settings
from everkept.values import list_fields

T = TypeVar("T")
CLIENT = "python"
# What a program can use does not depend on what assistants are offered.
FIXED_SETTINGS = {"toolsets": ",".join(OWN_TOOLSETS), "dialect": "everkept", "transport": "stdio", "mode_tools": False}

# Arguments of tools in a message, after a backtick, and their names in the Python API.
_ARGUMENT_NAMES = (
    (compile_late(r"`(?:entities|observations|relations|deletions)\[\d+\]\."), "`"),
    (compile_late(r"`content\b"), "`text"),
    (compile_late(r"`contents\b"), "`observations"),
    (compile_late(r"`(?:entity|entity_name)\b"), "`name"),
    (compile_late(r"`entity_type\b"), "`type"),
    (compile_late(r"`(?:relation_type|relationship_type)\b"), "`verb"),
    (compile_late(r"`from\b"), "`source"),
    (compile_late(r"`to\b"), "`target"),
    (compile_late(r"`memory_id\b"), "`id"),
    (compile_late(r"`session_id\b"), "`session"),
    (compile_late(r"`related_entities\b"), "`about"),
    (compile_late(r"`source\.(file|tool)\b"), r"`source_\1"),
    (compile_late(r"`time_range\.after\b"), "`since"),
    (compile_late(r"`time_range\.before\b"), "`until"),
    (compile_late(r"`(type|scope)\["), r"`\1s["),
    (compile_late(r"`tags\.(add|remove)\b"), r"`\1_tags"),
    (compile_late(r"`task_description\b"), "`task"),
    (compile_late(r"`files_in_context\b"), "`files"),
    (compile_late(r"`project_filter\b"), "`folder"),
)


class Connection:
    """An open memory: the application, its event loop and its thread."""

    def __init__(
        self, project: str | None, folder: str | Path | None, client: str, settings: Mapping[str, Any]
    ) -> None:
        from everkept.app.app import App
        from everkept.core.sessions import Session

        _refuse_unknown(settings)
        flags: dict[str, Any] = {**settings, "path": folder, "project": project, **FIXED_SETTINGS}
        chosen = read_settings(flags)
        if chosen.project is None:
            chosen = read_settings({**flags, "project": AUTO})
        self.session: Session = Session(client=client, is_conversation=False)
        self.app: App = App(chosen)
        self._process = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="everkept", daemon=True)
        self._lock = threading.Lock()
        self._is_closed = False
        self._thread.start()

    def submit(self, work: Callable[[], Awaitable[T]]) -> "Future[T]":
        """Start the work on the thread of this memory."""

        async def run() -> T:
            return await work()

        with self._lock:
            self._check_open()
            return asyncio.run_coroutine_threadsafe(run(), self._loop)

    async def call_tool(self, name: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Run a tool on the thread of this memory. Arguments that are None count as not given."""
        given = {key: value for key, value in arguments.items() if value is not None}
        try:
            return (await self.app.call(self.session, name, given)).facts
        except InvalidInput as error:
            raise _rename_arguments(error) from None

    def close(self) -> None:
        """Finish what is under way and close all files. Closing twice does nothing."""
        with self._lock:
            if self._is_closed or os.getpid() != self._process:
                self._is_closed = True
                return
            self._is_closed = True
            closing = asyncio.run_coroutine_threadsafe(self.app.close(), self._loop)
        try:
            closing.result()
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def _check_open(self) -> None:
        if self._is_closed:
            raise Refused("This memory is closed.", hint="Open it again with Memory.open().")
        if os.getpid() != self._process:
            raise Unavailable(
                "This memory was opened before the process forked, and cannot be used in the child.",
                hint="Call Memory.open() in the child process.",
            )


def _refuse_unknown(settings: Mapping[str, Any]) -> None:
    """Raise InvalidInput for a name that would have no effect, such as a misspelled `data_dir`."""
    known = {field.name for field in list_fields(Settings)} - {*FIXED_SETTINGS, "path"}
    for name in settings:
        if name not in known:
            raise InvalidInput(
                f'"{name}" is not a setting of a memory.',
                hint="Use `folder` for the working folder." if name == "path" else "Use a name of docs/settings.md.",
                argument=name,
            )


def _rename_arguments(error: InvalidInput) -> InvalidInput:
    """Return the error with the names that a caller of the Python API knows."""
    for pattern, name in _ARGUMENT_NAMES:
        error.message = pattern.sub(name, error.message)
    error.args = (error.message,)
    return error


class AsyncCaller:
    """A part of a memory that a coroutine calls."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def _run(self, work: Callable[[], Awaitable[T]]) -> T:
        return await asyncio.wrap_future(self._connection.submit(work))

    async def _call(self, tool: str, **arguments: Any) -> Mapping[str, Any]:
        return await self._run(partial(self._connection.call_tool, tool, arguments))

    async def _close(self) -> None:
        await asyncio.to_thread(self._connection.close)


class Caller:
    """A part of a memory that any thread calls. It waits for the answer."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def _run(self, work: Callable[[], Awaitable[T]]) -> T:
        future = self._connection.submit(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # the caller was interrupted; a finished future ignores this
            raise

    def _call(self, tool: str, **arguments: Any) -> Mapping[str, Any]:
        return self._run(partial(self._connection.call_tool, tool, arguments))

    def _close(self) -> None:
        self._connection.close()
