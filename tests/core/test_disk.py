import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from everkept.core import disk

# On Windows the folder of a user is the user's, and these say nothing.
OF_FILES, OF_FOLDERS = (0o600, 0o700) if os.name == "posix" else (0o666, 0o777)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "data" / "hooks" / "file.txt"


def test_what_is_written_is_what_was_given(file: Path) -> None:
    disk.append(file, "one\ntwo \udc80\n")
    disk.append_lines(file, ["three"])
    assert file.read_bytes() == b"one\ntwo ?\n\nthree\n"
    disk.replace(file, b"\n\r\n\x1a")
    assert file.read_bytes() == b"\n\r\n\x1a"
    assert list(file.parent.iterdir()) == [file]


def test_nobody_else_can_read_it(file: Path) -> None:
    disk.append(file, "one\n")
    disk.replace(file.with_name("other"), b"two")
    for made in (file, file.with_name("other")):
        assert made.stat().st_mode & 0o777 == OF_FILES
    for folder in (file.parent, file.parent.parent):
        assert folder.stat().st_mode & 0o777 == OF_FOLDERS


def test_lines_of_many_at_once_stay_whole(file: Path) -> None:
    wanted = sorted(f"{number} {'x' * 500}" for number in range(200))
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda line: disk.append_lines(file, [line]), wanted))
    assert sorted(filter(None, file.read_text("utf-8").split("\n"))) == wanted


def test_a_new_file_replaces_no_other(tmp_path: Path) -> None:
    disk.create(tmp_path / "a", b"one")
    with pytest.raises(FileExistsError):
        disk.create(tmp_path / "a", b"two")
    assert (tmp_path / "a").read_bytes() == b"one"


def test_an_error_leaves_the_file_before_and_no_draft(tmp_path: Path) -> None:
    disk.replace(tmp_path / "a", b"one")
    with pytest.raises(RuntimeError), disk.write_new_file(tmp_path / "b"):
        raise RuntimeError
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError):
        disk.replace(tmp_path / "folder", b"two")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "folder"]
    assert (tmp_path / "a").read_bytes() == b"one"


def test_a_file_gets_the_mode_and_the_owner_of_the_one_before(tmp_path: Path) -> None:
    disk.replace(tmp_path / "a", b"one", mode=0o644)
    before = (tmp_path / "a").stat()
    disk.replace(tmp_path / "a", b"two", mode=0o644, owner=(before.st_uid, before.st_gid))
    found = (tmp_path / "a").stat()
    assert found.st_mode & 0o777 == (0o644 if os.name == "posix" else 0o666)
    assert (found.st_uid, found.st_gid) == (before.st_uid, before.st_gid)
