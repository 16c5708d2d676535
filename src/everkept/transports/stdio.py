"""MCP over standard input and output, and the check of the saved first answers.

Pipes are read on the event loop if possible, otherwise by threads. A client that got a wrong first answer is notified,
and every further answer is the real one.
"""

import asyncio
import json
import logging
import os
import queue
import stat
import sys
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, cast

from everkept.core.mcp import HANDSHAKE_VERSIONS, MAX_MESSAGE_BYTES, LineBuffer, OverlongLine, encode_small, find_id
from everkept.core.sessions import Session
from everkept.first_answers import INITIALIZED, CachedAnswers, ClientAnswers, ServerStart, encode_answers, prune
from everkept.transports.connection import JSON, TOOLS_CHANGED, ClientConnection, install_signal_handlers
from everkept.transports.dispatch import (
    INVALID_REQUEST,
    PARSE_ERROR,
    Dispatcher,
    ProtocolError,
    Reply,
    Request,
    RequestResult,
    is_gateway,
)
from everkept.values import replace

READ_BYTES = 1 << 16
PIPE_BYTES = 1 << 20  # the limit for any user of Linux
LAST_LINE_BREAK = b"\n"  # the last line counts without its line break too

log = logging.getLogger(__name__)


class MessageWriter(Protocol):
    """Writes messages whole and in order, without making the caller wait."""

    @property
    def pending_count(self) -> int:
        """Return how many messages the client has not read."""
        ...

    def put(self, data: bytes) -> None: ...

    async def close(self, seconds: float) -> None:
        """Wait this long for pending messages."""
        ...


def start_reading(read: int, deliver: Callable[[bytes], None], end: Callable[[], None]) -> None:
    """Call `deliver` with all input and a last line break, then `end`."""
    loop = asyncio.get_running_loop()
    if not _is_waitable(read):
        # A daemon thread with os.read, because a thread inside sys.stdin would hold its lock at exit.
        threading.Thread(target=_read_all, args=(read, loop, deliver, end), daemon=True).start()
        return

    def receive() -> None:
        try:
            data = _read(read)
        except BlockingIOError:  # another program has read it
            return
        if data:
            deliver(data)
        else:
            loop.remove_reader(read)
            deliver(LAST_LINE_BREAK)
            end()

    loop.add_reader(read, receive)


def open_writer(written: int, on_gone: Callable[[], None]) -> MessageWriter:
    """Return a writer that calls `on_gone` when the client has closed its end."""
    # Programs that write to our standard error must not find it in another mode.
    if not _is_waitable(written) or os.path.sameopenfile(written, 2):
        return _ThreadWriter(written, on_gone)
    return _LoopWriter(written, on_gone)


def _is_waitable(descriptor: int) -> bool:
    """Return whether every system's event loop can wait for it, unlike files and terminals."""
    if sys.platform == "win32":
        return False
    mode = os.fstat(descriptor).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def _widen_pipe(written: int) -> None:
    """Make a pipe large enough for a whole answer, if the system allows it."""
    if sys.platform == "linux":
        import fcntl

        with suppress(OSError):  # a socket, or beyond the limit of this user
            fcntl.fcntl(written, fcntl.F_SETPIPE_SZ, PIPE_BYTES)


class _LoopWriter:
    """Writes immediately what the pipe can take, and the rest when the client has read that."""

    def __init__(self, written: int, on_gone: Callable[[], None]) -> None:
        self._written = written
        self._on_gone = on_gone
        self._loop = asyncio.get_running_loop()
        self._pending: deque[memoryview] = deque()
        self._is_gone = False
        self._drained = asyncio.Event()
        self._drained.set()
        os.set_blocking(written, False)
        _widen_pipe(written)

    @property
    def pending_count(self) -> int:
        return len(self._pending)

    def put(self, data: bytes) -> None:
        if self._is_gone:
            return
        if self._pending:
            self._pending.append(memoryview(data))
        elif rest := self._write(memoryview(data)):
            self._pending.append(rest)
            self._drained.clear()
            self._loop.add_writer(self._written, self._write_rest)

    async def close(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._drained.wait(), seconds)
        except TimeoutError:
            log.debug("the client has not read %d messages", len(self._pending))
        self._forget()
        os.set_blocking(self._written, True)

    def _write_rest(self) -> None:
        rest = self._write(self._pending[0])
        if rest:
            self._pending[0] = rest
        elif self._pending:
            self._pending.popleft()
        if not self._pending:
            self._forget()

    def _write(self, view: memoryview) -> memoryview | None:
        """Return what did not fit into the pipe."""
        try:
            return view[os.write(self._written, view) :]
        except BlockingIOError:
            return view
        except OSError:
            self._is_gone = True
            self._forget()
            self._on_gone()
            return None

    def _forget(self) -> None:
        self._loop.remove_writer(self._written)
        self._pending.clear()
        self._drained.set()


