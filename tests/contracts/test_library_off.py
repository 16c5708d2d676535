"""Switching projects off and on, as every library keeps it."""

from pathlib import Path

import pytest

from everkept.core.ports import Library
from everkept.core.projects import OffPeriod
from everkept.core.records import RecordFilter
from everkept.errors import NotFound
from everkept.values import replace
from records import DAY_ONE, MILLISECOND, batch, entity

FOLDER, OTHER = "/work/shop", "/work/café/läden"


async def off_times(library: Library) -> list[tuple[str, bool]]:
    return [(silence.folder, silence.until is None) for silence in await library.list_off_periods()]


async def test_a_project_is_on_and_there_are_no_silences(library: Library) -> None:
    made = await library.create("shop", "")
    assert (made.is_off, made.off_since) == (False, None)
    assert await library.list_off_periods() == []


async def test_whoever_asks_for_a_project_learns_that_it_is_off(library: Library) -> None:
    made = await library.create("shop", "")
    await library.create("other", "")
    await library.link_workspace(FOLDER, made)
    off = await library.set_off("shop", off=True)
    assert off == replace(made, off_since=off.off_since)
    assert off.is_off
    assert off.off_since is not None
    assert off.off_since > DAY_ONE
    assert await library.get_project("shop") == off
    assert (await library.open("shop"))[0] == off
    assert await library.find_workspace_project(FOLDER) == off
    assert [each.is_off for each in await library.list_projects()] == [False, True]


@pytest.mark.smoke
async def test_what_is_off_is_on_again_as_it_was(library: Library) -> None:
    made = await library.create("shop", "")
    _, store = await library.open("shop")
    await store.commit(batch(entity("Ada")))
    await library.set_off("shop", off=True)
    assert await library.set_off("shop", off=False) == made
    _, store = await library.open("shop")
    assert [record.id for record in await store.scan(RecordFilter())] == ["Ada"]


async def test_switching_to_what_it_is_changes_nothing(library: Library) -> None:
    made = await library.create("shop", "")
    await library.link_workspace(FOLDER, made)
    assert await library.set_off("shop", off=False) == made
    assert await library.list_off_periods() == []
    off = await library.set_off("shop", off=True)
    before = await library.list_off_periods()
    assert await library.set_off("shop", off=True) == off
    assert await library.list_off_periods() == before


async def test_silences_tell_when_a_folder_was_silent(library: Library) -> None:
    made = await library.create("shop", "")
    await library.link_workspace(FOLDER, made)
    await library.link_workspace(OTHER, made)
    first = (await library.set_off("shop", off=True)).off_since or 0
    await library.set_off("shop", off=False)
    second = (await library.set_off("shop", off=True)).off_since or 0
    found = await library.list_off_periods()
    assert {silence.folder for silence in found} == {FOLDER, OTHER}
    spans = [(each.since, each.until) for each in found if each.folder == FOLDER]
    [(since, until), (since_again, lasting)] = spans
    assert (since, since_again, lasting) == (first, second, None)
    assert until is not None
    assert first < until < second


async def test_a_project_without_a_folder_is_off_and_silences_none(library: Library) -> None:
    await library.create("shop", "")
    assert (await library.set_off("shop", off=True)).is_off
    assert await library.list_off_periods() == []


async def test_a_folder_that_comes_later_is_silent_too(library: Library) -> None:
    made = await library.create("shop", "")
    await library.set_off("shop", off=True)
    await library.link_workspace(FOLDER, made)
    assert await off_times(library) == [(FOLDER, True)]


async def test_an_archived_project_can_be_switched_and_stays_so(library: Library) -> None:
    made = await library.create("shop", "")
    await library.link_workspace(FOLDER, made)
    off = await library.set_off("shop", off=True)
    archived = await library.archive("shop")
    assert archived.off_since == off.off_since
    restored = await library.restore("shop")
    assert restored.off_since == off.off_since
    await library.archive("shop")
    assert not (await library.set_off("shop", off=False)).is_off
    assert await off_times(library) == [(FOLDER, False)]


async def test_the_silence_of_a_deleted_project_ends_with_it_and_holds(library: Library) -> None:
    made = await library.create("shop", "")
    await library.link_workspace(FOLDER, made)
    since = (await library.set_off("shop", off=True)).off_since or 0
    await library.delete("shop")
    [silence] = await library.list_off_periods()
    assert (silence.folder, silence.since) == (FOLDER, since)
    assert silence.until is not None
    assert silence.until >= since
    again = await library.create("shop", "")
    assert not again.is_off
    await library.link_workspace(FOLDER, again)
    assert await library.list_off_periods() == [silence]
    await library.set_off("shop", off=True)
    assert len(await library.list_off_periods()) == 2


async def test_a_deleted_project_that_was_never_off_leaves_nothing(library: Library) -> None:
    made = await library.create("shop", "")
    await library.link_workspace(FOLDER, made)
    await library.delete("shop")
    assert await library.list_off_periods() == []


@pytest.mark.parametrize("off", [True, False])
async def test_a_project_that_there_is_not_cannot_be_switched(library: Library, off: bool) -> None:
    with pytest.raises(NotFound) as caught:
        await library.set_off("nowhere", off=off)
    assert caught.value.facts["name"] == "nowhere"
    assert await library.list_off_periods() == []


async def test_a_silence_is_told_in_microseconds(library: Library) -> None:
    made = await library.create("shop", "")
    await library.link_workspace(FOLDER, made)
    off = await library.set_off("shop", off=True)
    assert await library.list_off_periods() == [OffPeriod(FOLDER, off.off_since or 0)]
    assert ((off.off_since or 0) - DAY_ONE) % MILLISECOND == 0


async def test_a_library_that_is_opened_again_knows_it(tmp_path: Path) -> None:
    from everkept.engines.sqlite.library import SqliteLibrary

    first = SqliteLibrary(tmp_path)
    await first.link_workspace(FOLDER, await first.create("shop", ""))
    second = SqliteLibrary(tmp_path)  # as another process has it
    off = await second.set_off("shop", off=True)
    assert await first.get_project("shop") == off
    await second.close()
    assert await off_times(first) == [(FOLDER, True)]
    await first.close()


async def test_what_was_switched_off_before_now_was_off_since_then(library: Library) -> None:
    project = await library.create("late", "")
    await library.link_workspace("/late", project)
    assert (await library.set_off("late", off=True, at=DAY_ONE - 5)).off_since == DAY_ONE - 5
    assert [(each.folder, each.since) for each in await library.list_off_periods()] == [("/late", DAY_ONE - 5)]


async def test_a_moved_folder_stays_off_for_the_time_before(library: Library) -> None:
    made, other = await library.create("shop", ""), await library.create("other", "")
    await library.link_workspace(FOLDER, made)
    await library.set_off("shop", off=True, at=DAY_ONE)
    await library.set_off("shop", off=False, at=DAY_ONE + 10)
    await library.move_workspace(FOLDER, other)
    assert await library.list_off_periods() == [OffPeriod(FOLDER, DAY_ONE, DAY_ONE + 10)]
    await library.move_workspace(FOLDER, None)
    assert await library.list_off_periods() == [OffPeriod(FOLDER, DAY_ONE, DAY_ONE + 10)]
