"""Recall of memories by a query, also in other projects, and a hint where else to look."""

import asyncio
import re
from collections.abc import Mapping, Sequence
from time import perf_counter

from everkept.core.answers import SectionHit, SectionSearch
from everkept.core.ports import AccessCount, AccessCounter, RecordStore, VectorIndexer
from everkept.core.records import SESSION_SCOPE, Record, RecordFilter, Weights
from everkept.core.sessions import get_acting_account
from everkept.core.text import clip_text
from everkept.errors import EverkeptError, NotFound, Unavailable
from everkept.families.memories.memory_record import find_memories_by_type, list_linked_entities
from everkept.families.memories.model import (
    MEMORY,
    MEMORY_PROFILE,
    NOTHING_CODE,
    SCOPES,
    LinkedEntity,
    MemoryOptions,
    MemoryView,
    RecalledMemories,
    Strategy,
    TimeRange,
)
from everkept.families.memories.stores import NO_SESSION, MemoryStores
from everkept.language.spellings import fold, split_tokens
from everkept.language.words import AnyOf, WordPhrase, parse_query
from everkept.retrieval.profile import SearchHit, SearchNotice, SearchPage, SearchPlace
from everkept.retrieval.search import find_language_notice, find_pending_notice, search, wait_for_embeddings
from everkept.tools.tool import ToolWarning, build_elsewhere_warning
from everkept.values import Value, replace

PROJECT_SCOPES = (SESSION_SCOPE, "project")
USER_SCOPES = ("user",)
MIN_PENDING_MEMORIES = 17  # fewer are embedded in one batch, a moment later
MAX_QUOTED_CHARACTERS = 120
NO_BANK_MESSAGE = "There is no memory bank. Only memories were searched."


class RecallRequest(Value):
    """Query and filters of a recall. An empty field does not filter."""

    query: str
    session: str | None = None  # whose session memories to include; None excludes all session memories
    scopes: Sequence[str] = ()
    types: Sequence[str] = ()
    strategy: Strategy = "hybrid"
    limit: int = 10
    min_importance: float = 0.0
    tags: Sequence[str] = ()
    time_range: TimeRange | None = None
    relationship_type: str | None = None  # only memories with this relationship to an entity
    include_forgotten: bool = False
    include_superseded: bool = False
    as_of: int | None = None
    explain: bool = False
    include_bank: bool = False
    all_projects: bool = False