class _ThreadWriter:
    """Writes in a thread, because a client that does not read must not block the shutdown."""

    def __init__(self, written: int, on_gone: Callable[[], None]) -> None:
        self._written = written
        self._on_gone = on_gone
        self._loop = asyncio.get_running_loop()
        self._pending: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._write_all, daemon=True)
        self._thread.start()

    @property
    def pending_count(self) -> int:
        return self._pending.qsize()

    def put(self, data: bytes) -> None:
        self._pending.put(data)

    async def close(self, seconds: float) -> None:
        self._pending.put(None)
        await asyncio.to_thread(self._thread.join, seconds)

    def _write_all(self) -> None:
        try:
            while (data := self._pending.get()) is not None:
                view = memoryview(data)
                while view:
                    view = view[os.write(self._written, view) :]
        except OSError:
            with suppress(RuntimeError):  # the server has ended before its client
                self._loop.call_soon_threadsafe(self._on_gone)


def _read_all(
    read: int, loop: asyncio.AbstractEventLoop, deliver: Callable[[bytes], None], end: Callable[[], None]
) -> None:
    try:
        while data := _read(read):
            loop.call_soon_threadsafe(deliver, data)
        loop.call_soon_threadsafe(deliver, LAST_LINE_BREAK)
        loop.call_soon_threadsafe(end)
    except RuntimeError:
        log.debug("the server ended while its input was read")


def _read(read: int) -> bytes:
    try:
        return os.read(read, READ_BYTES)
    except BlockingIOError:
        raise
    except OSError:  # a terminal that was hung up
        return b""


GRACE_SECONDS = 0.4  # for calls in progress after a signal
LAST_CALLS_SECONDS = 5.0  # for calls in progress after the end of input, because the client still reads
LAST_WRITE_SECONDS = 0.1  # for canceled calls and pending output

ROOTS_CHANGED = "notifications/roots/list_changed"
PROGRESS_METHOD = "notifications/progress"
MAX_PENDING_MESSAGES = 100  # to the client, before progress is dropped


