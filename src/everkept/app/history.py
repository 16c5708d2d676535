"""Past conversations for commands: import, follow, exclude and delete."""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from everkept.core.answers import MAX_SEARCHES, SearchRecord
from everkept.core.ports import Library, RecordStore
from everkept.core.records import Record, RecordFilter
from everkept.core.sessions import is_account_session
from everkept.core.times import Clock
from everkept.core.transcripts import Transcript, Transcripts
from everkept.errors import NotFound, Unavailable
from everkept.families.history.model import CODE, CONVERSATION, TURN, HistoryOptions
from everkept.values import Value

if TYPE_CHECKING:
    from everkept.app.unread_transcripts import UnreadTranscripts
    from everkept.families.history.ingest.checkpoints import ImportCounts, ImportReport
    from everkept.families.history.ingest.removal import RemovalReport
    from everkept.jobs.maintenance import Indexer

EXCLUDED_NOTES = "history.excluded "  # prefix of the notes for folders that commands excluded

Progress = Callable[[int, int], None]


class ImportRequest(Value):
    """Selection of what to import. An empty field does not restrict it."""

    sources: Sequence[str] = ()
    files: Sequence[Path] = ()
    since: int | None = None


class HistoryOverview(Value):
    """Counts of stored conversations and turns."""

    conversations: int
    turns: int
    code: int
    with_vectors: int
    without_vectors: int
    database_size_bytes: int