class MemoryRecall:
    """Search in the project's and the user's store, depending on the scopes, and in the bank if requested."""

    def __init__(
        self,
        stores: MemoryStores,
        indexing: VectorIndexer,
        accesses: AccessCounter,
        options: MemoryOptions,
        bank: SectionSearch | None = None,
    ) -> None:
        self._bank = bank
        self._stores = stores
        self._indexing = indexing
        self._accesses = accesses
        self._options = options
        self.warnings: dict[ToolWarning, None] = {}  # of all searches so far, each once
        self._project_names: dict[RecordStore, str] = {}  # of a recall in all projects
        self._known: dict[RecordStore, dict[str, AccessCount | None]] = {}  # access counts that the ranking has read

    async def recall(self, wanted: RecallRequest) -> RecalledMemories:
        started = perf_counter()
        places = await self._open_places(wanted)
        if wanted.relationship_type:
            places = await self._narrow_to_type(places, wanted.relationship_type, wanted)
        found = await self._search(places, wanted)
        memories = await self._build_views(places, found.hits, explain=wanted.explain)
        if not memories and not wanted.all_projects:
            await self._look_elsewhere(wanted)
        sections = await self._find_sections(wanted) if wanted.include_bank else None
        return RecalledMemories(
            memories=memories,
            total_matched=found.total,
            strategy_used=found.strategy or wanted.strategy,
            query_time_ms=round((perf_counter() - started) * 1000, 1),
            total_is_lower_bound=found.is_lower_bound or None,
            bank=sections,
            warnings=list(self.warnings) or None,
        )

    async def find_records(self, wanted: RecallRequest) -> list[Record]:
        """Return matching records, best first, without counting an access."""
        places = await self._open_places(wanted, or_none=True)
        return [hit.record for hit in (await self._search(places, wanted)).hits] if places else []

    async def find_newest(self, where: RecordFilter, session: str | None, limit: int) -> list[Record]:
        """Return the newest records that pass the filter."""
        wanted = RecallRequest("", session, where.scopes, where.types)
        places = await self._open_places(wanted, or_none=True)
        traits = {"pinned": where.pinned, "min_importance": where.min_importance}
        found = await asyncio.gather(
            *(place.store.scan(replace(place.where, **traits), order="newest", limit=limit) for place in places)
        )
        once = {record.id: record for records in found for record in records}  # the user's copy wins
        return sorted(once.values(), key=lambda record: -record.effective_at)[:limit]

    async def find_by_files(self, files: Sequence[str], session: str | None) -> list[Record]:
        """Return the memories whose source is one of the files, the most important and then the newest first."""
        places = await self._open_places(RecallRequest("", session), or_none=True)
        found = await asyncio.gather(*(_find_by_files(place, files) for place in places))
        once = {record.id: record for records in found for record in records}
        return sorted(once.values(), key=lambda record: (-(record.importance or 0.0), -record.effective_at))

    async def count_access(self, given: Sequence[Record]) -> None:
        """Count an access of each memory in the store that holds it."""
        of_user = {record.id for record in given if record.scope == "user"}
        if get_acting_account() is not None:
            own = [record.id for record in given if record.scope == SESSION_SCOPE]
            of_user |= {record.id for record in await (await self._stores.open_user()).get(own)}
        others = [record.id for record in given if record.id not in of_user]
        if of_user:
            self._accesses.note(await self._stores.open_user(), sorted(of_user))
        if others:
            self._accesses.note(await self._stores.open_project(), others)

    async def _narrow_to_type(
        self, places: Sequence[SearchPlace], relationship_type: str, wanted: RecallRequest
    ) -> list[SearchPlace]:
        """Return the places limited to memories with this relationship to an entity."""
        found = [
            await find_memories_by_type(place.store, relationship_type, forgotten=wanted.include_forgotten)
            for place in places
        ]
        if not any(found):
            self.warnings[build_type_warning(relationship_type)] = None
        return [
            replace(place, where=replace(place.where, ids=tuple(ids))) for place, ids in zip(places, found, strict=True)
        ]

    async def _look_elsewhere(self, wanted: RecallRequest) -> None:
        """Warn if another project has a close memory or entity. Only a recall that finds nothing pays for it."""
        from everkept.retrieval.other_projects import find_elsewhere, find_entity_elsewhere

        if wanted.scopes and "project" not in wanted.scopes:
            return
        library, own, limit = self._stores.library, await self._stores.open_project(), self._options.time_limit
        query, where = add_file_names(wanted.query), replace(build_where(wanted), scopes=("project",))
        if (memory := await find_elsewhere(library, own, query, MEMORY_PROFILE, where, limit)) is not None:
            self.warnings[build_elsewhere_warning(memory.project)] = None
            return
        if wanted.types or wanted.tags or wanted.min_importance or wanted.time_range or wanted.relationship_type:
            return  # an entity has none of these
        if (entity := await find_entity_elsewhere(library, own, query, limit)) is not None:
            self.warnings[build_elsewhere_warning(entity.project, entity.record.name)] = None

    async def _find_sections(self, wanted: RecallRequest) -> list[SectionHit]:
        """Search the bank. Warn if it is missing or unavailable, so that the memories are still returned."""
        if self._bank is None:
            self.warnings[ToolWarning("no_memory_bank", NO_BANK_MESSAGE)] = None
            return []
        try:
            found = await self._bank.find_sections(self._stores.call, wanted.query, wanted.limit)
        except NotFound:
            self.warnings[ToolWarning("no_memory_bank", NO_BANK_MESSAGE)] = None
            return []
        except EverkeptError as error:
            self.warnings[ToolWarning("memory_bank_unavailable", error.message)] = None
            return []
        self.warnings |= {ToolWarning("partial_results", notice): None for notice in found.notices}
        return found.hits

    async def _search(self, places: Sequence[SearchPlace], wanted: RecallRequest) -> SearchPage:
        late: list[RecordStore] = []
        if wanted.strategy != "keyword" and wanted.as_of is None:
            stores = [place.store for place in places]
            late = await wait_for_embeddings(self._indexing, stores, self._options.time_limit)
        found = await search(
            places,
            add_file_names(wanted.query),
            replace(MEMORY_PROFILE, strategy=wanted.strategy, hides_superseded=not wanted.include_superseded),
            limit=wanted.limit,
            embedder=self._indexing.embedder,
            now=self._stores.clock(),
            zone=self._options.zone,
            as_of=wanted.as_of,
            time_limit=self._options.time_limit,
            accesses=lambda place, ids: self._read_accesses(places[place].store, ids),
        )
        notices = [*found.notices, *([] if found.nearest is None else [build_nothing_notice(found.nearest)])]
        is_by_meaning = found.strategy in ("hybrid", "vector")
        language = find_language_notice(wanted.query, self._indexing.embedder) if is_by_meaning else None
        notices += [language] if language else []
        pending = await self._find_pending_notice(places, found, late) if is_by_meaning else None
        notices += [pending] if pending else []
        self.warnings |= {ToolWarning(notice.code, notice.message): None for notice in notices}
        return found

    async def _find_pending_notice(
        self, places: Sequence[SearchPlace], found: SearchPage, late: Sequence[RecordStore]
    ) -> SearchNotice | None:
        """Return a notice if memories were just stored and are not embedded yet, or if the results lack many."""
        embedder, nouns = self._indexing.embedder, ("memory", "memories")
        if late:
            return await find_pending_notice(late, embedder, MEMORY, nouns, least_share=0.0)
        if found.hits and all(hit.nearness is not None for hit in found.hits):
            return None
        behind = [place.store for place in places if self._indexing.is_behind(place.store)]
        return await find_pending_notice(behind, embedder, MEMORY, nouns, MIN_PENDING_MEMORIES)

    async def _read_accesses(self, store: RecordStore, ids: Sequence[str]) -> Mapping[str, AccessCount]:
        found = await self._accesses.read_accesses(store, ids)
        self._known.setdefault(store, {}).update((i, found.get(i)) for i in ids)
        return found

    async def _open_places(self, wanted: RecallRequest, *, or_none: bool = False) -> list[SearchPlace]:
        """Open the stores to search. Warn if the user's store is unavailable, so that project memories are still found.

        With `or_none`, warn even if only the user's store was requested.
        """
        where = build_where(wanted)
        scopes = tuple(wanted.scopes) or SCOPES
        of_project = tuple(scope for scope in scopes if scope in PROJECT_SCOPES)
        # The session memories of an account without write access are in its user store.
        of_user = USER_SCOPES if get_acting_account() is None else (*USER_SCOPES, SESSION_SCOPE)
        of_user = tuple(scope for scope in scopes if scope in of_user)
        places: list[SearchPlace] = []
        if of_project and wanted.all_projects:
            from everkept.retrieval.other_projects import open_all_projects

            for project, store in await open_all_projects(self._stores.library):
                self._project_names[store] = project.name
                places.append(SearchPlace(store, replace(where, scopes=of_project)))
        elif of_project:
            store = await self._stores.open_project()
            places.append(SearchPlace(store, replace(where, scopes=of_project)))
        if of_user:
            try:
                store = await self._stores.open_user()
                places.append(SearchPlace(store, replace(where, scopes=of_user)))
            except Unavailable as error:
                if not places and not or_none:
                    raise
                self.warnings[ToolWarning("user_scope_unavailable", error.message)] = None
        return places

    async def _build_views(
        self, places: Sequence[SearchPlace], hits: Sequence[SearchHit], *, explain: bool
    ) -> list[MemoryView]:
        known: dict[str, AccessCount] = {}
        linked: dict[str, list[LinkedEntity]] = {}
        for number, place in enumerate(places):
            records = [hit.record for hit in hits if hit.place == number]
            known |= await self._count_given_out(place.store, [record.id for record in records])
            linked |= await list_linked_entities(place.store, records) if explain else {}
        return [
            MemoryView.from_record(
                hit.record,
                hit.score,
                known.get(hit.record.id),
                hit.why if explain else None,
                linked.get(hit.record.id),
                self._project_names.get(places[hit.place].store),
                hit.duplicates,
            )
            for hit in hits
        ]

    async def _count_given_out(self, store: RecordStore, ids: Sequence[str]) -> dict[str, AccessCount]:
        """Count an access of these memories and return the earlier counts, which the ranking has usually read."""
        known = self._known.get(store, {})
        if not all(i in known for i in ids):
            return await count_given_out(self._accesses, store, ids)
        self._accesses.note(store, ids)
        return {i: access for i in ids if (access := known[i]) is not None}


