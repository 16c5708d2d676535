"""The folder of an embedded SurrealDB: whose it is, and why it cannot be used."""

from pathlib import Path

from everkept.core.disk import make_folder, usable
from everkept.core.locks import FileLock
from everkept.engines.surreal.connecting.failures import NO_ROOM, no_room, opening
from everkept.errors import (
    EverkeptError,
    StorageFull,
    StoreBusy,
    StoreDamaged,
    StoreTooNew,
    Unavailable,
)

LOCK = "everkept.lock"
LOG = "clog"  # what a version 2 keeps everything in
OF_VERSION_3 = ("sstables", "wal")


class Folder:
    """Taken by one opening at a time: the engine itself would let two destroy it."""

    def __init__(self, path: Path) -> None:
        self._path = path.absolute()
        self._lock = FileLock(self._path / LOCK)

    @property
    def url(self) -> str:
        return f"surrealkv://{self._path}"

    def take(self) -> None:
        with usable(self._path):
            make_folder(self._path)
            is_ours = self._lock.take()
        if not is_ours:
            raise StoreBusy(
                f"The SurrealDB in {self._path} is in use by another process.",
                hint="Embedded, it belongs to one process at a time. End that one, or let several "
                "share a server with deployment_mode local-server.",
                path=str(self._path),
            )
        if self._is_of_version_3():
            self.release()
            raise StoreTooNew(
                f"The SurrealDB in {self._path} was written by version 3, and here is version 2.",
                hint="Serve it with `surreal start` and use deployment_mode local-server, or "
                "choose another folder.",
                path=str(self._path),
            )

    def release(self) -> None:
        self._lock.release()

    def why_not(self, message: str) -> EverkeptError:
        """Why the engine would not open it."""
        if NO_ROOM.search(message):
            return self.full()
        if "permission denied" in message.lower() or "read-only" in message.lower():
            return Unavailable(
                f"{self._path} cannot be written ({opening(message)}).",
                hint="Check the permissions of the data folder, or choose one with --data-dir.",
                path=str(self._path),
            )
        return StoreDamaged(
            f"The SurrealDB in {self._path} is damaged, or of another version.",
            hint="Restore a backup of the folder, or choose another one.",
            path=str(self._path),
        )

    def full(self) -> StorageFull:
        return no_room(f"The disk of {self._path}", path=str(self._path), **self._sizes())

    def _sizes(self) -> dict[str, int]:
        from shutil import disk_usage

        try:
            files = [entry for entry in self._path.rglob("*") if entry.is_file()]
            size = sum(entry.stat().st_size for entry in files)
            return {"current_size": size, "free": disk_usage(self._path).free}
        except OSError:  # they are a help, and no reason to hide why it failed
            return {}

    def _is_of_version_3(self) -> bool:
        return not (self._path / LOG).exists() and any(
            (self._path / name).exists() for name in OF_VERSION_3
        )
