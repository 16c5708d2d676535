import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from asgi_client import Answer, asked
from everkept.accounts.accounts import UNKNOWN_ACCOUNT, UnknownAccount
from everkept.core.sessions import Account, get_acting_account
from everkept.errors import StoreTooNew, StoreUnreachable
from everkept.transports.guard import (
    MAX_WAITING_REQUESTS,
    PEER_REQUESTS_PER_MINUTE,
    WRONG_TOKENS_PER_MINUTE,
    Guard,
    TokenAuth,
)
from everkept.transports.http_exchange import ACCOUNT_KEY, Message, Receive, Send, send_answer
from everkept.transports.trusted_proxies import TrustedProxies

ANNA, PEER = Account("anna"), Account("office", is_peer=True)
HOLDERS = {"hers": ANNA, "also-hers": ANNA, "theirs": PEER, "mine": None}


class Door:
    """A guarded application that is asked at moments of our choice."""

    def __init__(self, rate_limit: int = 3) -> None:
        self.now = 0.0
        self.looked_for = 0
        self.looking = self.most_at_once = 0
        self.acted: list[Account | None] = []
        self.holders: dict[str, Account | None] = dict(HOLDERS)
        self.is_away = self.is_outgrown = False
        token_auth = TokenAuth(self._admitted, rate_limit=rate_limit, clock=lambda: self.now)
        self.guard = Guard(self.inside, "127.0.0.1", token_auth, open_paths={"/open"})

    async def __call__(self, token: str, *, address: str = "192.0.2.1", **more: Any) -> Answer:
        header = {"authorization": f"Bearer {token}"}
        return await asked(self.guard, address=address, **header, **more)

    async def status(self, token: str, **more: Any) -> int:
        return (await self(token, **more)).status

    async def _admitted(self, secret: str) -> Account | UnknownAccount | None:
        self.looked_for += 1
        if self.is_away:
            raise StoreUnreachable("postgresql://db.internal does not answer.")
        if self.is_outgrown:
            raise StoreTooNew("postgresql://db.internal is newer than this program.")
        self.looking += 1
        self.most_at_once = max(self.most_at_once, self.looking)
        await asyncio.sleep(0)  # as a database would let others have their turn
        self.looking -= 1
        return self.holders.get(secret, UNKNOWN_ACCOUNT)

    async def inside(self, scope: Message, _receive: Receive, send: Send) -> None:
        assert scope.get(ACCOUNT_KEY) == get_acting_account()
        self.acted.append(get_acting_account())
        await send_answer(send, 200, b"{}")


@pytest.mark.parametrize("token", HOLDERS)
async def test_what_is_asked_is_asked_by_whom_the_token_belongs_to(token: str) -> None:
    door, scope = Door(), dict[str, Any]()
    assert await door.status(token, path="/peers/info", scope=scope) == 200
    assert door.acted == [HOLDERS[token]]
    assert scope[ACCOUNT_KEY] == HOLDERS[token]
    assert get_acting_account() is None


@pytest.mark.parametrize("token", ["${EVERKEPT_TOKEN}", ""])
async def test_a_variable_that_a_client_did_not_fill_in_is_named_as_the_cause(token: str) -> None:
    door = Door()
    answer = await door(token)
    assert answer.status == 401
    assert "variable" in answer.body.decode()
    assert door.looked_for == 0


async def test_a_token_that_is_not_known_any_more_is_refused_at_once() -> None:
    door = Door()
    assert await door.status("hers") == 200
    del door.holders["hers"]
    assert await door.status("hers") == 401
    assert len(door.acted) == 1


async def test_nobody_is_let_in_while_it_cannot_be_told_who_it_is() -> None:
    door = Door()
    door.is_away = True
    refused = await door("hers")
    assert (refused.status, door.acted) == (503, [])
    assert b"db.internal" not in refused.body


async def test_a_server_that_is_too_old_says_that_it_is() -> None:
    door = Door()
    door.is_outgrown = True
    refused = await door("hers")
    assert refused.status == 503
    error = refused.json["error"]
    assert (error["data"]["error"], error["data"]["retry_possible"]) == ("store_too_new", False)
    assert "too old" in error["message"]
    assert "db.internal" not in error["message"]


async def test_a_token_that_could_not_be_looked_for_was_no_wrong_one() -> None:
    door = Door()
    door.is_away = True
    assert {await door.status("hers") for _ in range(2 * WRONG_TOKENS_PER_MINUTE)} == {503}
    door.is_away = False
    assert await door.status("hers") == 200
    assert await door.status("wrong") == 401


