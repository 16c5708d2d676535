"""The part of apsw's connection that we use, with types a checker can follow."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

Row = tuple[Any, ...]
T = TypeVar("T")


class Rows(Protocol):
    def __iter__(self) -> Iterator[Row]: ...

    def fetchall(self) -> list[Row]: ...

    @property
    def get(self) -> Any:
        """The first row, or its value where it has one column; None without a row."""
        ...


class Connection(Protocol):
    def execute(self, statements: str, bindings: Sequence[Any] | None = None) -> Rows: ...

    def executemany(self, statements: str, sequenceofbindings: Iterable[Sequence[Any]]) -> Rows: ...

    def pragma(self, name: str, value: Any = None) -> Any: ...

    def last_insert_rowid(self) -> int: ...

    def changes(self) -> int: ...

    def total_changes(self) -> int: ...

    def readonly(self, name: str) -> bool: ...

    def set_busy_handler(self, callable: Callable[[int], bool] | None) -> None: ...

    def interrupt(self) -> None: ...

    def set_progress_handler(
        self, callable: Callable[[], bool] | None, nsteps: int = 100
    ) -> None: ...

    def set_wal_hook(self, callable: Callable[[Any, str, int], int] | None) -> None: ...

    def wal_checkpoint(self, *, mode: int = 0) -> tuple[int, int]: ...

    def create_scalar_function(
        self, name: str, callable: Callable[..., Any] | None, numargs: int = -1
    ) -> None: ...

    def register_fts5_function(self, name: str, function: Callable[..., Any]) -> None: ...

    def config(self, op: int, *args: int) -> int: ...

    def close(self, force: bool = False) -> None: ...

    @property
    def in_transaction(self) -> bool: ...

    @property
    def system_errno(self) -> int:
        """What the system said at the last failure that it was the reason for."""
        ...


Work = Callable[[Connection], T]


class DatabaseFile(Protocol):
    """What a store asks of its file."""

    async def read(self, question: Work[T], *, aside: bool = False, long: bool = False) -> T:
        """Runs the question's statements against one state of the database.

        A `long` question never holds up the caller's thread. One that takes seconds is read
        `aside`, and no other question waits for it.
        """
        ...

    def read_later(self, question: Work[None]) -> None:
        """Runs the question aside soon, where that is possible: the caller does not wait for it."""
        ...

    async def write(self, work: Work[T], *, short: bool = False) -> T:
        """Runs the work in one transaction, unless a newer program owns the file by now.

        `short` work may be run in the caller's thread, and again if it does not end there.
        """
        ...

    async def fold(self, patience: float) -> bool:
        """Empties the write-ahead log into the file; False if a reader needs it still."""
        ...

    def size(self) -> int:
        """The bytes of the file and of its write-ahead log."""
        ...
