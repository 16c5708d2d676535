"""What the core asks of the outside: stores of records, their library, and vectors for texts."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from everkept.core.projects import Project, Silence, Status
from everkept.core.questions import Order as Order
from everkept.core.questions import Redaction as Redaction
from everkept.core.questions import Seen as Seen
from everkept.core.searching import Search
from everkept.core.sessions import Call
from everkept.core.store import RecordStore as RecordStore
from everkept.core.stored import Access as Access
from everkept.core.stored import Embedded as Embedded
from everkept.core.stored import Purged as Purged
from everkept.core.stored import Tally as Tally
from everkept.core.stored import Token as Token
from everkept.core.usage import UsageLog
from everkept.core.walking import Direction as Direction
from everkept.errors import ModelUnavailable

if TYPE_CHECKING:  # numpy takes a tenth of a second to import, and only who embeds needs it
    import numpy as np
    from numpy.typing import NDArray

    from everkept.core.conditions import Condition
    from everkept.core.copies import Holdings


class Library(UsageLog, Protocol):
    """All projects, and what belongs to none of them."""

    async def projects(self, status: Status | None = None) -> list[Project]: ...

    async def project(self, name: str) -> Project:
        """Raises NotFound."""
        ...

    async def create(
        self, name: str, description: str, *, project_id: str = "", at: int | None = None
    ) -> Project:
        """Raises Conflict when the name is taken, by an archived project too, or the id is.

        `at` is when it was made, where it was made before now.
        """
        ...

    async def archive(self, name: str) -> Project: ...

    async def restore(self, name: str) -> Project: ...

    async def delete(self, name: str) -> None: ...

    async def open(self, name: str) -> tuple[Project, RecordStore]:
        """The project as it is now, and its store; an archived one is refused."""
        ...

    async def switch(self, name: str, *, off: bool, at: int | None = None) -> Project:
        """Switches a project off or on again; who asks for what it is already changes nothing.

        `at` is when that was done, where it was done before now.
        """
        ...

    async def silences(self) -> list[Silence]:
        """When the projects of folders were switched off, those that are so now included."""
        ...

    async def user(self) -> RecordStore:
        """The store of what belongs to the user and to no project; made when it is missing."""
        ...

    async def history(self) -> RecordStore:
        """The store of past conversations, of all projects; made when it is missing."""
        ...

    async def project_of_workspace(self, path: str) -> Project | None: ...

    async def assign_workspace(self, path: str, project: Project) -> Project:
        """Gives the workspace its project; whoever comes first wins, and is returned."""
        ...

    async def workspaces_of(self, project: Project) -> list[str]:
        """The folders whose project it is."""
        ...

    async def note(self, key: str) -> str | None:
        """A small setting that the program keeps for itself."""
        ...

    async def set_note(self, key: str, value: str | None) -> None: ...

    async def notes(self, prefix: str) -> Mapping[str, str]:
        """All whose key begins with this."""
        ...

    async def add_searches(self, searches: Sequence[Search]) -> None:
        """Keeps them; the oldest go when there are too many."""
        ...

    async def searches(self, *, session: str | None = None, limit: int = 100) -> list[Search]:
        """The newest first, of all sessions or of one."""
        ...

    async def forget_searches(self) -> int:
        """Removes them all; says how many there were."""
        ...

    async def tokens(self) -> list[Token]: ...

    async def add_token(self, token: Token, secret_hash: str) -> None: ...

    async def remove_token(self, token_id: str) -> bool: ...

    async def knows_token(self, secret_hash: str) -> bool: ...

    async def store_of(self, project: Project) -> RecordStore:
        """That of a project which may be archived, for who copies it."""
        ...

    async def holdings(self) -> "Holdings":
        """All that it has beside the records."""
        ...

    async def take_over(self, holdings: "Holdings") -> None:
        """Makes its own what they are elsewhere, and gives up what is not among them.

        Projects that stay keep their records; those that are new have none yet.
        """
        ...

    async def on_change(self, hear: Callable[[], None]) -> bool:
        """From now on `hear` is called soon after anybody has changed anything, or may have.

        False where nobody can tell: then there is nothing but to look.
        """
        ...

    @property
    def condition(self) -> "Condition":
        """What it is kept in, and how that is doing, as far as is known without asking."""
        ...

    async def close(self) -> None: ...


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