@pytest.mark.parametrize("path", ["/mcp", "/", "/metrics", "/peers", "/peersearch"])
async def test_another_server_may_ask_for_nothing_but_what_is_for_servers(path: str) -> None:
    door = Door()
    refused = await door("theirs", path=path)
    assert (refused.status, door.acted) == (403, [])
    assert "/peers/" in refused.json["error"]["message"]
    assert await door.status("hers", path=path) == 200
    assert await door.status("theirs", path="/peers/search") == 200


async def test_an_account_that_comes_too_often_is_told_when_to_come_again() -> None:
    door = Door(rate_limit=3)
    assert [await door.status("hers") for _ in range(4)] == [200, 200, 200, 429]
    refused = await door("hers")
    assert refused.headers["retry-after"] == "20"
    error = refused.json["error"]
    assert error["data"]["retry_after_seconds"] == 20
    assert "20 s" in error["message"]
    assert await door.status("also-hers") == 200  # each token counts by itself
    door.now += 20
    assert [await door.status("hers") for _ in range(2)] == [200, 429]
    assert len(door.acted) == 5


async def test_the_owner_comes_as_often_as_they_like() -> None:
    door = Door(rate_limit=1)
    assert {await door.status("mine") for _ in range(100)} == {200}


async def test_accounts_may_be_given_no_limit_and_other_servers_keep_theirs() -> None:
    door = Door(rate_limit=0)
    assert {await door.status("hers") for _ in range(1000)} == {200}
    path = "/peers/info"
    statuses = [await door.status("theirs", path=path) for _ in range(PEER_REQUESTS_PER_MINUTE + 1)]
    assert statuses == [200] * PEER_REQUESTS_PER_MINUTE + [429]


async def test_a_limit_below_that_of_other_servers_is_theirs_too() -> None:
    door = Door(rate_limit=2)
    path = "/peers/info"
    assert [await door.status("theirs", path=path) for _ in range(3)] == [200, 200, 429]


async def test_after_many_wrong_tokens_more_of_them_are_told_to_wait() -> None:
    door = Door()
    assert {await door.status(f"wrong {n}") for n in range(WRONG_TOKENS_PER_MINUTE)} == {401}
    refused = await door("one more")
    assert refused.status == 429
    assert int(refused.headers["retry-after"]) == 60 / WRONG_TOKENS_PER_MINUTE
    assert await door.status("wrong", address="192.0.2.2") == 401
    door.now += 60 / WRONG_TOKENS_PER_MINUTE
    assert await door.status("one more") == 401


async def test_a_right_token_comes_in_whatever_others_tried_from_its_address() -> None:
    door = Door()
    for number in range(2 * WRONG_TOKENS_PER_MINUTE):
        await door.status(f"wrong {number}")
    assert await door.status("hers") == 200
    assert await door.status("mine") == 200
    assert await door.status("one more") == 429


async def test_too_many_that_come_at_once_are_looked_for_one_after_another() -> None:
    door = Door()
    tried = [door.status(f"wrong {n}") for n in range(WRONG_TOKENS_PER_MINUTE + MAX_WAITING_REQUESTS - 1)]
    statuses = await asyncio.gather(*tried, door.status("hers"))
    assert statuses == [401] * WRONG_TOKENS_PER_MINUTE + [429] * (MAX_WAITING_REQUESTS - 1) + [200]
    assert door.most_at_once == WRONG_TOKENS_PER_MINUTE + 1


async def test_more_than_can_wait_are_not_looked_for_and_hold_up_nobody_else() -> None:
    door = Door()
    many = 3 * MAX_WAITING_REQUESTS
    statuses = await asyncio.gather(*(door.status(f"wrong {n}") for n in range(many)))
    assert sorted(statuses) == [401] * WRONG_TOKENS_PER_MINUTE + [429] * (many - WRONG_TOKENS_PER_MINUTE)
    assert door.looked_for == WRONG_TOKENS_PER_MINUTE + MAX_WAITING_REQUESTS
    assert await door.status("hers") == 200


async def test_while_as_many_wait_as_can_only_tokens_that_were_right_lately_come_in() -> None:
    door = Door()
    assert await door.status("hers") == 200
    many = [door.status(f"wrong {n}") for n in range(WRONG_TOKENS_PER_MINUTE + MAX_WAITING_REQUESTS)]
    *_, lately, new = await asyncio.gather(*many, door.status("hers"), door.status("mine"))
    assert (lately, new) == (200, 429)
    assert await door.status("mine") == 200


async def test_right_tokens_from_one_address_never_count_as_wrong() -> None:
    door = Door()
    door.holders |= {f"right {n}": None for n in range(3 * WRONG_TOKENS_PER_MINUTE)}
    assert {await door.status(f"right {n}") for n in range(3 * WRONG_TOKENS_PER_MINUTE)} == {200}
    assert await door.status("wrong") == 401


