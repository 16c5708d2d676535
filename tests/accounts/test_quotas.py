"""How much an account may store, in a project and in all."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from everkept.accounts.quotas import TRUST_MICROSECONDS
from everkept.app.app import App
from everkept.core.sessions import Account, Session
from everkept.core.times import Clock, read_clock
from everkept.errors import QuotaExceeded
from everkept.settings import read_settings
from hash_embedder import HashingEmbedder
from tool_calls import Client


class Team:
    def __init__(self, app: App) -> None:
        self.app = app
        self.owner = Client(app, Session(client="editor"))
        self.anna = Client(app, Session(client="editor", account=Account("anna")))
        self.ben = Client(app, Session(client="editor", account=Account("ben")))

    async def remember(self, who: Client, count: int, **more: Any) -> list[str]:
        """Store memories that differ, and return their ids."""
        said = [f"{who.session.client} knows a thing about {name}" for name in WORDS[:count]]
        return [(await who("store_memory", content=text, **more))["memory_id"] for text in said]


WORDS = ("apples", "bridges", "candles", "drums", "engines", "feathers", "gardens", "harbors")


@pytest.fixture
def start(tmp_path: Path) -> Callable[..., Any]:
    @asynccontextmanager
    async def begin(clock: Clock = read_clock, **quotas: Any) -> AsyncIterator[Team]:
        settings = read_settings({"data_dir": tmp_path, "transport": "http", **quotas}, {})
        app = App(settings, embedder=HashingEmbedder(), clock=clock)
        team = Team(app)
        try:
            for name in ("anna", "ben"):
                await app.accounts.create_token(name, "")
            yield team
        finally:
            await app.close()

    return begin


async def test_an_account_cannot_fill_a_project_beyond_its_quota(start: Callable[..., Any]) -> None:
    async with start(quota_project_records=6) as team:
        await team.owner("create_project", name="shop")
        for name in ("anna", "ben"):
            await team.app.accounts.grant(name, await team.app.library.get_project("shop"), "write")
        ids = await team.remember(team.anna, 5, project="shop")
        for who in (team.anna, team.ben):
            with pytest.raises(QuotaExceeded) as caught:
                await who("store_memory", content="one more about violins", project="shop")
            assert caught.value.facts == {"quota": "quota_project_records", "limit": 6}
            assert '"shop" would have' in caught.value.message
        # What deletes is never refused, and makes place at once.
        for memory_id in ids[:2]:
            await team.anna("forget_memory", memory_id=memory_id, project="shop")
        await team.ben("store_memory", content="one more about violins", project="shop")
        # The owner has no quota, and other projects are not full.
        await team.remember(team.owner, 3, project="shop")
        await team.anna("create_project", name="other")
        await team.remember(team.anna, 3, project="other")


async def test_an_account_has_a_quota_for_all_that_is_its_own(start: Callable[..., Any]) -> None:
    async with start(quota_account_records=8) as team:
        for name in ("one", "two"):
            await team.anna("create_project", name=name)
            await team.remember(team.anna, 2, project=name)
        await team.remember(team.anna, 2, scope="user")
        for place in ({"project": "one"}, {"scope": "user"}):
            with pytest.raises(QuotaExceeded, match="would have 9 records"):
                await team.anna("store_memory", content="one more about violins", **place)
        # A project that is shared counts for its owner, and each account for itself.
        await team.owner("create_project", name="shop")
        await team.app.accounts.grant("anna", await team.app.library.get_project("shop"), "write")
        await team.remember(team.anna, 2, project="shop")
        await team.remember(team.ben, 4, scope="user")


async def test_bytes_have_a_quota(start: Callable[..., Any]) -> None:
    async with start(quota_account_bytes=500_000) as team:

        async def fill() -> None:
            for number in range(30):
                await team.anna("store_memory", content=f"{WORDS[number % 8]} {number} " * 5_000, scope="user")

        with pytest.raises(QuotaExceeded) as caught:
            await fill()
        assert caught.value.facts["quota"] == "quota_account_bytes"
        assert "bytes" in caught.value.message
        assert (await team.anna("recall_memories", query="apples", scope="user"))["memories"]


async def test_what_another_server_stored_counts_after_a_while(start: Callable[..., Any]) -> None:
    now = read_clock()
    async with start(lambda: now, quota_project_records=4) as team:
        await team.anna("create_project", name="shop")
        await team.remember(team.anna, 1, project="shop")
        stored = next(each for each in await team.app.library.list_projects() if each.name.startswith("shop"))
        # As another process would, past the accounts' library.
        store = await team.app.library.get_store(stored)
        await _copy_memories(store, 5)
        now += TRUST_MICROSECONDS
        with pytest.raises(QuotaExceeded):
            await team.anna("store_memory", content="one more about violins", project="shop")


async def test_an_account_may_create_so_many_projects(start: Callable[..., Any]) -> None:
    async with start(quota_projects=2) as team:
        await team.owner("create_project", name="shop")
        await team.app.accounts.grant("anna", await team.app.library.get_project("shop"), "write")
        await team.anna("create_project", name="one")
        await team.anna("create_project", name="two")
        with pytest.raises(QuotaExceeded, match="already have 2 projects"):
            await team.anna("create_project", name="three")
        assert [each["name"] for each in (await team.anna("list_projects"))["projects"]] == ["one", "shop", "two"]
        await team.anna("delete_project", name="one")
        await team.anna("create_project", name="three")


async def test_0_is_for_any_amount(start: Callable[..., Any]) -> None:
    none = dict.fromkeys(
        (
            "quota_projects",
            "quota_project_records",
            "quota_project_bytes",
            "quota_account_records",
            "quota_account_bytes",
        ),
        0,
    )
    async with start(**none) as team:
        await team.anna("create_project", name="one")
        await team.remember(team.anna, 3, project="one")


async def _copy_memories(store: Any, count: int) -> None:
    from everkept.core.records import Batch, Insert, Record

    at = read_clock()
    steps = tuple(Insert(Record(f"copy-{n}", "memory", at, at, text=f"copy {n}")) for n in range(count))
    await store.commit(Batch(steps, at, "test"))
