import os
from collections.abc import Callable
from pathlib import Path

import pytest

from everkept.engines.sqlite.snapshot import LOCK_NAME, STALE_SECONDS, list_abandoned, open_scratch
from processes import acting

PREFIX = "copies-"


def aged(path: Path, seconds: float = 60.0) -> Path:
    then = path.stat().st_mtime - seconds
    os.utime(path, (then, then))
    return path


def test_a_folder_goes_with_its_block(tmp_path: Path) -> None:
    with open_scratch(tmp_path, PREFIX) as folder:
        (folder / "copy.db").write_bytes(b"half")
        assert [*tmp_path.iterdir()] == [folder]
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("is_kept", [lambda _: True, lambda _: False], ids=["kept", "not kept"])
def test_what_is_to_be_kept_stays_and_is_never_removed_by_others(
    tmp_path: Path, is_kept: Callable[[Path], bool]
) -> None:
    with open_scratch(tmp_path, PREFIX, lambda _: True) as folder:
        pass
    aged(folder / LOCK_NAME)
    with open_scratch(tmp_path, PREFIX, is_kept):
        assert folder.exists() == is_kept(folder)


def test_a_folder_is_abandoned_as_soon_as_its_process_is_dead(tmp_path: Path) -> None:
    with acting("care_actors:hold_scratch", tmp_path) as actor:
        folder = Path(actor.hear())
        aged(folder / LOCK_NAME)
        aged(folder, 2 * STALE_SECONDS)
        assert list_abandoned(folder.parent, folder.name[:9]) == []
        actor.kill()
        assert list_abandoned(folder.parent, folder.name[:9]) == [folder]


def test_a_mark_that_was_made_just_now_may_not_be_locked_yet(tmp_path: Path) -> None:
    folder = tmp_path / f"{PREFIX}1"
    folder.mkdir()
    (folder / LOCK_NAME).touch()
    assert list_abandoned(tmp_path, PREFIX) == []
    aged(folder / LOCK_NAME)
    assert list_abandoned(tmp_path, PREFIX) == [folder]


def test_without_a_mark_the_age_tells(tmp_path: Path) -> None:
    folder = tmp_path / f"{PREFIX}1"
    folder.mkdir()
    assert list_abandoned(tmp_path, PREFIX) == []
    aged(folder, 2 * STALE_SECONDS)
    assert list_abandoned(tmp_path, PREFIX) == [folder]


def test_a_mark_that_cannot_be_opened_tells_nothing(tmp_path: Path) -> None:
    folder = tmp_path / f"{PREFIX}1"
    (folder / LOCK_NAME).mkdir(parents=True)
    aged(folder / LOCK_NAME)
    assert list_abandoned(tmp_path, PREFIX) == []
    aged(folder, 2 * STALE_SECONDS)
    assert list_abandoned(tmp_path, PREFIX) == [folder]
