"""A library whose database may go away."""

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from accounts import without_id
from everkept.accounts.accounts import UNKNOWN_ACCOUNT, Accounts
from everkept.accounts.grants import revoke_token
from everkept.core.answers import LEASE_PREFIX, SearchRecord
from everkept.core.library import track_replica_use
from everkept.core.mcp import ToolUsage
from everkept.core.ports import Token
from everkept.core.sessions import Account
from everkept.errors import Conflict, NotFound, StoreUnreachable
from records import batch, entity, note
from standby import EVERY, PATIENCE, Standing, standing_by


@pytest.fixture
async def standing(tmp_path: Path) -> AsyncIterator[Standing]:
    async with standing_by(tmp_path) as made:
        yield made


async def test_a_database_that_is_there_answers_itself(standing: Standing) -> None:
    with track_replica_use() as noted:
        await standing.library.create("project", "what for")
        _, store = await standing.library.open("project")
        await store.commit(batch(entity("Ada")))
        assert [r.id for r in await store.get(["Ada"])] == ["Ada"]
    assert not noted.is_degraded
    assert [r.id for r in await (await standing.stored()).get(["Ada"])] == ["Ada"]
    assert standing.library.condition.status == "connected"
    assert standing.journal.count_writes().waiting == 0


async def test_while_it_is_away_answers_are_what_was_last_seen(standing: Standing) -> None:
    await standing.library.create("project", "")
    store = await standing.store()
    await store.commit(batch(entity("Ada")))
    await standing.followed()
    await standing.goes()
    with track_replica_use() as noted:
        assert [p.name for p in await standing.library.list_projects()] == ["project"]
        assert [r.id for r in await store.get(["Ada"])] == ["Ada"]
    assert noted.from_replica
    assert not noted.kept_here


async def test_what_is_written_meanwhile_is_there_when_it_is_back(standing: Standing) -> None:
    await standing.library.create("project", "")
    store = await standing.store()
    await store.commit(batch(entity("Ada")))
    await standing.followed()
    await standing.goes()
    with track_replica_use() as noted:
        await store.commit(batch(note("Ada", "wrote the first program")))
    assert noted.kept_here
    assert standing.library.condition.waiting == 1
    assert len(await store.get(["wrote the first program"])) == 1
    await standing.returns()
    assert standing.library.condition.waiting == 0
    with track_replica_use() as noted:
        assert len(await store.get(["wrote the first program"])) == 1
    assert not noted.is_degraded
    assert await (await standing.stored()).get_revision() == 2


async def test_nothing_is_reached_or_made_before_the_first_call(tmp_path: Path) -> None:
    async with standing_by(tmp_path / "data") as standing:
        assert standing.library.condition.status == "connected"
        assert not standing.line.asked
    assert not (tmp_path / "data").exists()


async def test_a_database_that_is_down_at_the_start_is_no_obstacle(tmp_path: Path) -> None:
    async with standing_by(tmp_path) as standing:
        await standing.goes()
        project = await standing.library.create("project", "made without it")
        await (await standing.store()).commit(batch(entity("Ada")))
        assert standing.library.condition.waiting == 2
        await standing.returns()
        assert (await standing.database.get_project("project")).id == project.id
        assert len(await (await standing.stored()).get(["Ada"])) == 1


async def test_what_waits_survives_a_restart(tmp_path: Path) -> None:
    async with standing_by(tmp_path) as standing:
        await standing.goes()
        await standing.library.create("project", "")
        await (await standing.store()).commit(batch(entity("Ada")))
        database = standing.database
    async with standing_by(tmp_path, database) as standing:
        assert standing.library.condition.waiting == 2
        assert len(await (await standing.store()).get(["Ada"])) == 1
        await standing.becomes("connected")
        assert standing.library.condition.waiting == 0
        assert len(await (await standing.stored()).get(["Ada"])) == 1


async def test_a_restart_without_the_database_reads_what_waits(tmp_path: Path) -> None:
    async with standing_by(tmp_path) as standing:
        await standing.goes()
        await standing.library.create("project", "")
        await (await standing.store()).commit(batch(entity("Ada")))
    async with standing_by(tmp_path) as standing:
        await standing.goes()
        assert len(await (await standing.store()).get(["Ada"])) == 1


