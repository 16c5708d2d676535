from itertools import count
from pathlib import Path

import pytest

from everkept.app.app import App
from everkept.app.change_log import ChangeLog
from everkept.app.engines import StandbyFolder
from everkept.app.hook_tasks import SessionEnd
from everkept.core.records import Batch, Change, Delete, RecordFilter
from everkept.engines.memory.library import MemoryLibrary
from everkept.engines.memory.store import MemoryStore
from everkept.engines.sqlite.library import SqliteLibrary
from everkept.errors import Conflict, InvalidInput, NotFound, ProjectArchived, ProjectOff, Refused
from everkept.families.bank.model import INDEX_BANK
from everkept.families.memories.lifecycle import FADING_TOOL
from everkept.families.memories.memory_record import HOOK_PREFIX
from everkept.families.memories.stores import CLOSING_TOOL
from everkept.settings import read_settings
from memory_shelf import OneShelf
from records import DAY_ONE, batch, entity, note, record_ref
from standby import Standing, standing_by
from tool_calls import Client


@pytest.fixture
def library() -> MemoryLibrary:
    return MemoryLibrary()


@pytest.fixture
def timeline(library: MemoryLibrary) -> ChangeLog:
    ticks = count(DAY_ONE + 1_000)
    return ChangeLog(library, lambda: next(ticks))


@pytest.fixture
async def shop(library: MemoryLibrary) -> MemoryStore:
    return await made(library, "shop")


async def made(library: MemoryLibrary, name: str) -> MemoryStore:
    await library.create(name, "")
    _, store = await library.open(name)
    return store


async def ids(store: MemoryStore) -> list[str]:
    return [record.id for record in await store.scan(RecordFilter())]


async def test_the_newest_changes_of_all_projects_come_first(
    library: MemoryLibrary, timeline: ChangeLog, shop: MemoryStore
) -> None:
    tools = await made(library, "tools")
    await shop.commit(batch(entity("a"), at=DAY_ONE))
    await tools.commit(batch(entity("b"), at=DAY_ONE + 1))
    await shop.commit(batch(entity("c"), at=DAY_ONE + 2))
    references = [entry.reference for entry in await timeline.list_entries(None, 10)]
    assert references == ["shop:2", "tools:1", "shop:1"]
    assert [entry.reference for entry in await timeline.list_entries("shop", 10)] == ["shop:2", "shop:1"]
    assert [entry.reference for entry in await timeline.list_entries(None, 2)] == references[:2]


async def test_an_undo_takes_the_newest_change_back_and_the_next_the_one_before(
    timeline: ChangeLog, shop: MemoryStore
) -> None:
    for name in "abc":
        await shop.commit(batch(entity(name)))
    undone = await timeline.undo(None, "shop", "client")
    assert (undone.reference, undone.is_undone) == ("shop:3", True)
    assert await ids(shop) == ["a", "b"]
    assert (await timeline.undo(None, None, "client")).reference == "shop:2"
    assert await ids(shop) == ["a"]
    marks = {entry.change.seq: entry.is_undone for entry in await timeline.list_entries("shop", 10)}
    assert marks == {1: False, 2: True, 3: True, 4: False, 5: False}


async def test_an_undo_is_a_change_of_its_own(timeline: ChangeLog, shop: MemoryStore) -> None:
    await shop.commit(batch(entity("a")))
    await timeline.undo("shop:1", None, "client")
    [newest] = await shop.read_changes(limit=1, newest_first=True)
    assert (newest.tool, newest.client, newest.undoes) == ("undo", "client", 1)


async def test_an_undo_can_be_undone_by_its_number(timeline: ChangeLog, shop: MemoryStore) -> None:
    await shop.commit(batch(entity("a")))
    await timeline.undo("1", "shop", "client")
    await timeline.undo("shop:2", None, "client")
    assert await ids(shop) == ["a"]


