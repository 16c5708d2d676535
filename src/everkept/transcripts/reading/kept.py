"""A transcript that is a file: where it lies, and how large it is."""

from os import stat_result
from pathlib import Path

from everkept.errors import Unavailable


class FileTranscript:
    """What all of them have in common. `seen` is what the file was like when it was found."""

    def __init__(self, path: Path, source: str, seen: stat_result | None = None) -> None:
        self._path = path
        self._source = source
        self._about = seen

    @property
    def source(self) -> str:
        return self._source

    @property
    def name(self) -> str:
        return str(self._path)

    @property
    def size(self) -> int:
        return self._seen().st_size

    @property
    def modified(self) -> int:
        return self._seen().st_mtime_ns // 1000

    def _seen(self) -> stat_result:
        try:
            return self._about or self._path.stat()
        except OSError as error:
            raise unreadable(self._path, error) from error


def unreadable(path: Path, error: OSError) -> Unavailable:
    return Unavailable(
        f"The transcript {path} cannot be read: {error.strerror or error}.",
        hint="It may have been deleted or moved; the next import looks for it again.",
        path=str(path),
    )
