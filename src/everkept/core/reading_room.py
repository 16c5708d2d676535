"""What a process asks of the records which lives for a tenth of a second."""

from typing import Protocol

from everkept.core.ports import RecordStore
from everkept.core.projects import Project, Silence


class ReadingRoom(Protocol):
    """The part of a library that a process needs which lives for a tenth of a second.

    It reads, and makes nothing: what is not there yet is None. A library is one too.
    """

    async def project(self, name: str) -> Project:
        """Raises NotFound."""
        ...

    async def project_of_workspace(self, path: str) -> Project | None: ...

    async def open(self, name: str) -> tuple[Project, RecordStore]:
        """The project as it is now, and its store; an archived one is refused."""
        ...

    async def silences(self) -> list[Silence]:
        """When the projects of folders were switched off, those that are so now included."""
        ...

    async def user(self) -> RecordStore | None: ...

    async def history(self) -> RecordStore | None: ...

    async def close(self) -> None: ...
