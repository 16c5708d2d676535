"""Ports of the core: stores of records, their library, vectors for texts, rights of accounts."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from everkept.core.answers import AccessCount as AccessCount
from everkept.core.answers import Direction as Direction
from everkept.core.answers import PurgeResult as PurgeResult
from everkept.core.answers import RecordTally as RecordTally
from everkept.core.answers import RecordVector as RecordVector
from everkept.core.answers import Token as Token
from everkept.core.library import Library as Library
from everkept.core.projects import OffPeriod, Project
from everkept.core.sessions import Account, ToolCall
from everkept.core.store import Order as Order
from everkept.core.store import RecordStore as RecordStore
from everkept.core.store import Redaction as Redaction
from everkept.core.store import ScanPosition as ScanPosition
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


class VectorIndexer(Protocol):
    """Sees to it that what is stored gets its vector, soon and in the background."""

    @property
    def embedder(self) -> Embedder | None:
        """None where meaning is switched off."""
        ...

    @property
    def fault(self) -> ModelUnavailable | None:
        """Why texts get no vectors, where that is known."""
        ...

    async def find_fault(self) -> ModelUnavailable | None:
        """The same, after a look at which model other processes use."""
        ...

    @property
    def kinds(self) -> Sequence[str]:
        """Of the records that get vectors."""
        ...

    def is_behind(self, store: RecordStore) -> bool:
        """Whether many texts may be without a vector there: so it was seen, or nothing is known yet."""
        ...

    def wake(self, store: RecordStore) -> None:
        """Something was stored there, or may be waiting. Returns at once."""
        ...

    async def wait_until_settled(self, within: float | None = None) -> bool:
        """Waits until nothing is left to do; False where that many seconds did not suffice."""
        ...


class AccessCounter(Protocol):
    """Counts what is given out, in batches: it is no change, and no reader waits for it."""

    def note(self, store: RecordStore, ids: Sequence[str]) -> None: ...

    async def read_accesses(self, store: RecordStore, ids: Sequence[str]) -> Mapping[str, AccessCount]:
        """With what is counted but not stored yet."""
        ...


class ProjectChoice(Protocol):
    """The one rule that says which project a call means."""

    async def open_to_read(self, call: ToolCall, name: str | None) -> RecordStore:
        """A project that is yet to be made reads as an empty one."""
        ...

    async def open_to_write(self, call: ToolCall, name: str | None) -> RecordStore: ...

    async def find_active(self, call: ToolCall) -> Project | None:
        """What a call without a name would mean; None when nothing is chosen or made yet."""
        ...

    def find_pending_name(self, call: ToolCall) -> str | None:
        """The name of a project that is chosen but not made yet."""
        ...


class Rights(Value):
    """Of one account, as a library has them. Projects are named by their ids."""

    account: Account
    writes: frozenset[str] = frozenset()
    owns: frozenset[str] = frozenset()


#: What an account of that name may do by now; None: there is none.
FindRights = Callable[[Library, str], Awaitable[Rights | None]]


async def find_no_rights(_library: Library, _user: str) -> Rights | None:
    """For who knows of no accounts."""
    return None


class ReadOnlyLibrary(Protocol):
    """The part of a library that a process needs which lives for a tenth of a second.

    It reads, and makes nothing: what is not there yet is None. A library is one too.
    """

    async def get_project(self, name: str) -> Project:
        """Raises NotFound."""
        ...

    async def find_workspace_project(self, path: str) -> Project | None: ...

    async def open(self, name: str) -> tuple[Project, RecordStore]:
        """The project as it is now, and its store; an archived one is refused."""
        ...

    async def list_off_periods(self) -> list[OffPeriod]:
        """When the projects of folders were switched off, those that are so now included."""
        ...

    async def open_user_store(self) -> RecordStore | None: ...

    async def open_history_store(self) -> RecordStore | None: ...

    async def close(self) -> None: ...
