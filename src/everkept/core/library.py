"""Port of a library: projects, notes and stores, the questions it answers, and its state."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, ClassVar, Literal, TypeVar

from everkept.core.answers import CatalogData, SearchRecord, TableFault, Token
from everkept.core.mcp import ToolUsage
from everkept.core.projects import OffPeriod, Project, Status
from everkept.core.store import A_co, RecordStore, TypedRequest
from everkept.errors import EverkeptError, Unavailable
from everkept.values import Value

Engine = Literal["sqlite", "memory", "surreal", "postgres"]
Mode = Literal["embedded-file", "embedded-memory", "local-server", "remote"]
Reachability = Literal["connected", "reconnecting", "degraded"]


class Condition(Value):
    """State of the database behind a library."""

    engine: Engine
    mode: Mode
    status: Reachability = "connected"
    version: str = ""  # of the engine, once it is known
    place: str = ""  # a folder or an address, without secrets
    since: int | None = None  # start of the outage, if it is not connected
    reason: str = ""  # of the outage
    never_reached: bool = False  # also not earlier from this folder, so the address may be wrong
    is_catching_up: bool = False  # it answers, and receives the pending writes before any question
    waiting: int = 0  # pending writes in the journal
    set_aside: int = 0  # rejected writes
    copy_at: int | None = None  # last time the replica was level with it, if known
    accounts_at: int | None = None  # last time the replica was level with its tokens and grants
    copy_kept: str = ""  # folder of the replica of a database that has lost data since


class UnreachableInfo(Value):
    """Why the engine was not asked, as known at that moment."""

    since: int | None = None
    # It answers, but gets the pending writes before any question.
    is_catching_up: bool = False
    never_reached: bool = False  # from this folder


UNKNOWN_REASON = UnreachableInfo()


class ReplicaUse(Value, frozen=False):
    """Use of the replica by one call."""

    from_replica: bool = False  # the call read from the replica
    kept_here: bool = False  # the call wrote to the journal
    absence: UnreachableInfo = UNKNOWN_REASON  # at the first of these
    is_over: bool = False

    @property
    def is_degraded(self) -> bool:
        return self.from_replica or self.kept_here


_OLDER_COPY = "This comes from the local copy, which may be older than the database."
_replica_use: ContextVar[ReplicaUse | None] = ContextVar("answering", default=None)


@contextmanager
def track_replica_use() -> Generator[ReplicaUse, None, None]:
    """Track the use of the replica in this block, also in tasks that start in it. Mark an error after such a read."""
    noted = ReplicaUse()
    token = _replica_use.set(noted)
    try:
        yield noted
    except EverkeptError as error:
        # What prevents an answer altogether, such as a database of a newer version, does not come from the copy.
        if noted.from_replica and not error.degraded and not isinstance(error, Unavailable):
            error.degraded = True
            error.hint = " ".join(filter(None, (error.hint, _OLDER_COPY)))
        raise
    finally:
        noted.is_over = True  # for tasks that outlive the block
        _replica_use.reset(token)


def note_replica_read(absence: UnreachableInfo = UNKNOWN_REASON) -> None:
    """Note a read from the replica of an unreachable engine."""
    if noted := _note_reason(absence):
        noted.from_replica = True


def has_read_replica() -> bool:
    """Return whether this call has read from the replica. The rest of the call does so too."""
    noted = _replica_use.get()
    return noted is not None and noted.from_replica and not noted.is_over


def forget_replica_read() -> None:
    """Let the rest of this call ask the engine, because the call starts again."""
    if noted := _replica_use.get():
        noted.from_replica = False


def note_pending_write(absence: UnreachableInfo = UNKNOWN_REASON) -> None:
    """Note a write that is pending until the engine is reachable."""
    if noted := _note_reason(absence):
        noted.kept_here = True


def _note_reason(absence: UnreachableInfo) -> ReplicaUse | None:
    noted = _replica_use.get()
    if noted is not None and not noted.is_degraded:
        noted.absence = absence
    return noted


class CatalogQuestion(TypedRequest[A_co]):
    """Question to a library that changes nothing."""


class CatalogChange(TypedRequest[A_co]):
    """Write to a library outside the records of its projects."""


class ListProjects(CatalogQuestion[list[Project]]):
    """All projects, or the ones with a status, by name."""

    status: Status | None = None


class GetProject(CatalogQuestion[Project]):
    """The project of this name. Raises NotFound."""

    name: str


class ListOffPeriods(CatalogQuestion[list[OffPeriod]]):
    """Periods in which the projects of folders were off, including those that still are."""


class FindWorkspaceProject(CatalogQuestion[Project | None]):
    """The project that the workspace is linked to. Return None if that is in the trash."""

    path: str


class ListWorkspaces(CatalogQuestion[list[str]]):
    """The workspaces that are linked to the project."""

    project: Project


class GetNote(CatalogQuestion[str | None]):
    """Small value that the program stores for itself."""

    key: str


class ListNotes(CatalogQuestion[Mapping[str, str]]):
    """All notes whose key begins with the prefix."""

    prefix: str


class ListSearches(CatalogQuestion[list[SearchRecord]]):
    """The newest searches first, of all sessions or of one."""

    session: str | None = None
    limit: int = 100


class ListUsage(CatalogQuestion[list[ToolUsage]]):
    """One sum for each tool that was called, the most called first and then by name."""


class ListTokens(CatalogQuestion[list[Token]]):
    """All tokens by age."""


class HasToken(CatalogQuestion[bool]):
    """Whether a token has this secret."""

    secret_hash: str


class ReadCatalogData(CatalogQuestion[CatalogData]):
    """Everything that the library has beside the records."""


class FindTableFaults(CatalogQuestion[list[TableFault]]):
    """Differences between the tables of a database server and those that Everkept creates.

    Empty for an engine without a server: `doctor` compares its files.
    """


class AddProject(CatalogChange[Project]):
    """Create a project. Raise Conflict if a project has the name or the id, even an archived one.

    `at` is the time of creation, if it was created earlier.
    """

    name: str
    description: str
    project_id: str = ""
    at: int | None = None


class SetProjectStatus(CatalogChange[Project]):
    """Archive or restore a project, and give it a new name, if any, in the same transaction.

    Raise Conflict if it already has the status and needs no new name, or if another project has that name.
    """

    name: str
    status: Status
    new_name: str = ""


class DeleteProject(CatalogChange[None]):
    """Delete a project permanently."""

    name: str


class SetProjectOff(CatalogChange[Project]):
    """Turn a project off or on, unless it already is.

    `at` is the time of the change, if that was earlier.
    """

    name: str
    off: bool
    at: int | None = None


class LinkWorkspace(CatalogChange[Project]):
    """Link the workspace to the project, unless it is linked. The answer is the linked project."""

    path: str
    project: Project


class MoveWorkspace(CatalogChange[None]):
    """Link the workspace to the project instead of any other. None removes the link."""

    path: str
    project: Project | None


class WriteNote(CatalogChange[None]):
    """Store a note; None deletes it."""

    key: str
    value: str | None


class AddSearches(CatalogChange[None]):
    """Store searches. The oldest are deleted if there are too many."""

    searches: Sequence[SearchRecord]


class ForgetSearches(CatalogChange[int]):
    """Delete all searches. The answer is how many there were."""


class AddUsage(CatalogChange[None]):
    """Add to the stored sums, all rows or none, while other processes add to them too."""

    rows: Sequence[ToolUsage]


class RegisterToken(CatalogChange[None]):
    """Store a token. Raises Conflict if its id or secret is stored already."""

    token: Token
    secret_hash: str


class RevokeToken(CatalogChange[bool]):
    """Delete a token; the answer is whether it existed."""

    token_id: str


class ReplaceCatalogData(CatalogChange[None]):
    """Make everything outside the records equal to this data, and discard the rest.

    Projects that stay keep their records. New projects have no records yet.
    """

    catalog_data: CatalogData


A = TypeVar("A")

# Maps the type of a question or change to the function that does it, which takes the library and the value.
CatalogAnswers = Mapping[type[CatalogQuestion[Any]], Callable[[Any, Any], Awaitable[Any]]]
CatalogChanges = Mapping[type[CatalogChange[Any]], Callable[[Any, Any], Awaitable[Any]]]


class Library(ABC):
    """All projects, and the data that belongs to no project.

    An engine or wrapper defines the abstract methods. The other methods are shorter spellings of a question or change,
    whose type documents them.
    """

    @abstractmethod
    async def ask(self, question: CatalogQuestion[A]) -> A:
        """Return the answer to a question."""

    @abstractmethod
    async def apply(self, change: CatalogChange[A]) -> A:
        """Make a change and return its result."""

    @abstractmethod
    async def open(self, name: str) -> "tuple[Project, RecordStore]":
        """Return the current project and its store. Raise ProjectArchived."""

    @abstractmethod
    async def get_store(self, project: "Project") -> RecordStore:
        """Return the store of a project, even an archived one, for a copy."""

    @abstractmethod
    async def open_user_store(self) -> RecordStore:
        """Return the store of the user's own records; create it if it is missing."""

    @abstractmethod
    async def open_history_store(self) -> RecordStore:
        """Return the store of conversations of all projects; create it if it is missing."""

    @abstractmethod
    async def on_change(self, hear: Callable[[], None]) -> bool:
        """Call `hear` soon after each later change of any process.

        Return False if the library cannot detect them, so that the caller has to poll.
        """

    @property
    @abstractmethod
    def condition(self) -> "Condition":
        """Return what is known of the database without a question to it."""

    @abstractmethod
    async def close(self) -> None:
        """Finish all work and close all connections."""

    async def list_projects(self, status: "Status | None" = None) -> "list[Project]":
        return await self.ask(ListProjects(status))

    async def get_project(self, name: str) -> "Project":
        return await self.ask(GetProject(name))

    async def create(self, name: str, description: str, *, project_id: str = "", at: int | None = None) -> "Project":
        return await self.apply(AddProject(name, description, project_id, at))

    async def archive(self, name: str) -> "Project":
        return await self.apply(SetProjectStatus(name, "archived"))

    async def restore(self, name: str) -> "Project":
        return await self.apply(SetProjectStatus(name, "active"))

    async def delete(self, name: str) -> None:
        await self.apply(DeleteProject(name))

    async def set_off(self, name: str, *, off: bool, at: int | None = None) -> "Project":
        return await self.apply(SetProjectOff(name, off, at))

    async def list_off_periods(self) -> "list[OffPeriod]":
        return await self.ask(ListOffPeriods())

    async def find_workspace_project(self, path: str) -> "Project | None":
        return await self.ask(FindWorkspaceProject(path))

    async def link_workspace(self, path: str, project: "Project") -> "Project":
        return await self.apply(LinkWorkspace(path, project))

    async def move_workspace(self, path: str, project: "Project | None") -> None:
        await self.apply(MoveWorkspace(path, project))

    async def list_workspaces(self, project: "Project") -> list[str]:
        return await self.ask(ListWorkspaces(project))

    async def get_note(self, key: str) -> str | None:
        return await self.ask(GetNote(key))

    async def set_note(self, key: str, value: str | None) -> None:
        await self.apply(WriteNote(key, value))

    async def list_notes(self, prefix: str) -> Mapping[str, str]:
        return await self.ask(ListNotes(prefix))

    async def add_searches(self, searches: "Sequence[SearchRecord]") -> None:
        await self.apply(AddSearches(searches))

    async def list_searches(self, *, session: str | None = None, limit: int = 100) -> "list[SearchRecord]":
        return await self.ask(ListSearches(session, limit))

    async def forget_searches(self) -> int:
        return await self.apply(ForgetSearches())

    async def add_usage(self, rows: "Sequence[ToolUsage]") -> None:
        await self.apply(AddUsage(rows))

    async def list_usage(self) -> "list[ToolUsage]":
        return await self.ask(ListUsage())

    async def list_tokens(self) -> "list[Token]":
        return await self.ask(ListTokens())

    async def add_token(self, token: "Token", secret_hash: str) -> None:
        await self.apply(RegisterToken(token, secret_hash))

    async def remove_token(self, token_id: str) -> bool:
        return await self.apply(RevokeToken(token_id))

    async def has_token(self, secret_hash: str) -> bool:
        return await self.ask(HasToken(secret_hash))

    async def read_catalog_data(self) -> "CatalogData":
        return await self.ask(ReadCatalogData())

    async def find_table_faults(self) -> "list[TableFault]":
        return await self.ask(FindTableFaults())

    async def replace_catalog_data(self, catalog_data: "CatalogData") -> None:
        await self.apply(ReplaceCatalogData(catalog_data))


