"""A library whose questions are answered by a reading room over the same folder."""

from pathlib import Path
from typing import Any, TypeVar

from everkept.core.library import (
    CatalogQuestion,
    Condition,
    FindWorkspaceProject,
    GetProject,
    Library,
    PassingLibrary,
)
from everkept.core.records import Batch, Change
from everkept.core.store import Question, RecordStore, Upkeep
from everkept.engines.sqlite.library import SqliteLibrary
from everkept.engines.sqlite.read_only_library import SqliteReadingRoom
from everkept.engines.sqlite.store import SqliteStore

A = TypeVar("A")


def read_by_room(library: SqliteLibrary, folder: Path) -> Library:
    """A room's answers are held to all that is promised of a library's."""
    return _ReadByRoom(library, folder)


class _ReadByRoom(PassingLibrary):
    def __init__(self, library: SqliteLibrary, folder: Path) -> None:
        self._library = library
        self._room = SqliteReadingRoom(folder)
        self._stores: dict[tuple[int, int], _StoreReadByRoom] = {}

    async def _reached(self) -> Library:
        return self._library

    async def ask(self, question: CatalogQuestion[A]) -> A:
        if isinstance(question, GetProject | FindWorkspaceProject):
            await self._library.projects()  # which makes the folder
        match question:
            case GetProject(name):
                return await self._room.project(name)
            case FindWorkspaceProject(path):
                return await self._room.project_of_workspace(path)
            case _:
                return await self._library.ask(question)

    async def open(self, name: str) -> Any:
        await self._library.projects()
        project, reader = await self._room.open(name)
        _, writer = await self._library.open(name)
        return project, self._joined(writer, reader)

    async def user(self) -> Any:
        return self._joined(await self._library.user(), await self._room.user())

    async def history(self) -> Any:
        return self._joined(await self._library.history(), await self._room.history())

    @property
    def condition(self) -> Condition:
        return self._library.condition

    async def close(self) -> None:
        await self._room.close()
        await self._library.close()

    def _joined(self, writer: Any, reader: SqliteStore | None) -> Any:
        key = id(writer), id(reader)
        if key not in self._stores:
            self._stores[key] = _StoreReadByRoom(writer, reader)
        return self._stores[key]


class _StoreReadByRoom(RecordStore):
    """Changes go to the one store, questions to the other."""

    def __init__(self, writer: RecordStore, reader: SqliteStore | None) -> None:
        assert reader is not None
        self._writer = writer
        self._reader = reader

    async def ask(self, question: Question[A]) -> A:
        return await self._reader.ask(question)

    async def commit(self, batch: Batch) -> Change:
        return await self._writer.commit(batch)

    async def maintain(self, upkeep: Upkeep[A]) -> A:
        return await self._writer.maintain(upkeep)
