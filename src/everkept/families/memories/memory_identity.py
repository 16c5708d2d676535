"""Kinds of records for memories, and the identity of a memory: its id, text key and variant.

Hooks load this module at every start, so it imports nothing that takes long to load.
"""

import os

from everkept.core.records import SESSION_SCOPE, Record
from everkept.core.text import blake2b, compute_digest

MEMORY = "memory"
SESSION = "session"

NOTHING_STORED = "No memories were stored."  # summary of a session without memories


MEMORY_PREFIX = "memory:"
EVENT_TYPE = "episodic"  # type of a memory of an event

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # Crockford's base 32, the alphabet of ULIDs
_ULID_CHARACTERS = 26
_RANDOM_BYTES = 10  # that distinguish ids of the same millisecond


def get_title(record: Record) -> str:
    """Return the text that shows a record to a person. The name of a memory is the file that it is about."""
    return record.text if record.kind == MEMORY else record.name or record.text


def create_memory_id(at: int) -> str:
    return _build_ulid(at, int.from_bytes(os.urandom(_RANDOM_BYTES), "big"))


def compute_memory_id(at: int, made_of: str) -> str:
    """Return the id for this time and content. It is the same in every process."""
    mark = blake2b(made_of.encode("utf-8"), digest_size=_RANDOM_BYTES).digest()
    return _build_ulid(at, int.from_bytes(mark, "big"))


def _build_ulid(at: int, mark: int) -> str:
    """Build an id that sorts by the time of storing."""
    number = (at // 1000) << 8 * _RANDOM_BYTES | mark
    places = reversed(range(_ULID_CHARACTERS))
    return MEMORY_PREFIX + "".join(_ALPHABET[number >> 5 * place & 31] for place in places)


def add_prefix(given: str) -> str:
    """Return the stored form of an id. People and tools may omit the prefix."""
    given = given.strip()
    return given if given.startswith(MEMORY_PREFIX) else MEMORY_PREFIX + given


def compute_text_key(text: str) -> str:
    """Return the `name_key` of a memory, which ignores surrounding whitespace and the kind of line ends.

    Case and inner whitespace count: `PATH=/Opt` is not `path=/opt`, and an indented line differs.
    """
    return compute_digest(text.replace("\r\n", "\n").replace("\r", "\n").strip())


def build_variant(scope: str, session: str | None, moment: int | None = None) -> str:
    """Return the `variant` of a memory: the scope, and for an event the time, within which its text is unique."""
    place = f"{SESSION_SCOPE}:{session}" if scope == SESSION_SCOPE else scope
    # The time comes first, because a session id may end in anything.
    return place if moment is None else f"{moment} {place}"


def get_event_time(memory_type: str | None, occurred_at: int | None) -> int | None:
    """Return the time of an event, otherwise None. The same words at another time are another event."""
    return occurred_at if memory_type == EVENT_TYPE else None
