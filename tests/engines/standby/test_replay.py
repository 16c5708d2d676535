import asyncio
import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from everkept.core.ports import Library
from everkept.core.projects import Project
from everkept.core.records import Delete, RecordFilter, Restore
from everkept.engines.memory.library import MemoryLibrary
from everkept.engines.sqlite.library import SqliteLibrary
from everkept.engines.standby.journal import Journal, JournalCounts
from everkept.engines.standby.journal_acts import (
    USER_STORE,
    ArchiveProject,
    Commit,
    CreateProject,
    SetNote,
    format_store_name,
)
from everkept.engines.standby.replay import ReplayResult, replay
from everkept.errors import (
    EverkeptError,
    InvalidInput,
    QueryTimeout,
    ReadOnly,
    Refused,
    StorageFull,
    StoreBusy,
    StoreUnreachable,
    Unavailable,
)
from journal_replay import ATLAS, replayed
from processes import acting
from records import batch, entity, note, record_ref

KILLED_AT = (500, 4_900)  # lines of a replay, which takes five thousand for ten acts


async def test_progress_is_told(journal: Journal, library: Library) -> None:
    for number in range(3):
        await journal.append(SetNote(str(number), "v"))
    told: list[tuple[int, int]] = []
    await replay(journal, library, on_progress=lambda *numbers: told.append(numbers))
    assert told == [(3, 0)]


async def test_what_cannot_be_made_to_fit_is_set_aside_and_the_rest_goes_on(journal: Journal, library: Library) -> None:
    user = await library.open_user_store()
    await user.commit(batch(entity("Ada")))
    await user.commit(batch(Delete(record_ref("Ada"))))
    lost = Commit(USER_STORE, batch(note("Ada", "an orphan"), key="k"))
    done = await replayed(journal, library, lost, SetNote("after", "v"))
    assert (done, await library.get_note("after")) == (ReplayResult(1, 1), "v")
    [aside] = await journal.list_rejected()
    assert (aside.act, "Ada" in aside.reason) == (lost, True)


DAMAGED = [
    "",
    "[",
    "[5]",
    "{}",
    '["commit",{}]',
    '["commit",{"store":"user","batch":{"steps":[["x",1]]}}]',
    '["note",{"x":1}]',
]


@pytest.mark.parametrize("text", [*DAMAGED, '["nothing",{}]', '["create",{"project":5}]', "[" * 100_000, "\x00"])
async def test_a_damaged_write_is_set_aside_and_the_rest_goes_on(
    journal: Journal, library: Library, journal_path: Path, text: str
) -> None:
    for number in range(3):
        await journal.append(SetNote(str(number), "v"))
    with closing(sqlite3.connect(journal_path)) as database, database:
        database.execute("UPDATE entries SET act = ? WHERE act LIKE '%\"1\"%'", (text,))
    assert await replayed(journal, library) == ReplayResult(2, 1)
    assert sorted(await library.list_notes("")) == ["0", "2"]
    [aside] = await journal.list_rejected()
    assert "damaged" in aside.reason


async def test_what_was_set_aside_can_be_done_when_its_hindrance_is_gone(journal: Journal, library: Library) -> None:
    await replayed(journal, library, Commit(USER_STORE, batch(note("Ada", "early"))))
    user = await library.open_user_store()
    await user.commit(batch(entity("Ada")))
    [aside] = await journal.list_rejected()
    await journal.retry_rejected(aside.seq)
    assert await replayed(journal, library) == ReplayResult(1, 0)
    assert [each.id for each in await user.scan(RecordFilter())] == ["Ada", "early"]


async def test_what_takes_back_a_commit_names_it_as_the_database_does(journal: Journal, library: Library) -> None:
    user = await library.open_user_store()
    await user.commit(batch(entity("theirs")))
    await user.commit(batch(entity("theirs too")))
    await journal.append(Commit(USER_STORE, batch(entity("Ada"))), 2)
    await journal.append(Commit(USER_STORE, batch(Delete(record_ref("Ada")), undoes=2)), 3)
    await journal.append(Commit(USER_STORE, batch(Delete(record_ref("theirs")), undoes=1)), 4)
    await replay(journal, library, on_progress=lambda *_: None)
    assert [change.undoes for change in await user.read_changes()] == [None, None, None, 3, 1]


async def test_what_takes_back_something_that_was_set_aside_names_nothing(journal: Journal, library: Library) -> None:
    await journal.append(Commit(USER_STORE, batch(note("gone", "orphan"))), 1)
    await journal.append(Commit(USER_STORE, batch(entity("Ada"), undoes=1)), 2)
    await replay(journal, library, on_progress=lambda *_: None)
    [change] = await (await library.open_user_store()).read_changes()
    assert change.undoes is None


