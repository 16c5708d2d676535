"""One websocket to a SurrealDB server: how it is opened, its requests and their answers.

The import takes half a second, including its dependencies.
"""

import asyncio
import logging
import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus
from websockets.frames import CloseCode
from websockets.typing import Subprotocol

from everkept.engines.surreal import protocol
from everkept.engines.surreal.connection import (
    OUTCOME_UNKNOWN_HINT,
    UNREACHABLE_HINT,
    Address,
    AnswerTooLarge,
    Credentials,
    consume_exception,
    extract_reason,
    get_message,
    is_wrong_login,
    parse_results,
)
from everkept.errors import EverkeptError, InvalidInput, Refused, StoreUnreachable, Unavailable
from everkept.values import Value

MAX_MESSAGE_BYTES = 64 * 2**20
FRAME_BYTES = 8 * 2**20  # a server accepts frames of 16 MiB, and messages of several frames
CLOSE_SECONDS = 0.5  # for the server to close the connection
LIVENESS_DELAY_SECONDS = 1.0  # after this much silence, a waiting request pings the server
LIVENESS_SECONDS = 2.0  # for the answer to a ping
MIB = 2**20

RpcAnswer = Mapping[str, Any]


class _Request(Value):
    """Request without an answer."""

    size: int  # in bytes
    alters: bool


