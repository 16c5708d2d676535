"""Past conversations as commands see them: taken in, followed, left out, forgotten."""

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from recollect.app.indexing import Indexer
from recollect.core.ports import Library, RecordStore
from recollect.core.records import Record, Where
from recollect.core.searching import Search
from recollect.core.times import Clock
from recollect.core.transcripts import Transcripts
from recollect.errors import NotFound
from recollect.families.history.model import CONVERSATION, TURN, HistoryOptions

if TYPE_CHECKING:  # a server starts without them
    from recollect.families.history.importing.counts import Imported
    from recollect.families.history.importing.forgetting import Forgotten

EXCLUDED = "history.excluded"  # note with the folders that commands have excluded

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be taken in; an empty field does not restrict."""

    sources: Sequence[str] = ()
    files: Sequence[Path] = ()
    since: int | None = None


class Past:
    """Reads transcripts into the store of past conversations, and takes what is there out."""

    def __init__(
        self,
        library: Library,
        transcripts: Callable[[Sequence[str]], Transcripts],
        indexer: Indexer,
        clock: Clock,
        options: HistoryOptions,
    ) -> None:
        """`transcripts` is given the folders that are known: some programs only hint at theirs."""
        self._library = library
        self._transcripts = transcripts
        self._indexer = indexer
        self._clock = clock
        self._options = options

    async def take_in(self, wanted: Wanted, report: Progress) -> "Imported":
        """What is new in the transcripts since the last time, and nothing twice."""
        from recollect.families.history.importing.importer import Importer

        store = await self._library.history()
        transcripts = self._transcripts(await _known_folders(store))
        found = await asyncio.to_thread(transcripts.found, wanted.sources, wanted.files)
        importer = Importer(store, self._clock, self._options)
        excluded = await self.excluded()
        return await importer.take_in(found, since=wanted.since, excluded=excluded, report=report)

    async def embed(self, report: Progress) -> int:
        """Gives all that waits its vector now; says how many."""
        return await self._indexer.drain(await self._library.history(), report)

    async def waiting(self) -> int:
        """How many texts have no vector yet; none where nothing gets one."""
        embedder = self._indexer.embedder
        if embedder is None:
            return 0
        store = await self._library.history()
        return (await store.vector_counts(embedder.name, self._indexer.kinds))[1]

    @property
    def excluded_always(self) -> tuple[str, ...]:
        """The folders that settings leave out."""
        return self._options.excluded

    async def excluded(self) -> tuple[str, ...]:
        """The folders that commands have excluded; those of the settings come on top."""
        note = await self._library.note(EXCLUDED)
        return tuple(cast(list[str], json.loads(note))) if note else ()

    async def exclude(self, folder: str) -> bool:
        """Takes nothing in from there any more; False where that was so already."""
        known = await self.excluded()
        if folder in known:
            return False
        await self._library.set_note(EXCLUDED, json.dumps([*known, folder]))
        return True

    async def include(self, folder: str) -> bool:
        """Takes it in again, with the next import; False where it was not excluded.

        What was forgotten stays so.
        """
        known = await self.excluded()
        left = [other for other in known if other != folder]
        await self._library.set_note(EXCLUDED, json.dumps(left) if left else None)
        return len(left) < len(known)

    async def forget(
        self, project: str | None, conversations: Sequence[str], report: Progress
    ) -> "tuple[Forgotten, list[str]]":
        """Removes conversations for good. They are not taken in again; the folders of a project
        are excluded from now on, and given back."""
        from recollect.families.history.importing.forgetting import forget

        store = await self._library.history()
        folders = [] if project is None else await _folders(store, project)
        for folder in folders:  # first, so that no import brings back what is just going
            await self.exclude(folder)
        done = await forget(
            store, self._clock, projects=folders, conversations=conversations, report=report
        )
        return done, folders

    async def conversations(self, limit: int, project: str | None = None) -> list[Record]:
        """The newest first, of all projects or of one."""
        store = await self._library.history()
        scopes = () if project is None else tuple(await _folders(store, project))
        found = await store.scan(Where(kinds=(CONVERSATION,), scopes=scopes), order="newest")
        kept = [record for record in found if not record.facets.get("left_out")]
        kept.sort(key=lambda record: int(record.facets.get("ended") or record.at), reverse=True)
        return kept[:limit]

    async def searches(self, limit: int) -> list[Search]:
        return await self._library.searches(limit=limit)

    async def forget_searches(self) -> int:
        return await self._library.forget_searches()


async def _folders(store: RecordStore, project: str) -> list[str]:
    """The folders of conversations that a name means."""
    from recollect.families.history.search.filters import nearest_project, projects_meant

    known = await _known_folders(store)
    found = projects_meant(project, known)
    if not found:
        near = nearest_project(project, known)
        hint = f"Did you mean {near}?" if near else "`recollect history list` shows folders."
        raise NotFound("project", project, hint=hint)
    return found


async def _known_folders(store: RecordStore) -> list[str]:
    return sorted({tally.scope for tally in await store.tally((CONVERSATION, TURN))})
