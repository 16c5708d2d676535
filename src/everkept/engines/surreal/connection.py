"""Statements to SurrealDB and their results, the address of a server, and repeated attempts."""

import asyncio
import random
import re
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Generic, Protocol, TypeVar
from urllib.parse import SplitResult, urlsplit

from everkept.errors import InvalidInput, StoreBusy, Unavailable
from everkept.values import Value, field

SCHEMES = {"ws": "ws", "wss": "wss", "http": "ws", "https": "wss"}
ENDPOINT = "/rpc"
EXAMPLE = "An address looks like ws://127.0.0.1:8000 or wss://db.example.org."


class Address(Value):
    """The endpoint of the websocket, and the server as messages show it."""

    url: str
    shown: str
    is_secure: bool


class Credentials(Value):
    """Of a user of the root, or of the namespace; without a name, nobody signs in."""

    user: str
    password: str = field(repr=False)


def parsed(text: str) -> Address:
    """Raises InvalidInput for what is no address of a server, or has a password in it."""
    try:
        parts = urlsplit(text.strip())
        port = parts.port
    except ValueError:
        raise _wrong(text, "is no address") from None
    if parts.username is not None or parts.password is not None:
        raise InvalidInput(
            "The address of SurrealDB holds a user or password.",
            hint="Give them apart from it: they would be shown wherever the address is.",
        )
    if parts.scheme not in SCHEMES:
        raise _wrong(text, f"must begin with {', '.join(f'{s}://' for s in SCHEMES)}")
    if not parts.hostname or parts.query or parts.fragment or port == 0:
        raise _wrong(text, "must have a host, and neither ? nor #")
    return _address(parts)


def _address(parts: SplitResult) -> Address:
    scheme = SCHEMES[parts.scheme]
    path = parts.path.rstrip("/").removesuffix(ENDPOINT)
    shown = f"{scheme}://{parts.netloc}{path}"
    return Address(shown + ENDPOINT, shown, scheme == "wss")


def _wrong(text: str, why: str) -> InvalidInput:
    shown = text.rpartition("@")[2]  # before it may stand a password
    return InvalidInput(f'The address of SurrealDB "{shown}" {why}.', hint=EXAMPLE)


Values = Mapping[str, Any]

LONGER = 6  # times as long as a question may take, a write may: it keeps indexes in step

_WRITING = re.compile(r"\b(?:BEGIN|CREATE|INSERT|UPSERT|UPDATE|RELATE|DELETE|DEFINE|REMOVE)\b")


class Thrown(Exception):
    """A THROW of our own ended the transaction; nothing of it was kept."""


class Contended(Exception):
    """Another transaction came in between; nothing was kept, and the next attempt may do."""


class Existing(Contended):
    """A record of that id, or a value that must be unique, is there already."""


class TooLarge(Unavailable):
    """An answer is; whoever asks for less may get it."""


class Missing(Exception):
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


def within(namespace: str, database: str, statements: str) -> str:
    """A text that does not depend on what was chosen before it."""
    return f"USE NS {quoted(namespace)} DB {quoted(database)}; {statements}"


def writes(statements: str) -> bool:
    """Whether they change anything. Texts are ours alone: what a user says stands in values."""
    return _WRITING.search(statements) is not None


def placing(row: str, content: str) -> str:
    """What makes a row hold something, whether it is there or not.

    UPSERT would do, were there nothing else in its transaction: of what one writes both before
    and after an UPSERT, the state of an index included, the files of version 2 keep the former.
    """
    return (
        f"IF record::exists({row}) {{ UPDATE {row} CONTENT {content} RETURN NONE }} "
        f"ELSE {{ CREATE {row} CONTENT {content} RETURN NONE }}"
    )


def quoted(name: str) -> str:
    """A name of a namespace or database, as a text writes it."""
    if not name or not name.isprintable() or "`" in name or "\\" in name:
        raise InvalidInput(
            f"{name!r} cannot be the name of a namespace or database of SurrealDB.",
            hint="Use letters, digits, - and _.",
        )
    return f"`{name}`"


T = TypeVar("T")

ATTEMPTS = 60
LONGEST_PAUSE = 0.2  # seconds between attempts


class Attempt(Generic[T]):
    """One at a time. Who waits for it may go: it goes on for the others."""

    def __init__(self, begin: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._begin = begin
        self._task: asyncio.Task[T] | None = None

    async def join(self) -> T:
        """Begins one, unless one is under way; all who join it see it end the same way."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._begin())
            self._task.add_done_callback(observed)
        return await asyncio.shield(self._task)

    async def settle(self, patience: float) -> None:
        """Waits for one that is under way, so many seconds; then it is cancelled."""
        if self._task is None:
            return
        await asyncio.wait({self._task}, timeout=patience)
        self._task.cancel()
        await asyncio.wait({self._task})


class Work(Generic[T]):
    """In a task of its own. Once it has begun nobody stops it in the middle: its asker may go."""

    def __init__(self, do: "Callable[[Work[T]], Coroutine[Any, Any, T]]") -> None:
        """`do` says by `has_begun` from when on it matters that it ends."""
        self.has_begun = False
        self.task = asyncio.create_task(do(self))
        self.task.add_done_callback(observed)

    async def ended(self, patience: float) -> bool:
        """Waits so many seconds. What has not begun by then, or when its asker goes, never will."""
        try:
            await asyncio.wait({self.task}, timeout=patience)
        finally:
            if not self.has_begun:
                self.task.cancel()
        return self.task.done()


def observed(task: "asyncio.Future[Any]") -> None:
    """For add_done_callback: whoever waited may have gone, and no warning is due."""
    if not task.cancelled():
        task.exception()


async def retried(work: Callable[[], Awaitable[T]]) -> T:
    """Attempts it until no other transaction comes in between."""
    for attempt in range(ATTEMPTS):
        try:
            return await work()
        except Contended:
            pause = min(LONGEST_PAUSE, 0.002 * 2 ** min(attempt, 10))
            await asyncio.sleep(random.uniform(0, pause))
    raise StoreBusy("Other processes keep writing to the database.", hint="Try again.")