async def test_what_another_process_left_is_brought_over(tmp_path: Path) -> None:
    async with standing_by(tmp_path) as other, standing_by(tmp_path, other.database) as standing:
        await standing.library.create("project", "")
        store = await standing.store()
        await store.commit(batch(entity("Ada")))
        await standing.followed()
        await other.goes()
        await (await other.store()).commit(batch(note("Ada", "left by the other")))
        await store.commit(batch(note("Ada", "mine")))
        await standing.becomes("connected")
        said = [record.text for record in await store.get(["left by the other", "mine"])]
        assert said == ["left by the other", "mine"]
        assert standing.journal.count_writes().waiting == 0


async def test_a_write_made_in_time_never_knows(standing: Standing) -> None:
    standing.line.cut()
    with track_replica_use() as noted:
        asking = asyncio.create_task(standing.library.create("project", ""))
        await standing.time.sees(1.0)
        await standing.returns(after=1.0)
        assert (await asking).name == "project"
    assert not noted.is_degraded


async def test_a_question_waits_for_the_first_attempt_alone(standing: Standing) -> None:
    await standing.library.create("project", "")
    await standing.followed()
    standing.line.cut()
    with track_replica_use() as noted:
        asking = asyncio.create_task(standing.library.list_projects())
        await standing.time.sees(1.0)  # the first attempt is over, and the second not made
        assert len(await asking) == 1
    assert noted.from_replica


async def test_its_condition_is_told(standing: Standing) -> None:
    await standing.library.set_note("key", "1")
    await standing.goes()
    await standing.library.set_note("key", "2")
    condition = standing.library.condition
    assert (condition.engine, condition.status) == ("memory", "reconnecting")
    assert (condition.waiting, condition.reason) == (1, "The line is cut.")
    assert condition.since is not None
    await standing.returns()
    assert [told.status for told in standing.told] == ["reconnecting", "connected"]
    assert standing.library.condition.since is None


async def test_all_that_a_library_keeps_can_be_changed_while_it_is_away(standing: Standing) -> None:
    library = standing.library
    for name in ("a", "b", "c"):
        await library.create(name, "")
    await library.add_token(Token("old", "label", 5), "old hash")
    await standing.followed()
    await standing.goes()
    await library.archive("a")
    await library.set_off("c", off=True)
    await library.link_workspace("/work", await library.get_project("c"))
    await library.add_token(Token("new", "label", 6), "new hash")
    await library.set_note("key", "value")
    assert await library.get_note("key") == "value"
    before = [await library.list_projects(), await library.list_tokens(), await library.list_notes("key")]
    await standing.returns()
    after = [await library.list_projects(), await library.list_tokens(), await library.list_notes("key")]
    assert [p.name for p in after[0]] == [p.name for p in before[0]]
    assert after[1:] == before[1:]
    database = standing.database
    assert (await database.get_project("a")).status == "archived"
    assert (await database.get_project("c")).is_off
    assert (await database.find_workspace_project("/work")) == await database.get_project("c")
    assert await library.has_token("new hash")
    await library.restore("a")
    assert (await database.get_project("a")).status == "active"


@pytest.mark.parametrize(
    ("name", "act"),
    [
        ("AddProject", lambda library: library.create("new", "")),
        ("SetProjectStatus", lambda library: library.archive("old")),
        ("RegisterToken", lambda library: library.add_token(Token("t", "l", 5), "hash")),
        ("WriteNote", lambda library: library.set_note("key", "value")),
    ],
)
@pytest.mark.parametrize("is_quick", [True, False])
async def test_what_was_done_without_an_answer_is_done_once(
    standing: Standing, name: str, act: Any, *, is_quick: bool
) -> None:
    await standing.library.create("old", "")
    await standing.followed()
    standing.line.breaks_in(name)
    acting = asyncio.create_task(act(standing.library))
    if is_quick:
        await standing.time.sees(1.0)
    else:
        await standing.time.comes(PATIENCE)
        await acting
    await standing.returns(after=1.0)
    await acting
    assert standing.library.condition.set_aside == 0
    names = [project.name for project in await standing.database.list_projects()]
    assert names == (["new", "old"] if name == "AddProject" else ["old"])


async def test_a_project_that_was_made_there_too_is_that_one(standing: Standing) -> None:
    await standing.goes()
    await standing.library.create("project", "")
    store = await standing.store()
    await store.commit(batch(entity("Ada")))
    theirs = await standing.database.create("project", "made elsewhere")
    await (await standing.stored()).commit(batch(entity("Bob")))
    await standing.returns()
    assert len(await store.get(["Ada", "Bob"])) == 2
    await standing.followed()
    await standing.goes()
    assert len(await store.get(["Ada", "Bob"])) == 2
    await store.commit(batch(note("Bob", "later")))
    await standing.returns()
    assert [p.id for p in await standing.database.list_projects()] == [theirs.id]
    assert len(await (await standing.stored()).get(["Ada", "Bob", "later"])) == 3