class TableLibrary(Library):
    """A library that finds the function for each question and change in a table."""

    answers: ClassVar[CatalogAnswers]
    changes: ClassVar[CatalogChanges]

    async def ask(self, question: CatalogQuestion[A]) -> A:
        return await self.answers[type(question)](self, question)

    async def apply(self, change: CatalogChange[A]) -> A:
        return await self.changes[type(change)](self, change)


class ForwardingLibrary(Library):
    """Library that passes each call on to another one, once that is reachable."""

    _reached: Library | None = None  # set it as soon as no further call has to ask for it

    @abstractmethod
    async def _reach_library(self) -> Library:
        """Return the library that answers."""

    async def ask(self, question: CatalogQuestion[A]) -> A:
        return await (self._reached or await self._reach_library()).ask(question)

    async def apply(self, change: CatalogChange[A]) -> A:
        return await (self._reached or await self._reach_library()).apply(change)

    async def open(self, name: str) -> "tuple[Project, RecordStore]":
        return await (self._reached or await self._reach_library()).open(name)

    async def get_store(self, project: "Project") -> RecordStore:
        return await (self._reached or await self._reach_library()).get_store(project)

    async def open_user_store(self) -> RecordStore:
        return await (self._reached or await self._reach_library()).open_user_store()

    async def open_history_store(self) -> RecordStore:
        return await (self._reached or await self._reach_library()).open_history_store()

    async def on_change(self, hear: Callable[[], None]) -> bool:
        return await (self._reached or await self._reach_library()).on_change(hear)
