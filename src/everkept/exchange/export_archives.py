"""Files of an export: a zip archive, a folder of files or archives, or one file. Read as streams."""

import zipfile
import zlib
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from everkept.core.disk import open_regular
from everkept.core.zip_files import open_member, open_zip
from everkept.errors import InvalidInput
from everkept.exchange.foreign import NOTHING_IMPORTED
from everkept.exchange.json_files import JsonItem, NotJsonItems, read_json_items
from everkept.transcripts.source_programs import as_mapping
from everkept.values import Value

MAX_FILES = 10_000  # of one export
MAX_RATIO = 200  # of a file in an archive to its compressed size; JSON has about 10
_UNCHECKED_BYTES = 4096
_IGNORED_FOLDER = "__MACOSX"
_JSON_SUFFIX, _ZIP_SUFFIX = ".json", ".zip"
_ARCHIVE_ERRORS = (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError)


class ExportFile(Value):
    """JSON file of an export, in an archive if it has a `member`."""

    path: Path
    info: zipfile.ZipInfo | None
    size: int
    modified: int  # time of the file or its archive

    @property
    def member(self) -> str | None:
        return None if self.info is None else self.info.filename

    @property
    def name(self) -> str:
        """Return the name of the file without folders."""
        return Path(self.path.name if self.member is None else self.member).name

    @property
    def place(self) -> str:
        return str(self.path) if self.member is None else f"{self.path}!/{self.member}"

    def read_items(self) -> Iterator[JsonItem]:
        """Yield the items of the file. Raise InvalidInput if it is not JSON or cannot be read."""
        with self.open() as file:
            yield from read_json_items(file)

    def read_objects(self) -> Iterator[Mapping[str, Any]]:
        """Yield the objects of a list, or the one object that the file is."""
        whole: dict[str, Any] = {}
        for key, value in self.read_items():
            if key is None:
                yield as_mapping(value)
            else:
                whole[key] = value
        if whole:
            yield whole

    @contextmanager
    def open(self) -> Generator[IO[bytes], None, None]:
        """Open the file. Raise InvalidInput if it cannot be read, also for errors of its reader."""
        try:
            with open_regular(self.path) as file:
                if self.info is None:
                    yield file
                else:
                    with open_member(file, self.info) as content:
                        yield content
        except (NotJsonItems, OSError, *_ARCHIVE_ERRORS) as error:
            raise _build_unreadable_error(self.place, error) from error


def list_export_files(place: Path) -> list[ExportFile]:
    """List the JSON files of an export. Return none if there are none. Raise InvalidInput for a broken archive."""
    if place.is_dir():
        every = sorted(path for path in place.rglob("*") if path.is_file() and not path.is_symlink())
        paths = [path for path in every if path.suffix.lower() in (_JSON_SUFFIX, _ZIP_SUFFIX)]
    else:
        paths = [place] if place.is_file() else []
    found = [file for path in paths[:MAX_FILES] for file in _list_files(path)]
    return found[:MAX_FILES]


def _list_files(path: Path) -> Iterator[ExportFile]:
    try:
        about = path.stat()
        if path.suffix.lower() != _ZIP_SUFFIX:
            yield ExportFile(path, None, about.st_size, about.st_mtime_ns // 1_000)
            return
        with open_regular(path) as file, open_zip(file) as archive:
            for info in sorted(archive.infolist(), key=lambda each: each.filename):
                parts = Path(info.filename).parts
                if info.filename.lower().endswith(_JSON_SUFFIX) and _IGNORED_FOLDER not in parts:
                    _check_compression(info)
                    yield ExportFile(path, info, info.file_size, about.st_mtime_ns // 1_000)
    except (OSError, *_ARCHIVE_ERRORS) as error:
        raise _build_unreadable_error(str(path), error) from error


def _check_compression(info: zipfile.ZipInfo) -> None:
    """Raise BadZipFile for a file that unpacks to far more than any export, or needs much memory to unpack."""
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise zipfile.BadZipFile(f"{info.filename} is compressed in an unusual way")
    if info.file_size > MAX_RATIO * (info.compress_size + _UNCHECKED_BYTES):
        raise zipfile.BadZipFile(f"{info.filename} unpacks to more than {MAX_RATIO} times its size")


def _build_unreadable_error(place: str, error: Exception) -> InvalidInput:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return InvalidInput(
        f"{place} cannot be read: {reason}.",
        hint=f"{NOTHING_IMPORTED} Download the export again, or pass another PATH.",
        argument="PATH",
        value=place,
    )
