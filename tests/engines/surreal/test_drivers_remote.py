"""Statements to a server that may be slow, frozen, broken off, or gone."""

import asyncio
import logging
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from certificates import certificate
from everkept.core.locks import WaitingLock
from everkept.engines.surreal.connection import TransactionThrown, WriteContention
from everkept.engines.surreal.drivers import Credentials, SocketConnection
from everkept.errors import InvalidInput, QueryTimeout, Refused, StoreUnreachable, Unavailable
from surreal_server import CORES, PASSWORD, PATIENCE, USER, Server, proxied, served
from upstreams import until

NS, DB = "memory", "default"
by_core = pytest.mark.parametrize("core", CORES)


async def test_every_statement_gives_its_result(warm: Server) -> None:
    connection = warm.connection(NS)
    assert await connection.run(DB, "RETURN 1; RETURN $two; RETURN [3]", {"two": 2}) == [1, 2, [3]]
    assert connection.is_modern == (warm.core == 3)
    assert connection.version[0].isdigit()


@pytest.mark.parametrize("text", ["THROW 'no'; RETURN 2; RETURN 3", "RETURN 1; RETURN 2; THROW 'no'"])
async def test_a_failure_of_any_statement_is_raised(warm: Server, text: str) -> None:
    with pytest.raises(TransactionThrown, match=r"^no$"):
        await warm.connection(NS).run(DB, text)


async def test_many_may_be_the_first_in_a_database(warm: Server) -> None:
    connections = [warm.connection(NS) for _ in range(4)]
    for number in range(10):
        database = f"new{number}"
        asked = [each.run(database, "RETURN session::db()") for each in connections * 3]
        assert await asyncio.gather(*asked) == [[database]] * len(asked)


async def test_a_text_that_cannot_be_parsed_is_an_error_of_ours(warm: Server) -> None:
    connection = warm.connection(NS)
    with pytest.raises(RuntimeError):
        await connection.run(DB, "RETURN 1; SELECT FROM WHERE")
    assert await connection.run(DB, "RETURN 1") == [1]


async def test_what_was_thrown_in_a_transaction_undoes_it(warm: Server) -> None:
    connection = warm.connection(NS)
    await connection.run(DB, "DEFINE TABLE a")
    with pytest.raises(TransactionThrown, match=r"^stale$"):
        await connection.run(DB, "BEGIN; CREATE a:1; IF true { THROW 'stale' }; COMMIT;")
    assert await connection.run(DB, "SELECT * FROM a") == [[]]


async def test_transactions_that_cross_are_contended(warm: Server) -> None:
    connections = [warm.connection(NS) for _ in range(4)]
    connection = connections[0]
    await connection.run(DB, "UPSERT c:1 SET n = 0")
    adding = "BEGIN; LET $n = (SELECT VALUE n FROM ONLY c:1); SLEEP 500ms; UPDATE c:1 SET n = $n + 1; COMMIT"
    ends = await asyncio.gather(*(each.run(DB, adding) for each in connections), return_exceptions=True)
    refused = [end for end in ends if isinstance(end, BaseException)]
    assert refused
    assert {type(end) for end in refused} == {WriteContention}
    assert await connection.run(DB, "SELECT VALUE n FROM c") == [[4 - len(refused)]]


async def test_of_what_one_connection_writes_at_once_nothing_is_lost(warm: Server) -> None:
    connection = warm.connection(NS)
    await connection.run(DB, "UPSERT c:1 SET n = 0")
    adding = "BEGIN; LET $n = (SELECT VALUE n FROM ONLY c:1); UPDATE c:1 SET n = $n + 1; COMMIT"

    async def add() -> None:
        while True:
            try:
                await connection.run(DB, adding)
                return
            except WriteContention:
                await asyncio.sleep(0)

    await asyncio.gather(*(add() for _ in range(20)))
    assert await connection.run(DB, "SELECT VALUE n FROM ONLY c:1") == [20]


async def test_programs_that_share_their_turns_write_one_after_the_other(warm: Server, tmp_path: Path) -> None:
    turns = [WaitingLock(tmp_path / "server.lock", "A write", 60).hold_async for _ in range(3)]
    connections = [warm.connection(NS, turns=turn) for turn in turns]
    await connections[0].run(DB, "UPSERT c:1 SET n = 0")
    adding = "BEGIN; LET $n = (SELECT VALUE n FROM ONLY c:1); UPDATE c:1 SET n = $n + 1; COMMIT"

    async def add(connection: SocketConnection) -> None:
        for _ in range(5):
            while True:
                try:
                    await connection.run(DB, adding)
                    break
                except WriteContention:
                    await asyncio.sleep(0)

    await asyncio.gather(*map(add, connections))
    assert await connections[0].run(DB, "SELECT VALUE n FROM ONLY c:1") == [15]


