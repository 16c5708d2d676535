import os
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from data_folders import filled
from everkept.care.check_context import CheckContext, DoctorFinding, apply_fixes
from everkept.care.installation_checks import check_data_folder, find_mount_kind
from everkept.core.times import read_clock
from everkept.engines.sqlite.snapshot import LOCK_NAME, mark_restore
from everkept.settings import read_settings
from everkept.values import replace
from processes import acting

LONG_AGO = (0, 0)


def worst(context: CheckContext) -> list[DoctorFinding]:
    return [finding for finding in check_data_folder(context) if finding.severity != "ok"]


def at(folder: Path) -> CheckContext:
    return CheckContext(read_settings({"data_dir": folder, "config": "none"}, {}), read_clock)


def test_a_folder_that_is_well_is_said_to_be(context: CheckContext) -> None:
    assert worst(context) == []


def test_a_folder_that_is_yet_to_be_made_is_no_problem_and_is_not_made(tmp_path: Path) -> None:
    [finding] = check_data_folder(at(tmp_path / "none"))
    assert finding.severity == "ok"
    assert not (tmp_path / "none").exists()


def test_a_file_in_the_place_of_the_folder_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    [finding] = check_data_folder(at(tmp_path / "file"))
    assert finding.severity == "problem"


def test_in_memory_there_is_no_folder(context: CheckContext) -> None:
    settings = replace(context.settings, deployment_mode="embedded-memory")
    [finding] = check_data_folder(replace(context, settings=settings))
    assert finding.severity == "ok"


@pytest.mark.parametrize(("address", "title"), [("ws://there", "SurrealDB"), ("postgresql://there/team", "PostgreSQL")])
def test_what_a_server_keeps_is_no_folder_of_ours(tmp_path: Path, address: str, title: str) -> None:
    flags = {"data_dir": tmp_path, "config": "none", "database_url": address}
    known = {"EVERKEPT_DATABASE_USER": "anna", "EVERKEPT_DATABASE_PASSWORD": "hunter2"}
    [finding] = check_data_folder(CheckContext(read_settings(flags, known), read_clock))
    assert (finding.severity, f"in {title}" in finding.what) == ("ok", True)


def test_what_others_may_read_is_closed_to_them(context: CheckContext) -> None:
    opened = [context.folder, context.folder / "projects", context.folder / "user.db"]
    for path in opened:
        path.chmod(path.stat().st_mode | 0o044)
    [finding] = worst(context)
    assert finding.severity == "problem"
    assert "user.db" in finding.what
    assert all(path.stat().st_mode & 0o044 for path in opened)  # a look changes nothing
    [done] = apply_fixes([finding])
    assert done.is_done
    assert worst(context) == []
    assert (context.folder / "user.db").stat().st_mode & 0o777 == 0o600
    assert context.folder.stat().st_mode & 0o777 == 0o700


def test_a_folder_that_others_may_only_list_gets_advice(context: CheckContext) -> None:
    context.folder.chmod(0o755)
    [finding] = worst(context)
    assert finding.severity == "advice"
    context.folder.chmod(0o777)
    [finding] = worst(context)
    assert finding.severity == "problem"
    assert [each.is_done for each in apply_fixes([finding])] == [True]
    assert worst(context) == []


@pytest.mark.parametrize(
    ("part", "program"),
    [
        ("Dropbox", "Dropbox"),
        ("OneDrive - Firm", "OneDrive"),
        ("Mobile Documents", "iCloud"),
        ("Nextcloud", "Nextcloud"),
    ],
)
def test_a_folder_that_is_synchronised_gets_advice(tmp_path: Path, part: str, program: str) -> None:
    folder = tmp_path / part / "data"
    filled(folder)
    folder.mkdir(parents=True, mode=0o700)
    [finding] = worst(at(folder))
    assert finding.severity == "advice"
    assert program in finding.what


def test_the_file_system_of_a_folder_is_that_of_the_nearest_mount() -> None:
    mounts = [
        "/dev/sda / ext4 rw 0 0",
        "server:/export /home nfs4 rw 0 0",
        "other:/x /home/me/with\\040blank cifs rw 0 0",
        "broken",
    ]
    assert find_mount_kind(Path("/var/data"), mounts) == "ext4"
    assert find_mount_kind(Path("/home/me/data"), mounts) == "nfs4"
    assert find_mount_kind(Path("/home/me/with blank/data"), mounts) == "cifs"
    assert find_mount_kind(Path("/homes"), mounts) == "ext4"


def test_a_restore_that_was_cut_short_is_told_with_its_safety_copy(context: CheckContext) -> None:
    stage = context.folder / "restoring-1"
    stage.mkdir(mode=0o700)
    mark_restore(stage, Path("/backups/copy.zip"), Path("/backups/safety.zip"))
    [finding] = worst(context)
    assert finding.severity == "problem"
    assert finding.command == (f"everkept restore /backups/copy.zip --replace --data-dir {context.folder}")
    assert "/backups/safety.zip" in finding.what
    assert finding.mend is None


def test_what_dead_processes_left_is_removed_when_it_is_old(context: CheckContext) -> None:
    left = [
        context.folder / "user.abc.new",
        context.folder / "_meta.lock",
        context.folder / "archive" / "abc.db.new",
        context.folder / "restoring-2",
    ]
    for path in left:
        path.mkdir(mode=0o700) if path.name.startswith("restoring") else path.touch(mode=0o600)
    assert worst(context) == []  # somebody may be at it
    for path in left:
        os.utime(path, LONG_AGO)
    found = worst(context)
    assert {finding.severity for finding in found} == {"advice"}
    assert len(found) == len(left)
    assert all(each.is_done for each in apply_fixes(found))
    assert worst(context) == []
    assert not any(path.exists() for path in left)


class Usage(NamedTuple):
    total: int
    used: int
    free: int


@pytest.mark.parametrize(("free", "severity"), [(10**7, "problem"), (5 * 10**8, "advice")])
def test_a_disk_that_is_nearly_full_is_told(
    context: CheckContext, monkeypatch: pytest.MonkeyPatch, free: int, severity: str
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(10**12, 10**12 - free, free))
    [finding] = worst(context)
    assert finding.severity == severity


def test_the_folder_of_a_restore_that_was_killed_is_known_at_once(context: CheckContext) -> None:
    with acting("care_actors:hold_stage", context.folder) as actor:
        stage = Path(actor.hear())
        os.utime(stage / LOCK_NAME, LONG_AGO)
        assert worst(context) == []  # somebody is at it
        actor.kill()
        [finding] = worst(context)
    assert str(stage) in finding.what
    [done] = apply_fixes([finding])
    assert done.is_done
    assert worst(context) == []
    assert not stage.exists()
