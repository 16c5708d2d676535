import errno
import os
from pathlib import Path
from typing import Any

import pytest

from everkept.errors import ReadOnly, Refused
from everkept.files import local_disk
from everkept.files.local import LocalFiles


def test_folders_are_made_with_those_above(tmp_path: Path) -> None:
    local_disk.make_folders(str(tmp_path / "a" / "b" / "c"))
    local_disk.make_folders(str(tmp_path / "a" / "b" / "c"))
    assert (tmp_path / "a" / "b" / "c").is_dir()


def test_a_folder_that_the_system_does_not_allow_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nowhere(path: str, *_: object) -> None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)

    monkeypatch.setattr(os, "mkdir", nowhere)  # as Linux answers for a folder in /proc
    for path in (str(tmp_path / "x"), tmp_path.anchor):
        with pytest.raises(Refused) as caught:
            local_disk.make_folders(path)
        assert f'Cannot create folder "{path}"' in str(caught.value)


async def test_an_error_about_the_folder_itself_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = LocalFiles(tmp_path)

    def denied(*_: Any, **__: Any) -> int:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(os, "open", denied)
    with pytest.raises(Refused) as caught:
        await files.read_info()
    assert str(caught.value).startswith(f'Cannot read "{tmp_path}": Permission denied.')


@pytest.mark.parametrize(
    ("number", "hint"), [(errno.EACCES, "Check its permissions."), (errno.EROFS, "Mount its file system")]
)
async def test_a_lock_that_cannot_be_made_is_an_error_about_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, hint: str
) -> None:
    files = LocalFiles(tmp_path)

    def denied(*_: Any, **__: Any) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "open", denied)
    with pytest.raises(ReadOnly) as caught:
        async with files.lock("bank"):
            pass
    monkeypatch.undo()
    assert str(caught.value).startswith(f'Cannot write "{tmp_path}": ')
    assert hint in str(caught.value)
    assert ".lock" not in str(caught.value)