async def test_a_turn_lasts_until_the_server_has_answered_though_its_asker_has_gone(
    warm: Server, tmp_path: Path
) -> None:
    async with proxied(warm) as proxy:
        turns = WaitingLock(tmp_path / "server.lock", "A write", PATIENCE).hold_async
        connection = proxy.connection(NS, turns=turns)
        other = proxy.connection(NS, turns=turns)
        for each in (connection, other):
            await each.run(DB, "RETURN 1")  # a database is chosen before its first use
        before = proxy.passed["up"]
        slow = "SLEEP 500ms; UPSERT c:1 SET n = 1"
        call = asyncio.ensure_future(connection.run(DB, slow))
        await until(lambda: proxy.passed["up"] > before + len(slow))  # a ping is shorter
        call.cancel()
        # Version 3 keeps apart what comes by two connections itself.
        following = connection if warm.core == 3 else other
        seen = await following.run(DB, "LET $n = c:1.n; UPSERT c:1 SET n = 2; RETURN $n")
        assert seen[-1] == 1
        assert call.cancelled()


async def test_a_program_that_keeps_its_turn_makes_the_server_one_that_is_away(tmp_path: Path) -> None:
    asked = 0

    def turns() -> AbstractAsyncContextManager[None]:
        nonlocal asked
        asked += 1
        return WaitingLock(tmp_path / "server.lock", "A write", 0.2).hold_async()

    async with served(2) as server:
        connection = server.connection(NS, turns=turns)
        async with WaitingLock(tmp_path / "server.lock", "A write", PATIENCE).hold_async():
            calls = (connection.run(DB, "CREATE a") for _ in range(5))
            for end in await asyncio.gather(*calls, return_exceptions=True):
                assert isinstance(end, StoreUnreachable)
                assert "Another program on this machine" in str(end)
            assert asked == 1
            assert await connection.run(DB, "SELECT * FROM a") == [[]]
        await connection.run(DB, "CREATE a")