async def count_given_out(accesses: AccessCounter, store: RecordStore, ids: Sequence[str]) -> dict[str, AccessCount]:
    """Return the earlier access counts of these memories, and count one more access."""
    if not ids:
        return {}
    known = dict(await accesses.read_accesses(store, ids))
    accesses.note(store, ids)
    return known


def build_where(wanted: RecallRequest) -> RecordFilter:
    span = wanted.time_range or TimeRange()
    return RecordFilter(
        kinds=(MEMORY,),
        types=tuple(wanted.types),
        visible_to=wanted.session or NO_SESSION,
        tags=tuple(tag.strip() for tag in wanted.tags),
        min_importance=wanted.min_importance or None,
        after=span.after,
        before=span.before,
        deleted=None if wanted.include_forgotten else False,
    )


def build_nothing_notice(nearest: SearchHit) -> SearchNotice:
    """Return the notice that no memory is relevant, with the nearest one."""
    quoted = clip_text(" ".join(nearest.record.text.split()), MAX_QUOTED_CHARACTERS)
    message = f'No memory fits the query. The nearest one is {nearest.record.id}: "{quoted}"'
    return SearchNotice(NOTHING_CODE, message)


def build_type_warning(relationship_type: str) -> ToolWarning:
    message = f'No relationship has the type "{relationship_type}". Omit `relationship_type` to see all.'
    return ToolWarning("no_such_relationship", message)


