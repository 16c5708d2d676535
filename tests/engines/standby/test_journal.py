import asyncio
import os
import sqlite3
import stat
import sys
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from everkept.core.records import Insert, Update
from everkept.engines.sqlite.connection import create
from everkept.engines.standby.journal import Journal, JournalCounts
from everkept.engines.standby.journal_acts import HISTORY_STORE, USER_STORE, Commit, SetNote, encode_act
from everkept.engines.standby.journal_file import JOURNAL_SCHEMA
from everkept.errors import NotFound, StorageFull, StoreBusy, StoreTooNew
from everkept.values import replace
from processes import acting, said_by
from records import batch, entity, record_ref

SOON = 60  # seconds


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "journal.db"


@pytest.fixture
async def journal(path: Path) -> AsyncIterator[Journal]:
    journal = Journal(path, clock=lambda: 17)
    yield journal
    await journal.close()


def commit(name: str, *, store: str = USER_STORE, undoes: int | None = None) -> Commit:
    return Commit(store, batch(entity(name), key=name, undoes=undoes))


async def keys(journal: Journal) -> list[str]:
    acts = [entry.act for entry in await journal.list_pending()]
    return [act.key if isinstance(act, SetNote) else str(act) for act in acts]


async def test_nothing_is_made_until_something_waits(journal: Journal, path: Path) -> None:
    assert journal.count_writes() == JournalCounts(waiting=0, aside=0)
    assert not path.parent.exists()


async def test_acts_wait_in_the_order_of_their_arrival(journal: Journal) -> None:
    first = await journal.append(commit("a"), 7)
    second = await journal.append(SetNote("k", None))
    found = await journal.list_pending()
    assert [(e.seq, e.act, e.local_seq) for e in found] == [(first, commit("a"), 7), (second, SetNote("k", None), None)]
    assert [entry.seq for entry in await journal.list_pending(after=first)] == [second]
    assert [entry.seq for entry in await journal.list_pending(limit=1)] == [first]


async def test_what_waits_outlives_the_process_that_put_it_there(journal: Journal, path: Path) -> None:
    with acting("journal_actors:append_until_killed", path, "one", 10_000) as actor:
        said = [actor.hear() for _ in range(20)]
        said += actor.kill()
    found = await journal.list_pending(limit=20_000)
    assert len(said) <= len(found) <= len(said) + 1  # the last one may not have been said
    assert [entry.local_seq for entry in found] == list(range(len(found)))


async def test_processes_append_side_by_side(journal: Journal, path: Path) -> None:
    name = "journal_actors:append_until_killed"
    with acting(name, path, "one", 40) as one, acting(name, path, "two", 40) as two:
        one.finish()
        two.finish()
    assert journal.count_writes().waiting == 80
    acts = [entry.act for entry in await journal.list_pending(limit=100)]
    steps = [step for act in acts if isinstance(act, Commit) for step in act.batch.steps]
    records = [step.item.id for step in steps if isinstance(step, Insert)]
    for who in ("one", "two"):
        own = [each for each in records if each.startswith(who)]
        assert own == [f"{who}-{number}" for number in range(40)]


async def test_a_commit_without_a_key_gets_one_for_good(journal: Journal) -> None:
    await journal.append(Commit(USER_STORE, batch(entity("a"))))
    [once] = await journal.list_pending()
    [again] = await journal.list_pending()
    assert isinstance(once.act, Commit)
    assert once.act.batch.key
    assert once == again


async def test_the_file_is_for_its_owner_alone(journal: Journal, path: Path) -> None:
    await journal.append(SetNote("k", "v"))
    if sys.platform != "win32":
        assert {stat.S_IMODE(each.stat().st_mode) for each in path.parent.glob("journal.db*")} == {0o600}
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


async def test_numbers_are_never_used_again(journal: Journal) -> None:
    first = await journal.append(SetNote("k", "v"))
    await journal.remove(first)
    assert await journal.append(SetNote("k", "v")) > first


async def test_what_is_set_aside_is_kept_and_others_go_on(journal: Journal) -> None:
    first = await journal.append(SetNote("first", None))
    await journal.append(SetNote("second", None))
    await journal.reject(first, "it did not fit")
    assert await keys(journal) == ["second"]
    [aside] = await journal.list_rejected()
    assert (aside.seq, aside.act, aside.reason, aside.at) == (*(first, SetNote("first", None)), *("it did not fit", 17))
    assert journal.count_writes() == JournalCounts(waiting=1, aside=1)


