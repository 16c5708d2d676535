"""What a backup is called, and the list of what it holds."""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any, cast

from everkept.core.files import checked_path
from everkept.core.times import iso, parsed
from everkept.errors import InvalidInput, Refused
from everkept.values import Value

PREFIX = "memory-bank-backup-"  # whatever the bank's own folder is called
# No file of a bank may begin with a dot, and the public server copies .md and .json alone.
MANIFEST = ".backup-manifest"
FORMAT = 1
_PARTIAL = ".partial"
# As other servers of such banks wrote them too: with or without the Z, and the milliseconds.
_ID = re.compile(rf"{PREFIX}(\d{{4}}-\d{{2}}-\d{{2}})T([\d-]+)Z?", re.ASCII)


class Kept(Value):
    """One file as it was copied."""

    size: int
    sha256: str

    @classmethod
    def of(cls, data: bytes) -> "Kept":
        return cls(len(data), hashlib.sha256(data).hexdigest())


class Manifest(Value):
    """All files of a backup by their path, and the bank that they were copied from."""

    bank: str
    created_at: int
    files: Mapping[str, Kept]

    @property
    def size(self) -> int:
        return sum(kept.size for kept in self.files.values())

    def encoded(self) -> bytes:
        value = {
            "format": FORMAT,
            "bank": self.bank,
            "createdAt": iso(self.created_at),
            "files": {
                path: {"size": kept.size, "sha256": kept.sha256}
                for path, kept in sorted(self.files.items())
            },
        }
        return json.dumps(value, ensure_ascii=False, indent=1).encode("utf-8")


def decoded(data: bytes) -> Manifest:
    """Raises ValueError for what is no manifest, with the reason."""
    try:
        value = cast(dict[str, Any], json.loads(data))
        if value["format"] != FORMAT:
            raise ValueError(f"its format is {value['format']}, and {FORMAT} is known")
        files = cast(dict[str, dict[str, Any]], value["files"])
        return Manifest(
            str(value["bank"]),
            parsed(value["createdAt"]),
            {_checked(path): Kept(int(k["size"]), str(k["sha256"])) for path, k in files.items()},
        )
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError("it is not complete") from error
    except json.JSONDecodeError as error:
        raise ValueError("it is no JSON") from error
    except Refused as error:
        raise ValueError(error.message) from error


def name_at(at: int) -> str:
    return PREFIX + iso(at).replace(":", "-").replace(".", "-")


def partial_of(name: str) -> str:
    """The folder that a backup is made in; it has its own name when it is whole."""
    return f".{name}{_PARTIAL}"


def is_partial(name: str) -> bool:
    return name.startswith(f".{PREFIX}") and name.endswith(_PARTIAL)


def is_backup(name: str) -> bool:
    return _ID.fullmatch(name) is not None


def checked_id(backup_id: str) -> str:
    if not is_backup(backup_id):
        raise InvalidInput(
            f"Invalid backup ID format: {backup_id[:120]!a}.",
            hint="list_backups names them, as in memory-bank-backup-2026-02-13T10-30-00-000Z.",
            argument="backupId",
        )
    return backup_id


def named_time(backup_id: str) -> int | None:
    """The time that the name tells; None where it tells none."""
    found = _ID.fullmatch(backup_id)
    if found is None:
        return None
    day, time = found.groups()
    clock, *fraction = [":".join(time.split("-")[:3]), *time.split("-")[3:]]
    try:
        return parsed(f"{day}T{'.'.join([clock, *fraction])}Z")
    except (ValueError, OverflowError):
        return None


def _checked(path: str) -> str:
    if not checked_path(path):
        raise ValueError("it names a file without a name")
    return path
