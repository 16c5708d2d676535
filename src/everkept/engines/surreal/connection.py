"""Statements to SurrealDB and their results, addresses, retries, and our errors."""

import asyncio
import random
import re
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar, cast
from urllib.parse import urlsplit

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
ADDRESS_HINT = "Use the form ws://127.0.0.1:8000 or wss://db.example.org."
UNREACHABLE_HINT = "Check that the server is running and that the network allows the connection."
OUTCOME_UNKNOWN_HINT = "The outcome of the interrupted write is unknown. Check before you repeat it."


class Address(Value):
    """Server address. `url` is the websocket endpoint, and `shown` is the form that messages show."""

    url: str
    shown: str
    is_secure: bool


class Credentials(Value):
    """User and password of the root or of the namespace. Without a user, no one signs in."""

    user: str
    password: str = field(repr=False)


def parse_address(text: str) -> Address:
    """Parse a server address. Raise InvalidInput if it is not valid, or if it contains a user or password."""
    try:
        parts = urlsplit(text.strip())
        port = parts.port
    except ValueError:
        raise _build_address_error(text, "is not an address") from None
    if parts.username is not None or parts.password is not None:
        raise InvalidInput(
            "The SurrealDB address contains a user or a password, which messages and logs would show.",
            hint="Remove them from the address and set `database_user` and `database_password` instead.",
        )
    if parts.scheme not in SCHEMES:
        raise _build_address_error(text, f"must begin with {', '.join(f'{s}://' for s in SCHEMES)}")
    if not parts.hostname or parts.query or parts.fragment or port == 0:
        raise _build_address_error(text, "must have a host and neither ? nor #")
    scheme = SCHEMES[parts.scheme]
    path = parts.path.rstrip("/").removesuffix(ENDPOINT)
    shown = f"{scheme}://{parts.netloc}{path}"
    return Address(shown + ENDPOINT, shown, scheme == "wss")


def _build_address_error(text: str, why: str) -> InvalidInput:
    shown = text.rpartition("@")[2].partition("?")[0]  # the parts before @ and after ? may contain a password
    return InvalidInput(f'The SurrealDB address "{shown}" {why}.', hint=ADDRESS_HINT)


Values = Mapping[str, Any]

WRITE_TIME_FACTOR = 6  # a write may take this many times as long as a query, because it updates indexes

_WRITE_KEYWORDS = re.compile(r"\b(?:BEGIN|CREATE|INSERT|UPSERT|UPDATE|RELATE|DELETE|DEFINE|REMOVE)\b")


class TransactionThrown(Exception):
    """A THROW in our statements ended the transaction. Nothing was stored."""


class WriteContention(Exception):
    """Another transaction came in between. Nothing was stored, and a retry may succeed."""


class AlreadyExists(WriteContention):
    """A record with this id or a unique value already exists."""


class AnswerTooLarge(Unavailable):
    """The result is too large. A smaller request may succeed."""


class MissingTable(Exception):
    """A table does not exist: its database was removed or not created yet. Only version 3 reports this."""


class Connection(Protocol):
    """Connection to SurrealDB for any number of concurrent tasks. The first use opens it.

    It raises StoreUnreachable if the database cannot be reached, QueryTimeout if it answers but is too slow, and
    StorageFull or StoreDamaged. After QueryTimeout, nothing was written. StoreUnreachable is raised if the outcome of a
    write is unknown.
    """

    @property
    def openings(self) -> int:
        """Return how often it was opened. After each opening, the database may be another or an empty one."""
        ...

    @property
    def is_modern(self) -> bool:
        """Return whether the server has the dialect of version 3. It is known after the first use."""
        ...

    @property
    def version(self) -> str:
        """Return the version that the database reports, or an empty text. It never decides the dialect."""
        ...

    async def measure_files(self) -> int | None:
        """Return the bytes of the files of all databases, or None if they are unknown."""
        ...

    async def open(self) -> None:
        """Open the connection, as the first use does."""
        ...

    async def run(self, database: str, statements: str, values: Values | None = None) -> list[Any]:
        """Return the result of each statement.

        Inside BEGIN and COMMIT, the positions of results differ between versions, so ignore those results.
        """
        ...

    async def close(self) -> None: ...


def prepend_use(namespace: str, database: str, statements: str) -> str:
    """Return statements that do not depend on the database chosen before."""
    return f"USE NS {quote_name(namespace)} DB {quote_name(database)}; {statements}"


