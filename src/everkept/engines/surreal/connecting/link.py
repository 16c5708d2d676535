"""One open websocket: requests and their answers, told apart by their numbers."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed
from websockets.frames import CloseCode

from everkept.engines.surreal.connecting import wire
from everkept.engines.surreal.connecting.attempts import observed
from everkept.engines.surreal.connecting.connection import TooLarge
from everkept.errors import EverkeptError, InvalidInput, StoreAway, Unavailable
from everkept.values import Value

LARGEST = 64 * 2**20  # bytes of a message
PIECE = 8 * 2**20  # bytes; a server takes frames of 16 MiB, and messages of several frames
LEAVING = 0.5  # seconds for the other side to say goodbye
SILENCE = 1.0  # seconds without a word, while we wait, after which we ask for a sign of life
SIGN_OF_LIFE = 2.0  # seconds that it may take
MIB = 2**20

Answer = Mapping[str, Any]


class _Request(Value):
    """One that was sent and not answered."""

    size: int  # bytes
    alters: bool


class Link:
    """Lost once, it stays so. Whoever waits for an answer then is told at once."""

    def __init__(self, socket: ClientConnection, shown: str) -> None:
        self.chosen: set[str] = set()  # databases, which are there since
        self._socket = socket
        self._shown = shown
        self._asked = 0
        self._waiting: dict[str, asyncio.Future[Answer]] = {}
        self._unanswered: dict[str, _Request] = {}  # also those whose askers have gone
        self._heard = 0  # messages
        self._watching: asyncio.Task[None] | None = None
        self._why: StoreAway | None = None
        self._reading = asyncio.create_task(self._read())
        self._reading.add_done_callback(observed)

    @property
    def is_lost(self) -> bool:
        return self._why is not None

    async def ask(self, method: str, params: Sequence[Any], *, alters: bool = False) -> Answer:
        """Cancelled, it leaves the link as it is: the answer is dropped when it comes.

        `alters` where it may have taken effect although no answer came.
        """
        self._asked += 1
        number = str(self._asked)
        frame = wire.request(self._asked, method, params)
        if len(frame) > LARGEST:
            raise InvalidInput(
                f"That is {len(frame) / MIB:.0f} MiB at once, more than the {LARGEST // MIB} MiB "
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
        self._lose(StoreAway(f"The connection to SurrealDB at {self._shown} is closed."))
        self._reading.cancel()
        if self._watching is not None:
            self._watching.cancel()
        try:
            async with asyncio.timeout(LEAVING):
                await self._socket.close()
        except TimeoutError:
            pass
        finally:
            self._socket.transport.abort()
            await asyncio.wait({self._reading})

    async def _send(self, frame: bytes) -> None:
        pieces = [frame[i : i + PIECE] for i in range(0, len(frame), PIECE)]
        # A message that ends in the middle would end the connection for everybody.
        sending = asyncio.ensure_future(self._socket.send(frame if len(pieces) == 1 else pieces))
        sending.add_done_callback(observed)
        try:
            await asyncio.shield(sending)
        except ConnectionClosed as error:
            self._lose_by(error)  # which answers whoever waits, this asker too

    async def _read(self) -> None:
        try:
            while True:
                await self._take(await self._socket.recv(decode=False))
        except ConnectionClosed as error:
            self._lose_by(error)
        except wire.Unreadable:
            pass
        finally:
            if self._why is None:  # whatever ended it: who waits would never be told
                self._lose(StoreAway(f"{self._shown} does not speak as SurrealDB does."))
                self._socket.transport.abort()

    async def _watch(self) -> None:
        """While an answer is due: who is frozen keeps its connections, and says nothing."""
        while self._unanswered and self._why is None:
            heard = self._heard
            await asyncio.sleep(SILENCE)
            if not self._unanswered or heard != self._heard or self._why is not None:
                continue
            try:
                async with asyncio.timeout(SIGN_OF_LIFE):
                    await (await self._socket.ping())
            except (TimeoutError, ConnectionClosed):
                if heard == self._heard:
                    self._lose(
                        StoreAway(
                            f"SurrealDB at {self._shown} does not answer.",
                            hint="Whether what was under way took effect is unknown.",
                        )
                    )
                    self._socket.transport.abort()

    async def _take(self, frame: bytes) -> None:
        self._heard += 1
        # What is large takes long to read, and others are served meanwhile.
        answer = (
            wire.answered(frame)
            if len(frame) < MIB
            else await asyncio.to_thread(wire.answered, frame)
        )
        number = str(answer.get("id"))
        self._unanswered.pop(number, None)
        waiting = self._waiting.pop(number, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)

    def _lose_by(self, error: ConnectionClosed) -> None:
        """Only one of them was the cause; of what became of the others nothing is known."""
        blamed, why = self._cause(error)
        waiting = self._waiting.pop(blamed, None)
        if waiting is not None and why is not None:
            _refuse(waiting, why)
        self._lose(
            StoreAway(
                f"The connection to SurrealDB at {self._shown} was lost.",
                hint="Whether what was under way took effect is unknown.",
            )
        )

    def _cause(self, error: ConnectionClosed) -> tuple[str, EverkeptError | None]:
        """The number of the request that ended it, where that can be told, and how."""
        if error.sent is not None and error.sent.code == CloseCode.MESSAGE_TOO_BIG:
            # Such an answer is not read, not even whose it is.
            [*numbers] = self._unanswered
            if len(numbers) == 1 and not self._unanswered[numbers[0]].alters:
                return numbers[0], TooLarge(
                    f"SurrealDB answered with more than {LARGEST // MIB} MiB.",
                    hint="Ask for less at once.",
                )
        if error.rcvd is not None and error.rcvd.code == CloseCode.MESSAGE_TOO_BIG:
            # Whichever it was that the server met first, the largest is refused by it too.
            largest = max(self._unanswered, key=lambda n: self._unanswered[n].size, default="")
            return largest, Unavailable(
                f"SurrealDB at {self._shown} refuses messages of that size.",
                hint="Store it in smaller parts, or raise the limits of the server.",
            )
        return "", None

    def _lose(self, why: StoreAway) -> None:
        if self._why is None:
            self._why = why
        for waiting in self._waiting.values():
            _refuse(waiting, self._why)
        self._waiting.clear()
        self._unanswered.clear()


def _refuse(waiting: "asyncio.Future[Answer]", why: EverkeptError) -> None:
    if not waiting.done():
        waiting.set_exception(why)
        waiting.exception()  # its asker may have gone