async def test_what_is_set_aside_can_be_tried_again_behind_the_others(journal: Journal) -> None:
    first = await journal.append(SetNote("first", None))
    await journal.append(SetNote("second", None))
    await journal.reject(first, "it did not fit")
    again = await journal.retry_rejected(first)
    assert await keys(journal) == ["second", "first"]
    assert (await journal.list_pending())[-1].seq == again
    assert journal.count_writes() == JournalCounts(waiting=2, aside=0)


async def test_all_that_is_set_aside_can_be_tried_again_in_its_order(journal: Journal) -> None:
    numbers = [await journal.append(SetNote(key, None)) for key in ("a", "b", "c", "d")]
    for number in (numbers[2], numbers[0]):
        await journal.reject(number, "it did not fit")
    moved = await journal.retry_all_rejected()
    assert await keys(journal) == ["b", "d", "a", "c"]
    again = [entry.seq for entry in await journal.list_pending(after=numbers[-1])]
    assert dict(moved) == {numbers[0]: again[0], numbers[2]: again[1]}
    assert await journal.retry_all_rejected() == {}


async def test_what_is_set_aside_can_be_given_up(journal: Journal) -> None:
    first = await journal.append(SetNote("first", None))
    await journal.reject(first, "it did not fit")
    await journal.discard_rejected(first)
    assert (await journal.list_rejected(), journal.count_writes()) == ([], JournalCounts(0, 0))


async def test_only_what_is_set_aside_can_be_retried_or_given_up(journal: Journal) -> None:
    waiting = await journal.append(SetNote("first", None))
    for attempt in (journal.retry_rejected, journal.discard_rejected):
        for seq in (waiting, 99):
            with pytest.raises(NotFound):
                await attempt(seq)
    assert await keys(journal) == ["first"]


async def test_too_many_bytes_are_refused_with_the_sizes(path: Path) -> None:
    journal = Journal(path, limit_bytes=1_000)
    await journal.append(SetNote("a", "x" * 600))
    with pytest.raises(StorageFull) as refused:
        await journal.append(SetNote("b", "x" * 600))
    facts = refused.value.facts
    assert (600 < facts["current_size"] < 700, facts["limit"]) == (True, 1_000)
    assert await keys(journal) == ["a"]
    [entry] = await journal.list_pending()
    await journal.remove(entry.seq)
    await journal.append(SetNote("b", "x" * 600))
    await journal.close()


async def kept_aside(journal: Journal, act: SetNote, account: str | None = None) -> int:
    seq = await journal.append(act, account=account)
    await journal.reject(seq, "why")
    return seq


@pytest.mark.parametrize("account", [None, "anna"])
async def test_what_is_set_aside_takes_no_room_of_what_waits(path: Path, account: str | None) -> None:
    journal = Journal(path, limit_entries=4, limit_bytes=4_000)
    await kept_aside(journal, SetNote("a", "x" * 1_500), account)
    for key in "bc":
        await journal.append(SetNote(key, "x" * 700), account=account)
    assert journal.count_writes() == JournalCounts(2, 1)
    await journal.close()


async def test_too_many_entries_that_wait_are_refused(path: Path) -> None:
    journal = Journal(path, limit_entries=2)
    await kept_aside(journal, SetNote("a", "x"))
    for key in "bc":
        await journal.append(SetNote(key, "x"))
    with pytest.raises(StorageFull, match=r"2 writes \(.* pending, 1 write \(.* can be pending") as refused:
        await journal.append(SetNote("d", "x"))
    facts = refused.value.facts
    assert (facts["waiting"], facts["set_aside"], facts["limit_entries"]) == (2, 1, 2)
    assert "reachable" in (refused.value.hint or "")
    assert journal.count_writes() == JournalCounts(2, 1)
    await journal.close()


@pytest.mark.parametrize(("entries", "size"), [(2, 100_000), (100, 1_000)])
async def test_where_too_much_is_set_aside_it_is_to_be_decided_on_first(path: Path, entries: int, size: int) -> None:
    journal = Journal(path, limit_entries=entries, limit_bytes=size)
    await kept_aside(journal, SetNote("a", "x" * 480))
    last = await kept_aside(journal, SetNote("b", "x" * 480))
    with pytest.raises(StorageFull, match=r"2 writes \(.* rejected\. .* can be rejected") as refused:
        await journal.append(SetNote("c", "x"))
    hint = refused.value.hint or ""
    assert "everkept journal --discard" in hint
    assert "are sent" not in hint
    await journal.discard_rejected(last)
    await journal.append(SetNote("c", "x"))
    await journal.close()


