import errno
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from everkept.engines.sqlite.connection import build_storage_full_error, is_full, measure_file, translate_disk_errors
from everkept.engines.sqlite.library import SqliteLibrary
from everkept.errors import ReadOnly, StorageFull, Unavailable


def has_free(monkeypatch: pytest.MonkeyPatch, free: int) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free))


def test_a_full_disk_is_told_with_what_is_taken_and_what_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "project.db"
    path.write_bytes(b"x" * 2_000_000)
    path.with_name("project.db-wal").write_bytes(b"x" * 500_000)
    has_free(monkeypatch, 8_192)
    error = build_storage_full_error(path, "The file of project")
    assert (error.facts["current_size"], error.facts["free"]) == (2_500_000, 8_192)
    assert error.facts["limit"] == 2_508_192
    assert "2.5 MB" in error.message
    assert "8.2 KB are free" in error.message
    assert error.to_envelope()["error"] == "storage_full"


def test_a_quota_is_not_taken_for_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    has_free(monkeypatch, 8_192)
    assert "Free some disk space" in str(build_storage_full_error(tmp_path, "It"))
    has_free(monkeypatch, 10**12)
    quota = build_storage_full_error(tmp_path, "It")
    assert "quota" in str(quota)
    assert quota.facts["limit"] == quota.facts["current_size"]


def test_a_disk_that_says_nothing_of_itself_is_not_called_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Path) -> None:
        raise OSError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(shutil, "disk_usage", refuse)
    assert not is_full(tmp_path)
    error = build_storage_full_error(tmp_path / "nowhere" / "project.db", "It")
    assert "free" not in error.facts
    assert error.facts["current_size"] == 0


async def test_a_project_that_has_no_room_is_refused_with_the_sizes(
    library: SqliteLibrary, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EDQUOT, "Disk quota exceeded")

    monkeypatch.setattr("everkept.engines.sqlite.project_lifecycle.create", refuse)
    with pytest.raises(StorageFull) as caught:
        await library.create("another", "")
    assert caught.value.facts["free"] > 0
    assert caught.value.facts["current_size"] == 0
    assert [project.name for project in await library.list_projects()] == ["project"]


def test_a_folder_is_as_large_as_the_databases_in_it(tmp_path: Path) -> None:
    for name in ("_meta.db", "projects/a.db"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x" * 1_000)
    with pytest.raises(StorageFull) as caught, translate_disk_errors(tmp_path):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert caught.value.facts["current_size"] == 2_000
    assert measure_file(tmp_path / "_meta.db") == 1_000


def test_what_is_no_lack_of_room_is_told_as_it_was(tmp_path: Path) -> None:
    with pytest.raises(ReadOnly), translate_disk_errors(tmp_path):
        raise PermissionError(errno.EACCES, "Permission denied")
    with pytest.raises(Unavailable, match="Input/output"), translate_disk_errors(tmp_path):
        raise OSError(errno.EIO, "Input/output error")
