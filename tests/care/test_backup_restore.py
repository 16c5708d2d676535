import asyncio
from pathlib import Path

import pytest

from data_folders import backed_up, cut_short, everything, filled, off_folders, restored, statement
from everkept.care.backup import restore, restore_project
from everkept.core.mcp import ToolUsage
from everkept.core.times import read_clock
from everkept.engines.sqlite.care import SqliteCare
from everkept.engines.sqlite.library import SqliteLibrary
from everkept.errors import InvalidInput, NotFound, Refused, Unavailable
from processes import said_by
from records import batch, entity


@pytest.fixture
def file(data: Path, tmp_path: Path) -> Path:
    backed_up(data, tmp_path / "copy.zip")
    return tmp_path / "copy.zip"


def test_data_that_is_there_is_not_replaced_unasked(data: Path, file: Path) -> None:
    before = everything(data)
    with pytest.raises(Refused, match="already contains data"):
        restored(data, file)
    assert everything(data) == before


def test_what_is_replaced_is_in_the_safety_copy(data: Path, file: Path, tmp_path: Path) -> None:
    wanted = everything(data)
    filled(data, "made later")
    before = everything(data)
    outcome = restored(data, file, replace=True)
    assert everything(data) == wanted
    assert outcome.safety is not None
    assert outcome.safety.parent == tmp_path
    assert outcome.safety.stat().st_mode & 0o777 == 0o600
    restored(data, outcome.safety, replace=True, safety=tmp_path / "second.zip")
    assert everything(data) == before


def test_calls_are_counted_as_they_were_when_the_backup_was_made(data: Path, tmp_path: Path) -> None:
    once = ToolUsage("search", 1, 0, 2.0, 2.0, 7)

    async def count() -> list[ToolUsage]:
        library = SqliteLibrary(data)
        await library.add_usage([once])
        counted = await library.list_usage()
        await library.close()
        return counted

    assert asyncio.run(count()) == [once]
    backed_up(data, tmp_path / "copy.zip")
    assert [usage.calls for usage in asyncio.run(count())] == [2]
    restored(data, tmp_path / "copy.zip", replace=True)
    assert [usage.calls for usage in asyncio.run(count())] == [2]


def test_projects_that_changed_their_state_since_come_back_as_they_were(data: Path, file: Path) -> None:
    wanted = everything(data)

    async def change() -> None:
        library = SqliteLibrary(data)
        await library.restore("old")
        await library.archive("shop")
        await library.delete("shop")
        await library.create("shop", "another of that name")
        await library.close()

    asyncio.run(change())
    restored(data, file, replace=True)
    assert everything(data) == wanted
    files = [path.parent.name for path in data.rglob("*.db") if path.parent != data]
    assert sorted(files) == ["archive", "projects"]


def test_whoever_says_no_changes_nothing(data: Path, file: Path, tmp_path: Path) -> None:
    before = said_by("digests", data)
    outcome = restore(SqliteCare(data), file, read_clock, off_folders, lambda _manifest, _safety: False, replace=True)
    assert outcome is None
    assert said_by("digests", data) == before
    assert {path.name for path in tmp_path.iterdir()} == {"data", "copy.zip"}


def test_a_safety_copy_that_cannot_be_written_keeps_all_as_it_is(data: Path, file: Path, tmp_path: Path) -> None:
    before = said_by("digests", data)
    for wrong in (file, tmp_path / "no" / "folder.zip"):
        with pytest.raises(InvalidInput, match="safety copy"):
            restored(data, file, replace=True, safety=wrong)
    assert said_by("digests", data) == before


@pytest.mark.parametrize("name", ["user.db", "_meta.db", "projects"])
def test_a_damaged_database_is_kept_in_the_safety_copy_and_replaced(data: Path, file: Path, name: str) -> None:
    wanted = everything(data)
    [path] = (data / name).glob("*.db") if name == "projects" else [data / name]
    said_by("spoil", path)
    outcome = restored(data, file, replace=True)
    assert everything(data) == wanted
    assert outcome.safety is not None


