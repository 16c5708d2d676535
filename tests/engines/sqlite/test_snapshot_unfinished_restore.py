from pathlib import Path

import pytest

from data_folders import filled
from everkept.engines.sqlite.library import SqliteLibrary
from everkept.engines.sqlite.restore import LockedFiles, lock_files
from everkept.engines.sqlite.snapshot import find_unfinished_restore, mark_restore, unmark_restores
from everkept.errors import Unavailable
from records import batch, entity

SAFETY = Path("/backups/safety.zip")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    filled(tmp_path / "projects", "shop")  # a name that folders inside it have too
    return tmp_path / "projects"


def begun(folder: Path, file: str = "/backups/copy.zip") -> Path:
    stage = folder / "restoring-1"
    stage.mkdir(mode=0o700)
    mark_restore(stage, Path(file), SAFETY)
    return stage


def frozen(live: LockedFiles) -> None:
    for name in [*live.databases]:
        if name != "_meta.db":
            live.release(name, -live.get_numbers(name).generation)


async def test_who_writes_is_told_which_command_brings_it_to_its_end(data: Path) -> None:
    library = SqliteLibrary(data)
    _, opened = await library.open("shop")
    with lock_files(data) as live:
        begun(data)
        frozen(live)
    fresh = SqliteLibrary(data)
    _, store = await fresh.open("shop")
    for each in (opened, store, await fresh.open_user_store(), await fresh.open_history_store()):
        for _ in range(2):
            with pytest.raises(Unavailable) as refused:
                await each.commit(batch(entity("too early")))
            assert refused.value.code == "unavailable"
            command = f"everkept restore {Path('/backups/copy.zip')} --replace --data-dir {data}"
            assert command in str(refused.value)
    await fresh.close()
    await library.close()


def test_at_its_end_nothing_is_left_to_tell_of_it(data: Path) -> None:
    assert find_unfinished_restore(data) is None
    stage = begun(data)
    found = find_unfinished_restore(data)
    assert found is not None
    assert found.safety == str(SAFETY)
    assert (stage / "about.json").stat().st_mode & 0o077 == 0
    unmark_restores(data)
    assert find_unfinished_restore(data) is None
    assert not stage.exists()


def test_a_path_with_a_blank_is_one_argument_of_the_command(data: Path) -> None:
    begun(data, "/my backups/copy.zip")
    found = find_unfinished_restore(data)
    assert found is not None
    assert f'"{Path("/my backups/copy.zip")}"' in found.command


@pytest.mark.parametrize("content", ["", "{}", "[]", "no json"])
def test_what_tells_nothing_still_tells_that_it_is_unfinished(data: Path, content: str) -> None:
    (begun(data) / "about.json").write_text(content, encoding="utf-8")
    found = find_unfinished_restore(data)
    assert found is not None
    assert "restore FILE" in found.command
