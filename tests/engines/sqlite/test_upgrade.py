import signal
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from data_folders import everything, make_older, read_databases, restored, statement
from everkept.engines.sqlite.care import SqliteCare
from everkept.engines.sqlite.upgrade import upgrade_folder
from everkept.errors import EverkeptError, StoreTooNew
from server_processes import HANG, environment

# The program that comes after this one: it has one more column.
NEWER = """
import sys
from everkept.engines.sqlite import schema
from everkept.values import replace

step = "ALTER TABLE records ADD COLUMN mood TEXT"
schema.PROJECT = replace(schema.PROJECT, migrations=(*schema.PROJECT.migrations, step))
if DIES:
    import os, signal
    from everkept.engines.sqlite import archive, upgrade
    def publish(*arguments, **more):
        os.kill(os.getpid(), signal.SIGKILL)
    target = archive if DIES == "saving" else upgrade
    setattr(target, "_publish" if DIES == "saving" else "apply_migrations", publish)
from everkept.cli.main import main
main(sys.argv[1:])
"""


@pytest.fixture
def older(data: Path) -> Path:
    make_older(data)
    return data


def run(program: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        capture_output=True,
        check=False,
        encoding="utf-8",
        env=environment(),
        stdin=subprocess.DEVNULL,
        timeout=HANG,
    )


def run_newer(folder: Path, *arguments: str, dies: str = "") -> subprocess.CompletedProcess[str]:
    return run(f"DIES = {dies!r}\n{NEWER}", *arguments, "--data-dir", folder)


def run_this(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run("from everkept.cli.main import main; main()", *arguments, "--data-dir", folder)


def list_backups(folder: Path) -> list[Path]:
    return sorted((folder / "backups").glob("*.zip"))


def get_versions(folder: Path) -> set[int]:
    return {statement(path, "PRAGMA user_version")[0][0] for path in folder.rglob("*.db") if path.name != "_meta.db"}


def test_data_of_the_version_before_is_saved_as_it_was_before_it_is_upgraded(older: Path, tmp_path: Path) -> None:
    everything(older)  # upgrades it like any other use
    [backup] = list_backups(older)
    assert get_versions(older) == {5}
    elsewhere = tmp_path / "elsewhere"
    restored(elsewhere, backup)
    before, after = everything(elsewhere), everything(older)
    note = after["notes"].pop("upgrade.last")
    assert note.endswith(str(backup))
    assert before == after
    assert list_backups(elsewhere) == []  # the copies were upgraded before they became its data


def test_many_processes_upgrade_a_folder_once(older: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(upgrade_folder, [older] * 4))
    assert [each for each in found if each] == list_backups(older)
    assert len(list_backups(older)) == 1


@pytest.mark.parametrize("moment", ["saving", "migrating"])
def test_a_crash_changes_nothing_and_the_next_start_goes_on(data: Path, moment: str) -> None:
    before = everything(data)
    died = run_newer(data, "list", "--project", "shop", dies=moment)
    assert died.returncode == -signal.SIGKILL, died.stderr
    assert everything(data) == before
    assert run_newer(data, "list", "--project", "shop").returncode == 0
    assert get_versions(data) == {6}


def test_a_version_goes_back_to_the_backup_of_the_newer_one(data: Path) -> None:
    before = everything(data)
    done = run_newer(data, "list", "--project", "shop")
    assert done.returncode == 0, done.stderr
    assert "is remembered" in done.stdout
    [backup] = list_backups(data)
    assert str(backup) in done.stderr
    assert "everkept restore" in done.stderr
    files = read_databases(data)
    for arguments in (("list", "--project", "shop"), ("remember", "Later", "--project", "shop"), ("status",)):
        refused = run_this(data, *arguments)
        assert refused.returncode == 1
        assert "newer version" in refused.stderr
    assert read_databases(data) == files
    back = run_this(data, "restore", str(backup), "--replace", "--yes")
    assert back.returncode == 0, back.stderr
    now = everything(data)
    assert now["stores"].keys() == before["stores"].keys()
    for name, store in before["stores"].items():
        assert now["stores"][name]["records"] == store["records"]


def test_a_folder_with_a_file_of_a_newer_version_is_not_upgraded(older: Path) -> None:
    statement(older / "user.db", "PRAGMA user_version = 99; PRAGMA wal_checkpoint(TRUNCATE)")
    files = read_databases(older)
    with pytest.raises(StoreTooNew):
        upgrade_folder(older)
    assert read_databases(older) == files


def test_without_a_backup_nothing_is_upgraded(older: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (older / "backups").write_text("in the way", encoding="utf-8")
    with pytest.raises(EverkeptError, match="backups"):
        upgrade_folder(older)
    assert get_versions(older) == {4}
    (older / "backups").unlink()
    SqliteCare(older).upgrade()
    assert get_versions(older) == {5}


def test_a_damaged_database_is_saved_with_the_others(older: Path) -> None:
    (older / "history.db").write_bytes(b"not a database" * 100)
    backup = upgrade_folder(older)
    assert backup is not None
    assert "damaged/history.db" in zipfile.ZipFile(backup).namelist()
