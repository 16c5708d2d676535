import hashlib
import json
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_folders import backed_up, everything, filled, restored, statement
from everkept.engines.sqlite.archive import open_backup
from everkept.errors import EverkeptError, InvalidInput, StoreDamaged, StoreTooNew
from examples import examples


@pytest.fixture(scope="module")
def backup(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("backup")
    filled(folder / "data", "shop")
    backed_up(folder / "data", folder / "copy.zip")
    return folder / "copy.zip"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "elsewhere"


def rewritten(source: Path, target: Path, change: Callable[[str, bytes], bytes | None]) -> Path:
    """The same archive with other contents; None leaves an entry out."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            content = change(name, old.read(name))
            if content is not None:
                new.writestr(name, content)
    return target


def with_manifest(source: Path, target: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    def changed(name: str, content: bytes) -> bytes:
        if name != "manifest.json":
            return content
        told = json.loads(content)
        change(told)
        return json.dumps(told).encode()

    return rewritten(source, target, changed)


def test_a_copy_that_is_not_what_was_taken_in_is_noticed(backup: Path, tmp_path: Path, place: Path) -> None:
    def change(name: str, content: bytes) -> bytes:
        return content[:-1] + b"x" if name == "user.db" else content

    with pytest.raises(StoreDamaged, match=r"user\.db"):
        restored(place, rewritten(backup, tmp_path / "bad.zip", change))
    assert not [*place.glob("*.db")]


def test_rows_that_are_not_counted_so_are_noticed(backup: Path, tmp_path: Path, place: Path) -> None:
    def change(told: dict[str, Any]) -> None:
        told["databases"][1]["rows"]["records"] += 1

    with pytest.raises(StoreDamaged):
        restored(place, with_manifest(backup, tmp_path / "bad.zip", change))


def test_a_database_that_is_missing_is_noticed(backup: Path, tmp_path: Path, place: Path) -> None:
    def change(name: str, content: bytes) -> bytes | None:
        return None if name == "history.db" else content

    with pytest.raises(StoreDamaged, match="missing"):
        restored(place, rewritten(backup, tmp_path / "bad.zip", change))


def test_a_list_of_projects_that_does_not_fit_the_files_is_noticed(backup: Path, tmp_path: Path, place: Path) -> None:
    def change(told: dict[str, Any]) -> None:
        told["databases"] = [each for each in told["databases"] if not each["project"]]

    with pytest.raises(StoreDamaged, match="list of projects"):
        restored(place, with_manifest(backup, tmp_path / "bad.zip", change))


@pytest.mark.parametrize(
    "name", ["../outside.db", "projects/../../outside.db", "/etc/outside.db", "other.txt", "C:x.db"]
)
def test_a_name_that_no_data_folder_has_is_refused(backup: Path, tmp_path: Path, place: Path, name: str) -> None:
    def change(told: dict[str, Any]) -> None:
        told["databases"][1]["name"] = name

    with pytest.raises(InvalidInput, match="not a backup"):
        restored(place, with_manifest(backup, tmp_path / "bad.zip", change))


def test_a_backup_of_a_newer_program_is_refused(backup: Path, tmp_path: Path, place: Path) -> None:
    with pytest.raises(StoreTooNew):
        restored(place, with_manifest(backup, tmp_path / "b.zip", lambda told: told.update(format=2)))


@pytest.mark.parametrize("content", [b"", b"text", b"PK\x03\x04 and nothing behind"])
def test_what_is_no_backup_is_refused(tmp_path: Path, place: Path, content: bytes) -> None:
    file = tmp_path / "file"
    file.write_bytes(content)
    with pytest.raises(EverkeptError):
        restored(place, file)
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("something", "else")
    with pytest.raises(InvalidInput, match="not a backup"):
        restored(place, tmp_path / "other.zip")
    with pytest.raises(InvalidInput, match="Cannot find"):
        restored(place, tmp_path / "nothing.zip")
    assert not place.exists()


@settings(max_examples=examples(40), deadline=None)
@given(st.data())
def test_no_broken_byte_goes_unnoticed(backup: Path, data: st.DataObject) -> None:
    """Whatever is read of a broken file is an error of ours, or all of it is right."""
    content = bytearray(backup.read_bytes())
    position = data.draw(st.integers(0, len(content) - 1))
    content[position] ^= data.draw(st.integers(1, 255))
    broken = backup.with_name("broken.zip")
    broken.write_bytes(content)
    place = backup.with_name("place")
    try:
        restored(place, broken)
    except EverkeptError:
        assert not [*place.glob("*.db")]
    else:
        assert everything(place)["stores"]["shop"]["faults"] == []
    finally:
        shutil.rmtree(place, ignore_errors=True)


@settings(max_examples=examples(20), deadline=None)
@given(st.data())
def test_no_cut_file_goes_unnoticed(backup: Path, data: st.DataObject) -> None:
    content = backup.read_bytes()
    cut = backup.with_name("cut.zip")
    cut.write_bytes(content[: data.draw(st.integers(0, len(content) - 1))])
    with pytest.raises(EverkeptError), open_backup(cut):
        pass


def with_statement(source: Path, target: Path, name: str, sql: str) -> Path:
    """The same archive, in which a stranger has changed a database and its line in the manifest."""
    changed = target.with_suffix(".db")
    with zipfile.ZipFile(source) as old:
        changed.write_bytes(old.read(name))
    statement(changed, sql)
    content = changed.read_bytes()

    def change(told: dict[str, Any]) -> None:
        [entry] = [each for each in told["databases"] if each["name"] == name]
        entry |= {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}

    with_manifest(source, target.with_suffix(".new"), change)
    return rewritten(target.with_suffix(".new"), target, lambda each, old: content if each == name else old)


@pytest.mark.parametrize(
    ("name", "sql", "told"),
    [
        (
            "_meta.db",
            "CREATE TRIGGER own AFTER INSERT ON notes BEGIN INSERT INTO tokens VALUES ('x', 'x', 'x', 0); END",
            'trigger "own" was not created',
        ),
        ("user.db", "CREATE VIEW spy AS SELECT * FROM records", 'view "spy" was not created'),
        ("user.db", "CREATE INDEX spy ON records(abs(length(text)))", 'index "spy" was not created'),
        ("history.db", 'CREATE TABLE "a\u202eb"(x)', r'table "a\u202eb" was not created'),
        ("user.db", "DROP VIEW relations", 'view "relations" is missing'),
        ("user.db", "DROP VIEW relations; CREATE VIEW relations AS SELECT 1", 'view "relations" was changed'),
        ("user.db", "ALTER TABLE records ADD COLUMN spy AS (abs(text)) VIRTUAL", 'table "records" was changed'),
    ],
)
def test_a_database_with_foreign_parts_is_refused(
    backup: Path, tmp_path: Path, place: Path, name: str, sql: str, told: str
) -> None:
    forged = with_statement(backup, tmp_path / "forged.zip", name, sql)
    with pytest.raises(StoreDamaged) as caught:
        restored(place, forged)
    assert told in caught.value.message
    assert not [*place.glob("*.db")]


@pytest.mark.parametrize("path", ["projects/../../x.db", "../x.db", "projects/other.db", "/x.db"])
def test_a_list_of_projects_that_names_other_files_is_refused(
    backup: Path, tmp_path: Path, place: Path, path: str
) -> None:
    forged = with_statement(backup, tmp_path / "forged.zip", "_meta.db", f"UPDATE projects SET db_path = '{path}'")
    damaged = with_manifest(forged, tmp_path / "damaged.zip", lambda told: told["damaged"].append(path))
    for file in (forged, damaged):
        with pytest.raises((StoreDamaged, InvalidInput)):
            restored(place, file)
        assert not [*place.glob("*.db")]
