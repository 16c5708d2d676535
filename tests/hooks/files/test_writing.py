import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from everkept.hooks.files import writing

# On Windows the folder of a user is the user's, and these say nothing.
OF_FILES, OF_FOLDERS = (0o600, 0o700) if os.name == "posix" else (0o666, 0o777)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "data" / "hooks" / "file.txt"


def test_what_is_written_is_what_was_given(file: Path) -> None:
    writing.append(file, "one\ntwo \udc80\n")
    writing.append(file, writing.lines(["three"]))
    assert file.read_bytes() == b"one\ntwo ?\n\nthree\n"
    writing.replace(file, b"\n\r\n\x1a")
    assert file.read_bytes() == b"\n\r\n\x1a"
    assert list(file.parent.iterdir()) == [file]


def test_nobody_else_can_read_it(file: Path) -> None:
    writing.append(file, "one\n")
    writing.replace(file.with_name("other"), b"two")
    for made in (file, file.with_name("other")):
        assert made.stat().st_mode & 0o777 == OF_FILES
    for folder in (file.parent, file.parent.parent):
        assert folder.stat().st_mode & 0o777 == OF_FOLDERS


def test_lines_of_many_at_once_stay_whole(file: Path) -> None:
    wanted = sorted(f"{number} {'x' * 500}" for number in range(200))
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda line: writing.append(file, writing.lines([line])), wanted))
    assert sorted(filter(None, file.read_text("utf-8").split("\n"))) == wanted
