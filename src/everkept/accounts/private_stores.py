"""Stores as an account reaches them: its own, and those of projects that it was granted."""

import re
from contextlib import suppress
from typing import TypeVar, cast

from everkept.accounts.project_rule import empty_store
from everkept.core.accounts import NAME, Home, home_name, signed
from everkept.core.ports import Library
from everkept.core.questions import MeasureSize, NoteAccesses, PutVectors, Question, Upkeep
from everkept.core.records import Batch, Change
from everkept.core.store import RecordStore
from everkept.errors import Conflict, NotFound, ReadOnly, Refused
from everkept.values import replace

_TAKEN = re.compile(rf"@(user|history)( \({NAME}\))?")


def homes_of(user: str) -> tuple[str, ...]:
    return home_name("user", user), home_name("history", user)


def is_taken(project_name: str) -> bool:
    """Whether no new project may have this name: it is a home's, or would become one's."""
    return _TAKEN.fullmatch(project_name) is not None


def no_project(name: str) -> NotFound:
    """Word for word the same, whether there is one that may not be seen or none at all."""
    readable = name.encode("utf-8", "replace").decode()
    hint = "list_projects shows what exists; create_project makes one."
    return NotFound("project", readable, hint=hint)


A = TypeVar("A")


class GuardedStore(RecordStore):
    """Passes every question on, and checks the account before a write.

    Vectors and access counts are derived: an account that may read may add them.
    """

    async def _to_read(self) -> RecordStore:
        raise NotImplementedError

    async def _to_write(self) -> RecordStore:
        raise NotImplementedError

    async def ask(self, question: Question[A]) -> A:
        if isinstance(question, MeasureSize):
            # The disk is the owner's: an engine may know only the size of all stores together.
            return cast("A", 0)
        return await (await self._to_read()).ask(question)

    async def commit(self, batch: Batch) -> Change:
        store = await self._to_write()
        return await store.commit(replace(batch, client=signed(batch.client)))

    async def maintain(self, upkeep: Upkeep[A]) -> A:
        is_derived = isinstance(upkeep, PutVectors | NoteAccesses)
        store = await (self._to_read() if is_derived else self._to_write())
        return await store.maintain(upkeep)


class SharedStore(GuardedStore):
    """A project's store; one for all accounts that know it by this name and may do the same."""

    def __init__(self, store: RecordStore, name: str, *, writes: bool, is_own: bool) -> None:
        self.store = store
        self._name = name
        self._writes = writes
        self._is_own = is_own

    async def _to_read(self) -> RecordStore:
        return self.store

    async def _to_write(self) -> RecordStore:
        self.check_writable()
        return self.store

    def check_writable(self) -> None:
        if not self._writes:
            raise ReadOnly(
                f'Project "{self._name}" is shared with you for reading alone.',
                hint="Whoever shares it can let you write.",
                project=self._name,
            )

    def check_own(self) -> None:
        if not self._is_own:
            raise Refused(
                "This project is shared with you: a memory that becomes yours alone would be gone "
                "for all others.",
                hint="Store a memory of your own with the scope `user`.",
            )


class HomeStore(GuardedStore):
    """What is an account's alone; made at its first write."""

    def __init__(self, library: Library, home: Home, user: str) -> None:
        self._library = library
        self._name = home_name(home, user)

    async def _to_read(self) -> RecordStore:
        try:
            return (await self._library.open(self._name))[1]
        except NotFound:
            return empty_store()

    async def _to_write(self) -> RecordStore:
        try:
            return (await self._library.open(self._name))[1]
        except NotFound:
            with suppress(Conflict):  # another server was quicker
                await self._library.create(self._name, "")
        return (await self._library.open(self._name))[1]
