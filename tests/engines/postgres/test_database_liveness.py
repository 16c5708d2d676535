"""Signs of life of a server."""

import asyncio

from everkept.engines.postgres.database import LivenessCheck
from postgres_server import Encrypted, proxied, served, shared
from proxies import passing


async def test_a_server_has_a_pulse() -> None:
    assert await LivenessCheck("127.0.0.1", shared().port).is_alive()


async def test_many_who_want_to_know_ask_once() -> None:
    async with passing(shared().port) as proxy:
        pulse = LivenessCheck("127.0.0.1", proxy.port)
        assert all(await asyncio.gather(*(pulse.is_alive() for _ in range(20))))
        assert await pulse.is_alive()
        assert proxy.connected == 1


async def test_what_does_not_answer_or_refuses_has_none() -> None:
    async with proxied(shared()) as proxy:
        proxy.refuse()
        assert not await LivenessCheck("127.0.0.1", proxy.port).is_alive()
        proxy.accept()
        proxy.stall()
        assert not await LivenessCheck("127.0.0.1", proxy.port).is_alive()


async def test_a_frozen_server_has_none_until_it_goes_on() -> None:
    async with served() as server:
        pulse = LivenessCheck("127.0.0.1", server.port)
        server.pause()
        assert not await pulse.is_alive()
        server.resume()
        assert await pulse.is_alive()


async def test_a_server_that_asks_for_encryption_has_one(secure: Encrypted) -> None:
    assert await LivenessCheck("127.0.0.1", secure.port).is_alive()
