"""Ports of the core: embedder, indexer, access counts, choice of a project, rights, reading library."""

from bisect import bisect_right
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, Protocol

from everkept.core.answers import AccessCount as AccessCount
from everkept.core.answers import Direction as Direction
from everkept.core.answers import PurgeResult as PurgeResult
from everkept.core.answers import RecordTally as RecordTally
from everkept.core.answers import RecordVector as RecordVector
from everkept.core.answers import Token as Token
from everkept.core.library import Library as Library
from everkept.core.projects import OffPeriod, Project, TrashedProject
from everkept.core.sessions import Account, ToolCall
from everkept.core.store import Order as Order
from everkept.core.store import RecordStore as RecordStore
from everkept.core.store import Redaction as Redaction
from everkept.core.store import ScanPosition as ScanPosition
from everkept.errors import ModelUnavailable
from everkept.values import Value

if TYPE_CHECKING:  # numpy takes a tenth of a second to import, and only embedding needs it
    import numpy as np
    from numpy.typing import NDArray

SHARES = (0.0, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999, 1.0)

# Pairs of texts: without anything in common, a question and its answer, and one statement in two wordings.
Pairs = Literal["unrelated", "answers", "alike"]


# Each model has its own scale of cosines. So a limit is not a cosine but a level: the cosine below which a share of
# known pairs of texts lies. The background of a model turns a level into a cosine.
class Level(Value):
    """Nearness that means the same for each model: this share of the pairs is less near."""

    pairs: Pairs
    share: float


class Background(Value):
    """Cosines of the pairs at each of the SHARES."""

    unrelated: tuple[float, ...]
    answers: tuple[float, ...]
    alike: tuple[float, ...]

    def find(self, level: Level) -> float:
        """Return the cosine of a level."""
        cosines = {"unrelated": self.unrelated, "answers": self.answers, "alike": self.alike}[level.pairs]
        upper = min(bisect_right(SHARES, level.share), len(SHARES) - 1)
        low, high = SHARES[upper - 1], SHARES[upper]
        part = (level.share - low) / (high - low)
        return cosines[upper - 1] + part * (cosines[upper] - cosines[upper - 1])

    def compute_share(self, cosine: float) -> float:
        """Return the share of unrelated pairs that are less near."""
        upper = bisect_right(self.unrelated, cosine)
        if upper in (0, len(SHARES)):
            return 0.0 if upper == 0 else 1.0
        low, high = self.unrelated[upper - 1], self.unrelated[upper]
        return SHARES[upper - 1] + (cosine - low) / (high - low) * (SHARES[upper] - SHARES[upper - 1])


# Names of the models that the package has shipped with, the first and the present one. Both know English only.
FIRST_MODEL, SHIPPED_MODEL = "all-MiniLM-L6-v2", "everkept-minilm-1"


class Embedder(Protocol):
    """Computes embeddings: vectors that are near each other for similar meanings."""

    @property
    def name(self) -> str:
        """Return the name that is stored with each vector. Only vectors with the same name are comparable."""
        ...

    @property
    def dimensions(self) -> int: ...

    @property
    def fault(self) -> ModelUnavailable | None:
        """Return a known fault, without loading a model to find it."""
        ...

    @property
    def background(self) -> Background:
        """Return how near texts lie for this model. Call it after a text was embedded, which loads the model."""
        ...

    async def embed(self, texts: Sequence[str]) -> "NDArray[np.float32]":
        """Return a row of length one for each text, including the empty one, in order.

        Other texts and their order change a row only by rounding. Raise ModelUnavailable.
        """
        ...

    async def close(self) -> None:
        """Free memory. Calls in progress finish normally."""
        ...


