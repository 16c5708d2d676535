"""Ports of the core: stores of records, their library, vectors for texts, rights of accounts."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from everkept.core.answers import Access as Access
from everkept.core.answers import Direction as Direction
from everkept.core.answers import Embedded as Embedded
from everkept.core.answers import Purged as Purged
from everkept.core.answers import Tally as Tally
from everkept.core.answers import Token as Token
from everkept.core.library import Library as Library
from everkept.core.projects import Project, Silence
from everkept.core.sessions import Account, Call
from everkept.core.store import Order as Order
from everkept.core.store import RecordStore as RecordStore
from everkept.core.store import Redaction as Redaction
from everkept.core.store import Seen as Seen
from everkept.errors import ModelUnavailable
from everkept.values import Value

if TYPE_CHECKING:  # numpy takes a tenth of a second to import, and only who embeds needs it
    import numpy as np
    from numpy.typing import NDArray


class Embedder(Protocol):
    """Texts as vectors, near each other where the meanings are."""

    @property
    def name(self) -> str:
        """Kept with each vector: only vectors of the same name can be compared."""
        ...

    @property
    def dimensions(self) -> int: ...

    @property
    def fault(self) -> ModelUnavailable | None:
        """What is known to be wrong, as far as that can be said without loading a model."""
        ...

    async def embed(self, texts: Sequence[str]) -> "NDArray[np.float32]":
        """A row of length one for each text, the empty one included, in their order.

        Neither the other texts nor the order change a row by more than rounding. Raises
        ModelUnavailable.
        """
        ...

    async def close(self) -> None:
        """Gives back memory; calls under way end as they would have."""
        ...


class Indexing(Protocol):
    """Sees to it that what is stored gets its vector, soon and in the background."""

    @property
    def embedder(self) -> Embedder | None:
        """None where meaning is switched off."""
        ...

    @property
    def fault(self) -> ModelUnavailable | None:
        """Why texts get no vectors, where that is known."""
        ...

    @property
    def kinds(self) -> Sequence[str]:
        """Of the records that get vectors."""
        ...

    def wake(self, store: RecordStore) -> None:
        """Something was stored there, or may be waiting. Returns at once."""
        ...

    async def settled(self, within: float | None = None) -> bool:
        """Waits until nothing is left to do; False where that many seconds did not suffice."""
        ...


class AccessBook(Protocol):
    """Counts what is given out, in batches: it is no change, and no reader waits for it."""

    def note(self, store: RecordStore, ids: Sequence[str]) -> None: ...

    async def of(self, store: RecordStore, ids: Sequence[str]) -> Mapping[str, Access]:
        """With what is counted but not stored yet."""
        ...


class ProjectChoice(Protocol):
    """The one rule that says which project a call means."""

    async def to_read(self, call: Call, name: str | None) -> RecordStore:
        """A project that is yet to be made reads as an empty one."""
        ...

    async def to_write(self, call: Call, name: str | None) -> RecordStore: ...

    async def current(self, call: Call) -> Project | None:
        """What a call without a name would mean; None when nothing is chosen or made yet."""
        ...

    def pending(self, call: Call) -> str | None:
        """The name of a project that is chosen but not made yet."""
        ...


class Rights(Value):
    """Of one account, as a library has them. Projects are named by their ids."""

    account: Account
    writes: frozenset[str] = frozenset()
    owns: frozenset[str] = frozenset()


#: What an account of that name may do by now; None: there is none.
RightsOf = Callable[[Library, str], Awaitable[Rights | None]]


async def of_nobody(_library: Library, _user: str) -> Rights | None:
    """For who knows of no accounts."""
    return None


class ReadingRoom(Protocol):
    """The part of a library that a process needs which lives for a tenth of a second.

    It reads, and makes nothing: what is not there yet is None. A library is one too.
    """

    async def project(self, name: str) -> Project:
        """Raises NotFound."""
        ...

    async def project_of_workspace(self, path: str) -> Project | None: ...

    async def open(self, name: str) -> tuple[Project, RecordStore]:
        """The project as it is now, and its store; an archived one is refused."""
        ...

    async def silences(self) -> list[Silence]:
        """When the projects of folders were switched off, those that are so now included."""
        ...

    async def user(self) -> RecordStore | None: ...

    async def history(self) -> RecordStore | None: ...

    async def close(self) -> None: ...