def has_writes(statements: str) -> bool:
    """Return whether the statements change data. They contain no user input, which is always in values."""
    return _WRITE_KEYWORDS.search(statements) is not None


def build_put(row: str, content: str) -> str:
    """Return a statement that writes a row, whether it exists or not.

    UPSERT would work if it were alone in its transaction. If a transaction writes a row or an index both before and
    after an UPSERT, the files of version 2 keep the former state.
    """
    return (
        f"IF record::exists({row}) {{ UPDATE {row} CONTENT {content} RETURN NONE }} "
        f"ELSE {{ CREATE {row} CONTENT {content} RETURN NONE }}"
    )


def quote_name(name: str) -> str:
    """Return the quoted name of a namespace or database. Raise InvalidInput if the name is not allowed."""
    if not name or not name.isprintable() or "`" in name or "\\" in name:
        raise InvalidInput(
            f"{name!r} cannot be the name of a SurrealDB namespace or database.", hint="Use letters, digits, - and _."
        )
    return f"`{name}`"


T = TypeVar("T")

MAX_ATTEMPTS = 60
MAX_PAUSE_SECONDS = 0.2  # between attempts


class SharedTask(Generic[T]):
    """Task of which at most one runs at a time. Canceling one waiting caller does not stop it."""

    def __init__(self, begin: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._begin = begin
        self._task: asyncio.Task[T] | None = None

    async def join(self) -> T:
        """Start the task unless it is running. All callers get the same result."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._begin())
            self._task.add_done_callback(consume_exception)
        return await asyncio.shield(self._task)

    async def settle(self, patience: float) -> None:
        """Wait up to `patience` seconds for a running task, then cancel it."""
        if self._task is None:
            return
        await asyncio.wait({self._task}, timeout=patience)
        self._task.cancel()
        await asyncio.wait({self._task})


class BackgroundWork(Generic[T]):
    """Work in a separate task. Once it has begun, canceling its caller does not stop it."""

    def __init__(self, do: "Callable[[BackgroundWork[T]], Coroutine[Any, Any, T]]") -> None:
        """Start the work. `do` sets `has_begun` when it must no longer be interrupted."""
        self.has_begun = False
        self.task = asyncio.create_task(do(self))
        self.task.add_done_callback(consume_exception)

    async def wait(self, patience: float) -> bool:
        """Wait up to `patience` seconds and return whether the work ended.

        Work is canceled if it has not begun by then, or when its caller is canceled.
        """
        try:
            await asyncio.wait({self.task}, timeout=patience)
        finally:
            if not self.has_begun:
                self.task.cancel()
        return self.task.done()


def consume_exception(task: "asyncio.Future[Any]") -> None:
    """Mark the exception of a task as handled, because its caller may be gone. Use it with add_done_callback."""
    if not task.cancelled():
        task.exception()


async def retry(work: Callable[[], Awaitable[T]]) -> T:
    """Repeat the work until no other transaction comes in between."""
    for attempt in range(MAX_ATTEMPTS):
        try:
            return await work()
        except WriteContention:
            pause = min(MAX_PAUSE_SECONDS, 0.002 * 2 ** min(attempt, 10))
            await asyncio.sleep(random.uniform(0, pause))
    raise StoreBusy("Other processes keep writing to the database.", hint="Try again in a moment.")


THROWN_PREFIX = "An error occurred: "
# Messages about the other statements of a failed transaction.
BYSTANDER_MESSAGES = (
    "The query was not executed due to a failed transaction",
    "The query was not executed due to a cancelled transaction",
    "Cannot COMMIT: the transaction was aborted due to a prior error",
)
CONFLICT_SIGNS = ("can be retried", "read or write conflict", "transaction conflict")
# Error numbers differ between systems. A server on another system reports the error in words.
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
VALUE_START = re.compile(r"[`'\"\[{(<\d\n]")  # a message may quote stored values from here on
QUOTED_TEXT = re.compile(r"'[^']*'|`[^`]*`|\"[^\"]*\"")  # stored values do not show why a statement failed
MAX_REASON_CHARACTERS = 80


class DiskFailure(Unavailable):
    """Reading or writing failed for a reason other than a full disk."""


def parse_results(answer: Mapping[str, Any]) -> list[Any]:
    """Return the result of each statement. Raise the error of the first one that failed."""
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
    """Return the outcome of each statement. Raise StoreUnreachable if the answer has another form."""
    statements = cast(list[Any], result if isinstance(result, list) else [None])
    if not all(_is_map(each) and {"status", "result"} <= set(each) for each in statements):
        raise StoreUnreachable(
            "SurrealDB sent a response that Everkept does not understand.",
            hint="Check the server's version and any proxy in between.",
        )
    return cast(Sequence[Mapping[str, Any]], statements)


def get_message(error: Any) -> str:
    return str(cast(Mapping[str, Any], error).get("message", "")) if _is_map(error) else str(error)


def is_wrong_login(message: str) -> bool:
    return bool(LOGIN_PATTERN.search(message) or DENIED_PATTERN.search(message))


def translate_error(message: str, number: int | None = None) -> Exception:
    """Return our error for a message. `number` is that of the statement, counted from 1."""
    if message.startswith(THROWN_PREFIX):
        return TransactionThrown(message.removeprefix(THROWN_PREFIX))
    words = QUOTED_TEXT.sub("", message).lower()
    if any(sign in words for sign in CONFLICT_SIGNS):
        return WriteContention(extract_reason(message))
    if "already exists" in words or "already contains" in words:
        return AlreadyExists(extract_reason(message))
    if words.startswith("the table") and "does not exist" in words:
        return MissingTable(extract_reason(message))
    if "exceeded the timeout" in words:
        return QueryTimeout("SurrealDB timed out.", hint="Try again, or request less data.")
    if DISK_FULL_PATTERN.search(words):
        return build_storage_full()
    where = "a query" if number is None else f"statement {number}"
    return _translate_server_error(words) or RuntimeError(f"SurrealDB refused {where}: {extract_reason(message)}")


def build_storage_full(where: str = "The disk of SurrealDB", **facts: Any) -> StorageFull:
    return StorageFull(
        f"{where} is full. Nothing was stored.", hint="Free some disk space there and try again.", **facts
    )


def build_server_storage_full(place: str) -> StorageFull:
    """Build the error for a server, which does not report the size of its disk."""
    return StorageFull(
        f"The disk of the SurrealDB server at {place} is full. Nothing was stored.",
        hint="Free some disk space on the server and try again.",
        place=place,
    )


def build_timeout_error(limit: float, at: str = "") -> QueryTimeout:
    return QueryTimeout(
        f"SurrealDB{at} took longer than {limit:g} s.", hint="Try again, or request less data.", time_limit=limit
    )


def build_queue_timeout_error(limit: float, at: str = "") -> QueryTimeout:
    return QueryTimeout(
        f"SurrealDB{at} was busy with an earlier write for {limit:g} s. Nothing was stored.",
        hint="Try again in a moment.",
        time_limit=limit,
    )


def build_unknown_outcome_error(limit: float, at: str = "") -> StoreUnreachable:
    return StoreUnreachable(
        f"SurrealDB{at} did not finish a write within {limit:g} s. The outcome is unknown.",
        hint="Check before you repeat the write.",
        time_limit=limit,
    )


def extract_reason(message: str) -> str:
    """Return the part of a message before anything that could be a stored value."""
    found = VALUE_START.search(message)
    words = message[: found.start()] if found else message
    return " ".join(words.split())[:MAX_REASON_CHARACTERS].rstrip(" :") or "no reason given"


def _translate_server_error(words: str) -> Exception | None:
    if "failed to decode cbor request" in words:
        return InvalidInput("A value cannot be sent to SurrealDB.", hint="Use another value.")
    if "null byte" in words:
        return InvalidInput("The text contains the character NUL, which SurrealDB cannot store.", hint="Remove it.")
    if EXPIRED_PATTERN.search(words):
        return StoreUnreachable("The session with SurrealDB expired.", hint="Try again. The next call opens a new one.")
    if DENIED_PATTERN.search(words):
        return Refused(
            "SurrealDB denied permission.", hint="Give this user the role OWNER of the root or of the namespace."
        )
    if "io error" in words or "fsync failed" in words:
        return DiskFailure(f"The disk of SurrealDB failed: {extract_reason(words)}.", hint=OUTCOME_UNKNOWN_HINT)
    if DAMAGE_PATTERN.search(words):
        return StoreDamaged(
            f"SurrealDB cannot read its stored data: {extract_reason(words)}.",
            hint="Restore a backup, or export what is still readable.",
        )
    return None


def _is_map(error: Any) -> bool:
    return isinstance(error, Mapping)