def test_what_is_no_database_any_more_is_replaced(data: Path, file: Path) -> None:
    wanted = everything(data)
    for path in data.rglob("*.db"):
        path.write_bytes(b"scribbled over")
    restored(data, file, replace=True)
    assert everything(data) == wanted


def test_a_store_that_the_backup_lacks_is_empty_afterwards(data: Path, tmp_path: Path) -> None:
    filled_elsewhere = tmp_path / "small"

    async def make() -> None:
        library = SqliteLibrary(filled_elsewhere)
        await library.create("only", "")
        await library.close()

    asyncio.run(make())
    backed_up(filled_elsewhere, tmp_path / "small.zip")
    restored(data, tmp_path / "small.zip", replace=True)
    found = everything(data)
    assert [*found["stores"]] == ["only", "@user", "@history"]
    assert found["stores"]["@user"]["records"] == {}


def test_a_folder_that_was_only_looked_into_counts_as_empty(file: Path, tmp_path: Path) -> None:
    async def look() -> None:
        library = SqliteLibrary(tmp_path / "fresh")
        await library.list_projects()
        await library.open_user_store()
        await library.close()

    asyncio.run(look())
    assert restored(tmp_path / "fresh", file).safety is None


def test_one_project_comes_back_beside_the_others(data: Path, file: Path) -> None:
    before = everything(data)["stores"]["shop"]
    statement(next((data / "projects").glob("*.db")), "UPDATE records SET text = 'spoiled'")
    assert restore_project(SqliteCare(data), file, "shop", read_clock) == ("shop-2", False)
    assert restore_project(SqliteCare(data), file, "old", read_clock) == ("old-2", False)
    found = everything(data)
    assert found["stores"]["shop-2"] == before
    assert found["archived"] == ["old"]
    assert {name for _, name, _, _ in found["projects"]} == {"shop", "shop-2", "old", "old-2"}

    async def write() -> None:
        library = SqliteLibrary(data)
        _, store = await library.open("shop-2")
        await store.commit(batch(entity("written after")))
        await library.close()

    asyncio.run(write())


def test_a_project_that_the_backup_lacks_is_named(data: Path, file: Path) -> None:
    with pytest.raises(NotFound, match="no project") as caught:
        restore_project(SqliteCare(data), file, "shoop", read_clock)
    assert '"shop"' in str(caught.value)
    assert not [*data.glob("restoring-*")]


def test_an_interruption_in_the_middle_says_how_to_go_on(data: Path, file: Path, tmp_path: Path) -> None:
    wanted = everything(data)
    told = cut_short(data, file, tmp_path / "safety.zip")
    assert "--replace again" in str(told)
    assert Path(told.facts["safety_copy"]).is_file()
    restored(data, file, replace=True, safety=tmp_path / "second.zip")
    assert everything(data) == wanted


def test_after_a_restore_that_was_cut_short_only_another_one_helps(data: Path, file: Path, tmp_path: Path) -> None:
    cut_short(data, file, tmp_path / "safety.zip")
    [about] = data.glob("restoring-*/about.json")
    assert about.stat().st_mode & 0o777 == 0o600
    command = f"everkept restore {file} --replace --data-dir {data}"
    with pytest.raises(Unavailable) as refused:
        backed_up(data, tmp_path / "mixture.zip")
    assert command in str(refused.value)
    with pytest.raises(Unavailable) as refused:
        restore_project(SqliteCare(data), file, "shop", read_clock)
    assert command in str(refused.value)
    restored(data, file, replace=True, safety=tmp_path / "second.zip")
    assert not [*data.glob("restoring-*")]
    backed_up(data, tmp_path / "whole.zip")
    assert restore_project(SqliteCare(data), file, "shop", read_clock).name == "shop-2"


@pytest.mark.parametrize("name", ["missing.zip", ""])
def test_a_file_that_is_not_there_is_told_before_anything_else(data: Path, name: str) -> None:
    with pytest.raises(InvalidInput, match=r"Cannot find|is a folder"):
        restored(data, data.parent / name)