class ImportedHistory:
    """Imports transcripts into the history and deletes conversations from it."""

    def __init__(
        self,
        library: Library,
        transcripts: Callable[[Sequence[str]], Transcripts],
        indexer: "Indexer",
        clock: Clock,
        options: HistoryOptions,
    ) -> None:
        """`transcripts` gets the known folders, since some programs only hint at theirs."""
        self._library = library
        self._transcripts = transcripts
        self._indexer = indexer
        self._clock = clock
        self._options = options
        self._found: Transcripts | None = None

    async def import_transcripts(self, wanted: ImportRequest, report: Progress) -> "ImportReport":
        """Import what is new in the transcripts since the last time, each turn once."""
        store = await self._library.open_history_store()
        if self._found is None:  # keeps what it has seen, for repeated imports
            self._found = self._transcripts(list(await _count_by_folder(store)))
        found = await asyncio.to_thread(self._found.find_transcripts, wanted.sources, wanted.files)
        return await self.import_given(found, report, since=wanted.since)

    async def import_given(
        self, transcripts: Sequence[Transcript], report: Progress, *, since: int | None = None
    ) -> "ImportReport":
        """Import these transcripts, each turn once."""
        from everkept.families.history.ingest.transcript_importer import TranscriptImporter

        importer = TranscriptImporter(await self._library.open_history_store(), self._clock, self._options)
        return await importer.import_transcripts(
            transcripts,
            since=since,
            excluded=self.list_excluded,
            silences=self._library.list_off_periods,
            report=report,
        )

    async def find_unread(self) -> "UnreadTranscripts":
        """Count the transcripts on this machine that no import has read."""
        from everkept.app.unread_transcripts import find_unread

        found = await asyncio.to_thread(self._transcripts(()).find_transcripts)
        return await find_unread(found, await self._library.open_history_store())

    async def count_stored(self, ids: Collection[str]) -> int:
        """Count which of these conversations or turns are stored."""
        from everkept.app.unread_transcripts import find_stored

        return len(await find_stored(await self._library.open_history_store(), [*ids]))

    async def add_transcript(self, transcript: Transcript) -> "ImportCounts":
        """Import what a program hands over. Raises what keeps it from being stored."""
        imported = await self.import_given([transcript], lambda done, total: None)
        for failure in imported.failures:
            raise Unavailable(f'The turns of "{failure.name}" were not stored: {failure.reason}')
        self._indexer.wake(await self._library.open_history_store())
        return imported.total

    async def embed(self, report: Progress) -> int:
        """Compute all pending embeddings now and return their number."""
        return await self._indexer.drain(await self._library.open_history_store(), report)

    async def count_pending(self) -> int:
        """Count the texts without an embedding. Return 0 if embeddings are turned off."""
        return (await self._indexer.count_vectors(await self._library.open_history_store()))[1]

    async def read_overview(self) -> HistoryOverview:
        store = await self._library.open_history_store()
        counts = await store.count_live()
        embedded, pending = await self._indexer.count_vectors(store)
        return HistoryOverview(
            conversations=len(await _list_conversations(store)),
            turns=counts.get(TURN, 0),
            code=counts.get(CODE, 0),
            with_vectors=embedded,
            without_vectors=pending,
            database_size_bytes=await store.measure_size(),
        )

    async def count_by_folder(self) -> dict[str, int]:
        """Count the conversations of each known folder."""
        return await _count_by_folder(await self._library.open_history_store())

    @property
    def configured_exclusions(self) -> tuple[str, ...]:
        """The folders that the settings exclude."""
        return self._options.excluded

    async def list_excluded(self) -> tuple[str, ...]:
        """List the folders that commands excluded, without those of the settings."""
        notes = await self._library.list_notes(EXCLUDED_NOTES)
        return tuple(key.removeprefix(EXCLUDED_NOTES) for key in notes)

    async def exclude(self, folder: str) -> bool:
        """Stop importing a folder. Return False if it was already excluded."""
        is_known = await self._library.get_note(EXCLUDED_NOTES + folder) is not None
        await self._library.set_note(EXCLUDED_NOTES + folder, str(self._clock()))
        return not is_known

    async def include(self, folder: str) -> bool:
        """Import a folder again from now on. Return False if it was not excluded.

        Deleted conversations stay deleted.
        """
        is_known = await self._library.get_note(EXCLUDED_NOTES + folder) is not None
        await self._library.set_note(EXCLUDED_NOTES + folder, None)
        return is_known

    async def find_folders(self, project: str) -> dict[str, int]:
        """Return the folders that match a name, with the number of their conversations. Raises NotFound."""
        from everkept.families.history.searches import find_nearest_project, match_named_projects

        store = await self._library.open_history_store()
        counts = await _count_by_folder(store)
        found = match_named_projects(project, list(counts))
        if not found:
            near = find_nearest_project(project, list(counts))
            hint = f"Did you mean {near}?" if near else "Run `everkept history list` to see the folders."
            raise NotFound("project", project, hint=hint)
        return {folder: counts[folder] for folder in found}

    async def forget(self, folders: Sequence[str], conversations: Sequence[str], report: Progress) -> "RemovalReport":
        """Permanently delete conversations and never import them again. The folders are excluded."""
        from everkept.families.history.ingest.removal import forget_conversations

        store = await self._library.open_history_store()
        for folder in select_topmost(folders):  # exclude first, so that no import adds them again
            await self.exclude(folder)
        return await forget_conversations(
            store, self._clock, projects=folders, conversations=conversations, report=report
        )

    async def read_titles(self, conversations: Sequence[str]) -> dict[str, str]:
        """Return the titles of conversations by id. If a project is off, return the id instead. Raises NotFound."""
        from everkept.families.history.conversation_reader import find_whole_id
        from everkept.families.history.off_folders import open_visible_history

        store = await self._library.open_history_store()
        meant = {name: await find_whole_id(store, name, (CONVERSATION,)) for name in conversations}
        found = {record.id: record for record in await store.get([each for each in meant.values() if each])}
        for name, whole in meant.items():
            if whole not in found:
                hint = "Run `everkept history list` to see the ids. They begin with conv_."
                raise NotFound("conversation", name, hint=hint)
        past = await open_visible_history(self._library, self._options)
        return {each: each if r.scope in past.hidden else r.name or each for each, r in found.items()}

    async def list_conversations(self, limit: int, project: str | None = None) -> list[Record]:
        """List conversations of all projects or of one, newest first, without projects that are off."""
        from everkept.families.history.off_folders import open_visible_history

        past = await open_visible_history(self._library, self._options)
        scopes = () if project is None else tuple(await self.find_folders(project))
        kept = await _list_conversations(past.store, scopes)
        kept.sort(key=lambda record: int(record.facets.get("ended") or record.effective_at), reverse=True)
        return kept[:limit]

    async def list_searches(self, limit: int) -> list[SearchRecord]:
        """List searches, newest first, without those of accounts and of projects that are off."""
        from everkept.families.history.off_folders import open_visible_history

        past = await open_visible_history(self._library, self._options)
        every = await self._library.list_searches(limit=MAX_SEARCHES)
        every = [search for search in every if not is_account_session(search.session)]
        if not past.hidden:
            return every[:limit]
        where = RecordFilter(kinds=(CONVERSATION,), scopes=tuple(sorted(past.hidden)))
        held_there = {each.session for each in await (await self._library.open_history_store()).scan(where)}
        told = [each for each in every if each.session is None or each.session not in held_there]
        return told[:limit]

    async def forget_searches(self) -> int:
        return await self._library.forget_searches()


def select_topmost(folders: Sequence[str]) -> list[str]:
    """Return the folders that are not inside another one of them."""
    return [folder for folder in folders if not any(folder.startswith((f"{o}/", f"{o}\\")) for o in folders)]


async def _list_conversations(store: RecordStore, scopes: tuple[str, ...] = ()) -> list[Record]:
    """List the conversations that have turns."""
    found = await store.scan(RecordFilter(kinds=(CONVERSATION,), scopes=scopes))
    return [r for r in found if r.facets.get("turns") and not r.facets.get("left_out")]


async def _count_by_folder(store: RecordStore) -> dict[str, int]:
    """Count the conversations of each folder."""
    return dict(Counter(record.scope for record in await _list_conversations(store) if record.scope))