async def test_a_change_is_undone_once(timeline: ChangeLog, shop: MemoryStore) -> None:
    await shop.commit(batch(entity("a")))
    await timeline.undo("shop:1", None, "client")
    with pytest.raises(Refused):
        await timeline.undo("shop:1", None, "client")


async def test_there_must_be_something_to_undo(timeline: ChangeLog, shop: MemoryStore) -> None:
    with pytest.raises(Refused):
        await timeline.undo(None, None, "client")
    await shop.commit(batch(entity("a")))
    await timeline.undo(None, "shop", "client")
    with pytest.raises(Refused):
        await timeline.undo(None, "shop", "client")


async def test_an_undo_keeps_to_its_project(library: MemoryLibrary, timeline: ChangeLog, shop: MemoryStore) -> None:
    tools = await made(library, "tools")
    await shop.commit(batch(entity("a"), at=DAY_ONE))
    await tools.commit(batch(entity("b"), at=DAY_ONE + 1))
    await timeline.undo(None, "shop", "client")
    assert (await ids(shop), await ids(tools)) == ([], ["b"])


async def test_of_several_projects_an_undo_does_not_choose_one(
    library: MemoryLibrary, timeline: ChangeLog, shop: MemoryStore
) -> None:
    tools = await made(library, "tools")
    await shop.commit(batch(entity("a")))
    with pytest.raises(Refused) as caught:
        await timeline.undo(None, None, "client")
    assert "--project" in (caught.value.hint or "")
    assert (await ids(shop), await ids(tools)) == (["a"], [])


async def test_an_undo_does_not_go_past_a_purge_by_itself(timeline: ChangeLog, shop: MemoryStore) -> None:
    await shop.commit(batch(entity("a"), entity("b")))
    await shop.commit(batch(entity("c")))
    await shop.purge([record_ref("b")])
    for _ in range(2):
        with pytest.raises(Refused) as caught:
            await timeline.undo(None, "shop", "client")
        assert caught.value.facts["change"] == 3
    await timeline.undo("shop:2", None, "client")
    assert await ids(shop) == ["a"]
    with pytest.raises(Refused):
        await timeline.undo(None, "shop", "client")


class Interrupted(MemoryStore):
    """A store where somebody else commits right before each of the next commits."""

    def __init__(self) -> None:
        super().__init__()
        self.others: list[Batch] = []

    async def commit(self, batch: Batch) -> Change:
        if batch.tool == "undo" and self.others:
            await super().commit(self.others.pop(0))
        return await super().commit(batch)


@pytest.fixture
async def interrupted() -> tuple[Interrupted, ChangeLog]:
    store = Interrupted()
    library = OneShelf(store)
    await library.create("shop", "")
    await store.commit(batch(entity("Ada")))
    return store, ChangeLog(library, lambda: DAY_ONE)


async def test_an_undo_never_takes_what_came_while_it_was_planned(interrupted: tuple[Interrupted, ChangeLog]) -> None:
    store, timeline = interrupted
    store.others = [batch(note("Ada", "acknowledged meanwhile"))]
    with pytest.raises(Refused):
        await timeline.undo("shop:1", None, "client")
    assert await ids(store) == ["Ada", "acknowledged meanwhile"]


async def test_an_undo_is_planned_again_when_something_else_came_meanwhile(
    interrupted: tuple[Interrupted, ChangeLog],
) -> None:
    store, timeline = interrupted
    store.others = [batch(entity("Grace")), batch(entity("Zoe"))]
    await timeline.undo("shop:1", None, "client")
    assert await ids(store) == ["Grace", "Zoe"]


async def test_an_undo_gives_up_beside_somebody_who_never_stops(interrupted: tuple[Interrupted, ChangeLog]) -> None:
    store, timeline = interrupted
    store.others = [batch(entity(str(number))) for number in range(1_000)]
    with pytest.raises(Conflict):
        await timeline.undo("shop:1", None, "client")
    assert "Ada" in await ids(store)


