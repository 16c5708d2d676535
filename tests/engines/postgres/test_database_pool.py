"""Transactions on connections that break, and on servers that are frozen, killed or stopped."""

import asyncio
import logging
from typing import Any

import psycopg
import pytest

from everkept.engines.postgres.connection import Credentials
from everkept.engines.postgres.database import Database
from everkept.engines.postgres.schema import Layout
from everkept.engines.postgres.statements import Cursor
from everkept.errors import StoreUnreachable, Unavailable
from postgres_server import PATIENCE, Proxy, Server, fresh_schema, proxied, served
from proxies import Direction, running
from upstreams import until

NOTES = Layout(steps=(("CREATE TABLE notes (key text PRIMARY KEY)",),))


def notes(cursor: Cursor) -> list[str]:
    return [row[0] for row in cursor.execute("SELECT key FROM notes ORDER BY key").fetchall()]


class Keep:
    """Work that stores a key, once however often it is done."""

    def __init__(self, key: str) -> None:
        self.key = key

    def __call__(self, cursor: Cursor) -> None:
        cursor.execute("INSERT INTO notes VALUES (%s) ON CONFLICT DO NOTHING", [self.key])


class Sleep:
    """Known by a sign of its own: a server goes on for whoever was cut."""

    def __init__(self) -> None:
        self.sign = f"/* {fresh_schema()} sleeps */"

    def __call__(self, cursor: Cursor) -> None:
        cursor.execute(f"SELECT pg_sleep(61) {self.sign}")


async def test_a_statement_that_is_cut_in_the_middle_is_away_and_the_next_call_works(common: Server) -> None:
    sleep = Sleep()
    async with proxied(common) as proxy:
        database = proxy.database(layout=NOTES)
        await database.write(Keep("a"))
        asked = [asyncio.ensure_future(database.read(sleep)) for _ in range(3)]
        await until(lambda: common.at_work(sleep.sign) == 3)
        proxy.refuse()
        for each in asked:
            with pytest.raises(StoreUnreachable):
                await each
        proxy.accept()
        assert await database.read(notes) == ["a"]


async def test_a_session_that_loses_its_schema_reaches_no_other(common: Server) -> None:
    ours, other = common.database(layout=NOTES), common.database(layout=NOTES)
    for database, key in ((ours, "a"), (other, "b")):
        await database.write(Keep(key))

    def lose(cursor: Cursor) -> None:
        cursor.execute("SELECT set_config('search_path', %s, false)", [other.schema])

    await ours.write(lose)
    await ours.write(Keep("c"))
    assert await ours.read(notes) == ["a", "c"]
    assert await other.read(notes) == ["b"]


async def test_a_question_that_is_cut_in_the_middle_is_asked_again(common: Server) -> None:
    sleep = Sleep()
    asked: list[str] = []

    def question(cursor: Cursor) -> list[str]:
        asked.append("once more")
        if len(asked) == 1:
            sleep(cursor)
        return notes(cursor)

    async with proxied(common) as proxy:
        database = proxy.database(layout=NOTES)
        await database.write(Keep("a"))
        answer = asyncio.ensure_future(database.read(question))
        await until(lambda: common.at_work(sleep.sign) == 1)
        proxy.cut()
        assert await answer == ["a"]
        assert len(asked) == 2


async def test_a_write_that_is_cut_after_its_first_answer_is_not_done_again(common: Server) -> None:
    sleep = Sleep()
    done: list[str] = []

    def work(cursor: Cursor) -> None:
        done.append("once more")
        Keep("a")(cursor)
        sleep(cursor)

    async with proxied(common) as proxy:
        database = proxy.database(layout=NOTES)
        await database.write(Keep("first"))
        writing = asyncio.ensure_future(database.write(work))
        await until(lambda: common.at_work(sleep.sign) == 1)
        proxy.cut()
        with pytest.raises(StoreUnreachable, match="unknown"):
            await writing
        assert len(done) == 1
        assert await database.read(notes) == ["first"]


