"""Zip files whose parts claim to be huge."""

import struct
import zipfile
from pathlib import Path

import pytest

from everkept.core.zip_files import MAX_READ_BYTES, open_zip

LARGE = MAX_READ_BYTES + 1_000
END, END_64, LOCATOR_64 = b"PK\5\6", b"PK\6\6", b"PK\6\7"


def write_sparse(path: Path, end: bytes) -> Path:
    """Write a file whose list of names claims to be nearly all of it, with this end."""
    with path.open("wb") as file:
        file.truncate(LARGE)
        file.seek(LARGE)
        file.write(end)
    return path


def test_a_zip_is_read_as_usual(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        made.comment = b"x" * 60_000
        made.writestr("a.txt", "text " * 100_000)
    with path.open("rb") as file, open_zip(file) as archive:
        assert archive.namelist() == ["a.txt"]
        assert archive.read("a.txt") == b"text " * 100_000
        assert archive.testzip() is None


def test_a_long_list_of_names_is_refused_before_it_is_read(tmp_path: Path) -> None:
    plain = END + bytes(8) + LARGE.to_bytes(4, "little") + bytes(6)
    # The record of a large file, which counts in place of the one that the locator names.
    large = END_64 + struct.pack("<QHHIIQQQQ", 44, 45, 45, 0, 0, 1, 1, LARGE, 0)
    located = large + LOCATOR_64 + struct.pack("<IQI", 0, LARGE, 1)
    hidden = END + bytes(8) + LARGE.to_bytes(4, "little") + END + bytes(2)  # its offset looks like another end
    for number, end in enumerate((plain, located + END + bytes(18), hidden)):
        path = write_sparse(tmp_path / f"{number}.zip", end)
        with path.open("rb") as file, pytest.raises(zipfile.BadZipFile):
            open_zip(file)


def test_a_member_that_claims_many_packed_bytes_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("a.txt", "text")
    with path.open("r+b") as file, open_zip(file) as archive:
        file.truncate(2 * LARGE)
        info = archive.getinfo("a.txt")
        info.compress_size = info.file_size = LARGE
        with pytest.raises(zipfile.BadZipFile):
            archive.read(info)