async def test_an_undo_that_does_not_fit_is_told_at_once(timeline: ChangeLog, shop: MemoryStore) -> None:
    await shop.commit(batch(entity("Ada")))
    await shop.commit(batch(Delete(record_ref("Ada"))))
    await shop.commit(batch(entity("Ada", id="another")))
    with pytest.raises(Conflict) as caught:
        await timeline.undo("shop:2", None, "client")
    assert "keep changing" not in caught.value.message


@pytest.mark.parametrize("reference", ["", "shop", "shop:", "shop:x", ":1", "shop:-1", "shop:1.5", "shop:" + "9" * 20])
async def test_a_reference_that_names_no_change_is_invalid(
    timeline: ChangeLog, shop: MemoryStore, reference: str
) -> None:
    await shop.commit(batch(entity("a")))
    with pytest.raises(InvalidInput) as caught:
        await timeline.undo(reference, None, "client")
    assert caught.value.facts["argument"] == "change"


@pytest.mark.parametrize("reference", ["shop:2", "shop:0", "nowhere:1"])
async def test_a_change_that_does_not_exist_is_not_found(
    timeline: ChangeLog, shop: MemoryStore, reference: str
) -> None:
    await shop.commit(batch(entity("a")))
    with pytest.raises(NotFound):
        await timeline.undo(reference, None, "client")


async def test_a_project_may_have_a_colon_in_its_name(library: MemoryLibrary, timeline: ChangeLog) -> None:
    store = await made(library, "a:b")
    await store.commit(batch(entity("a")))
    assert (await timeline.undo("a:b:1", None, "client")).reference == "a:b:1"


async def test_an_archived_project_is_left_out_unless_it_is_asked_for(
    library: MemoryLibrary, timeline: ChangeLog, shop: MemoryStore
) -> None:
    await shop.commit(batch(entity("a")))
    await library.archive("shop")
    assert await timeline.list_entries(None, 10) == []
    with pytest.raises(ProjectArchived):
        await timeline.list_entries("shop", 10)


async def test_a_project_that_is_off_is_left_out_and_refused_where_it_is_named(
    library: MemoryLibrary, timeline: ChangeLog, shop: MemoryStore
) -> None:
    tools = await made(library, "tools")
    await shop.commit(batch(entity("a")))
    await tools.commit(batch(entity("b")))
    await library.set_off("shop", off=True)
    assert [entry.reference for entry in await timeline.list_entries(None, 10)] == ["tools:1"]
    for named in ((None, "shop"), ("shop:1", None), ("1", "shop"), ("shop:9", None)):
        with pytest.raises(ProjectOff):
            await timeline.undo(*named, "client")
    with pytest.raises(ProjectOff):
        await timeline.list_entries("shop", 10)
    assert await ids(shop) == ["a"]
    assert (await timeline.undo(None, None, "client")).reference == "tools:1"
    await library.set_off("shop", off=False)
    assert (await timeline.undo("shop:1", None, "client")).reference == "shop:1"


async def test_half_a_promotion_is_not_taken_back_while_the_other_is_off(
    library: MemoryLibrary, timeline: ChangeLog, shop: MemoryStore
) -> None:
    user = await library.open_user_store()
    await shop.commit(batch(entity("x")))
    await user.commit(batch(entity("x"), tool="promote_memory"))
    await shop.commit(batch(Delete(record_ref("x")), tool="promote_memory"))
    await library.set_off("shop", off=True)
    with pytest.raises(ProjectOff):
        await timeline.undo("@user:1", None, "client")
    assert (await ids(shop), await ids(user)) == ([], ["x"])
    await library.set_off("shop", off=False)
    await timeline.undo("@user:1", None, "client")
    assert (await ids(shop), await ids(user)) == (["x"], [])


async def test_a_damaged_project_does_not_hide_the_log_of_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    library = SqliteLibrary(tmp_path)
    await library.create("damaged", "")
    [path] = (tmp_path / "projects").glob("*.db")
    path.write_bytes(b"no database")
    await library.create("sound", "")
    _, store = await library.open("sound")
    await store.commit(batch(entity("a")))
    timeline = ChangeLog(library, lambda: DAY_ONE)
    assert [entry.reference for entry in await timeline.list_entries(None, 10)] == ["sound:1"]
    assert "damaged" in caplog.records[0].getMessage()
    await library.close()


