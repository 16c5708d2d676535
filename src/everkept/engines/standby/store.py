"""One project's records in a database that may be unreachable, and in a copy of it here."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol, TypeVar, cast
from uuid import uuid4

from everkept.core import store as questions
from everkept.core.answers import Purged
from everkept.core.ports import Library
from everkept.core.projects import Project
from everkept.core.records import Batch, Change, Delete, Edit, Insert, Ref, Restore, Step, Update
from everkept.core.store import Question, RecordStore, Upkeep
from everkept.engines.standby.failover import BROKEN, Either
from everkept.engines.standby.journal import SAME_PROJECT, Journal
from everkept.engines.standby.journal_acts import USER, Commit, store_of
from everkept.engines.standby.rebase import rebased
from everkept.engines.standby.replica import RecentCommits
from everkept.errors import Conflict, EverkeptError, NotFound, StoreAway
from everkept.values import replace


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


A = TypeVar("A")
T = TypeVar("T")

RECENT = 200  # changes among which one is looked for that may have been made a moment ago
# Whoever compares stamps must see that the other side answers: no count of vectors is as large.
_TURN = 1 << 40
_FOR_GOOD = "cannot be removed for good while the database is away: a copy would stay there."

log = logging.getLogger(__name__)


class Wakes(Protocol):
    """Keeps the copy near the database, soon and in the background."""

    def wake(self, name: str, *, at_once: bool = False) -> None:
        """Something was stored there."""
        ...

    def learn(self, model: str, kinds: Sequence[str]) -> None:
        """Vectors of this model are in use, for records of these kinds."""
        ...


class StandbyStore(RecordStore):
    """Outlives every return of the database: both sides are found anew when they are needed."""

    def __init__(self, ends: Ends, either: Either, follower: Wakes) -> None:
        self.ends = ends
        self._either = either
        self._follower = follower

    async def commit(self, batch: Batch) -> Change:
        keyed = batch if batch.key else replace(batch, key=uuid4().hex)

        async def there(_again: bool) -> Change:
            change = await (await self.ends.there()).commit(keyed)
            recent = self.ends.recent
            recent.add(keyed, change)
            self._follower.wake(self.ends.name, at_once=recent.is_filling)
            return change

        return await self._either.write(there, lambda unknown: self._keep(keyed, unknown=unknown))

    async def ask(self, question: Question[A]) -> A:
        asked: Question[Any] = question
        if isinstance(asked, questions.FindUnembedded | questions.CountVectors):
            self._follower.learn(asked.model, asked.kinds)

        def do(store: RecordStore) -> Awaitable[A]:
            return store.ask(question)

        answer = await self._either.read(lambda: self._there(do), lambda: self._here(do))
        return cast("A", self._turned(answer)) if isinstance(asked, questions.GetStamp) else answer

    async def maintain(self, upkeep: Upkeep[A]) -> A:
        def do(store: RecordStore) -> Awaitable[A]:
            return store.maintain(upkeep)

        kind: Upkeep[Any] = upkeep
        match kind:
            case questions.PutVectors() | questions.NoteAccesses():
                return await self._either.aside(lambda: self._there(do), lambda: self._here(do))
            case questions.Purge() | questions.Redact():
                return cast("A", await self._erase(kind))
            case _:
                done = await self._either.promised(
                    lambda _: self._there(do),
                    "What is copied cannot be kept here until the database is back.",
                )
                self._follower.wake(self.ends.name)
                return done

    async def _there(self, do: Callable[[RecordStore], Awaitable[T]]) -> T:
        return await do(await self.ends.there())

    async def _here(self, do: Callable[[RecordStore], Awaitable[T]]) -> T:
        await self.flush()
        return await do(await self.ends.at_hand())

    def _turned(self, stamp: Any) -> tuple[int, int]:
        newest, moves = stamp
        return newest, moves + self._either.reaching.turns * _TURN

    async def flush(self) -> None:
        """What was stored there just now is here too, as far as that can be."""
        if not self.ends.recent:
            return
        try:
            async with self._either.alone():
                await self.ends.recent.bring_to(await self.ends.at_hand())
        except EverkeptError as error:
            log.debug("what was stored in %s just now is not here: %r", self.ends.name, error)

    async def _erase(self, upkeep: questions.Purge | questions.Redact) -> Purged:
        """Erase in the database, in the copy, and in pending and rejected writes."""

        def do(store: RecordStore) -> Awaitable[Purged]:
            return store.maintain(upkeep)

        async def there(again: bool) -> Purged:
            done = await self._there(do)
            return await self._at_least(done, upkeep.refs) if again else done

        done = await self._either.promised(there, f"What is stored {_FOR_GOOD}")
        is_forgotten = await self._either.forget(
            self.ends.name, upkeep.refs, belongings=isinstance(upkeep, questions.Purge)
        )
        try:
            is_gone_here = (await self._here(do)).complete
        except EverkeptError:  # what is left here is removed when the copy follows
            is_gone_here = False
        self._follower.wake(self.ends.name)
        return replace(done, complete=done.complete and is_forgotten and is_gone_here)

    async def _at_least(self, done: Purged, refs: Sequence[Ref]) -> Purged:
        """An attempt that got no answer may have done it: what is still here was there then."""
        try:
            records, links = await self._here(lambda store: _found(store, refs))
        except EverkeptError:
            return replace(done, complete=False)
        return replace(done, records=max(done.records, records), links=max(done.links, links))

    async def _keep(self, batch: Batch, *, unknown: bool) -> Change:
        try:
            store = await self.ends.at_hand()
            await self.ends.recent.bring_to(store)
            await store.revision()
        except BROKEN as error:
            return await self._either.kept(
                Commit(self.ends.name, batch), _raising(error), instead=lambda: _unseen(batch)
            )
        try:
            return await self._journaled(batch, store, batch)
        except Conflict:
            if not unknown:
                raise
        if made := await _logged(batch, store):
            return made
        # To refuse it would have the caller plan anew what is perhaps done already.
        fitting = await rebased(batch, store)
        if fitting is None:
            raise StoreAway(
                "The database went away while something was stored; whether that was done is not "
                f"known. {self._either.reaching.reason}",
                hint="Look whether it is there when the database is back.",
            )
        return await self._journaled(batch, store, fitting)

    async def _journaled(self, batch: Batch, store: RecordStore, here: Batch) -> Change:
        return await self._either.kept(
            Commit(self.ends.name, batch),
            lambda: store.commit(here),
            local_seq=await store.revision() + 1,
            instead=lambda: _unseen(here),
        )


async def _logged(batch: Batch, store: RecordStore) -> Change | None:
    """The change of a batch that came here with what was copied."""
    wanted = {_id_of(step) for step in batch.steps}
    for change in await store.changes(limit=RECENT, newest_first=True):
        is_like_it = (change.at, change.tool, change.client) == (batch.at, batch.tool, batch.client)
        if is_like_it and wanted <= {edit.id for edit in change.edits}:
            return change
    return None


async def _found(store: RecordStore, refs: Sequence[Ref]) -> tuple[int, int]:
    records = [ref.id for ref in refs if ref.subject == "record"]
    links = [ref.id for ref in refs if ref.subject == "link"]
    return (
        len(await store.get(records, include_deleted=True)),
        len(await store.get_links(links, include_deleted=True)),
    )


def _raising(error: Exception) -> Callable[[], Awaitable[Change]]:
    async def fails() -> Change:
        raise error

    return fails


def _unseen(batch: Batch) -> Change:
    """What a batch does, as far as that is known without what is stored; it has no number yet."""
    edits = tuple(_edit(step) for step in batch.steps)
    return Change(0, batch.at, batch.tool, batch.client, batch.undoes, edits)


def _edit(step: Step) -> Edit:
    match step:
        case Insert(item):
            return Edit("insert", item.ref.subject, item.id)
        case Update():
            return Edit("update", "record", step.id, {})
        case Delete(ref):
            return Edit("delete", ref.subject, ref.id, {"deleted_at": None})
        case Restore(ref):
            return Edit("restore", ref.subject, ref.id, {})


def _id_of(step: Step) -> str:
    match step:
        case Insert(item):
            return item.id
        case Update():
            return step.id
        case Delete(ref) | Restore(ref):
            return ref.id
