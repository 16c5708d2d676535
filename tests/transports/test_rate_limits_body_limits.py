"""Many large requests of one account together."""

import asyncio
from contextlib import ExitStack

import pytest

from everkept.core.sessions import Account
from everkept.transports.http_exchange import Message, RequestRejected
from everkept.transports.rate_limits import BodyLimits

ANNA, BEN = Account("anna"), Account("ben")


async def receive() -> Message:
    return {"type": "http.request", "body": b"x" * 40}


async def test_what_an_account_sends_counts_until_its_requests_end() -> None:
    limits = BodyLimits(100)
    with ExitStack() as second:
        with ExitStack() as first:
            await limits.limit(ANNA, receive, first)()
            more = limits.limit(ANNA, receive, second)
            await more()
            with pytest.raises(RequestRejected, match="too large together"):
                await more()
            await limits.limit(BEN, receive, second)()
        await more()


async def test_the_owner_has_no_limit() -> None:
    with ExitStack() as held:
        unlimited = BodyLimits(1).limit(None, receive, held)
        assert [len((await unlimited())["body"]) for _ in range(3)] == [40] * 3


async def test_a_request_that_is_refused_gives_back_only_its_own_bytes() -> None:
    limits = BodyLimits(100)
    with ExitStack() as held:
        waiting = limits.limit(ANNA, receive, held)
        await waiting()
        for _ in range(5):
            with ExitStack() as other:
                several = limits.limit(ANNA, receive, other)
                await several()
                with pytest.raises(RequestRejected):
                    await asyncio.gather(several())