async def test_the_index_of_files_hides_no_other_change(timeline: ChangeLog, shop: MemoryStore) -> None:
    await shop.commit(batch(entity("a")))
    for number in range(20):
        await shop.commit(batch(entity(f"section {number}"), tool=INDEX_BANK))
    assert [entry.reference for entry in await timeline.list_entries("shop", 2)] == ["shop:1"]
    assert (await timeline.undo(None, "shop", "test")).reference == "shop:1"


async def test_undo_means_what_somebody_did_although_hooks_worked_since(timeline: ChangeLog, shop: MemoryStore) -> None:
    await shop.commit(batch(entity("a")))
    for number, work in enumerate(
        (
            {"tool": "hook:PostToolUse", "client": "hooks"},
            {"tool": "reflect_and_consolidate", "client": HOOK_PREFIX},
            {"tool": FADING_TOOL, "client": ""},
            {"tool": CLOSING_TOOL, "client": ""},
        )
    ):
        await shop.commit(batch(entity(str(number)), at=DAY_ONE, **work))
    assert (await timeline.undo(None, "shop", "test")).reference == "shop:1"
    assert (await timeline.undo("shop:3", None, "test")).reference == "shop:3"


async def test_what_the_end_of_a_session_did_is_not_what_undo_means(tmp_path: Path) -> None:
    app = App(read_settings({"data_dir": tmp_path, "project": "shop"}, {}), library=MemoryLibrary())
    client = Client(app)
    for text in ("The teapot leaks", "The teapot leaks again", "The teapot leaks badly"):
        noticed = {"type": "episodic", "scope": "session", "session_id": "s"}
        await client("store_memory", content=text, **noticed)
    mistake = await client("store_memory", content="Deploy at noon", type="semantic", scope="user")
    await client("forget_memory", memory_id=mistake["memory_id"])
    await SessionEnd(app).summarize("s")
    tools = [entry.change.tool for entry in await app.change_log.list_entries(None, 2)]
    assert tools == ["session_end", "reflect_and_consolidate"]
    undone = await app.change_log.undo(None, "shop", "test", or_user=True)
    assert undone.change.tool == "forget_memory"
    await app.close()


def shop_away(standing: Standing, folder: Path) -> ChangeLog:
    """As it is with a journal that another process may look into."""
    ticks = count(DAY_ONE + 1_000_000)
    return ChangeLog(standing.library, lambda: next(ticks), StandbyFolder(folder).read_pending_changes)


async def test_a_number_that_holds_here_alone_is_shown_as_such_and_names_nothing_else_later(tmp_path: Path) -> None:
    async with standing_by(tmp_path) as standing:
        await standing.library.create("shop", "")
        store = await standing.store("shop")
        await store.commit(batch(entity("A")))
        await standing.followed()
        timeline = shop_away(standing, tmp_path)
        await standing.goes()
        await store.commit(batch(entity("B")))
        await store.commit(batch(entity("C")))
        shown = [entry.reference for entry in await timeline.list_entries("shop", 9)]
        assert shown == ["shop:~3", "shop:~2", "shop:1"]
        taken_back = await timeline.undo("shop:~3", None, "test")
        assert taken_back.reference == "shop:~3"
        others = await standing.stored("shop")
        await others.commit(batch(entity("Others")))  # which is number 2 there
        await standing.returns()
        for number in ("shop:~2", "shop:~9"):
            with pytest.raises(Refused, match="number of a pending change"):
                await timeline.undo(number, None, "test")
        assert await others.get(["Others"])
        shown = [entry.reference for entry in await timeline.list_entries("shop", 9)]
        assert "shop:2" in shown
        assert not any("~" in reference for reference in shown)