class SurrealSocket:
    """Websocket that cannot be reopened after a loss. A loss fails all waiting requests immediately."""

    def __init__(self, socket: ClientConnection, shown: str) -> None:
        self.chosen: set[str] = set()  # databases that are known to exist
        self._socket = socket
        self._shown = shown
        self._asked = 0
        self._waiting: dict[str, asyncio.Future[RpcAnswer]] = {}
        self._unanswered: dict[str, _Request] = {}  # including those whose callers were canceled
        self._heard = 0  # messages received
        self._watching: asyncio.Task[None] | None = None
        self._why: StoreUnreachable | None = None
        self._reading = asyncio.create_task(self._read())
        self._reading.add_done_callback(consume_exception)

    @property
    def is_lost(self) -> bool:
        return self._why is not None

    async def ask(self, method: str, params: Sequence[Any], *, alters: bool = False) -> RpcAnswer:
        """Send a request and wait for its answer. If the caller is canceled, the answer is dropped when it arrives.

        Pass `alters` if the request may take effect although no answer arrives.
        """
        self._asked += 1
        number = str(self._asked)
        frame = protocol.encode_request(self._asked, method, params)
        if len(frame) > MAX_MESSAGE_BYTES:
            raise InvalidInput(
                f"The request is {len(frame) / MIB:.0f} MiB; it must be at most {MAX_MESSAGE_BYTES // MIB} MiB.",
                hint="Store it in smaller parts.",
            )
        if self._why is not None:
            raise self._why
        answer = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        self._unanswered[number] = _Request(len(frame), alters)
        if self._watching is None or self._watching.done():
            self._watching = asyncio.create_task(self._watch())
        try:
            await self._send(frame)
            return await answer
        finally:
            self._waiting.pop(number, None)

    async def close(self) -> None:
        """Close the connection quickly, even if the server does not answer."""
        why = StoreUnreachable(f"The connection to SurrealDB at {self._shown} is closed.", hint="Try again.")
        self._mark_lost(why)
        self._reading.cancel()
        if self._watching is not None:
            self._watching.cancel()
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._socket.close()
        except TimeoutError:
            pass
        finally:
            self._socket.transport.abort()
            await asyncio.wait({self._reading})

    async def _send(self, frame: bytes) -> None:
        pieces = [frame[i : i + FRAME_BYTES] for i in range(0, len(frame), FRAME_BYTES)]
        # A message that is cut off would end the connection for all requests.
        sending = asyncio.ensure_future(self._socket.send(frame if len(pieces) == 1 else pieces))
        sending.add_done_callback(consume_exception)
        try:
            await asyncio.shield(sending)
        except ConnectionClosed as error:
            self._handle_close(error)  # it fails all waiting requests, including this one

    async def _read(self) -> None:
        try:
            while True:
                await self._handle_frame(await self._socket.recv(decode=False))
        except ConnectionClosed as error:
            self._handle_close(error)
        except protocol.UnreadableMessage:
            pass
        finally:
            if self._why is None:  # otherwise waiting requests would never end
                why = f"SurrealDB at {self._shown} sent a response that Everkept does not understand."
                self._mark_lost(StoreUnreachable(why, hint="Check the server's version and any proxy in between."))
                self._socket.transport.abort()

    async def _watch(self) -> None:
        """Ping the server while an answer is due: a frozen server keeps its connections but sends nothing."""
        while self._unanswered and self._why is None:
            heard = self._heard
            await asyncio.sleep(LIVENESS_DELAY_SECONDS)
            if not self._unanswered or heard != self._heard or self._why is not None:
                continue
            try:
                async with asyncio.timeout(LIVENESS_SECONDS):
                    await (await self._socket.ping())
            except (TimeoutError, ConnectionClosed):
                if heard == self._heard:
                    why = f"SurrealDB at {self._shown} does not answer."
                    self._mark_lost(StoreUnreachable(why, hint=OUTCOME_UNKNOWN_HINT))
                    self._socket.transport.abort()

    async def _handle_frame(self, frame: bytes) -> None:
        self._heard += 1
        # Decoding a large answer takes long, so it runs in a thread.
        answer = (
            protocol.decode_answer(frame)
            if len(frame) < MIB
            else await asyncio.to_thread(protocol.decode_answer, frame)
        )
        number = str(answer.get("id"))
        self._unanswered.pop(number, None)
        waiting = self._waiting.pop(number, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)

    def _handle_close(self, error: ConnectionClosed) -> None:
        """Fail all requests. Only one of them is the cause; the outcome of the others is unknown."""
        blamed, why = self._find_cause(error)
        waiting = self._waiting.pop(blamed, None)
        if waiting is not None and why is not None:
            _reject(waiting, why)
        lost = f"The connection to SurrealDB at {self._shown} was lost."
        self._mark_lost(StoreUnreachable(lost, hint=OUTCOME_UNKNOWN_HINT))

    def _find_cause(self, error: ConnectionClosed) -> tuple[str, EverkeptError | None]:
        """Return the number of the request that ended the connection, if it is known, and its error."""
        if error.sent is not None and error.sent.code == CloseCode.MESSAGE_TOO_BIG:
            # An answer that is too large is not read, so its number is unknown.
            [*numbers] = self._unanswered
            if len(numbers) == 1 and not self._unanswered[numbers[0]].alters:
                return numbers[0], AnswerTooLarge(
                    f"SurrealDB answered with more than {MAX_MESSAGE_BYTES // MIB} MiB.", hint="Request less data."
                )
        if error.rcvd is not None and error.rcvd.code == CloseCode.MESSAGE_TOO_BIG:
            # Whichever message the server refused, it would refuse the largest too.
            largest = max(self._unanswered, key=lambda n: self._unanswered[n].size, default="")
            return largest, Unavailable(
                f"SurrealDB at {self._shown} refuses messages of that size.",
                hint="Store the data in smaller parts, or raise the limits of the server.",
            )
        return "", None

    def _mark_lost(self, why: StoreUnreachable) -> None:
        if self._why is None:
            self._why = why
        for waiting in self._waiting.values():
            _reject(waiting, self._why)
        self._waiting.clear()
        self._unanswered.clear()


def _reject(waiting: "asyncio.Future[RpcAnswer]", why: EverkeptError) -> None:
    if not waiting.done():
        waiting.set_exception(why)
        waiting.exception()  # the caller may be canceled


SUBPROTOCOL = "cbor"
_SERVER_ERROR_STATUS = 500  # and above: the server or a proxy cannot answer now
_RETRY_STATUSES = (408, 425, 429)
# A debug log would contain the frames, and a password in them.
_SILENT_LOGGER = logging.Logger("everkept.silent", logging.CRITICAL + 1)


