"""Statements to SurrealDB and their results, addresses, repeated attempts, and our errors."""

import asyncio
import random
import re
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar, cast
from urllib.parse import SplitResult, urlsplit

from everkept.errors import (
    InvalidInput,
    QueryTimeout,
    Refused,
    StorageFull,
    StoreBusy,
    StoreDamaged,
    StoreUnreachable,
    Unavailable,
)
from everkept.values import Value, field

SCHEMES = {"ws": "ws", "wss": "wss", "http": "ws", "https": "wss"}
ENDPOINT = "/rpc"
ADDRESS_HINT = "An address looks like ws://127.0.0.1:8000 or wss://db.example.org."


class Address(Value):
    """The endpoint of the websocket, and the server as messages show it."""

    url: str
    shown: str
    is_secure: bool


class Credentials(Value):
    """Of a user of the root, or of the namespace; without a name, nobody signs in."""

    user: str
    password: str = field(repr=False)


def parse_address(text: str) -> Address:
    """Raises InvalidInput for what is no address of a server, or has a password in it."""
    try:
        parts = urlsplit(text.strip())
        port = parts.port
    except ValueError:
        raise _build_address_error(text, "is no address") from None
    if parts.username is not None or parts.password is not None:
        raise InvalidInput(
            "The address of SurrealDB holds a user or password.",
            hint="Give them apart from it: they would be shown wherever the address is.",
        )
    if parts.scheme not in SCHEMES:
        raise _build_address_error(text, f"must begin with {', '.join(f'{s}://' for s in SCHEMES)}")
    if not parts.hostname or parts.query or parts.fragment or port == 0:
        raise _build_address_error(text, "must have a host, and neither ? nor #")
    return _build_address(parts)


def _build_address(parts: SplitResult) -> Address:
    scheme = SCHEMES[parts.scheme]
    path = parts.path.rstrip("/").removesuffix(ENDPOINT)
    shown = f"{scheme}://{parts.netloc}{path}"
    return Address(shown + ENDPOINT, shown, scheme == "wss")


def _build_address_error(text: str, why: str) -> InvalidInput:
    shown = text.rpartition("@")[2]  # before it may stand a password
    return InvalidInput(f'The address of SurrealDB "{shown}" {why}.', hint=ADDRESS_HINT)


Values = Mapping[str, Any]

WRITE_TIME_FACTOR = 6  # times as long as a question may take, a write may: it keeps indexes in step

_WRITE_KEYWORDS = re.compile(r"\b(?:BEGIN|CREATE|INSERT|UPSERT|UPDATE|RELATE|DELETE|DEFINE|REMOVE)\b")


class TransactionThrown(Exception):
    """A THROW of our own ended the transaction; nothing of it was kept."""


class WriteContention(Exception):
    """Another transaction came in between; nothing was kept, and the next attempt may do."""


class AlreadyExists(WriteContention):
    """A record of that id, or a value that must be unique, is there already."""


class AnswerTooLarge(Unavailable):
    """An answer is; whoever asks for less may get it."""


class MissingTable(Exception):
    """A table is not there: its database was removed, or is yet to be made. Version 3 says so."""


class Connection(Protocol):
    """One way to SurrealDB, for any number of tasks at once. Nothing is opened before it is used.

    Raises StoreAway where the database cannot be reached or went away, QueryTimeout where it is
    there and slow, StorageFull and StoreDamaged for what they say. What was to be written when
    time ran out was not; where that cannot be known it is StoreAway.
    """

    @property
    def openings(self) -> int:
        """How often it was opened: after each it may be another database, or an empty one."""
        ...

    @property
    def is_modern(self) -> bool:
        """Whether it speaks the dialect of version 3; known once it was opened or used."""
        ...

    @property
    def version(self) -> str:
        """As the database tells it, or nothing; never a reason to choose a dialect."""
        ...

    async def open(self) -> None:
        """What the first use does by itself."""
        ...

    async def run(self, database: str, statements: str, values: Values | None = None) -> list[Any]:
        """What each statement gave. Inside BEGIN and COMMIT the places of results differ between
        versions: such a text is for its effect alone."""
        ...

    async def close(self) -> None: ...


def prepend_use(namespace: str, database: str, statements: str) -> str:
    """A text that does not depend on what was chosen before it."""
    return f"USE NS {quote_name(namespace)} DB {quote_name(database)}; {statements}"


def has_writes(statements: str) -> bool:
    """Whether they change anything. Texts are ours alone: what a user says stands in values."""
    return _WRITE_KEYWORDS.search(statements) is not None


def build_put(row: str, content: str) -> str:
    """What makes a row hold something, whether it is there or not.

    UPSERT would do, were there nothing else in its transaction: of what one writes both before
    and after an UPSERT, the state of an index included, the files of version 2 keep the former.
    """
    return (
        f"IF record::exists({row}) {{ UPDATE {row} CONTENT {content} RETURN NONE }} "
        f"ELSE {{ CREATE {row} CONTENT {content} RETURN NONE }}"
    )


