"""Zip files of others, from which one read can ask for gigabytes."""

import io
import os
import zipfile
from typing import IO, cast

MAX_READ_BYTES = 16 << 20  # of one read; the list of all names is one
_EMPTY_ZIP = b"PK\5\6" + bytes(18)


def open_zip(file: IO[bytes]) -> zipfile.ZipFile:
    """Open a zip file to read. Raise BadZipFile if it is damaged, or a part that is read as a whole is too large."""
    return zipfile.ZipFile(cast(IO[bytes], _LimitedReads(file)))


def open_member(file: IO[bytes], member: zipfile.ZipInfo) -> IO[bytes]:
    """Open a member that `open_zip` has listed. The list is not read again, which takes long for many members."""
    archive = zipfile.ZipFile(io.BytesIO(_EMPTY_ZIP))
    archive.fp = cast(IO[bytes], _LimitedReads(file))
    return archive.open(member)


class _LimitedReads:
    """The methods of a file that `zipfile` uses."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.seek = file.seek
        self.tell = file.tell
        self.seekable = file.seekable

    def read(self, size: int = -1) -> bytes:
        if size < 0:
            at = self._file.tell()
            size = self._file.seek(0, os.SEEK_END) - at
            self._file.seek(at)
        if size > MAX_READ_BYTES:
            raise zipfile.BadZipFile(f"it has a part of {size >> 20:,} MiB")
        return self._file.read(size)