async def test_what_waits_can_always_be_set_aside(path: Path) -> None:
    journal = Journal(path, limit_entries=2)
    await kept_aside(journal, SetNote("a", "x"))
    for seq in [await journal.append(SetNote(key, "x")) for key in "bc"]:
        await journal.reject(seq, "why")
    assert journal.count_writes() == JournalCounts(0, 3)
    await journal.close()


async def test_accounts_take_up_nothing_of_the_owners_room(path: Path) -> None:
    journal = Journal(path, limit_entries=4)
    note = SetNote("a", "x")
    for _ in range(2):
        await kept_aside(journal, note, "anna")  # of an earlier absence
    with pytest.raises(StorageFull, match=r"of accounts is full: 0 writes .* 2 writes .* can be rejected"):
        await journal.append(note, account="ben")
    await journal.retry_all_rejected()
    with pytest.raises(StorageFull, match=r"of accounts is full: 2 writes .* 0 writes .* can be pending") as full:
        await journal.append(note, account="ben")
    assert full.value.facts["limit_entries"] == 2
    for _ in range(4):
        await journal.append(note)
    with pytest.raises(StorageFull, match=r"journal is full: 4 writes .* can be pending"):
        await journal.append(note)
    await journal.close()


async def test_room_is_counted_whatever_becomes_of_it(path: Path) -> None:
    journal = Journal(path, limit_entries=1, limit_bytes=1_000)
    for _ in range(3):
        first = await kept_aside(journal, SetNote("a", "x" * 600))
        await journal.remove(await journal.retry_rejected(first))
    await journal.discard_rejected(await kept_aside(journal, SetNote("a", "x" * 600)))
    await journal.append(SetNote("a", "x" * 600))
    assert journal.count_writes() == JournalCounts(1, 0)
    await journal.close()


def test_a_full_disk_refuses_the_act_and_keeps_what_was_there(path: Path) -> None:
    assert said_by("journal_actors:outgrow_file_limit", path) == ["storage_full", True, "ok"]


def spoiled(path: Path, spoil: str) -> bytes:
    """What is in the file when it is no journal any more."""
    if spoil == "other program":
        path.unlink()
        with closing(sqlite3.connect(path)) as db:
            db.execute("CREATE TABLE theirs(x)")
    content = bytearray(path.read_bytes())
    if spoil == "header":
        content[:100] = b"x" * 100
    if spoil == "middle":
        content[4096:] = b"x" * (len(content) - 4096)
    path.write_bytes(content)
    return content


