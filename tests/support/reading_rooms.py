"""A library whose questions are answered by a reading room over the same folder."""

from pathlib import Path
from typing import Any, TypeVar

from everkept.core.library import (
    CatalogQuestion,
    Condition,
    FindWorkspaceProject,
    ForwardingLibrary,
    GetProject,
    Library,
)
from everkept.core.records import Batch, Change
from everkept.core.store import RecordStore, StoreQuestion, Upkeep
from everkept.engines.sqlite.library import SqliteLibrary
from everkept.engines.sqlite.read_only_library import SqliteReadOnlyLibrary
from everkept.engines.sqlite.store import SqliteStore

A = TypeVar("A")


def read_by_room(library: SqliteLibrary, folder: Path) -> Library:
    """A room's answers are held to all that is promised of a library's."""
    return _ReadByRoom(library, folder)


class _ReadByRoom(ForwardingLibrary):
    def __init__(self, library: SqliteLibrary, folder: Path) -> None:
        self._library = library
        self._room = SqliteReadOnlyLibrary(folder)
        self._stores: dict[tuple[int, int], _StoreReadByRoom] = {}

    async def _reach_library(self) -> Library:
        return self._library

    async def ask(self, question: CatalogQuestion[A]) -> A:
        if isinstance(question, GetProject | FindWorkspaceProject):
            await self._library.list_projects()  # which makes the folder
        match question:
            case GetProject(name):
                return await self._room.get_project(name)
            case FindWorkspaceProject(path):
                return await self._room.find_workspace_project(path)
            case _:
                return await self._library.ask(question)

    async def open(self, name: str) -> Any:
        await self._library.list_projects()
        project, reader = await self._room.open(name)
        _, writer = await self._library.open(name)
        return project, self._joined(writer, reader)

    async def open_user_store(self) -> Any:
        return self._joined(await self._library.open_user_store(), await self._room.open_user_store())

    async def open_history_store(self) -> Any:
        return self._joined(await self._library.open_history_store(), await self._room.open_history_store())

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

    async def ask(self, question: StoreQuestion[A]) -> A:
        return await self._reader.ask(question)

    async def commit(self, batch: Batch) -> Change:
        return await self._writer.commit(batch)

    async def maintain(self, upkeep: Upkeep[A]) -> A:
        return await self._writer.maintain(upkeep)
