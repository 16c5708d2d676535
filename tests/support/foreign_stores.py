"""Stores that other memory programs wrote, and a home into which they are imported."""

import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from everkept.core.ports import Library, RecordStore
from everkept.core.records import Record, RecordFilter
from everkept.core.times import read_clock
from everkept.errors import NotFound
from everkept.exchange.foreign import ForeignSource
from everkept.exchange.foreign_import import ForeignImport, ImportTarget, import_foreign
from everkept.families.memories.model import MEMORY

RIVALS = Path(__file__).parents[1] / "exchange" / "sources" / "rivals.zip"
FILE_TIME = 1_700_000_000_000_000


def unpack_rival(name: str, folder: Path) -> Path:
    """Unpack a store that the real program wrote."""
    with zipfile.ZipFile(RIVALS) as archive:
        archive.extractall(folder, [each for each in archive.namelist() if each.startswith(f"{name}/")])
    return folder / name


def _ignore(_done: int, _total: int) -> None:
    """Show no progress."""


class Home:
    """A library into which sources are imported."""

    def __init__(self, library: Library) -> None:
        self.library = library

    async def take(self, source: ForeignSource, place: Path, **options: Any) -> ForeignImport:
        skipped: Counter[str] = Counter()
        items = list(source.read(place, skipped))
        target = ImportTarget(
            await self.library.open_user_store(), "default", self._open, options.pop("one_project", False)
        )
        report: Callable[[int, int], None] = options.pop("report", _ignore)
        outcome = ForeignImport(source.name, str(place), options.pop("dry_run", False))
        return await import_foreign(items, outcome, skipped, target, read_clock, report, at=FILE_TIME, **options)

    async def _open(self, name: str) -> RecordStore:
        try:
            await self.library.get_project(name)
        except NotFound:
            await self.library.create(name, "")
        return (await self.library.open(name))[1]

    async def open(self, project: str | None) -> RecordStore:
        return await self.library.open_user_store() if project is None else await self._open(project)

    async def memories(self, project: str | None = "default") -> dict[str, Record]:
        """Return the memories of a project, or of the user, by their texts."""
        found = await (await self.open(project)).scan(RecordFilter(kinds=(MEMORY,)))
        return {record.text: record for record in found}

    async def triples(self, project: str | None = "default") -> set[tuple[str, str, str]]:
        """Return all links by the names or texts of their ends."""
        store = await self.open(project)
        names = {record.id: record.name or record.text for record in await store.scan(RecordFilter())}
        return {(names[x.source], x.verb, names[x.target]) for x in await store.scan_links(deleted=False)}