@pytest.mark.parametrize("spoil", ["header", "middle", "other program"])
async def test_a_damaged_file_is_moved_aside_and_a_new_one_begun(
    journal: Journal, path: Path, spoil: str, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(200):
        await journal.append(SetNote(str(number), "x" * 1_000))
    await journal.close()
    content = spoiled(path, spoil)
    assert await journal.append(SetNote("new", "x")) == 1
    assert await keys(journal) == ["new"]
    assert journal.count_writes() == JournalCounts(1, 0)
    [moved] = path.parent.glob("journal.damaged-*.db")
    assert moved.read_bytes() == content
    assert moved.name in caplog.text


@pytest.mark.parametrize("times", [1, 2])
async def test_a_damaged_file_that_cannot_be_moved_has_a_successor(
    path: Path, times: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(*_: object) -> None:
        raise PermissionError(13, "Another process has it open")

    monkeypatch.setattr(Path, "rename", refused)  # as on Windows
    damaged = [path, path.with_name("journal-2.db")][:times]
    for each in damaged:
        journal = Journal(path)
        await journal.append(SetNote("old", "x"))
        await journal.close()
        spoiled(each, "header")
    one, other = Journal(path), Journal(path)
    await one.append(SetNote("new", "x"))
    await other.append(SetNote("newer", "x"))
    assert (await keys(one), other.count_writes()) == (["new", "newer"], JournalCounts(2, 0))
    assert damaged[-1].name in caplog.text
    await one.close()
    await other.close()


async def test_the_name_of_a_new_file_is_on_the_disk_too(
    journal: Journal, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settled: list[bool] = []
    monkeypatch.setattr(os, "fsync", lambda file: settled.append(os.fstat(file).st_ino == path.parent.stat().st_ino))
    await journal.append(SetNote("k", "v"))
    await journal.append(SetNote("k", "v"))
    assert settled == ([] if sys.platform == "win32" else [True])  # Windows does it by itself


async def test_a_process_that_has_a_moved_file_open_goes_on_with_the_new_one(journal: Journal, path: Path) -> None:
    await journal.append(SetNote("old", "x"))
    assert journal.count_writes().waiting == 1
    for each in list(path.parent.glob("journal.db*")):
        each.rename(each.with_name(f"moved-{each.name}"))
    assert journal.count_writes().waiting == 0
    await journal.append(SetNote("new", "x"))
    assert (await keys(journal), journal.count_writes().waiting) == (["new"], 1)


async def test_a_journal_of_a_newer_program_is_left_alone(journal: Journal, path: Path) -> None:
    await journal.append(SetNote("old", "x"))
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version=99")
    with pytest.raises(StoreTooNew):
        await journal.append(SetNote("new", "x"))
    await journal.close()
    with pytest.raises(StoreTooNew):
        await journal.list_pending()
    assert not list(path.parent.glob("*damaged*"))


async def test_counts_see_what_others_have_appended(journal: Journal, path: Path) -> None:
    assert journal.count_writes().waiting == 0
    other = Journal(path)
    await other.append(SetNote("k", "v"))
    assert journal.count_writes().waiting == 1
    await other.close()


async def test_notes_are_kept(journal: Journal, path: Path) -> None:
    await journal.note("project", "x", "y")
    await journal.note("project", "x", "z")
    await journal.close()
    assert await journal.look_up("project", "x") == "z"
    assert await journal.look_up("project", "y") is None


async def test_one_at_a_time_among_all_processes(path: Path) -> None:
    journal = Journal(path, patience=0.05)
    with acting("journal_actors:hold", path) as holder:
        assert holder.hear() == "held"
        with pytest.raises(StoreBusy):
            async with journal.lock_replay():
                pass
        assert holder.ask() == "free"
        async with journal.lock_replay():
            pass
    await journal.close()


async def test_a_task_of_the_same_process_is_refused_in_time_too(path: Path) -> None:
    journal = Journal(path, patience=0.05)
    async with journal.lock_replay():
        with pytest.raises(StoreBusy):
            async with journal.lock_replay():
                pass
    async with journal.lock_replay():
        pass


async def test_who_dies_lets_go(path: Path) -> None:
    journal = Journal(path, patience=SOON)
    with acting("journal_actors:hold", path) as holder:
        assert holder.hear() == "held"
        holder.kill()
        async with journal.lock_replay():
            await journal.append(SetNote("k", "v"))
    await journal.close()


async def test_tasks_of_one_process_take_turns(path: Path) -> None:
    one, other = Journal(path), Journal(path)
    inside: list[str] = []

    async def enter(journal: Journal, name: str) -> None:
        for _ in range(5):
            async with journal.lock_replay():
                inside.append(name)
                await journal.append(SetNote(name, "x"))
                assert inside.pop() == name
                assert inside == []

    await asyncio.gather(enter(one, "one"), enter(one, "again"), enter(other, "other"))
    assert one.count_writes().waiting == 15
    await one.close()
    await other.close()


async def test_who_gives_up_waiting_leaves_the_lock_free(path: Path) -> None:
    journal = Journal(path, patience=SOON)

    async def enter() -> None:
        async with journal.lock_replay():
            raise AssertionError("it was not free")

    async with journal.lock_replay():
        waiting = asyncio.create_task(enter())
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    async with journal.lock_replay():
        pass
    await journal.close()


async def test_what_an_act_takes_back_is_found_by_its_entry(journal: Journal) -> None:
    first = await journal.append(commit("a"), 61)
    await journal.append(commit("b", undoes=61), 62)
    await journal.append(commit("c", store=HISTORY_STORE, undoes=61), 1)  # another log
    await journal.append(commit("d", undoes=60), 63)  # from before
    assert [entry.undoes for entry in await journal.list_pending()] == [None, first, None, None]


async def test_the_number_that_a_commit_got_is_kept_for_what_takes_it_back(journal: Journal) -> None:
    first = await journal.append(commit("a"), 61)
    assert await journal.find_committed_seq(first) is None
    await journal.remove(first, committed_as=75)
    await journal.append(commit("b", undoes=61), 62)
    [entry] = await journal.list_pending()
    assert entry.undoes == first
    assert await journal.find_committed_seq(first) == 75


async def test_numbers_of_a_copy_that_was_renewed_mean_those_of_the_database(journal: Journal) -> None:
    first = await journal.append(commit("a"), 61)
    await journal.remove(first, committed_as=75)
    await journal.append(commit("b", undoes=61), 62)
    await journal.forget_numbers(USER_STORE)
    await journal.append(commit("c", undoes=61), 80)
    before, after = await journal.list_pending()
    assert (before.undoes, after.undoes) == (first, None)
    assert await journal.find_committed_seq(first) == 75


async def test_a_log_that_begins_anew_makes_its_numbers_its_own(journal: Journal) -> None:
    await journal.append(commit("a"), 61)
    second = await journal.append(commit("b"), 61)
    await journal.append(commit("c", undoes=61), 62)
    assert [entry.undoes for entry in await journal.list_pending()] == [None, None, second]


async def test_what_is_tried_again_is_still_what_others_take_back(journal: Journal) -> None:
    first = await journal.append(Commit(USER_STORE, batch(Update("a", {}, 1), key="a")), 61)
    await journal.append(commit("b", undoes=61), 62)
    await journal.reject(first, "why")
    again = await journal.retry_rejected(first)
    assert [entry.undoes for entry in await journal.list_pending()] == [again, None]


async def test_who_wrote_it_stays_with_it(journal: Journal) -> None:
    note = SetNote("key", "v")
    owners, annas = await journal.append(note), await journal.append(note, account="anna")
    assert [entry.account for entry in await journal.list_pending()] == [None, "anna"]
    for seq in (owners, annas):
        await journal.reject(seq, "no")
    assert [aside.account for aside in await journal.list_rejected()] == [None, "anna"]
    await journal.retry_all_rejected()
    assert [entry.account for entry in await journal.list_pending()] == [None, "anna"]


async def test_of_what_is_forgotten_in_part_it_stays_known_who_wrote_the_rest(journal: Journal) -> None:
    await journal.append(Commit(USER_STORE, batch(entity("Ada"), entity("Bob"))), account="anna")
    await journal.forget(USER_STORE, [record_ref("Ada")])
    [entry] = await journal.list_pending()
    assert entry.account == "anna"


def older(path: Path, version: int) -> None:
    """A journal of an older program, with one that waits and one that is set aside."""
    path.parent.mkdir(parents=True)
    create(path, replace(JOURNAL_SCHEMA, migrations=JOURNAL_SCHEMA.migrations[:version]))
    with closing(sqlite3.connect(path)) as db, db:
        act = encode_act(SetNote("key", "v"))
        db.execute("INSERT INTO entries(act) VALUES (?)", (act,))
        db.execute("INSERT INTO entries(act, reason, aside_at) VALUES (?, 'why', 1)", (act,))


async def test_which_account_of_a_name_wrote_it_stays_with_it(journal: Journal) -> None:
    await journal.append(SetNote("key", "v"))
    both = Commit(USER_STORE, batch(entity("Ada"), entity("Bob")))
    seq = await journal.append(both, None, "anna", "id-of-anna")
    await journal.forget(USER_STORE, [record_ref("Ada")])
    assert [entry.account_id for entry in await journal.list_pending()] == ["", "id-of-anna"]
    await journal.reject(seq, "no")
    await journal.retry_rejected(seq)
    assert [entry.account_id for entry in await journal.list_pending()] == ["", "id-of-anna"]


@pytest.mark.parametrize("version", range(1, JOURNAL_SCHEMA.version))
async def test_what_an_older_program_kept_is_the_owners(path: Path, version: int) -> None:
    older(path, version)
    journal = Journal(path, limit_entries=2)
    [entry] = await journal.list_pending()
    assert (entry.act, entry.account) == (SetNote("key", "v"), None)
    assert journal.count_writes() == JournalCounts(1, 1)
    await journal.append(SetNote("key", "v"), account="anna")
    assert [each.account for each in await journal.list_pending()] == [None, "anna"]
    await journal.append(SetNote("key", "v"))
    with pytest.raises(StorageFull):
        await journal.append(SetNote("key", "v"))
    await journal.close()
