"""What is said in a project that is switched off, and what an import makes of it."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everkept.core.ports import RecordStore
from everkept.core.projects import OffPeriod
from everkept.core.records import RecordFilter
from everkept.core.transcripts import TitleEvent
from everkept.engines.memory.store import MemoryStore
from everkept.families.history.model import CONVERSATION, TURN
from everkept.families.history.off_folders import OffFolders
from memory_transcripts import MINUTE, Written, contents, conversation, importer, texts, turn
from records import DAY_ONE

SHOP = "/work/shop"


def silence(since: int, until: int | None = None, folder: str = SHOP) -> OffPeriod:
    """In minutes, as the keys of turns are."""
    end = None if until is None else DAY_ONE + until * MINUTE
    return OffPeriod(folder, DAY_ONE + since * MINUTE, end)


def talk(*numbers: int, session: str = "s", folder: str = SHOP) -> Written:
    turns = [turn(f"{n:02}", session=session, project=folder) for n in numbers]
    return Written(session, [*turns])


async def test_what_is_said_while_it_is_off_is_not_taken_in(store: RecordStore) -> None:
    written = talk(1, 2, 13, 14, 25)
    done = await importer(store).import_transcripts([written], silences=[silence(10, 20)])
    assert await texts(store) == ["01", "02", "25"]
    assert (done.total.turns, done.total.turns_left_out) == (3, 2)


async def test_while_it_is_off_nothing_is_taken_in_and_later_what_was_said_before(store: RecordStore) -> None:
    written = talk(1, 2, 13, 14)
    off = await importer(store).import_transcripts([written], silences=[silence(10)])
    assert await store.scan(RecordFilter(kinds=(TURN, CONVERSATION), deleted=None)) == []
    assert (off.total.turns, off.total.turns_left_out, off.total.left_out) == (0, 4, 1)
    written.add(turn("25", project=SHOP))
    await importer(store).import_transcripts([written], silences=[silence(10, 20)])
    assert await texts(store) == ["01", "02", "25"]


async def test_an_import_that_finds_it_off_still_reads_it_once(store: RecordStore) -> None:
    written = talk(1, 13)
    for _ in range(3):
        await importer(store).import_transcripts([written], silences=[silence(10)])
    assert written.opened == 1
    await importer(store).import_transcripts([written], silences=[silence(10, 20)])
    await importer(store).import_transcripts([written], silences=[silence(10, 20)])
    assert written.opened == 2


async def test_all_said_in_silence_leaves_no_conversation_at_all(store: RecordStore) -> None:
    written = talk(13, 14)
    written.add(TitleEvent("s", "The plot"))
    for silences in ([silence(10)], [silence(10, 20)]):
        await importer(store).import_transcripts([written], silences=silences)
        kept = await store.scan(RecordFilter(kinds=(TURN, CONVERSATION), deleted=None))
        assert kept == []
        assert "plot" not in str(await store.scan(RecordFilter(deleted=None)))


@pytest.mark.parametrize("first", [True, False])
async def test_a_title_that_was_given_in_silence_names_nothing(store: RecordStore, first: bool) -> None:
    written = talk(1)
    await importer(store).import_transcripts([written])
    title = TitleEvent("s", "The plot")
    said = turn("13", project=SHOP)
    written.add(*([said, title] if first else [said, said, title]))
    await importer(store).import_transcripts([written], silences=[silence(10)])
    assert (await conversation(store)).name == "01"
    assert "plot" not in str(await store.scan(RecordFilter(deleted=None)))


async def test_a_rewritten_file_brings_nothing_back_and_takes_nothing_away(store: RecordStore) -> None:
    written = talk(1, 2)
    await importer(store).import_transcripts([written])
    written.rewrite(*talk(0, 1, 2, 13, 14).lines)
    await importer(store).import_transcripts([written], silences=[silence(10)])
    assert await texts(store) == ["01", "02"]
    written.rewrite(*talk(1, 2, 13, 14, 25).lines)
    await importer(store).import_transcripts([written], silences=[silence(10, 20)])
    assert await texts(store) == ["01", "02", "25"]


async def test_other_projects_go_on(store: RecordStore) -> None:
    written = [
        talk(13, session="a"),
        talk(14, 15, session="b", folder="/work/shopping"),
        talk(16, session="c", folder=f"{SHOP}/tests"),
    ]
    await importer(store).import_transcripts(written, silences=[silence(10)])
    assert [await texts(store, session) for session in "abc"] == [[], ["14", "15"], []]


async def test_a_turn_without_a_time_was_said_with_the_one_before(store: RecordStore) -> None:
    lines = [
        turn("01", project=SHOP),
        turn("a", at=None, project=SHOP),
        turn("13", project=SHOP),
        turn("b", at=None, project=SHOP),
        turn("25", project=SHOP),
    ]
    await importer(store).import_transcripts([Written("s", [*lines])], silences=[silence(10, 20)])
    assert await texts(store) == ["01", "a", "25"]


async def test_what_has_no_time_at_all_stays_unheard_once_it_was(store: RecordStore) -> None:
    written = Written("s", [turn(key, at=None, project=SHOP) for key in "ab"])
    written.modified = DAY_ONE + 15 * MINUTE
    await importer(store).import_transcripts([written], silences=[silence(10)])
    written.add(turn("30", project=SHOP))
    later = Written("t", [turn("d", session="t", at=None, project=SHOP)])
    later.modified = written.modified = DAY_ONE + 30 * MINUTE
    await importer(store).import_transcripts([written, later], silences=[silence(10, 20)])
    assert (await texts(store), await texts(store, "t")) == (["30"], ["d"])


async def test_a_project_that_is_switched_off_meanwhile_is_left_out_from_then_on() -> None:
    store, asked = MemoryStore(), 0

    async def silences() -> Sequence[OffPeriod]:
        nonlocal asked
        asked += 1
        return [silence(0)] if asked > 3 else []

    await importer(store).import_transcripts([talk(*range(20))], silences=silences)
    assert 0 < len(await texts(store)) < 20


async def test_a_worktree_is_silent_with_its_repository(store: RecordStore) -> None:
    elsewhere = {"/trees/shop-fix": SHOP}
    written = [talk(13, session="a", folder="/trees/shop-fix"), talk(14, session="b", folder="/trees/x")]
    taking = importer(store, workspace=elsewhere.get)
    await taking.import_transcripts(written, silences=[silence(10)])
    assert (await texts(store, "a"), await texts(store, "b")) == ([], ["14"])


@given(
    said=st.lists(st.integers(0, 40), unique=True, max_size=12),
    since=st.integers(0, 40),
    length=st.integers(0, 20),
    read_at=st.lists(st.integers(0, 12), max_size=4),
)
async def test_however_it_was_read_what_is_left_is_the_same(
    said: list[int], since: int, length: int, read_at: list[int]
) -> None:
    """Read while it was on, off and on again, in steps or at once."""
    until = since + length
    said = sorted(said)
    written, store = talk(), MemoryStore()
    for number, minute in enumerate(said):
        written.add(*talk(minute).lines)
        if number in read_at and minute >= since:
            lasting = silence(since) if minute < until else silence(since, until)
            await importer(store).import_transcripts([written], silences=[lasting])
    await importer(store).import_transcripts([written], silences=[silence(since, until)])
    once = MemoryStore()
    heard = talk(*(minute for minute in said if not since <= minute < until))
    await importer(once).import_transcripts([heard])
    assert await texts(store) == await texts(once)
    told = {each for each in await contents(store) if not each.startswith("file_")}
    assert told == {each for each in await contents(once) if not each.startswith("file_")}


def test_silences_begin_and_end_with_their_moments() -> None:
    off_folders = OffFolders([OffPeriod("/a", 5, 9)])
    assert [off_folders.was_off("/a/b", at) for at in (4, 5, 8, 9)] == [False, True, True, False]
    assert off_folders.find_off_folder("/a") is None
    assert not off_folders.was_off("/ab", 6)
    assert not off_folders.was_off(None, 6)


def test_only_what_lasts_is_off() -> None:
    off_folders = OffFolders([OffPeriod("/a", 5, 9), OffPeriod("/b", 5), OffPeriod("C:\\Work", 1)])
    assert off_folders.off == ("/b", "C:\\Work")
    assert off_folders.find_off_folder("/b/c") == "/b"
    assert off_folders.find_off_folder("c:/work/x") == "C:\\Work"


def test_those_that_are_off_are_picked_out_of_many() -> None:
    off_folders = OffFolders([OffPeriod("/a", 5, 9), OffPeriod("/b", 5)], {"/tree": "/b"}.get)
    assert off_folders.select_off(["/a", "/b", "/b/c", "/tree", "/bc", ""]) == {"/b", "/b/c", "/tree"}
    assert OffFolders([OffPeriod("/a", 5, 9)]).select_off(["/a"]) == frozenset()