def quote_name(name: str) -> str:
    """A name of a namespace or database, as a text writes it."""
    if not name or not name.isprintable() or "`" in name or "\\" in name:
        raise InvalidInput(
            f"{name!r} cannot be the name of a namespace or database of SurrealDB.",
            hint="Use letters, digits, - and _.",
        )
    return f"`{name}`"


T = TypeVar("T")

MAX_ATTEMPTS = 60
MAX_PAUSE_SECONDS = 0.2  # seconds between attempts


class SharedTask(Generic[T]):
    """One at a time. Who waits for it may go: it goes on for the others."""

    def __init__(self, begin: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._begin = begin
        self._task: asyncio.Task[T] | None = None

    async def join(self) -> T:
        """Begins one, unless one is under way; all who join it see it end the same way."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._begin())
            self._task.add_done_callback(consume_exception)
        return await asyncio.shield(self._task)

    async def settle(self, patience: float) -> None:
        """Waits for one that is under way, so many seconds; then it is cancelled."""
        if self._task is None:
            return
        await asyncio.wait({self._task}, timeout=patience)
        self._task.cancel()
        await asyncio.wait({self._task})


class BackgroundWork(Generic[T]):
    """In a task of its own. Once it has begun nobody stops it in the middle: its asker may go."""

    def __init__(self, do: "Callable[[BackgroundWork[T]], Coroutine[Any, Any, T]]") -> None:
        """`do` says by `has_begun` from when on it matters that it ends."""
        self.has_begun = False
        self.task = asyncio.create_task(do(self))
        self.task.add_done_callback(consume_exception)

    async def wait(self, patience: float) -> bool:
        """Waits so many seconds. What has not begun by then, or when its asker goes, never will."""
        try:
            await asyncio.wait({self.task}, timeout=patience)
        finally:
            if not self.has_begun:
                self.task.cancel()
        return self.task.done()


def consume_exception(task: "asyncio.Future[Any]") -> None:
    """For add_done_callback: whoever waited may have gone, and no warning is due."""
    if not task.cancelled():
        task.exception()


async def retry(work: Callable[[], Awaitable[T]]) -> T:
    """Attempts it until no other transaction comes in between."""
    for attempt in range(MAX_ATTEMPTS):
        try:
            return await work()
        except WriteContention:
            pause = min(MAX_PAUSE_SECONDS, 0.002 * 2 ** min(attempt, 10))
            await asyncio.sleep(random.uniform(0, pause))
    raise StoreBusy("Other processes keep writing to the database.", hint="Try again.")


THROWN_PREFIX = "An error occurred: "
# What is said of the statements around the one that failed.
BYSTANDER_MESSAGES = (
    "The query was not executed due to a failed transaction",
    "The query was not executed due to a cancelled transaction",
    "Cannot COMMIT: the transaction was aborted due to a prior error",
)
CONFLICT_SIGNS = ("can be retried", "read or write conflict", "transaction conflict")
# The same number means something else on another system; a server there says it in words.
DISK_FULL_CODES = {"linux": "28|27|122", "darwin": "28|27|69", "win32": "112|39|1295"}
DISK_FULL_PATTERN = re.compile(
    r"no space left|not enough space|disk (?:is )?full|storagefull|quota (?:was )?exceeded"
    r"|file too large|filetoolarge"
    rf"|os error (?:{DISK_FULL_CODES.get(sys.platform, '28|27')})\b",
    re.IGNORECASE,
)
DAMAGE_PATTERN = re.compile(r"corrupt|checksum|bincode|deserializ|revision error", re.IGNORECASE)
DENIED_PATTERN = re.compile(r"not enough permissions|iam error|anonymous access|not allowed", re.IGNORECASE)
EXPIRED_PATTERN = re.compile(r"session (?:has )?expired|token (?:has )?expired", re.IGNORECASE)
LOGIN_PATTERN = re.compile(r"authentication", re.IGNORECASE)
VALUE_START = re.compile(r"[`'\"\[{(<\d\n]")  # where a message may begin to tell what was stored
QUOTED_TEXT = re.compile(r"'[^']*'|`[^`]*`|\"[^\"]*\"")  # what was stored is no sign of why it failed
MAX_REASON_CHARACTERS = 80


class DiskFailure(Unavailable):
    """Reading or writing did, for another reason than that there is no room."""


def parse_results(answer: Mapping[str, Any]) -> list[Any]:
    """What each statement gave; raises what the first of them failed of."""
    if answer.get("error"):
        raise translate_error(get_message(answer["error"]))
    statements = _parse_statements(answer.get("result"))
    failed = [
        (number, str(statement["result"])) for number, statement in enumerate(statements) if statement["status"] != "OK"
    ]
    causes = [(n, message) for n, message in failed if message not in BYSTANDER_MESSAGES]
    for number, message in causes or failed:
        raise translate_error(message, number)
    return [statement["result"] for statement in statements]


def _parse_statements(result: Any) -> Sequence[Mapping[str, Any]]:
    """What an answer says of each statement. Raises StoreAway where it is no such thing."""
    statements = cast(list[Any], result if isinstance(result, list) else [None])
    if not all(_is_map(each) and {"status", "result"} <= set(each) for each in statements):
        raise StoreUnreachable("SurrealDB answered what cannot be understood.", hint="Check its version, and the way.")
    return cast(Sequence[Mapping[str, Any]], statements)


def get_message(error: Any) -> str:
    return str(cast(Mapping[str, Any], error).get("message", "")) if _is_map(error) else str(error)


def is_wrong_login(message: str) -> bool:
    return bool(LOGIN_PATTERN.search(message) or DENIED_PATTERN.search(message))


def translate_error(message: str, number: int | None = None) -> Exception:
    """The error for a message; `number` is that of the statement, counted from 1."""
    if message.startswith(THROWN_PREFIX):
        return TransactionThrown(message.removeprefix(THROWN_PREFIX))
    words = QUOTED_TEXT.sub("", message).lower()
    if _is_conflict(words):
        return WriteContention(extract_reason(message))
    if "already exists" in words or "already contains" in words:
        return AlreadyExists(extract_reason(message))
    if words.startswith("the table") and "does not exist" in words:
        return MissingTable(extract_reason(message))
    if "exceeded the timeout" in words:
        return QueryTimeout("SurrealDB took longer over a query than it may.", hint="Try again.")
    if DISK_FULL_PATTERN.search(words):
        return build_storage_full()
    where = "a text" if number is None else f"statement {number}"
    return _translate_server_error(words) or RuntimeError(f"SurrealDB refused {where}: {extract_reason(message)}")


def build_storage_full(where: str = "The disk of SurrealDB", **facts: Any) -> StorageFull:
    return StorageFull(
        f"{where} is full. Nothing of this call was stored.", hint="Free some disk space there and call again.", **facts
    )


def build_server_storage_full(place: str) -> StorageFull:
    """For a server, which tells nothing of its disk but that."""
    return StorageFull(
        f"The disk of the server, SurrealDB at {place}, is full. Nothing of this call was stored.",
        hint="Free some disk space on the server and call again. Its sizes are not known here.",
        place=place,
    )


def build_timeout_error(limit: float, at: str = "") -> QueryTimeout:
    return QueryTimeout(
        f"SurrealDB{at} took longer than {limit:g} s.", hint="Try again, or ask for less at once.", time_limit=limit
    )


def build_queue_timeout_error(limit: float, at: str = "") -> QueryTimeout:
    return QueryTimeout(
        f"SurrealDB{at} was busy with an earlier write for {limit:g} s. Nothing of this call was stored.",
        hint="Try again.",
        time_limit=limit,
    )


def build_unknown_outcome_error(limit: float, at: str = "") -> StoreUnreachable:
    return StoreUnreachable(
        f"SurrealDB{at} took longer than {limit:g} s over a write: whether it was stored is unknown.",
        hint="Look for it before you store it again.",
        time_limit=limit,
    )


def extract_reason(message: str) -> str:
    """The words that come before anything that could be a value of ours."""
    found = VALUE_START.search(message)
    words = message[: found.start()] if found else message
    return " ".join(words.split())[:MAX_REASON_CHARACTERS] or "(it gave no reason)"


def _translate_server_error(words: str) -> Exception | None:
    if "failed to decode cbor request" in words:
        return InvalidInput("A value cannot be sent to SurrealDB.", hint="Change it.")
    if "null byte" in words:
        return InvalidInput("A text holds the character NUL, which SurrealDB cannot store.", hint="Remove it.")
    if EXPIRED_PATTERN.search(words):
        return StoreUnreachable("Our session at SurrealDB is over.", hint="The next call opens a new one.")
    if DENIED_PATTERN.search(words):
        return Refused(
            "SurrealDB does not let this user do that.",
            hint="Its user needs the role OWNER, of the root or of the namespace.",
        )
    if "io error" in words or "fsync failed" in words:
        return DiskFailure(
            f"The disk of SurrealDB failed ({extract_reason(words)}).",
            hint="Whether what was under way was stored is unknown: look before you store it again.",
        )
    if DAMAGE_PATTERN.search(words):
        return StoreDamaged(
            f"SurrealDB cannot read what it has stored ({extract_reason(words)}).",
            hint="Restore a backup, or export what can still be read.",
        )
    return None


def _is_conflict(words: str) -> bool:
    return any(sign in words for sign in CONFLICT_SIGNS)


def _is_map(error: Any) -> bool:
    return isinstance(error, Mapping)