class ForwardingEmbedder:
    """Embedder in front of another one, with the same model."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder

    @property
    def name(self) -> str:
        return self._embedder.name

    @property
    def dimensions(self) -> int:
        return self._embedder.dimensions

    @property
    def fault(self) -> ModelUnavailable | None:
        return self._embedder.fault

    @property
    def background(self) -> Background:
        return self._embedder.background

    async def close(self) -> None:
        await self._embedder.close()


class VectorIndexer(Protocol):
    """Computes the embeddings of stored texts soon, in the background."""

    @property
    def embedder(self) -> Embedder | None:
        """Return None if search by meaning is off."""
        ...

    @property
    def fault(self) -> ModelUnavailable | None:
        """Return why texts get no embeddings, if that is known."""
        ...

    async def find_fault(self) -> ModelUnavailable | None:
        """The same, after a look at which model other processes use."""
        ...

    @property
    def kinds(self) -> Sequence[str]:
        """Return the kinds of records that get embeddings."""
        ...

    def is_behind(self, store: RecordStore) -> bool:
        """Whether many texts may be without a vector there: so it was seen, or nothing is known yet."""
        ...

    def wake(self, store: RecordStore) -> None:
        """Note that the store may have pending embeddings. Return immediately."""
        ...

    async def wait_for(self, stores: "Sequence[RecordStore]", within: float) -> "list[RecordStore]":
        """Wait until the few pending texts of these stores are embedded. Return the stores that need more time."""
        ...

    async def wait_until_settled(self, within: float | None = None) -> bool:
        """Wait until nothing is pending. Return False if the time was too short."""
        ...


class AccessCounter(Protocol):
    """Counts recalls in batches. A count is not a change, and no reader waits for it."""

    def note(self, store: RecordStore, ids: Sequence[str]) -> None: ...

    async def read_accesses(self, store: RecordStore, ids: Sequence[str]) -> Mapping[str, AccessCount]:
        """Return the counts, including the ones that are not stored yet."""
        ...


class ProjectChanger(Protocol):
    """Changes of whole projects by the acting account, which the change log has."""

    async def archive(self, name: str, client: str) -> Project: ...

    async def delete(self, name: str, client: str) -> TrashedProject:
        """Move a project to the trash."""
        ...

    async def restore(self, name: str, client: str, new_name: str | None = None) -> Project:
        """Restore an archived project, otherwise the last deleted one with this name or id."""
        ...

    async def list_trash(self) -> list[TrashedProject]:
        """Return the projects in the trash, the last deleted first."""
        ...


class ProjectChoice(Protocol):
    """The one rule that decides the project of a call."""

    async def open_to_read(self, call: ToolCall, name: str | None) -> RecordStore:
        """Open a project to read. A project that is not created yet reads as empty."""
        ...

    async def open_to_write(self, call: ToolCall, name: str | None) -> RecordStore: ...

    async def find_active(self, call: ToolCall) -> Project | None:
        """Return the project of a call that names none, or None if none is selected or created yet."""
        ...

    async def find_pending_name(self, call: ToolCall) -> str | None:
        """Return the name of a project that is selected but not created yet."""
        ...


class Rights(Value):
    """Rights of one account, as stored in a library. Projects are named by id."""

    account: Account
    writes: frozenset[str] = frozenset()
    owns: frozenset[str] = frozenset()


#: What an account of that name may do by now; None: there is none.
FindRights = Callable[[Library, str], Awaitable[Rights | None]]


async def find_no_rights(_library: Library, _user: str) -> Rights | None:
    """Return no rights, for a library without accounts."""
    return None


class ReadOnlyLibrary(Protocol):
    """Part of a library for a process that lives a tenth of a second.

    It only reads. Whatever does not exist yet is None. A full library is one too.
    """

    async def get_project(self, name: str) -> Project:
        """Return the project. Raise NotFound."""
        ...

    async def find_workspace_project(self, path: str) -> Project | None: ...

    async def get_note(self, key: str) -> str | None: ...

    async def open(self, name: str) -> tuple[Project, RecordStore]:
        """Return the current project and its store. Refuse an archived one."""
        ...

    async def list_off_periods(self) -> list[OffPeriod]:
        """Return the periods in which the projects of folders were off, including current ones."""
        ...

    async def open_user_store(self) -> RecordStore | None: ...

    async def open_history_store(self) -> RecordStore | None: ...

    async def close(self) -> None: ...
