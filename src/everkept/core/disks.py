"""Why a file system would not have something, as an error that says what to do."""

import errno
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from everkept.errors import ReadOnly, StorageFull, Unavailable


@contextmanager
def usable(path: Path) -> Generator[None, None, None]:
    """Says clearly why the file system would not have it."""
    try:
        yield
    except PermissionError as error:
        raise ReadOnly(
            f"{path} cannot be written ({error.strerror}).",
            hint="Check the permissions of the data folder, or choose one with --data-dir.",
            path=str(path),
        ) from error
    except OSError as error:
        if error.errno == errno.EROFS:
            raise ReadOnly(f"{path} is on a read-only file system.", path=str(path)) from error
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StorageFull(
                f"There is no room for {path}; nothing was changed.",
                hint="Free some disk space and call again.",
                path=str(path),
            ) from error
        raise Unavailable(
            f"{path} cannot be used ({error.strerror}).",
            hint="Choose another data folder with --data-dir.",
            path=str(path),
        ) from error