async def test_wherever_a_write_is_cut_it_is_away_or_done_and_never_half(common: Server) -> None:
    async with proxied(common) as proxy:
        database = proxy.database(layout=NOTES)
        await database.write(Keep("whole"))
        start = sum(proxy.passed.values())
        await database.write(Keep("m"))  # no key is shorter: each write below is cut
        length = sum(proxy.passed.values()) - start
        told: set[str] = set()
        for count in range(1, length, length // 25):
            proxy.cut_after(count)
            try:
                await database.write(Keep(f"{count}"))
                told.add(f"{count}")
            except StoreUnreachable:
                pass
            async with asyncio.timeout(PATIENCE):
                await proxy.was_cut.wait()
            await database.write(Keep(f"{count} again"))
            told.add(f"{count} again")
        assert told <= set(await database.read(notes))


async def test_a_commit_whose_answer_is_lost_is_away_and_may_have_happened(common: Server) -> None:
    async with proxied(common) as proxy:
        database = proxy.database(layout=NOTES)
        await database.write(Keep("first"))
        start = proxy.passed["down"]
        await database.write(Keep("measured"))
        down = proxy.passed["down"] - start
        proxy.cut_after(down - 1, "down")
        with pytest.raises(StoreUnreachable, match="unknown"):
            await database.write(Keep("unheard"))
        assert await database.read(notes) == ["first", "measured", "unheard"]


async def test_connections_that_were_lost_while_idle_are_replaced_unnoticed(common: Server) -> None:
    async with proxied(common) as proxy:
        database = proxy.database(layout=NOTES)
        await asyncio.gather(*(database.read(notes) for _ in range(8)))
        proxy.cut()
        assert await asyncio.gather(*(database.read(notes) for _ in range(8))) == [[]] * 8
        await database.write(Keep("a"))
        assert await database.read(notes) == ["a"]


async def test_each_call_makes_one_attempt_and_the_first_after_it_is_back_succeeds(common: Server) -> None:
    async with proxied(common) as proxy:
        database = proxy.database(layout=NOTES)
        await database.read(notes)
        proxy.refuse()
        before = proxy.connected
        for _ in range(3):
            with pytest.raises(StoreUnreachable):
                await database.read(notes)
        assert proxy.connected == before + 3
        proxy.accept()
        assert await database.read(notes) == []


async def test_a_server_that_falls_silent_is_away_for_all_who_wait(common: Server) -> None:
    async with proxied(common) as proxy:
        database = proxy.database(layout=NOTES)
        await asyncio.gather(*(database.read(notes) for _ in range(4)))
        proxy.stall()
        asked = [database.read(notes), database.write(Keep("a")), database.read(notes)]
        for end in await asyncio.gather(*asked, return_exceptions=True):
            assert isinstance(end, StoreUnreachable)
        proxy.flow()
        assert await database.read(notes) in ([], ["a"])


async def test_a_frozen_server_is_away_and_there_again_when_it_goes_on(server: Server) -> None:
    database = server.database(layout=NOTES)
    await database.write(Keep("a"))
    server.pause()
    with pytest.raises(StoreUnreachable, match="does not answer"):
        await database.write(Keep("b"))
    with pytest.raises(StoreUnreachable, match="in time"):
        await database.read(notes)
    server.resume()
    assert "a" in await database.read(notes)


async def test_closing_takes_no_answer_of_a_frozen_server(common: Server) -> None:
    sleep = Sleep()
    async with proxied(common) as proxy:
        database = proxy.database(layout=NOTES)
        await database.read(notes)
        asked = [asyncio.ensure_future(database.read(sleep)) for _ in range(3)]
        await until(lambda: common.at_work(sleep.sign) == 3)
        proxy.stall()
        async with asyncio.timeout(PATIENCE):
            await database.close()
        for each in asked:
            with pytest.raises(StoreUnreachable):
                await each
        proxy.flow()
        assert await database.read(notes) == []


async def test_a_server_that_was_killed_or_stopped_has_everything_when_it_is_back(server: Server) -> None:
    database = server.database(layout=NOTES)
    kept: list[str] = []
    for end in (server.kill, server.stop):
        working = [asyncio.ensure_future(_write_until_it_is_away(database, kept)) for _ in range(4)]
        seen = len(kept)
        await until(lambda seen=seen: len(kept) > seen + 20)
        await end()
        await asyncio.gather(*working)
        with pytest.raises(StoreUnreachable):
            await database.read(notes)
        await asyncio.to_thread(server.start)
        assert set(kept) <= set(await database.read(notes))


class Pooler(Proxy):
    """Tells a client a process that is not the one that works for it, as poolers do."""

    def _altered(self, data: bytes, direction: Direction) -> bytes:
        sign = b"K\0\0\0\x0c"  # the process and its key follow
        at = data.find(sign) + len(sign)
        return data if sign not in data else data[:at] + b"\0\0\0\1" + data[at + 4 :]


@pytest.mark.parametrize(("way", "are_remembered"), [(Proxy, True), (Pooler, False)])
async def test_behind_a_pooler_nothing_is_left_in_a_session(
    common: Server, way: type[Proxy], are_remembered: bool
) -> None:
    def left(cursor: Cursor) -> int:
        for _ in range(10):
            notes(cursor)
        return len(cursor.execute("SELECT FROM pg_prepared_statements").fetchall())

    async with running(way(common)) as proxy:
        database = proxy.database(layout=NOTES, readers=1)
        await database.write(Keep("a"))
        assert bool(await database.read(left)) is are_remembered
        shown = await database.read(lambda c: c.execute("SHOW search_path").fetchone())
        assert shown is not None
        assert database.schema in shown[0]


async def test_behind_a_pooler_there_is_no_upkeep_and_that_is_said_once(
    common: Server, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[object] = []
    async with running(Pooler(common)) as proxy:
        database = proxy.database(layout=NOTES)
        with caplog.at_level(logging.WARNING):
            for _ in range(2):
                with pytest.raises(Unavailable, match="pooler"):
                    await database.maintain(asked.append)
    assert asked == []
    assert caplog.text.count("pooler") == 1


async def test_upkeep_takes_the_time_it_needs(server: Server) -> None:
    def limit(connection: "psycopg.Connection[tuple[Any, ...]]") -> object:
        return connection.execute("SHOW statement_timeout").fetchone()

    with server.connect() as connection:
        connection.execute("ALTER ROLE postgres SET statement_timeout = '7s'")
    assert await server.database(layout=NOTES).maintain(limit) == ("0",)


async def test_where_the_server_lets_no_more_in_those_that_are_in_are_shared() -> None:
    async with served(settings=("max_connections=12",)) as server:
        with server.connect() as connection:
            connection.execute("CREATE EXTENSION vector; CREATE ROLE plain LOGIN")
            connection.execute("GRANT CREATE ON DATABASE postgres TO plain")
        database = server.database(layout=NOTES, credentials=Credentials("plain"))
        await database.write(Keep("a"))
        others = [server.connect() for _ in range(5)]
        asked = [database.read(_slowly) for _ in range(16)]
        assert await asyncio.gather(*asked) == [["a"]] * 16
        await database.close()
        others += [server.connect() for _ in range(6)]
        with pytest.raises(StoreUnreachable, match="too many connections"):
            await database.read(notes)
        for each in others:
            each.close()
        assert await database.read(notes) == ["a"]


class Forgetful(Proxy):
    """Passes nothing on by the connections that it had when it forgot them, and cuts none."""

    _age = 0

    def forget(self) -> None:
        self._age += 1

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, direction: Direction) -> None:
        age = self._age
        while data := await reader.read(65_536):
            if age == self._age:
                writer.write(data)
                await writer.drain()
        raise ConnectionResetError


async def test_a_way_that_was_forgotten_while_idle_is_noticed_and_replaced(common: Server) -> None:
    async with running(Forgetful(common)) as proxy:
        database = proxy.database(layout=NOTES, doubt_after=0)
        await asyncio.gather(*(database.read(notes) for _ in range(4)))
        before = proxy.connected
        assert await database.read(notes) == []
        assert proxy.connected == before
        proxy.forget()
        assert await database.read(notes) == []
        assert proxy.connected == before + 1


def _slowly(cursor: Cursor) -> list[str]:
    cursor.execute("SELECT pg_sleep(0.05)")
    return notes(cursor)


async def _write_until_it_is_away(database: Database, kept: list[str]) -> None:
    number = 0
    while True:
        number += 1
        key = f"{id(asyncio.current_task())} {number} {len(kept)}"
        try:
            await database.write(Keep(key))
        except StoreUnreachable:
            return
        kept.append(key)
