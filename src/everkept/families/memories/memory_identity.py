"""The kinds of records that memories are kept as, and what makes a memory one and the same.

Hooks load it at every start, so it imports nothing that takes long to load.
"""

import os

from everkept.core.records import SESSION_SCOPE
from everkept.core.text import blake2b, digest

MEMORY = "memory"
SESSION = "session"

NOTHING_STORED = "No memories were stored."  # what a session came to whose memories are gone


PREFIX = "memory:"
EVENT = "episodic"  # the type of what happened once

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # Crockford's base 32, as ULIDs are written
_LENGTH = 26  # characters of a ULID
_MARK_BYTES = 10  # that tell apart what is of one millisecond


def new_memory_id(at: int) -> str:
    return _ulid(at, int.from_bytes(os.urandom(_MARK_BYTES), "big"))


def derived_memory_id(at: int, made_of: str) -> str:
    """The same for the same, whoever makes it."""
    mark = blake2b(made_of.encode("utf-8"), digest_size=_MARK_BYTES).digest()
    return _ulid(at, int.from_bytes(mark, "big"))


def _ulid(at: int, mark: int) -> str:
    """Memories sort by the time they were stored at."""
    number = (at // 1000) << 8 * _MARK_BYTES | mark
    places = reversed(range(_LENGTH))
    return PREFIX + "".join(_ALPHABET[number >> 5 * place & 31] for place in places)


def full_id(given: str) -> str:
    """An id as it is stored; people and tools leave the prefix out."""
    given = given.strip()
    return given if given.startswith(PREFIX) else PREFIX + given


def text_key(text: str) -> str:
    """The `name_key` of a memory: blanks around a text and the kind of its line ends do not count.

    Case and inner blanks do: `PATH=/Opt` is not `path=/opt`, and an indented line another one.
    """
    return digest(text.replace("\r\n", "\n").replace("\r", "\n").strip())


def place_of(scope: str, session: str | None, moment: int | None = None) -> str:
    """The `variant` of a memory: where its text may stand once, for an event at one moment."""
    place = f"{SESSION_SCOPE}:{session}" if scope == SESSION_SCOPE else scope
    return place if moment is None else f"{moment} {place}"  # a session's id may end in anything


def moment_of(memory_type: str | None, occurred_at: int | None) -> int | None:
    """When an event happened: the same words at another time are another event."""
    return occurred_at if memory_type == EVENT else None
