"""A store whose file is missing where none can be made: it reads as an empty one."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Never

from everkept.core.copies import Stock
from everkept.core.ports import Embedded, Redaction
from everkept.core.records import Batch, Ref
from everkept.engines.memory.store import MemoryStore
from everkept.errors import ReadOnly


class AbsentStore(MemoryStore):
    """Refuses what would change it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    async def commit(self, batch: Batch) -> Never:
        self._refuse()

    async def purge(self, refs: Sequence[Ref]) -> Never:
        self._refuse()

    async def redact(self, refs: Sequence[Ref], clean: Redaction) -> Never:
        self._refuse()

    async def put_vectors(self, model: str, items: Sequence[Embedded]) -> Never:
        self._refuse()

    async def restock(self, stock: Stock) -> Never:
        self._refuse()

    async def note_accesses(self, counts: Mapping[str, int], at: int) -> Never:
        self._refuse()

    def _refuse(self) -> Never:
        raise ReadOnly(
            f"{self._path} cannot be made.",
            hint="The data folder cannot be written; check its permissions.",
            path=str(self._path),
        )