async def test_what_cannot_be_done_to_the_copy_waits_for_nothing(standing: Standing) -> None:
    await standing.library.create("project", "")
    await standing.followed()
    await standing.goes()
    with pytest.raises(Conflict):
        await standing.library.create("project", "")
    with pytest.raises(NotFound):
        await standing.library.archive("unknown")
    assert standing.journal.count_writes().waiting == 0


async def test_what_holds_for_a_moment_waits_for_nothing(standing: Standing) -> None:
    await standing.goes()
    with track_replica_use() as noted:
        await standing.library.set_note(LEASE_PREFIX + "work", "mine")
        assert await standing.library.get_note(LEASE_PREFIX + "work") == "mine"
        await standing.library.add_searches([SearchRecord(5, "recall", "red", 1, 2.0)])
        await standing.library.add_usage([ToolUsage("tool", 1, 0, 1.0, 1.0, 5)])
    assert not noted.is_degraded
    assert len(await standing.library.list_searches()) == 1
    assert len(await standing.library.list_usage()) == 1
    assert standing.journal.count_writes().waiting == 0


async def test_searches_are_forgotten_on_both_sides_or_not_at_all(standing: Standing) -> None:
    await standing.goes()
    await standing.library.add_searches([SearchRecord(5, "recall", "red", 1, 2.0)])
    with pytest.raises(StoreUnreachable):
        await standing.library.forget_searches()
    await standing.returns()
    await standing.library.add_searches([SearchRecord(6, "recall", "blue", 1, 2.0)])
    assert await standing.library.forget_searches() == 2
    assert await standing.replica.list_searches() == []


async def test_a_project_has_one_store_as_long_as_it_lives(standing: Standing) -> None:
    await standing.library.create("project", "")
    store = await standing.store()
    await standing.followed()
    await standing.goes()
    assert await standing.store() is store
    assert await standing.library.open_user_store() is await standing.library.open_user_store()
    await standing.returns()
    assert await standing.store() is store


async def test_the_end_comes_though_the_database_hangs(standing: Standing) -> None:
    await standing.goes()
    await standing.library.set_note("key", "value")
    standing.line.hangs_in("WriteNote")
    standing.line.is_cut = False
    await standing.time.comes(1.0)
    await standing.line.hangs.wait()
    await standing.library.close()
    assert standing.journal.count_writes().waiting == 1


async def test_all_is_told_in_three_lines(standing: Standing, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    await standing.library.create("project", "")
    await standing.followed()
    await standing.goes()
    store = await standing.store()
    for number in range(5):
        await store.commit(batch(entity(f"e{number}")))
    for wait in (1.0, 2.0, 4.0, 8.0):
        await standing.time.comes(wait)
    await standing.becomes("degraded")
    await standing.time.sees(EVERY, sleepers=2)  # the next attempt, and the task that updates the copy
    await standing.returns(after=EVERY)
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 3
    assert "5 pending writes" in said[-1]


async def test_who_may_come_in_is_not_changed_while_it_is_away(standing: Standing) -> None:
    """Other servers would let them in all the same."""
    library = standing.library
    accounts = Accounts(library, standing.clock)
    shop = await library.create("shop", "")
    token, secret = await accounts.create_token("anna", "")
    await accounts.create_token("bob", "")
    await accounts.grant("anna", shop, "read")
    await standing.followed()
    await standing.goes()
    for change in (
        revoke_token(library, token.id),
        accounts.create_token("carl", ""),
        accounts.grant("bob", shop, "read"),
        accounts.revoke("anna", shop),
        accounts.remove_user("anna"),
    ):
        with pytest.raises(StoreUnreachable, match=r"while the database is (away|unreachable)"):
            await change
    assert library.condition.waiting == 0
    assert without_id(await accounts.authenticate(secret)) == Account("anna")
    await standing.returns()
    await revoke_token(library, token.id)
    await accounts.revoke("anna", shop)
    await standing.goes()
    assert await accounts.authenticate(secret) is UNKNOWN_ACCOUNT
    assert await accounts.list_grants() == []