MAX_FILES = 100  # whose memories are read
MAX_FILE_MEMORIES = 200  # of all files, in each store
_FILES_ONLY = Weights(name=1.0, text=0.0, context=0.0)  # the name of a memory is the file that it is about
_PATH_SEPARATOR = re.compile(r"[\\/]+")


def split_path(path: str) -> list[str]:
    """Return the parts of a path of any system, in lower case."""
    return [part for part in _PATH_SEPARATOR.split(path.strip().casefold()) if part not in ("", ".")]


def is_same_file(one: Sequence[str], other: Sequence[str]) -> bool:
    """Return whether two split paths may name the same file: one of them may start further down."""
    size = min(len(one), len(other))
    return size > 0 and list(one[-size:]) == list(other[-size:])


def add_file_names(query: str) -> str:
    """Add the names of the files to a query that has their paths, because a memory may have a shorter path."""
    if "/" not in query and "\\" not in query:
        return query
    paths = (split_path(word.strip("`'\"(),;:?!")) for word in query.split())
    names = [path[-1] for path in paths if len(path) > 1 and "." in path[-1][1:-1]]
    is_expression = bool(names) and parse_query(query).expression is not None
    return query if is_expression else " ".join([query, *dict.fromkeys(names)])


async def _find_by_files(place: SearchPlace, files: Sequence[str]) -> list[Record]:
    paths = [path for path in map(split_path, files[:MAX_FILES]) if path]
    # With its folder, a file comes before others of the same name.
    named = dict.fromkeys(tuple(split_tokens(fold("/".join(path[-size:])))) for path in paths for size in (2, 1))
    phrases = tuple(WordPhrase(words) for words in named if words)
    if not phrases:
        return []
    found = await place.store.match(AnyOf(phrases), place.where, _FILES_ONLY, MAX_FILE_MEMORIES)
    records = await place.store.get([match.id for match in found if match.score > 0])
    return [r for r in records if any(is_same_file(split_path(r.name or ""), path) for path in paths)]
