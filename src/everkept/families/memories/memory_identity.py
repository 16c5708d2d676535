"""The kinds of records that memories are kept as, and what makes a memory one and the same.

Hooks load it at every start, so it imports nothing that takes long to load.
"""

import os

from everkept.core.records import SESSION_SCOPE
from everkept.core.text import blake2b, compute_digest

MEMORY = "memory"
SESSION = "session"

NOTHING_STORED = "No memories were stored."  # what a session came to whose memories are gone


MEMORY_PREFIX = "memory:"
EVENT_TYPE = "episodic"  # the type of what happened once

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # Crockford's base 32, as ULIDs are written
_ULID_CHARACTERS = 26  # characters of a ULID
_RANDOM_BYTES = 10  # that tell apart what is of one millisecond


def create_memory_id(at: int) -> str:
    return _build_ulid(at, int.from_bytes(os.urandom(_RANDOM_BYTES), "big"))


def compute_memory_id(at: int, made_of: str) -> str:
    """The same for the same, whoever makes it."""
    mark = blake2b(made_of.encode("utf-8"), digest_size=_RANDOM_BYTES).digest()
    return _build_ulid(at, int.from_bytes(mark, "big"))


def _build_ulid(at: int, mark: int) -> str:
    """Memories sort by the time they were stored at."""
    number = (at // 1000) << 8 * _RANDOM_BYTES | mark
    places = reversed(range(_ULID_CHARACTERS))
    return MEMORY_PREFIX + "".join(_ALPHABET[number >> 5 * place & 31] for place in places)


def add_prefix(given: str) -> str:
    """An id as it is stored; people and tools leave the prefix out."""
    given = given.strip()
    return given if given.startswith(MEMORY_PREFIX) else MEMORY_PREFIX + given


def compute_text_key(text: str) -> str:
    """The `name_key` of a memory: blanks around a text and the kind of its line ends do not count.

    Case and inner blanks do: `PATH=/Opt` is not `path=/opt`, and an indented line another one.
    """
    return compute_digest(text.replace("\r\n", "\n").replace("\r", "\n").strip())


def build_variant(scope: str, session: str | None, moment: int | None = None) -> str:
    """The `variant` of a memory: where its text may stand once, for an event at one moment."""
    place = f"{SESSION_SCOPE}:{session}" if scope == SESSION_SCOPE else scope
    return place if moment is None else f"{moment} {place}"  # a session's id may end in anything


def get_event_time(memory_type: str | None, occurred_at: int | None) -> int | None:
    """When an event happened: the same words at another time are another event."""
    return occurred_at if memory_type == EVENT_TYPE else None
