"""How a store names its own working files, which it neither lists nor lets be reached."""

import re
import secrets

from everkept.core.files import checked_path
from everkept.errors import Refused

# 14 bytes more than the name itself: `core/files.py` leaves room for 15.
_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{8}\.tmp")
_LOCK = re.compile(r"\.everkept-[a-z0-9-]+(\.[0-9a-f]+)?\.lock")
LOCK_NAME = re.compile(r"[a-z0-9-]{1,40}")
ABANDONED = 3600.0  # seconds after which nobody is still writing a temporary file


def temporary(name: str) -> str:
    """Beside the file it becomes, so that one rename puts it in place."""
    return f".{name}.{secrets.token_hex(4)}.tmp"


def lock_file(name: str, after: str | None = None) -> str:
    """Of a lock, or of the claim that follows the one with the token `after`."""
    return f".everkept-{name}.lock" if after is None else f".everkept-{name}.{after}.lock"


def is_temporary(name: str) -> bool:
    return _TEMPORARY.fullmatch(name) is not None


def is_working_file(name: str) -> bool:
    return name[:1] == "." and (is_temporary(name) or _LOCK.fullmatch(name.lower()) is not None)


def reachable_parts(path: str) -> tuple[str, ...]:
    """The parts of a path that a caller may use; Refused for the store's own files."""
    parts = checked_path(path)
    if own := next((part for part in parts if is_working_file(part)), None):
        raise Refused(f'"{own}" is a working file of the folder itself.', name=path)
    return parts
