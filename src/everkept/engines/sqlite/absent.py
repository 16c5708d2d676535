"""A store whose file is missing in a read-only data folder: it reads as an empty one."""

from pathlib import Path
from typing import Any, Never

from everkept.core.questions import Upkeep
from everkept.core.records import Batch
from everkept.engines.memory.store import MemoryStore
from everkept.errors import ReadOnly


class AbsentStore(MemoryStore):
    """An empty store that refuses every write."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    async def commit(self, batch: Batch) -> Never:
        self._refuse()

    async def maintain(self, upkeep: Upkeep[Any]) -> Never:
        self._refuse()

    def _refuse(self) -> Never:
        raise ReadOnly(
            f"{self._path} cannot be made.",
            hint="The data folder cannot be written; check its permissions.",
            path=str(self._path),
        )