class _NoRedirectConnect(connect):
    """Connection that follows no redirect, so that credentials go only to the given address."""

    def process_redirect(self, exc: Exception) -> Exception:
        return exc


def build_tls_context(address: Address, ca: Path | None) -> ssl.SSLContext | None:
    """Return the context that checks certificates, with the file `ca` or the certificates that this system trusts."""
    if not address.is_secure:
        return None
    try:
        return ssl.create_default_context(cafile=ca)
    except (OSError, ssl.SSLError) as error:
        raise InvalidInput(
            f"Cannot read the certificates in {ca}: {error.strerror or error}.",
            hint="Set `database_ca` to a file in PEM format.",
        ) from error


async def open_socket(address: Address, context: ssl.SSLContext | None) -> SurrealSocket:
    try:
        socket = await _NoRedirectConnect(
            address.url,
            subprotocols=[Subprotocol(SUBPROTOCOL)],
            ssl=context,
            proxy=None,
            compression=None,
            max_size=MAX_MESSAGE_BYTES,
            open_timeout=None,
            close_timeout=CLOSE_SECONDS,
            logger=_SILENT_LOGGER,
        )
    except InvalidStatus as error:
        raise _build_status_error(address, error.response.status_code) from None
    except ssl.SSLCertVerificationError as error:
        raise Refused(
            f"The certificate of SurrealDB at {address.shown} is not trusted: {error.verify_message}.",
            hint="Set `database_ca` to a file with the certificates to trust.",
        ) from None
    except (OSError, EOFError, InvalidHandshake) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else "no handshake"
        raise StoreUnreachable(f"Cannot reach SurrealDB at {address.shown}: {why}.", hint=UNREACHABLE_HINT) from error
    return SurrealSocket(await _check_subprotocol(address, socket), address.shown)


async def sign_in(link: SurrealSocket, address: Address, namespace: str, credentials: Credentials) -> None:
    """Sign in as a user of the root, or as a user of the namespace if that fails."""
    if not credentials.user:
        return
    login = {"user": credentials.user, "pass": credentials.password}
    for level in (login, {"ns": namespace, **login}):
        error = (await link.ask("signin", [level])).get("error")
        if not error:
            return
        message = get_message(error)
        if not is_wrong_login(message):
            raise StoreUnreachable(
                f"SurrealDB at {address.shown} cannot sign in users: {extract_reason(message)}.",
                hint="Check the server's log.",
            )
    raise Refused(
        f'SurrealDB at {address.shown} rejected the user "{credentials.user}" or the password.',
        hint="Check `database_user` and `database_password`.",
    )


async def detect_dialect(link: SurrealSocket) -> tuple[bool, str]:
    """Return whether the server has the dialect of version 3, and the version that it reports."""
    probed = await link.ask("query", [protocol.DIALECT_PROBE, {}])
    if probed.get("error"):
        parse_results(probed)
    told = (await link.ask("version", [])).get("result")
    version = told.removeprefix("surrealdb-") if isinstance(told, str) else ""
    return protocol.is_modern(probed), version


async def _check_subprotocol(address: Address, socket: ClientConnection) -> ClientConnection:
    if socket.subprotocol != SUBPROTOCOL:
        socket.transport.abort()
        await socket.wait_closed()
        raise Refused(
            f"The server at {address.shown} does not use the protocol of SurrealDB 2 or 3.",
            hint="Check the address and the version of the server.",
        )
    return socket


def _build_status_error(address: Address, status: int) -> EverkeptError:
    """Build the error for an HTTP status instead of a websocket."""
    if status >= _SERVER_ERROR_STATUS or status in _RETRY_STATUSES:
        return StoreUnreachable(f"SurrealDB at {address.shown} is not ready (status {status}).", hint=UNREACHABLE_HINT)
    return Refused(f"The server at {address.shown} is not SurrealDB (status {status}).", hint="Check the address.")