async def test_who_waits_in_vain_for_its_turn_has_written_nothing(
    warm: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection, other = warm.connection(NS), warm.connection(NS)
    await other.run(DB, "DEFINE TABLE a")
    await connection.run(DB, "RETURN 1")  # a database is chosen before its first use, however long that takes
    with monkeypatch.context() as hurried:
        hurried.setattr(connection, "_time_limit", 0.1)
        calls = (connection.run(DB, text) for text in ("SLEEP 6s; UPSERT c:1 SET n = 1", "CREATE a:1"))
        slow, waited = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(slow, StoreUnreachable)
    assert "outcome is unknown" in str(slow)
    assert isinstance(waited, QueryTimeout)
    assert "Nothing was stored" in str(waited)
    await connection.run(DB, "UPSERT c:2")  # behind both
    assert await other.run(DB, "RETURN c:1.n; SELECT * FROM a") == [1, []]


async def test_closing_gives_back_the_turn_of_what_is_under_way(tmp_path: Path) -> None:
    path = tmp_path / "server.lock"
    async with served(2) as server:
        connection = server.connection(NS, turns=WaitingLock(path, "A write", PATIENCE).hold_async)
        await connection.open()
        calls = [asyncio.ensure_future(connection.run(DB, "SLEEP 1m; CREATE a")) for _ in range(2)]
        await asyncio.sleep(0)
        await connection.close()
        for call in calls:
            with pytest.raises(StoreUnreachable):
                await call
        async with WaitingLock(path, "A write", PATIENCE).hold_async():
            pass


async def test_a_hundred_requests_at_once_get_their_own_answers(warm: Server) -> None:
    connection = warm.connection(NS)
    asked = [connection.run(f"db_{n % 5}", "SLEEP 5ms; RETURN $n", {"n": n}) for n in range(100)]
    assert await asyncio.gather(*asked) == [[None, n] for n in range(100)]


async def test_large_values_go_both_ways(warm: Server) -> None:
    connection = warm.connection(NS)
    large = bytes(20 * 2**20)
    assert await connection.run(DB, "RETURN $large", {"large": large}) == [large]


async def test_more_than_can_be_sent_is_refused_before_it_is(warm: Server) -> None:
    connection = warm.connection(NS)
    with pytest.raises(InvalidInput, match="64 MiB"):
        await connection.run(DB, "RETURN 1", {"large": bytes(65 * 2**20)})
    assert await connection.run(DB, "RETURN 1") == [1]


async def test_an_answer_that_is_too_large_does_not_look_like_a_server_that_is_away(warm: Server) -> None:
    connection = warm.connection(NS)
    with pytest.raises(Unavailable) as raised:
        await connection.run(DB, "RETURN [$part, $part, $part]", {"part": bytes(25 * 2**20)})
    assert not isinstance(raised.value, StoreUnreachable)
    assert await connection.run(DB, "RETURN 1") == [1]


async def test_an_answer_that_is_too_large_is_told_to_nobody_else(server: Server) -> None:
    connection = server.connection(NS)
    writing = "SLEEP 1m; CREATE a"
    slow = asyncio.ensure_future(connection.run(DB, writing))
    large = connection.run(DB, "RETURN [$part, $part, $part]", {"part": bytes(25 * 2**20)})
    for end in await asyncio.gather(slow, large, return_exceptions=True):
        assert isinstance(end, StoreUnreachable)


async def test_who_wrote_and_got_too_large_an_answer_does_not_know_what_became_of_it(warm: Server) -> None:
    connection = warm.connection(NS)
    with pytest.raises(StoreUnreachable):
        await connection.run(DB, "CREATE a:1; RETURN [$part, $part, $part]", {"part": bytes(25 * 2**20)})
    assert len((await connection.run(DB, "SELECT * FROM a"))[0]) == 1


async def test_a_slow_query_ends_with_the_time_and_leaves_the_connection(
    warm: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = warm.connection(NS)
    await connection.run(DB, "RETURN 1")
    with monkeypatch.context() as hurried:
        hurried.setattr(connection, "_time_limit", 0.5)
        with pytest.raises(QueryTimeout):
            await connection.run(DB, "SLEEP 5s")
    assert await connection.run(DB, "RETURN 1") == [1]


async def test_a_frozen_server_is_away_until_it_thaws(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    connection = server.connection(NS)
    await connection.run(DB, "RETURN 1")
    monkeypatch.setattr(connection, "_time_limit", 0.2)
    monkeypatch.setattr(connection, "_connect_limit", 0.5)
    server.pause()
    with pytest.raises(StoreUnreachable):  # by the silence after a ping
        await connection.run(DB, "RETURN 1")
    with pytest.raises(StoreUnreachable):  # by the time that connecting took
        await connection.run(DB, "RETURN 1")
    server.resume()
    assert await server.connection(NS).run(DB, "RETURN 1") == [1]


async def test_a_frozen_server_is_noticed_even_by_those_who_do_not_wait_long(server: Server) -> None:
    connection = server.connection(NS)
    await connection.open()
    server.pause()
    told: list[StoreUnreachable] = []
    for _ in range(500):
        try:
            async with asyncio.timeout(0.2):
                await connection.run(DB, "RETURN 1")
        except TimeoutError:
            continue
        except StoreUnreachable as error:
            told.append(error)
            break
    server.resume()
    assert told


async def test_a_connection_to_a_frozen_server_closes(server: Server) -> None:
    connection = server.connection(NS)
    await connection.open()
    server.pause()
    asked = asyncio.ensure_future(connection.run(DB, "RETURN 1"))
    await asyncio.sleep(0)
    async with asyncio.timeout(PATIENCE):
        await connection.close()
        for call in (asked, connection.run(DB, "RETURN 1")):
            with pytest.raises(StoreUnreachable):
                await call


async def test_a_cancelled_call_leaves_the_connection_and_its_late_answer_is_dropped(warm: Server) -> None:
    async with proxied(warm) as proxy:
        connection = proxy.connection(NS)
        await connection.open()
        before = proxy.passed["up"]
        call = asyncio.ensure_future(connection.run(DB, "SLEEP 100ms; RETURN 1"))
        await until(lambda: proxy.passed["up"] > before)
        call.cancel()
        assert await connection.run(DB, "SLEEP 200ms; RETURN 2") == [None, 2]
        assert call.cancelled()
        assert proxy.connected == 1


async def test_a_server_that_was_killed_is_away_and_found_again(server: Server) -> None:
    connection = server.connection(NS)
    slow = asyncio.ensure_future(connection.run(DB, "SLEEP 1m"))
    assert await connection.run(DB, "RETURN 1") == [1]
    await server.kill()
    with pytest.raises(StoreUnreachable):
        await slow
    with pytest.raises(StoreUnreachable):
        await connection.run(DB, "RETURN 1")
    await server.restart()
    assert await connection.run(DB, "RETURN 1") == [1]


@by_core
async def test_what_was_acknowledged_is_there_after_a_server_was_killed(core: int, tmp_path: Path) -> None:
    async with served(core, tmp_path / "data") as server:
        connection = server.connection(NS)
        for number in range(20):
            await connection.run(DB, "CREATE a SET n = $n", {"n": number})
        await server.restart()
        [found] = await connection.run(DB, "SELECT VALUE n FROM a")
        assert sorted(found) == list(range(20))


@pytest.mark.parametrize(("direction", "count"), [("up", 30), ("down", 30), ("up", 0), ("down", 0)])
async def test_a_cut_in_the_middle_is_told_at_once(warm: Server, direction: str, count: int) -> None:
    async with proxied(warm) as proxy:
        connection = proxy.connection(NS)
        await connection.run(DB, "CREATE a:1")
        proxy.cut_after(count, direction)  # pyright: ignore[reportArgumentType]
        with pytest.raises(StoreUnreachable):
            async with asyncio.timeout(PATIENCE):
                await connection.run(DB, "UPSERT a:2 SET text = $text", {"text": "x" * 500})
        [found] = await connection.run(DB, "SELECT VALUE text FROM a:2")
        assert found == (["x" * 500] if direction == "down" else [])
        assert proxy.connected == 2


async def test_while_nobody_lets_us_in_all_callers_are_told(warm: Server) -> None:
    async with proxied(warm) as proxy:
        connection = proxy.connection(NS)
        proxy.refuse()
        calls = (connection.run(DB, "RETURN 1") for _ in range(10))
        ends = await asyncio.gather(*calls, return_exceptions=True)
        assert {type(end) for end in ends} == {StoreUnreachable}
        assert proxy.connected == 1
        proxy.accept()
        assert await connection.run(DB, "RETURN 1") == [1]


async def test_a_wrong_password_is_refused_and_told_to_nobody(warm: Server, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    connection = SocketConnection(warm.url, NS, Credentials(USER, "wrong horse"))
    with pytest.raises(Refused) as raised:
        await connection.run(DB, "RETURN 1")
    await connection.close()
    await warm.connection(NS).run(DB, "RETURN 1")
    assert not raised.value.retry_possible
    for secret in ("wrong horse", PASSWORD):
        assert secret not in caplog.text + str(raised.value) + repr(vars(connection))


@by_core
async def test_a_user_of_the_namespace_is_let_in(core: int) -> None:
    async with served(core, namespace=NS) as server:
        assert await server.connection(NS).run(DB, "RETURN 1") == [1]
        with pytest.raises(Refused):
            await server.connection("other").run(DB, "RETURN 1")


async def test_a_server_that_lets_nobody_in_without_a_name_is_told_so(warm: Server) -> None:
    connection = SocketConnection(warm.url, NS, Credentials("", ""))
    with pytest.raises(Refused):
        await connection.run(DB, "RETURN 1")
    await connection.close()


async def test_a_certificate_is_checked(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    async with served(2, certificate=certificate(tmp_path)) as server:
        assert await server.connection(NS).run(DB, "RETURN 1") == [1]
        for ca in (None, certificate(other)):
            with pytest.raises(Refused, match="certificate"):
                await server.connection(NS, ca=ca).run(DB, "RETURN 1")
        with pytest.raises(InvalidInput):
            await server.connection(NS, ca=tmp_path / "none.pem").run(DB, "RETURN 1")


async def test_a_server_without_tls_is_not_spoken_to_in_clear(warm: Server) -> None:
    with pytest.raises(StoreUnreachable):
        await warm.at(warm.url.replace("ws:", "wss:"), NS).run(DB, "RETURN 1")


async def test_a_name_that_would_be_statements_is_refused(warm: Server) -> None:
    with pytest.raises(InvalidInput):
        warm.connection("a` DB `b")
    with pytest.raises(InvalidInput):
        await warm.connection(NS).run("b`; REMOVE NAMESPACE memory; USE DB `c", "RETURN 1")
