"""One websocket to a SurrealDB server: how it is opened, its requests and their answers.

Importing this costs half a second, with all that it needs.
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

MAX_MESSAGE_BYTES = 64 * 2**20  # bytes of a message
FRAME_BYTES = 8 * 2**20  # a server takes frames of 16 MiB, and messages of several frames
CLOSE_SECONDS = 0.5  # seconds for the other side to say goodbye
LIVENESS_DELAY_SECONDS = 1.0  # seconds without a word, while we wait, after which we ask for a sign of life
LIVENESS_SECONDS = 2.0  # seconds that it may take
MIB = 2**20

RpcAnswer = Mapping[str, Any]


class _Request(Value):
    """One that was sent and not answered."""

    size: int  # bytes
    alters: bool


class SurrealSocket:
    """Lost once, it stays so. Whoever waits for an answer then is told at once."""

    def __init__(self, socket: ClientConnection, shown: str) -> None:
        self.chosen: set[str] = set()  # databases, which are there since
        self._socket = socket
        self._shown = shown
        self._asked = 0
        self._waiting: dict[str, asyncio.Future[RpcAnswer]] = {}
        self._unanswered: dict[str, _Request] = {}  # also those whose askers have gone
        self._heard = 0  # messages
        self._watching: asyncio.Task[None] | None = None
        self._why: StoreUnreachable | None = None
        self._reading = asyncio.create_task(self._read())
        self._reading.add_done_callback(consume_exception)

    @property
    def is_lost(self) -> bool:
        return self._why is not None

    async def ask(self, method: str, params: Sequence[Any], *, alters: bool = False) -> RpcAnswer:
        """Cancelled, it leaves the link as it is: the answer is dropped when it comes.

        `alters` where it may have taken effect although no answer came.
        """
        self._asked += 1
        number = str(self._asked)
        frame = protocol.encode_request(self._asked, method, params)
        if len(frame) > MAX_MESSAGE_BYTES:
            raise InvalidInput(
                f"That is {len(frame) / MIB:.0f} MiB at once, more than the "
                f"{MAX_MESSAGE_BYTES // MIB} MiB "
                "that SurrealDB is sent.",
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
        """Quick, whatever the other side does."""
        self._mark_lost(StoreUnreachable(f"The connection to SurrealDB at {self._shown} is closed."))
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
        # A message that ends in the middle would end the connection for everybody.
        sending = asyncio.ensure_future(self._socket.send(frame if len(pieces) == 1 else pieces))
        sending.add_done_callback(consume_exception)
        try:
            await asyncio.shield(sending)
        except ConnectionClosed as error:
            self._handle_close(error)  # which answers whoever waits, this asker too

    async def _read(self) -> None:
        try:
            while True:
                await self._handle_frame(await self._socket.recv(decode=False))
        except ConnectionClosed as error:
            self._handle_close(error)
        except protocol.UnreadableMessage:
            pass
        finally:
            if self._why is None:  # whatever ended it: who waits would never be told
                self._mark_lost(StoreUnreachable(f"{self._shown} does not speak as SurrealDB does."))
                self._socket.transport.abort()

    async def _watch(self) -> None:
        """While an answer is due: who is frozen keeps its connections, and says nothing."""
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
                    self._mark_lost(
                        StoreUnreachable(
                            f"SurrealDB at {self._shown} does not answer.",
                            hint="Whether what was under way took effect is unknown.",
                        )
                    )
                    self._socket.transport.abort()

    async def _handle_frame(self, frame: bytes) -> None:
        self._heard += 1
        # What is large takes long to read, and others are served meanwhile.
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
        """Only one of them was the cause; of what became of the others nothing is known."""
        blamed, why = self._find_cause(error)
        waiting = self._waiting.pop(blamed, None)
        if waiting is not None and why is not None:
            _reject(waiting, why)
        self._mark_lost(
            StoreUnreachable(
                f"The connection to SurrealDB at {self._shown} was lost.",
                hint="Whether what was under way took effect is unknown.",
            )
        )

    def _find_cause(self, error: ConnectionClosed) -> tuple[str, EverkeptError | None]:
        """The number of the request that ended it, where that can be told, and how."""
        if error.sent is not None and error.sent.code == CloseCode.MESSAGE_TOO_BIG:
            # Such an answer is not read, not even whose it is.
            [*numbers] = self._unanswered
            if len(numbers) == 1 and not self._unanswered[numbers[0]].alters:
                return numbers[0], AnswerTooLarge(
                    f"SurrealDB answered with more than {MAX_MESSAGE_BYTES // MIB} MiB.", hint="Ask for less at once."
                )
        if error.rcvd is not None and error.rcvd.code == CloseCode.MESSAGE_TOO_BIG:
            # Whichever it was that the server met first, the largest is refused by it too.
            largest = max(self._unanswered, key=lambda n: self._unanswered[n].size, default="")
            return largest, Unavailable(
                f"SurrealDB at {self._shown} refuses messages of that size.",
                hint="Store it in smaller parts, or raise the limits of the server.",
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
        waiting.exception()  # its asker may have gone


SUBPROTOCOL = "cbor"
UNREACHABLE_HINT = "Is it running, and the way to it open?"
_SERVER_ERROR_STATUS = 500  # and above: the server, or what stands before it, cannot answer now
_RETRY_STATUSES = (408, 425, 429)
# Its frames, a password among them, would be in a log of everything.
_SILENT_LOGGER = logging.Logger("everkept.silent", logging.CRITICAL + 1)


class _NoRedirectConnect(connect):
    """Credentials go to the address that was given, and nowhere else."""

    def process_redirect(self, exc: Exception) -> Exception:
        return exc


def build_tls_context(address: Address, ca: Path | None) -> ssl.SSLContext | None:
    """What a certificate is checked by: the file of `ca`, or what this system trusts."""
    if not address.is_secure:
        return None
    try:
        return ssl.create_default_context(cafile=ca)
    except (OSError, ssl.SSLError) as error:
        raise InvalidInput(
            f"The certificates in {ca} cannot be read ({error.strerror or error}).",
            hint="It must be a file in PEM form.",
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
            f"The certificate of SurrealDB at {address.shown} is not trusted ({error.verify_message}).",
            hint="A file with the certificates to trust can be given in the settings.",
        ) from None
    except (OSError, EOFError, InvalidHandshake) as error:
        raise _build_connect_error(address, error) from error
    return SurrealSocket(await _check_subprotocol(address, socket), address.shown)


async def sign_in(link: SurrealSocket, address: Address, namespace: str, credentials: Credentials) -> None:
    """As a user of the root; where there is none of that name and password, of the namespace."""
    if not credentials.user:
        return
    login = {"user": credentials.user, "pass": credentials.password}
    for level in (login, {"ns": namespace, **login}):
        error = (await link.ask("signin", [level])).get("error")
        if not error:
            return
        message = get_message(error)
        if not is_wrong_login(message):
            raise StoreUnreachable(f"SurrealDB at {address.shown} cannot let anybody in ({extract_reason(message)}).")
    raise Refused(
        f'SurrealDB at {address.shown} does not know the user "{credentials.user}", or the password is wrong.',
        hint="Check both in the settings.",
    )


async def detect_dialect(link: SurrealSocket) -> tuple[bool, str]:
    """Whether it is that of version 3, and the version as the server tells it."""
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
            f"{address.shown} does not speak the protocol of SurrealDB 2 or 3.",
            hint="Check the address, and the version of the server.",
        )
    return socket


def _build_status_error(address: Address, status: int) -> EverkeptError:
    """For what is no websocket."""
    if status >= _SERVER_ERROR_STATUS or status in _RETRY_STATUSES:
        return StoreUnreachable(f"SurrealDB at {address.shown} is not ready (status {status}).", hint=UNREACHABLE_HINT)
    return Refused(f"At {address.shown} is no SurrealDB (status {status}).", hint="Check the address.")


def _build_connect_error(address: Address, error: Exception) -> StoreUnreachable:
    why = error.strerror if isinstance(error, OSError) and error.strerror else "no handshake"
    return StoreUnreachable(f"SurrealDB at {address.shown} cannot be reached ({why}).", hint=UNREACHABLE_HINT)