@pytest.mark.parametrize("error", [StoreUnreachable, QueryTimeout, StoreBusy, StorageFull, ReadOnly])
async def test_a_database_that_goes_away_again_finds_the_act_still_waiting(
    journal: Journal, error: type[EverkeptError]
) -> None:
    class Going(MemoryLibrary):
        async def set_note(self, key: str, value: str | None) -> None:
            if key == "second":
                raise error("It went.")
            await super().set_note(key, value)

    await journal.append(SetNote("first", "v"))
    second = await journal.append(SetNote("second", "v"))
    with pytest.raises(error):
        await replayed(journal, Going())
    assert [entry.seq for entry in await journal.list_pending()] == [second]


class Failing(MemoryLibrary):
    """What is noted as "bad" fails so often."""

    def __init__(self, error: Exception, times: int = 1_000) -> None:
        super().__init__()
        self.error = error
        self.left = times
        self.is_away = False

    async def set_note(self, key: str, value: str | None) -> None:
        if key == "bad" and self.left:
            self.left -= 1
            raise self.error
        await super().set_note(key, value)

    async def get_note(self, key: str) -> str | None:
        if self.is_away:
            raise self.error
        return await super().get_note(key)


BAD, GOOD = SetNote("bad", "v"), SetNote("good", "v")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (InvalidInput("It has a character."), "It has a character."),
        (Unavailable("It refuses messages of that size."), "It refuses messages of that size."),
        (RuntimeError("SurrealDB refused statement 3"), "RuntimeError: SurrealDB refused"),
        (RuntimeError("x" * 10_000), "RuntimeError: x"),
    ],
)
async def test_what_the_database_will_never_take_is_set_aside(journal: Journal, error: Exception, reason: str) -> None:
    library = Failing(error)
    assert await replayed(journal, library, BAD, GOOD) == ReplayResult(1, 1)
    [aside] = await journal.list_rejected()
    assert (aside.act, aside.reason.startswith(reason)) == (BAD, True)
    assert len(aside.reason) < 1_000
    assert await library.get_note("good") == "v"


async def test_what_fails_once_is_tried_again(journal: Journal) -> None:
    assert await replayed(journal, Failing(RuntimeError("odd"), 1), BAD) == ReplayResult(1, 0)


async def test_a_failure_that_repeats_itself_is_told_once(journal: Journal, caplog: pytest.LogCaptureFixture) -> None:
    assert await replayed(journal, Failing(RuntimeError("odd")), BAD, BAD, BAD) == ReplayResult(0, 3)
    assert [record.message for record in caplog.records if record.exc_info] == ["pending write 1 rejected"]


@pytest.mark.parametrize(("error", "times"), [(QueryTimeout, 3), (StoreUnreachable, 10)])
async def test_what_the_database_fails_over_again_and_again_holds_nobody_up(
    journal: Journal, error: type[EverkeptError], times: int
) -> None:
    library = Failing(error("It did not answer."))
    await journal.append(BAD)
    await journal.append(GOOD)
    for _ in range(times - 1):
        with pytest.raises(error):
            await replayed(journal, library)
        await journal.close()  # as after a new start
    assert await replayed(journal, library) == ReplayResult(1, 1)
    [aside] = await journal.list_rejected()
    assert aside.reason == "It did not answer."
    library.left = 0
    await journal.retry_rejected(aside.seq)
    assert await replayed(journal, library) == ReplayResult(1, 0)


@pytest.mark.parametrize("error", [QueryTimeout, StoreUnreachable])
async def test_an_act_is_not_blamed_for_a_database_that_answers_nothing(
    journal: Journal, error: type[EverkeptError]
) -> None:
    library = Failing(error("It did not answer."))
    library.is_away = True
    await journal.append(BAD)
    for _ in range(20):
        with pytest.raises(error):
            await replayed(journal, library)
    assert journal.count_writes() == JournalCounts(1, 0)


async def test_nothing_is_set_aside_while_the_database_refuses_everything(journal: Journal) -> None:
    library = Failing(Refused("The password is wrong."))
    library.is_away = True
    with pytest.raises(Refused):
        await replayed(journal, library, BAD)
    assert journal.count_writes() == JournalCounts(1, 0)


