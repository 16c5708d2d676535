from typing import Any

import pytest

from everkept.core.ports import Library, Token
from everkept.core.records import Batch, Change, Delete, RecordFilter, Update
from everkept.engines.memory.library import MemoryLibrary
from everkept.engines.memory.store import MemoryStore
from everkept.engines.standby.journal import Journal, JournalCounts
from everkept.engines.standby.journal_acts import (
    HISTORY_STORE,
    USER_STORE,
    Act,
    AddToken,
    ArchiveProject,
    AssignWorkspace,
    Commit,
    CreateProject,
    MoveWorkspace,
    RemoveToken,
    RestoreProject,
    SetNote,
    SwitchProject,
    format_store_name,
)
from everkept.engines.standby.replay import ReplayResult
from everkept.values import replace
from journal_replay import ATLAS, replayed
from records import DAY_ONE, batch, entity, note, record_ref


async def names_in(library: Library, name: str) -> list[str]:
    _, store = await library.open(name)
    return [record.id for record in await store.scan(RecordFilter())]


async def test_commits_go_where_they_belong_in_their_order(journal: Journal, library: Library) -> None:
    done = await replayed(
        journal,
        library,
        CreateProject(ATLAS),
        Commit(format_store_name(ATLAS.id), batch(entity("Ada"))),
        Commit(format_store_name(ATLAS.id), batch(note("Ada", "counts"))),
        Commit(USER_STORE, batch(entity("mine"))),
        Commit(HISTORY_STORE, batch(entity("past"))),
    )
    assert (done, journal.count_writes()) == (ReplayResult(5, 0), JournalCounts(0, 0))
    assert await names_in(library, "atlas") == ["Ada", "counts"]
    assert [each.id for each in await (await library.open_user_store()).scan(RecordFilter())] == ["mine"]
    assert [each.id for each in await (await library.open_history_store()).scan(RecordFilter())] == ["past"]
    [made] = await library.list_projects()
    assert made == ATLAS


async def test_a_guard_on_the_revision_holds_nobody_up(journal: Journal, library: Library) -> None:
    user = await library.open_user_store()
    await user.commit(batch(entity("theirs")))
    done = await replayed(journal, library, Commit(USER_STORE, batch(entity("ours"), revision=0)))
    assert done == ReplayResult(1, 0)


async def test_a_batch_that_no_longer_fits_is_made_to_fit(journal: Journal, library: Library) -> None:
    user = await library.open_user_store()
    await user.commit(batch(entity("Ada")))
    await user.commit(batch(Update("Ada", {"text": "theirs"}, 1)))
    done = await replayed(journal, library, Commit(USER_STORE, batch(Update("Ada", {"text": "o"}, 1))))
    [ada] = await user.get(["Ada"])
    assert (done, ada.text) == (ReplayResult(1, 0), "o")


async def test_a_batch_of_which_all_is_there_already_is_done(journal: Journal, library: Library) -> None:
    user = await library.open_user_store()
    await user.commit(batch(entity("Ada")))
    before = await user.get_revision()
    assert await replayed(journal, library, Commit(USER_STORE, batch(entity("Ada")))) == ReplayResult(1, 0)
    assert await user.get_revision() == before


async def test_a_commit_that_happened_before_its_answer_was_lost_is_not_made_again(
    journal: Journal, library: Library
) -> None:
    user = await library.open_user_store()
    await user.commit(batch(entity("Ada")))
    once = batch(Update("Ada", {"text": "ours"}, 1), key="one")
    await user.commit(once)
    await user.commit(batch(Update("Ada", {"text": "since then"}, 2)))
    await replayed(journal, library, Commit(USER_STORE, once))
    assert [each.text for each in await user.get(["Ada"])] == ["since then"]


class Overtaken(MemoryStore):
    """Somebody else is quicker, three times."""

    def __init__(self) -> None:
        super().__init__()
        self._versions = iter((1, 2, 3))

    async def commit(self, batch: Batch) -> Change:
        if batch.key and (version := next(self._versions, None)):
            text = f"theirs {version}"
            await super().commit(Batch((Update("Ada", {"text": text}, version),), DAY_ONE, "test"))
        return await super().commit(batch)


async def test_a_store_that_others_write_to_is_tried_more_than_once(journal: Journal) -> None:
    store = Overtaken()
    await store.commit(batch(entity("Ada")))

    class Busy(MemoryLibrary):
        async def open_user_store(self) -> MemoryStore:
            return store

    planned = batch(Update("Ada", {"text": "ours"}, 1))
    assert await replayed(journal, Busy(), Commit(USER_STORE, planned)) == ReplayResult(1, 0)
    assert [each.text for each in await store.get(["Ada"])] == ["ours"]


async def test_a_project_whose_name_is_taken_becomes_the_one_that_has_it(journal: Journal, library: Library) -> None:
    theirs = await library.create("atlas", "")
    await replayed(journal, library, CreateProject(ATLAS))
    await journal.close()  # as after a new start
    done = await replayed(
        journal,
        library,
        Commit(format_store_name(ATLAS.id), batch(entity("Ada"))),
        AssignWorkspace("/folder", ATLAS.id),
        SwitchProject(ATLAS.id, "atlas", off=True, at=DAY_ONE),
    )
    assert done == ReplayResult(3, 0)
    assert await names_in(library, "atlas") == ["Ada"]
    assert await library.list_workspaces(theirs) == ["/folder"]
    assert (await library.get_project("atlas")).is_off