def claim_stdio() -> tuple[int, int]:
    """Reserve the wire: a stray print goes to stderr, and a child reads nothing."""
    written, read = os.dup(1), os.dup(0)
    os.dup2(2, 1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    sys.stdout = sys.stderr
    return read, written


async def serve_stdio(dispatcher: Dispatcher, read: int, written: int, start: "ServerStart | None" = None) -> None:
    """Serve one client until its input ends or a signal comes.

    `start` has the requests that were answered before, and the input after them.
    """
    await _StdioServer(dispatcher, written).run(read, start)


class _StdioServer:
    def __init__(self, dispatcher: Dispatcher, written: int) -> None:
        self._dispatcher = dispatcher
        self._connection = ClientConnection(Session())
        self._running: dict[str | int, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()  # including canceled ones
        self._stop = asyncio.Event()
        self._writer = open_writer(written, self._stop_soon)

    async def run(self, read: int, start: "ServerStart | None" = None) -> None:
        install_signal_handlers(asyncio.get_running_loop(), self._stop_soon)
        lines = LineBuffer(MAX_MESSAGE_BYTES)

        def deliver(data: bytes) -> None:
            for line in lines.feed(data):
                self._handle_line(line)

        if start is not None:
            for message in start.answered:
                await self._handle(message["id"], message["method"], message.get("params") or {})
            if start.is_initialized:
                self._ask_roots()
            deliver(start.rest)
        start_reading(read, deliver, self._stop.set)
        await self._stop.wait()
        await self._finish()
        await self._writer.close(LAST_WRITE_SECONDS)

    def _handle_line(self, line: bytes | OverlongLine) -> None:
        if isinstance(line, OverlongLine):
            reason = f"A message may have {MAX_MESSAGE_BYTES:,} bytes at most."
            self._send_error(find_id(line.head, line.tail), INVALID_REQUEST, reason)
            return
        if not line.strip():
            return
        try:
            message = json.loads(line)
        except (ValueError, RecursionError) as error:
            self._send_error(None, PARSE_ERROR, f"This line is not JSON: {error}")
            return
        if message == []:
            self._send_error(None, INVALID_REQUEST, "The batch is empty.")
        elif isinstance(message, list):
            # Batches existed in one revision; their members are answered one by one.
            for member in cast(list[Any], message):
                self._handle_message(member)
        else:
            self._handle_message(message)

    def _handle_message(self, message: Any) -> None:
        if not isinstance(message, dict):
            self._send_error(None, INVALID_REQUEST, "A message must be an object.")
            return
        message = cast(JSON, message)
        method, request_id = message.get("method"), message.get("id")
        params: Any = message.get("params") or {}
        if not isinstance(method, str):
            if "result" in message or "error" in message:
                if self._connection.roots is not None:
                    self._connection.roots.take_answer(message)
            else:
                self._send_error(request_id, INVALID_REQUEST, "A request needs a `method`.")
        elif not isinstance(params, dict):
            self._send_error(request_id, INVALID_REQUEST, "`params` must be an object.")
        elif "id" not in message:
            self._handle_notification(method, cast(JSON, params))
        elif isinstance(request_id, bool) or not isinstance(request_id, str | int):
            self._send_error(None, INVALID_REQUEST, "`id` must be a string or a whole number.")
        elif request_id in self._running:
            self._send_error(request_id, INVALID_REQUEST, "A request with this `id` is running.")
        else:
            task = _start_task(self._answer(request_id, method, cast(JSON, params)))
            if not task.done():
                self._running[request_id] = task
                self._tasks.add(task)
                task.add_done_callback(lambda _: self._forget_task(request_id, task))

    def _handle_notification(self, method: str, params: JSON) -> None:
        if method == "notifications/cancelled":
            cancelled = params.get("requestId")
            task = self._running.pop(cancelled, None) if isinstance(cancelled, str | int) else None
            if task is not None:
                task.cancel()
        elif method in (INITIALIZED, ROOTS_CHANGED):
            self._ask_roots()

    def _ask_roots(self) -> None:
        """Ask the client for its folders, if they decide the project of a call."""
        if not self._connection.offers_roots or not self._dispatcher.app.follows_folder:
            return
        if self._connection.roots is None:
            from everkept.core.client_roots import ClientRoots

            self._connection.roots = ClientRoots(
                self._connection.session, lambda question: self._put(encode_small(question))
            )
        self._connection.roots.ask()

    def _forget_task(self, request_id: str | int, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if self._running.get(request_id) is task:
            del self._running[request_id]

    async def _answer(self, request_id: str | int, method: str, params: JSON) -> None:
        try:
            answer = await self._handle(request_id, method, params)
        except ProtocolError as error:
            self._put(error.respond(request_id))
        else:
            self._put(answer.respond(request_id))

    async def _handle(self, request_id: str | int, method: str, params: JSON) -> RequestResult:
        return await self._dispatcher.handle(
            self._connection, request_id, method, params, notify=self._notify, announce=self._notify
        )

    async def _notify(self, method: str, params: JSON) -> None:
        if method == PROGRESS_METHOD and self._writer.pending_count > MAX_PENDING_MESSAGES:
            return  # the client is behind, and the next progress report replaces this one
        try:
            self._put(encode_small({"jsonrpc": "2.0", "method": method, "params": params}))
        except ValueError:  # NaN, which JSON does not have
            log.warning("cannot write a notification of %s", method)

    def _send_error(self, request_id: Any, code: int, text: str) -> None:
        known = request_id if isinstance(request_id, str | int) else None
        self._put(ProtocolError(code, text).respond(known))

    def _put(self, message: bytes) -> None:
        self._writer.put(message + b"\n")

    def _stop_soon(self) -> None:
        """Stop after a signal, or if the client is gone. Calls in progress have little time."""
        self._stop.set()
        asyncio.get_running_loop().call_later(GRACE_SECONDS, self._cancel)

    async def _finish(self) -> None:
        """Let the calls in progress end, then cancel them."""
        self._connection.close()
        self._dispatcher.close()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=LAST_CALLS_SECONDS)
        if self._tasks:
            self._cancel()
            await asyncio.wait(self._tasks, timeout=LAST_WRITE_SECONDS)

    def _cancel(self) -> None:
        for task in self._tasks:
            task.cancel()


def _start_task(answer: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """Start the task immediately if Python can, so that an answer without waiting is returned now."""
    loop = asyncio.get_running_loop()
    if sys.version_info >= (3, 12):
        return asyncio.Task(answer, loop=loop, eager_start=True)
    return loop.create_task(answer)


CHECK_SECONDS = 0.5  # after the answer to tools/list, so that later calls come first


#: Returns the files that decide the first answers, or None if more than files decides them.
DecisiveFiles = Callable[[], Iterable[str] | None]


def check_answers(dispatcher: Dispatcher, start: ServerStart, files: DecisiveFiles) -> None:
    """Save the first answers from now on, and compare those that were returned."""
    check = _AnswerCheck(dispatcher, start, files)
    dispatcher.methods |= {"initialize": check.initialize, "tools/list": check.list_tools}


def save_answers(path: Path, answers: CachedAnswers, files: Iterable[str]) -> None:
    """Save answers for the next start, which depend on these files. Raise OSError."""
    # Imported here, because only a start with new answers needs it.
    from everkept.core import disk

    disk.make_folder(path.parent)
    prune(str(path.parent))
    disk.replace(path, encode_answers(answers, files), is_synced=False)


class _AnswerCheck:
    def __init__(self, dispatcher: Dispatcher, start: ServerStart, files: DecisiveFiles) -> None:
        self._dispatcher = dispatcher
        self._initialize = dispatcher.methods["initialize"]
        self._list_tools = dispatcher.methods["tools/list"]
        self._path = start.path
        self._flags = start.flags
        self._files = files
        self._kept = start.kept  # None once the client has its list
        self._handshakes: list[bytes] = []  # without views, and with them
        self._task: asyncio.Task[None] | None = None

    async def initialize(self, request: Request) -> JSON:
        result = cast(JSON, await self._initialize(request))
        if is_gateway(request.session):  # its list is longer than what other clients get
            return result
        both = [self._complete(result, draws_views=each) for each in (False, True)]
        self._handshakes = [_encode_handshake(each) for each in both]
        return both[request.connection.draws_views]

    def _complete(self, result: JSON, *, draws_views: bool) -> JSON:
        """Return the handshake of a client that can draw views or not."""
        is_offered = draws_views and self._dispatcher.app.settings.views != "off"
        capabilities = self._dispatcher.build_capabilities(draws_views=is_offered)
        # Clients accept a correction only if it was announced.
        tools: JSON = {**capabilities["tools"], "listChanged": True}
        return result | {"capabilities": {**capabilities, "tools": tools}}

    async def list_tools(self, request: Request) -> Reply:
        # A client without a handshake cannot be notified, so it gets only the real answer.
        if request.is_stateless or not self._handshakes:
            return await self._list_tools(request)
        kept, self._kept = self._kept, None
        if kept is not None and request.params.get("cursor") is None:
            self._task = asyncio.create_task(self._check(kept, request), name="answer check")
            return json.loads(kept.get_answers(draws_views=request.draws_views).tools)
        result = await self._list_tools(request)
        if self._task is None:  # nothing was saved or used
            self._task = asyncio.create_task(self._save(request), name="first answers")
        return result

    async def _save(self, request: Request) -> None:
        self._save_answers(await self._build_answers(request))

    async def _check(self, kept: CachedAnswers, request: Request) -> None:
        await asyncio.sleep(CHECK_SECONDS)
        while not request.connection.turns.is_idle:  # noqa: ASYNC110 - calls come and go
            await asyncio.sleep(CHECK_SECONDS)
        try:
            real = await self._build_answers(request)
        except Exception:  # after any error, the client must not keep the list
            log.exception("the list of tools from the last start is wrong")
            self._forget()
        else:
            if _list_texts(real) == _list_texts(kept):
                return
            self._save_answers(real)
            draws_views = request.draws_views
            if real.get_answers(draws_views=draws_views).tools == kept.get_answers(draws_views=draws_views).tools:
                return
        await request.announce(TOOLS_CHANGED, {})

    async def _build_answers(self, request: Request) -> CachedAnswers:
        both: list[ClientAnswers] = []
        for draws_views, handshake in enumerate(self._handshakes):
            listed = await self._list_tools(replace(request, draws_views=bool(draws_views)))
            both.append(ClientAnswers(handshake, encode_small(cast(JSON, listed))))
        return CachedAnswers(list(HANDSHAKE_VERSIONS), both[0], both[1], self._flags)

    def _save_answers(self, answers: CachedAnswers) -> None:
        files = self._files()
        if files is None or self._path is None:
            self._forget()
            return
        try:
            save_answers(Path(self._path), answers, files)
        except OSError as error:
            log.debug("cannot keep the first answers for the next start: %s", error)

    def _forget(self) -> None:
        if self._path is not None:
            with suppress(OSError):
                Path(self._path).unlink()


def _encode_handshake(result: JSON) -> bytes:
    return encode_small({name: value for name, value in result.items() if name != "protocolVersion"})[1:]


def _list_texts(answers: CachedAnswers) -> list[bytes]:
    return [text for each in (answers.plain, answers.with_views) for text in (each.handshake, each.tools)]
