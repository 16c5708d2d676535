"""The port of a library: all projects, and what belongs to none of them."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from everkept.core import catalog
from everkept.core.catalog import CatalogChange, CatalogQuestion
from everkept.core.store import RecordStore

if TYPE_CHECKING:
    from everkept.core.conditions import Condition
    from everkept.core.projects import Project, Silence, Status
    from everkept.core.search_ports import Search
    from everkept.core.store_values import Holdings, Token
    from everkept.core.upstreams import Usage

A = TypeVar("A")

# From the type of a question or change to the function that does it, of the library and the value.
CatalogAnswers = Mapping[type[CatalogQuestion[Any]], Callable[[Any, Any], Awaitable[Any]]]
CatalogChanges = Mapping[type[CatalogChange[Any]], Callable[[Any, Any], Awaitable[Any]]]


class Library(ABC):
    """All projects, and what belongs to none of them.

    An engine or wrapper defines the abstract methods. All others are shorter spellings of a
    question or a change, whose type documents them.
    """

    @abstractmethod
    async def ask(self, question: CatalogQuestion[A]) -> A:
        """Return the answer to a question."""

    @abstractmethod
    async def apply(self, change: CatalogChange[A]) -> A:
        """Do a change, and return its result."""

    @abstractmethod
    async def open(self, name: str) -> "tuple[Project, RecordStore]":
        """Return the project as it is now, and its store. Raises ProjectArchived."""

    @abstractmethod
    async def store_of(self, project: "Project") -> RecordStore:
        """Return the store of a project that may be archived, for a copy."""

    @abstractmethod
    async def user(self) -> RecordStore:
        """Return the store of the user's own records; create it if it is missing."""

    @abstractmethod
    async def history(self) -> RecordStore:
        """Return the store of conversations of all projects; create it if it is missing."""

    @abstractmethod
    async def on_change(self, hear: Callable[[], None]) -> bool:
        """Call `hear` soon after each change of any process from now on.

        Return False if the library cannot know of them, so that the caller has to look.
        """

    @property
    @abstractmethod
    def condition(self) -> "Condition":
        """The database and its state, as far as they are known without a question to it."""

    @abstractmethod
    async def close(self) -> None:
        """End all work and close all connections."""

    async def projects(self, status: "Status | None" = None) -> "list[Project]":
        return await self.ask(catalog.ListProjects(status))

    async def project(self, name: str) -> "Project":
        return await self.ask(catalog.GetProject(name))

    async def create(
        self, name: str, description: str, *, project_id: str = "", at: int | None = None
    ) -> "Project":
        return await self.apply(catalog.AddProject(name, description, project_id, at))

    async def archive(self, name: str) -> "Project":
        return await self.apply(catalog.SetProjectStatus(name, "archived"))

    async def restore(self, name: str) -> "Project":
        return await self.apply(catalog.SetProjectStatus(name, "active"))

    async def delete(self, name: str) -> None:
        await self.apply(catalog.DeleteProject(name))

    async def switch(self, name: str, *, off: bool, at: int | None = None) -> "Project":
        return await self.apply(catalog.SetProjectOff(name, off, at))

    async def silences(self) -> "list[Silence]":
        return await self.ask(catalog.ListSilences())

    async def project_of_workspace(self, path: str) -> "Project | None":
        return await self.ask(catalog.FindWorkspaceProject(path))

    async def assign_workspace(self, path: str, project: "Project") -> "Project":
        return await self.apply(catalog.LinkWorkspace(path, project))

    async def workspaces_of(self, project: "Project") -> list[str]:
        return await self.ask(catalog.ListWorkspaces(project))

    async def note(self, key: str) -> str | None:
        return await self.ask(catalog.GetNote(key))

    async def set_note(self, key: str, value: str | None) -> None:
        await self.apply(catalog.WriteNote(key, value))

    async def notes(self, prefix: str) -> Mapping[str, str]:
        return await self.ask(catalog.ListNotes(prefix))

    async def add_searches(self, searches: "Sequence[Search]") -> None:
        await self.apply(catalog.AddSearches(searches))

    async def searches(self, *, session: str | None = None, limit: int = 100) -> "list[Search]":
        return await self.ask(catalog.ListSearches(session, limit))

    async def forget_searches(self) -> int:
        return await self.apply(catalog.ForgetSearches())

    async def add_usage(self, rows: "Sequence[Usage]") -> None:
        await self.apply(catalog.AddUsage(rows))

    async def usage(self) -> "list[Usage]":
        return await self.ask(catalog.ListUsage())

    async def tokens(self) -> "list[Token]":
        return await self.ask(catalog.ListTokens())

    async def add_token(self, token: "Token", secret_hash: str) -> None:
        await self.apply(catalog.RegisterToken(token, secret_hash))

    async def remove_token(self, token_id: str) -> bool:
        return await self.apply(catalog.RevokeToken(token_id))

    async def knows_token(self, secret_hash: str) -> bool:
        return await self.ask(catalog.HasToken(secret_hash))

    async def holdings(self) -> "Holdings":
        return await self.ask(catalog.ReadHoldings())

    async def take_over(self, holdings: "Holdings") -> None:
        await self.apply(catalog.ReplaceHoldings(holdings))


class TableLibrary(Library):
    """A library that finds the function for each question and change in a table."""

    answers: ClassVar[CatalogAnswers]
    changes: ClassVar[CatalogChanges]

    async def ask(self, question: CatalogQuestion[A]) -> A:
        return await self.answers[type(question)](self, question)

    async def apply(self, change: CatalogChange[A]) -> A:
        return await self.changes[type(change)](self, change)


class PassingLibrary(Library):
    """A library that passes each call on to another one, once that is reached."""

    @abstractmethod
    async def _reached(self) -> Library:
        """Return the library that answers."""

    async def ask(self, question: CatalogQuestion[A]) -> A:
        return await (await self._reached()).ask(question)

    async def apply(self, change: CatalogChange[A]) -> A:
        return await (await self._reached()).apply(change)

    async def open(self, name: str) -> "tuple[Project, RecordStore]":
        return await (await self._reached()).open(name)

    async def store_of(self, project: "Project") -> RecordStore:
        return await (await self._reached()).store_of(project)

    async def user(self) -> RecordStore:
        return await (await self._reached()).user()

    async def history(self) -> RecordStore:
        return await (await self._reached()).history()

    async def on_change(self, hear: Callable[[], None]) -> bool:
        return await (await self._reached()).on_change(hear)
