import json
import os
import zipfile
from pathlib import Path
from typing import Any

import pytest

from data_folders import backed_up, everything, restored, statement
from everkept.care.backup import back_up
from everkept.core.times import read_clock
from everkept.engines.sqlite.care import SqliteCare
from everkept.engines.sqlite.snapshot import LOCK_NAME
from everkept.errors import InvalidInput, NotFound, StoreDamaged
from processes import acting, said_by


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "copy.zip"


def manifest_of(file: Path) -> dict[str, Any]:
    with zipfile.ZipFile(file) as archive:
        return json.loads(archive.read("manifest.json"))


def names_beside(file: Path) -> set[str]:
    return {path.name for path in file.parent.iterdir()}


def test_the_manifest_tells_of_each_database_what_it_holds(data: Path, file: Path) -> None:
    backed_up(data, file)
    told = manifest_of(file)
    by_project = {each["project"]: each for each in told["databases"] if each["project"]}
    assert {name: each["status"] for name, each in by_project.items()} == {"shop": "active", "old": "archived"}
    assert by_project["shop"]["rows"]["records"] == 4
    assert by_project["shop"]["newest_change"] == 1
    others = {each["name"] for each in told["databases"] if not each["project"]}
    assert others == {"_meta.db", "user.db", "history.db"}
    assert told["damaged"] == []


def test_it_is_for_its_owner_alone_and_nothing_is_left_beside_it(data: Path, file: Path) -> None:
    made = backed_up(data, file)
    assert file.stat().st_mode & 0o777 == 0o600
    assert made.size == file.stat().st_size
    assert names_beside(file) == {"data", "copy.zip"}


def test_brought_back_elsewhere_it_is_what_was_there(data: Path, file: Path, tmp_path: Path) -> None:
    expected = everything(data)
    backed_up(data, file)
    restored(tmp_path / "elsewhere", file)
    assert everything(tmp_path / "elsewhere") == expected


def test_a_file_that_is_there_is_replaced_only_when_asked(data: Path, file: Path) -> None:
    file.write_text("precious", encoding="utf-8")
    with pytest.raises(InvalidInput, match="already"):
        backed_up(data, file)
    assert file.read_text("utf-8") == "precious"
    backed_up(data, file, force=True)
    assert zipfile.is_zipfile(file)


def test_a_target_that_cannot_be_is_refused(data: Path, file: Path, tmp_path: Path) -> None:
    for wrong in (data, data / "inside.zip", data / "user.db", tmp_path / "no" / "folder.zip"):
        with pytest.raises(InvalidInput):
            backed_up(data, wrong, force=True)
    with pytest.raises(NotFound):
        backed_up(tmp_path / "nothing", file)
    assert not (tmp_path / "nothing").exists()


def test_an_interruption_leaves_nothing(data: Path, file: Path) -> None:
    def interrupt(_done: int, _total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        back_up(SqliteCare(data), file, read_clock, interrupt)
    assert names_beside(file) == {"data"}


def test_a_file_that_came_into_being_meanwhile_is_kept(data: Path, file: Path) -> None:
    def meddle(_done: int, _total: int) -> None:
        file.write_text("precious", encoding="utf-8")

    with pytest.raises(InvalidInput, match="already"):
        back_up(SqliteCare(data), file, read_clock, meddle)
    assert file.read_text("utf-8") == "precious"
    assert names_beside(file) == {"data", "copy.zip"}


def test_a_damaged_database_is_named_and_taken_in_only_when_asked(data: Path, file: Path) -> None:
    said_by("spoil", data / "user.db")
    with pytest.raises(StoreDamaged, match=r"user\.db"):
        backed_up(data, file)
    assert names_beside(file) == {"data"}
    made = backed_up(data, file, with_damaged=True)
    assert made.manifest.damaged == ["user.db"]
    with zipfile.ZipFile(file) as archive:
        assert "damaged/user.db" in archive.namelist()


def test_what_is_no_database_at_all_is_taken_in_byte_for_byte(data: Path, file: Path) -> None:
    (data / "_meta.db").write_bytes(b"scribbled over")
    with pytest.raises(StoreDamaged):
        backed_up(data, file)
    backed_up(data, file, with_damaged=True)
    with zipfile.ZipFile(file) as archive:
        assert archive.read("damaged/_meta.db") == b"scribbled over"
    with pytest.raises(StoreDamaged, match="not have a list of projects"):
        restored(data.with_name("elsewhere"), file)


def test_a_move_that_a_crash_left_is_settled_first(data: Path, file: Path) -> None:
    said_by("set_transition", data / "_meta.db", "shop", "archiving")
    made = backed_up(data, file)
    assert {each.project for each in made.manifest.projects} == {"shop", "old"}
    assert statement(data / "_meta.db", "SELECT transition FROM projects") == [(None,), (None,)]


def test_where_the_last_one_is_can_be_asked(data: Path, file: Path) -> None:
    assert SqliteCare(data).find_last_backup() is None
    backed_up(data, file)
    found = SqliteCare(data).find_last_backup()
    assert found is not None
    assert found[0] == file
    (data / "_meta.db").write_bytes(b"scribbled over")
    assert SqliteCare(data).find_last_backup() is None


def test_copies_that_a_killed_backup_left_go_with_the_next(data: Path, file: Path) -> None:
    with acting("care_actors:hold_scratch", file.parent) as actor:
        left = Path(actor.hear())
        os.utime(left / LOCK_NAME, (0, 0))
        backed_up(data, file)
        assert names_beside(file) == {"data", "copy.zip", left.name}
        actor.kill()
    backed_up(data, file, force=True)
    assert names_beside(file) == {"data", "copy.zip"}
