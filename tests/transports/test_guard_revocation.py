import asyncio
from collections.abc import Awaitable, Callable

import pytest

from everkept.errors import StoreUnreachable
from everkept.transports.guard import serve_while_known
from everkept.transports.http_exchange import Message, Receive, Send

HANG = 60  # seconds; nothing takes that long
NEVER = 3_600.0

Inside = Callable[[Send], Awaitable[None]]


class Door:
    """A request whose token can be revoked; what was sent is an answer of parts."""

    def __init__(self) -> None:
        self.is_known = True
        self.is_away = False
        self.asked = 0
        self.was_asked_often = asyncio.Event()
        self.sent: list[Message] = []

    @property
    def parts(self) -> list[bytes]:
        return [message["body"] for message in self.sent if "body" in message]

    async def answer(
        self, inside: Inside, kind: bytes = b"text/event-stream", interval: float = NEVER, method: str = "POST"
    ) -> None:
        async def app(_scope: Message, _receive: Receive, send: Send) -> None:
            headers = [(b"Content-Type", kind)]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await inside(send)

        async def receive() -> Message:
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            self.sent.append(message)

        async with asyncio.timeout(HANG):
            scope = {"type": "http", "method": method}
            await serve_while_known(app, scope, receive, send, self._asked, interval=interval)

    async def _asked(self) -> bool:
        self.asked += 1
        if self.asked >= 3:
            self.was_asked_often.set()
        if self.is_away:
            raise StoreUnreachable("away")
        return self.is_known


def part(body: bytes, *, is_last: bool = False) -> Message:
    return {"type": "http.response.body", "body": body, "more_body": not is_last}


async def test_a_stream_of_a_token_that_is_known_is_told_everything() -> None:
    async def inside(send: Send) -> None:
        for body in (b"1", b"2"):
            await send(part(body))
        await send(part(b"", is_last=True))

    door = Door()
    await door.answer(inside)
    assert door.parts == [b"1", b"2", b""]


@pytest.mark.parametrize("is_away", [False, True], ids=["revoked", "nobody can tell"])
async def test_before_anything_is_told_the_token_is_asked_for_again(is_away: bool) -> None:
    was_cancelled = asyncio.Event()

    async def inside(send: Send) -> None:
        await send(part(b"begun"))
        door.is_known, door.is_away = is_away, is_away
        try:
            await send(part(b"news"))
            await asyncio.Event().wait()
        finally:
            was_cancelled.set()

    door = Door()
    await door.answer(inside)
    assert door.parts == [b"begun", b""]
    assert not door.sent[-1]["more_body"]
    assert was_cancelled.is_set()


async def test_a_stream_that_only_listens_is_asked_for_its_token_from_the_first() -> None:
    async def inside(send: Send) -> None:
        door.is_known = False
        await send(part(b"news"))
        await asyncio.Event().wait()

    door = Door()
    await door.answer(inside, method="GET")
    assert door.parts == [b""]


async def test_a_silent_stream_ends_by_itself_when_its_token_is_revoked() -> None:
    async def inside(send: Send) -> None:
        await send(part(b"begun"))
        door.is_known = False
        await asyncio.Event().wait()

    door = Door()
    await door.answer(inside, interval=0.001)
    assert door.parts == [b"begun", b""]


async def test_a_silent_stream_stays_while_nobody_can_tell() -> None:
    async def inside(send: Send) -> None:
        await send(part(b"begun"))
        door.is_away = True
        await door.was_asked_often.wait()
        door.is_away = False
        await send(part(b"news", is_last=True))

    door = Door()
    await door.answer(inside, interval=0.001)
    assert door.parts == [b"begun", b"news"]


async def test_an_answer_that_is_no_stream_costs_nothing() -> None:
    async def inside(send: Send) -> None:
        await send(part(b"{"))
        await send(part(b"}", is_last=True))

    door = Door()
    await door.answer(inside, b"application/json", interval=0.001)
    assert (door.parts, door.asked) == ([b"{", b"}"], 0)


async def test_an_answer_in_one_part_costs_nothing_either() -> None:
    async def inside(send: Send) -> None:
        await send(part(b"the answer", is_last=True))

    door = Door()
    await door.answer(inside)
    assert (door.parts, door.asked) == ([b"the answer"], 0)


async def test_an_error_inside_comes_out_as_it_is() -> None:
    async def inside(_send: Send) -> None:
        raise TimeoutError("its own")

    with pytest.raises(TimeoutError, match="its own"):
        await Door().answer(inside)
