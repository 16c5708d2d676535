"""The two sides of one store: the database, and the copy here."""

from contextlib import suppress
from typing import Protocol

from everkept.core.ports import Library, RecordStore
from everkept.core.projects import Project
from everkept.engines.standby.journal import SAME_PROJECT, Journal
from everkept.engines.standby.journal_acts import USER, store_of
from everkept.engines.standby.replica_origin import RecentCommits
from everkept.errors import Conflict, NotFound


class Ends(Protocol):
    """Both sides of one store. They are looked for again whenever they may have changed."""

    @property
    def name(self) -> str:
        """As the journal has it."""
        ...

    @property
    def recent(self) -> RecentCommits:
        """What was stored there just now."""
        ...

    async def there(self) -> RecordStore: ...

    async def here(self) -> RecordStore: ...

    async def at_hand(self) -> RecordStore:
        """That here, made where the database went before its copy had come so far."""
        ...


class OwnEnds:
    """Of one of the stores that belong to no project."""

    def __init__(self, name: str, primary: Library, replica: Library) -> None:
        self.name = name
        self.recent = RecentCommits()
        self._primary = primary
        self._replica = replica

    async def there(self) -> RecordStore:
        return await _own(self._primary, self.name)

    async def here(self) -> RecordStore:
        return await _own(self._replica, self.name)

    async def at_hand(self) -> RecordStore:
        return await self.here()


class ProjectEnds:
    """Of the store of a project.

    One that was made while the database was away may turn out to have been made there too: then
    it is that one.
    """

    def __init__(
        self, project: Project, primary: Library, replica: Library, journal: Journal
    ) -> None:
        self.recent = RecentCommits()
        self._project = project
        self._primary = primary
        self._replica = replica
        self._journal = journal
        self._there: RecordStore | None = None
        self.was_there = False

    @property
    def project_name(self) -> str:
        return self._project.name

    @property
    def name(self) -> str:
        return store_of(self._project.id)

    def found(self, store: RecordStore) -> None:
        """It was opened there just now."""
        self._there, self.was_there = store, True

    def put_away(self) -> None:
        """It was archived or deleted."""
        self._there, self.was_there = None, False
        self.recent.clear()

    async def there(self) -> RecordStore:
        if self._there is None:
            project, store = await self._primary.open(self._project.name)
            await self._expect(project)
            self.found(store)
            return store
        return self._there

    async def here(self) -> RecordStore:
        project, store = await self._replica.open(self._project.name)
        await self._expect(project)
        return store

    async def at_hand(self) -> RecordStore:
        with suppress(NotFound):
            return await self.here()
        if self.was_there:
            with suppress(Conflict):  # another process has made it
                await self._replica.create(
                    self._project.name,
                    self._project.description,
                    project_id=self._project.id,
                    at=self._project.created_at,
                )
        return await self.here()

    async def _expect(self, project: Project) -> None:
        if project.id == self._project.id:
            return
        if await self._journal.lookup(SAME_PROJECT, self._project.id) != project.id:
            raise NotFound("project", project.name, hint="It was deleted meanwhile.")
        self._project = project


async def _own(library: Library, name: str) -> RecordStore:
    return await (library.user() if name == USER else library.history())