TOKEN = Token("t1", "laptop", DAY_ONE)


@pytest.mark.parametrize(
    ("acts", "seen"),
    [
        ([CreateProject(ATLAS)], "active"),
        ([CreateProject(ATLAS), ArchiveProject(ATLAS.id, "atlas")], "archived"),
        ([CreateProject(ATLAS), ArchiveProject(ATLAS.id, "atlas"), RestoreProject(ATLAS.id, "atlas")], "active"),
        ([CreateProject(ATLAS), SwitchProject(ATLAS.id, "atlas", off=True, at=DAY_ONE)], "active"),
        ([CreateProject(ATLAS), AssignWorkspace("/folder", ATLAS.id)], "active"),
        ([CreateProject(ATLAS), MoveWorkspace("/folder", ATLAS.id)], "active"),
        ([CreateProject(ATLAS), MoveWorkspace("/folder", None)], "active"),
        ([SetNote("k", "v"), AddToken(TOKEN, "hash")], None),
        ([AddToken(TOKEN, "hash"), RemoveToken("t1")], None),
    ],
)
async def test_the_last_act_has_no_effect_twice(
    journal: Journal, library: Library, acts: list[Act], seen: str | None
) -> None:
    await replayed(journal, library, *acts)
    once = await told(library)
    assert await replayed(journal, library, acts[-1]) == ReplayResult(1, 0)
    assert await told(library) == once
    assert [each.status for each in await library.list_projects()] == ([seen] if seen else [])


async def told(library: Library) -> list[Any]:
    return [
        await library.list_projects(),
        await library.list_off_periods(),
        await library.list_tokens(),
        await library.list_notes("k"),
        await library.find_workspace_project("/folder"),
    ]


@pytest.mark.parametrize(
    "act",
    [
        ArchiveProject(ATLAS.id, "atlas"),
        RestoreProject(ATLAS.id, "atlas"),
        SwitchProject(ATLAS.id, "atlas", off=True, at=DAY_ONE),
        AssignWorkspace("/folder", ATLAS.id),
        Commit(format_store_name(ATLAS.id), batch(entity("Ada"))),
    ],
)
async def test_acts_on_a_project_that_is_gone_are_set_aside(journal: Journal, library: Library, act: Act) -> None:
    await library.create("atlas", "another one")
    assert await replayed(journal, library, act) == ReplayResult(0, 1)


async def test_a_commit_for_a_project_that_was_archived_since_then_reaches_it(journal: Journal) -> None:
    library = MemoryLibrary()
    await replayed(journal, library, CreateProject(ATLAS))
    await library.archive("atlas")
    act = Commit(format_store_name(ATLAS.id), batch(entity("Ada")))
    assert await replayed(journal, library, act) == ReplayResult(1, 0)
    assert [each.status for each in await library.list_projects()] == ["archived"]
    await library.restore("atlas")
    assert await names_in(library, "atlas") == ["Ada"]


async def test_later_commits_name_an_item_with_which_an_earlier_one_was_merged(
    journal: Journal, library: Library
) -> None:
    user = await library.open_user_store()
    await user.commit(batch(entity("Ada")))
    first = Commit(USER_STORE, batch(entity("Ada", id="new"), entity("Bob")))
    assert await replayed(journal, library, first) == ReplayResult(1, 0)
    # The next process has only what the journal says.
    assert await replayed(journal, library, Commit(USER_STORE, batch(note("new", "counts")))) == ReplayResult(1, 0)
    assert [each.parent for each in await user.get(["counts"])] == ["Ada"]
    await replayed(journal, library, Commit(USER_STORE, batch(Delete(record_ref("new")))))
    assert [each.id for each in await user.scan(RecordFilter())] == ["Bob"]


async def test_the_ids_of_merged_items_are_forgotten_with_the_local_log(journal: Journal, library: Library) -> None:
    await (await library.open_user_store()).commit(batch(entity("Ada")))
    await replayed(journal, library, Commit(USER_STORE, batch(entity("Ada", id="new"))))
    assert await journal.read_merged(USER_STORE) == {"new": "Ada"}
    await journal.forget_numbers(USER_STORE)
    assert await journal.read_merged(USER_STORE) == {}


async def test_an_item_that_was_not_merged_in_the_end_keeps_its_id(journal: Journal, library: Library) -> None:
    await journal.note_merged(USER_STORE, {"new": "Ada"})  # by a process that ended before it could commit
    user = await library.open_user_store()
    await replayed(journal, library, Commit(USER_STORE, batch(entity("new"))))
    await replayed(journal, library, Commit(USER_STORE, batch(note("new", "counts"))))
    assert [each.parent for each in await user.get(["counts"])] == ["new"]


async def test_another_token_of_the_same_id_is_not_taken_for_it(journal: Journal, library: Library) -> None:
    await library.add_token(replace(TOKEN, label="another"), "other hash")
    assert await replayed(journal, library, AddToken(TOKEN, "hash")) == ReplayResult(0, 1)
