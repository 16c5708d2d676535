"""What SurrealDB says where it failed, as an error that says what to do."""

import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any, cast

from everkept.engines.surreal.connection import Contended, Existing, Missing, Thrown
from everkept.errors import (
    InvalidInput,
    QueryTimeout,
    Refused,
    StorageFull,
    StoreAway,
    StoreDamaged,
    Unavailable,
)

THROWN = "An error occurred: "
# What is said of the statements around the one that failed.
BYSTANDERS = (
    "The query was not executed due to a failed transaction",
    "The query was not executed due to a cancelled transaction",
    "Cannot COMMIT: the transaction was aborted due to a prior error",
)
CONFLICTS = ("can be retried", "read or write conflict", "transaction conflict")
# The same number means something else on another system; a server there says it in words.
FULL_BY_SYSTEM = {"linux": "28|27|122", "darwin": "28|27|69", "win32": "112|39|1295"}
NO_ROOM = re.compile(
    r"no space left|not enough space|disk (?:is )?full|storagefull|quota (?:was )?exceeded"
    r"|file too large|filetoolarge"
    rf"|os error (?:{FULL_BY_SYSTEM.get(sys.platform, '28|27')})\b",
    re.IGNORECASE,
)
BROKEN = re.compile(r"corrupt|checksum|bincode|deserializ|revision error", re.IGNORECASE)
DENIED = re.compile(r"not enough permissions|iam error|anonymous access|not allowed", re.IGNORECASE)
EXPIRED = re.compile(r"session (?:has )?expired|token (?:has )?expired", re.IGNORECASE)
UNSIGNED = re.compile(r"authentication", re.IGNORECASE)
VALUES = re.compile(r"[`'\"\[{(<\d\n]")  # where a message may begin to tell what was stored
QUOTED = re.compile(r"'[^']*'|`[^`]*`|\"[^\"]*\"")  # what was stored is no sign of why it failed
LONGEST_OPENING = 80  # characters


class DiskFailed(Unavailable):
    """Reading or writing did, for another reason than that there is no room."""


def outcomes(answer: Mapping[str, Any]) -> list[Any]:
    """What each statement gave; raises what the first of them failed of."""
    if answer.get("error"):
        raise failure(message_of(answer["error"]))
    statements = _told(answer.get("result"))
    failed = [
        (number, str(statement["result"]))
        for number, statement in enumerate(statements)
        if statement["status"] != "OK"
    ]
    causes = [(n, message) for n, message in failed if message not in BYSTANDERS]
    for number, message in causes or failed:
        raise failure(message, number)
    return [statement["result"] for statement in statements]


def _told(result: Any) -> Sequence[Mapping[str, Any]]:
    """What an answer says of each statement. Raises StoreAway where it is no such thing."""
    statements = cast(list[Any], result if isinstance(result, list) else [None])
    if not all(_is_map(each) and {"status", "result"} <= set(each) for each in statements):
        raise StoreAway(
            "SurrealDB answered what cannot be understood.", hint="Check its version, and the way."
        )
    return cast(Sequence[Mapping[str, Any]], statements)


def message_of(error: Any) -> str:
    return str(cast(Mapping[str, Any], error).get("message", "")) if _is_map(error) else str(error)


def is_wrong_login(message: str) -> bool:
    return bool(UNSIGNED.search(message) or DENIED.search(message))


def failure(message: str, number: int | None = None) -> Exception:
    """The error for a message; `number` is that of the statement, counted from 1."""
    if message.startswith(THROWN):
        return Thrown(message.removeprefix(THROWN))
    words = QUOTED.sub("", message).lower()
    if _is_conflict(words):
        return Contended(opening(message))
    if "already exists" in words or "already contains" in words:
        return Existing(opening(message))
    if words.startswith("the table") and "does not exist" in words:
        return Missing(opening(message))
    if "exceeded the timeout" in words:
        return QueryTimeout("SurrealDB took longer over a query than it may.", hint="Try again.")
    if NO_ROOM.search(words):
        return no_room()
    where = "a text" if number is None else f"statement {number}"
    return _outside(words) or RuntimeError(f"SurrealDB refused {where}: {opening(message)}")


def no_room(where: str = "The disk of SurrealDB", **facts: Any) -> StorageFull:
    return StorageFull(
        f"{where} is full. Nothing of this call was stored.",
        hint="Free some disk space there and call again.",
        **facts,
    )


def no_room_there(place: str) -> StorageFull:
    """For a server, which tells nothing of its disk but that."""
    return StorageFull(
        f"The disk of the server, SurrealDB at {place}, is full. Nothing of this call was stored.",
        hint="Free some disk space on the server and call again. Its sizes are not known here.",
        place=place,
    )


def too_slow(limit: float, at: str = "") -> QueryTimeout:
    return QueryTimeout(
        f"SurrealDB{at} took longer than {limit:g} s.",
        hint="Try again, or ask for less at once.",
        time_limit=limit,
    )


def no_turn(limit: float, at: str = "") -> QueryTimeout:
    return QueryTimeout(
        f"SurrealDB{at} was busy with an earlier write for {limit:g} s. Nothing of this call was "
        "stored.",
        hint="Try again.",
        time_limit=limit,
    )


def unknown(limit: float, at: str = "") -> StoreAway:
    return StoreAway(
        f"SurrealDB{at} took longer than {limit:g} s over a write: whether it was stored is "
        "unknown.",
        hint="Look for it before you store it again.",
        time_limit=limit,
    )


def opening(message: str) -> str:
    """The words that come before anything that could be a value of ours."""
    found = VALUES.search(message)
    words = message[: found.start()] if found else message
    return " ".join(words.split())[:LONGEST_OPENING] or "(it gave no reason)"


def _outside(words: str) -> Exception | None:
    if "failed to decode cbor request" in words:
        return InvalidInput("A value cannot be sent to SurrealDB.", hint="Change it.")
    if "null byte" in words:
        return InvalidInput(
            "A text holds the character NUL, which SurrealDB cannot store.", hint="Remove it."
        )
    if EXPIRED.search(words):
        return StoreAway("Our session at SurrealDB is over.", hint="The next call opens a new one.")
    if DENIED.search(words):
        return Refused(
            "SurrealDB does not let this user do that.",
            hint="Its user needs the role OWNER, of the root or of the namespace.",
        )
    if "io error" in words or "fsync failed" in words:
        return DiskFailed(
            f"The disk of SurrealDB failed ({opening(words)}).",
            hint="Whether what was under way was stored is unknown: look before you store it "
            "again.",
        )
    if BROKEN.search(words):
        return StoreDamaged(
            f"SurrealDB cannot read what it has stored ({opening(words)}).",
            hint="Restore a backup, or export what can still be read.",
        )
    return None


def _is_conflict(words: str) -> bool:
    return any(sign in words for sign in CONFLICTS)


def _is_map(error: Any) -> bool:
    return isinstance(error, Mapping)