async def test_what_was_done_before_the_database_went_is_not_done_again(journal: Journal) -> None:
    library = Failing(StoreUnreachable("It went."), 1)
    acts = [Commit(USER_STORE, batch(entity(name))) for name in ("a", "b")]
    with pytest.raises(StoreUnreachable):
        await replayed(journal, library, *acts, BAD)
    assert journal.count_writes() == JournalCounts(1, 0)
    assert await replayed(journal, library) == ReplayResult(1, 0)
    assert await (await library.open_user_store()).get_revision() == 2


async def test_a_group_takes_as_many_as_wait(journal: Journal, library: Library) -> None:
    for number in range(250):
        await journal.append(Commit(USER_STORE, batch(entity(str(number)))))
    told: list[tuple[int, int]] = []
    done = await replay(journal, library, on_progress=lambda *numbers: told.append(numbers))
    assert (done, told[-1]) == (ReplayResult(250, 0), (250, 0))
    assert len(told) < 50
    found = await (await library.open_user_store()).scan(RecordFilter())
    assert [each.id for each in found] == [str(number) for number in range(250)]


async def test_what_ends_a_project_leaves_nothing_to_begin_again(journal: Journal) -> None:
    """Who is killed in the middle of it would find no place for the commit at the next start."""
    waiting: list[int] = []

    class Watched(MemoryLibrary):
        async def archive(self, name: str) -> Project:
            waiting.append(journal.count_writes().waiting)
            return await super().archive(name)

    acts = (
        CreateProject(ATLAS),
        Commit(format_store_name(ATLAS.id), batch(entity("Ada"))),
        ArchiveProject(ATLAS.id, "atlas"),
    )
    assert await replayed(journal, Watched(), *acts) == ReplayResult(3, 0)
    assert waiting == [1]


async def test_what_is_appended_during_a_replay_is_done_too(journal: Journal, library: Library) -> None:
    appended = asyncio.Event()

    async def append() -> None:
        for number in range(20):
            await journal.append(Commit(USER_STORE, batch(entity(f"late-{number}"))))
        appended.set()

    await journal.append(Commit(USER_STORE, batch(entity("first"))))
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(append())
        while not appended.is_set() or journal.count_writes().waiting:
            await replay(journal, library, on_progress=lambda *_: None)
    found = [each.id for each in await (await library.open_user_store()).scan(RecordFilter())]
    assert found == ["first", *(f"late-{number}" for number in range(20))]


async def acts_in_a_row(journal: Journal, number_of_acts: int) -> list[str]:
    """Each is about the record of the one before, and each would leave a trace if done twice."""
    atlas, away = format_store_name(ATLAS.id), record_ref("0")
    await journal.append(CreateProject(ATLAS))
    await journal.append(Commit(atlas, batch(entity("0"), entity("1"))), 1)
    for number in range(2, number_of_acts):
        made = note(str(number - 1), str(number))
        planned = batch(made, Delete(away), Restore(away))
        await journal.append(Commit(atlas, planned), number)
    return [str(number) for number in range(number_of_acts)]


async def test_a_replay_that_is_killed_again_and_again_does_each_act_once(journal: Journal, tmp_path: Path) -> None:
    expected = await acts_in_a_row(journal, 10)
    chosen = random.Random(8)
    path, folder = tmp_path / "journal.db", tmp_path / "database"
    name = "journal_actors:replay_and_die"
    for _ in range(12):
        with acting(name, path, folder, chosen.randint(*KILLED_AT)) as actor:
            actor.process.communicate(timeout=60)
    with acting("journal_actors:replay_all", path, folder) as last:
        last.finish()
    await once_and_in_order(journal, folder, expected)


async def test_two_processes_that_replay_at_once_do_each_act_once(journal: Journal, tmp_path: Path) -> None:
    expected = await acts_in_a_row(journal, 50)
    path, folder = tmp_path / "journal.db", tmp_path / "database"
    name = "journal_actors:replay_all"
    with acting(name, path, folder) as one, acting(name, path, folder) as two:
        assert [one.hear(), two.hear()] == ["ready", "ready"]
        one.tell()
        two.tell()
        done = [each.finish()[-1] for each in (one, two)]
    assert [sum(numbers) for numbers in zip(*done, strict=True)] == [50, 0]
    await once_and_in_order(journal, folder, expected)


async def once_and_in_order(journal: Journal, folder: Path, expected: list[str]) -> None:
    assert (await journal.list_rejected(), journal.count_writes()) == ([], JournalCounts(0, 0))
    library = SqliteLibrary(folder)
    _, store = await library.open("atlas")
    assert [each.id for each in await store.scan(RecordFilter())] == expected
    assert await store.get_revision() == len(expected) - 1
    await library.close()