async def test_a_token_that_was_right_lately_is_not_shut_out_by_its_neighbours() -> None:
    door = Door(rate_limit=600)
    assert await door.status("hers") == 200
    for number in range(WRONG_TOKENS_PER_MINUTE + 1):
        await door.status(f"wrong {number}")
    assert await door.status("hers") == 200
    del door.holders["hers"]
    assert await door.status("hers") == 401
    assert await door.status("hers") == 429


async def test_addresses_of_one_network_of_ipv6_are_one() -> None:
    door = Door()
    for number in range(WRONG_TOKENS_PER_MINUTE):
        await door.status("wrong", address=f"2001:db8::{number:x}")
    assert await door.status("wrong", address="2001:db8::ffff%eth0") == 429
    assert await door.status("wrong", address="2001:db8:0:1::1") == 401


async def test_to_come_without_a_token_is_no_wrong_token() -> None:
    door = Door()
    statuses = {(await asked(door.guard)).status for _ in range(WRONG_TOKENS_PER_MINUTE + 5)}
    assert statuses == {401}
    assert await door.status("hers") == 200


async def test_open_paths_ask_for_no_token_and_are_nobodys() -> None:
    door = Door()
    assert await door.status("wrong", path="/open") == 200
    assert (door.acted, door.looked_for) == ([None], 0)
    assert (await asked(door.guard, "/open", host="evil.example")).status == 421


async def test_refusals_are_told() -> None:
    told: list[int] = []

    async def nobody(_secret: str) -> UnknownAccount:
        return UNKNOWN_ACCOUNT

    inside: Callable[..., Any] = Door().inside
    token_auth = TokenAuth(nobody, rate_limit=1)
    guard = Guard(inside, "127.0.0.1", token_auth, tell=lambda refusal: told.append(refusal.status))
    await asked(guard, authorization="Bearer x")
    await asked(guard, host="evil.example")
    assert told == [401, 421]


async def test_what_a_caller_made_up_makes_no_line_of_its_own_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    await asked(Door().guard, "/x\nfake line\x1b[31m")
    [record] = [each for each in caplog.records if "refused" in each.message]
    assert record.message.isprintable()
    assert r"/x\nfake line\x1b[31m" in record.message


class BusyDoor(Door):
    """Its requests wait until they are let go."""

    def __init__(self, **limits: Any) -> None:
        super().__init__(rate_limit=1000)
        self.go = asyncio.Event()
        token_auth = TokenAuth(self._admitted, rate_limit=1000, clock=lambda: self.now)
        proxies = TrustedProxies.from_text("192.0.2.1")
        self.guard = Guard(
            self.inside, "127.0.0.1", token_auth, open_paths={"/open"}, proxies=proxies, per_address=3, per_account=2
        )

    async def inside(self, scope: Message, receive: Receive, send: Send) -> None:
        await self.go.wait()
        await super().inside(scope, receive, send)

    async def ask_many(self, count: int, token: str, **more: Any) -> list[int]:
        """The statuses of requests at the same time, of which the answered ones wait for the refused ones."""
        asking = [asyncio.ensure_future(self.status(token, **more)) for _ in range(count)]
        await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED)
        self.go.set()
        statuses = await asyncio.gather(*asking)
        self.go.clear()
        return statuses


async def test_an_account_has_a_limit_of_requests_under_way() -> None:
    door = BusyDoor()
    assert sorted(await door.ask_many(5, "hers")) == [200, 200, 429, 429, 429]
    assert sorted(await door.ask_many(3, "hers")) == [200, 200, 429]
    one, other = await asyncio.gather(door.ask_many(2, "hers"), door.ask_many(2, "also-hers"))
    assert sorted([*one, *other]) == [200, 200, 429, 429]


async def test_a_forwarded_address_has_a_limit_until_its_token_is_known() -> None:
    door = BusyDoor()
    shared = {"x-forwarded-for": "203.0.113.9"}
    open_requests = {"path": "/open", **shared}
    assert sorted(await door.ask_many(5, "", **open_requests)) == [200, 200, 200, 429, 429]
    # A team behind one address: each token counts for itself, and the owner's not at all.
    door.go.set()
    assert await door.status("mine", **shared) == 200
    door.go.clear()
    asking = [asyncio.ensure_future(door.status("mine", **shared)) for _ in range(10)]
    await asyncio.wait(asking, timeout=0)
    door.go.set()
    assert set(await asyncio.gather(*asking)) == {200}
    door.go.clear()
    assert sorted(await door.ask_many(4, "", path="/open", **{"x-forwarded-for": "203.0.113.8"})) == [200] * 3 + [429]
