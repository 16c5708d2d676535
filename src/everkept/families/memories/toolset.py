"""The memory tools: memories of a session, a project and a user."""

from typing import Annotated

from everkept.core.answers import SectionSearch
from everkept.core.ports import AccessCounter, Library, ProjectChoice, VectorIndexer
from everkept.core.records import SESSION_SCOPE
from everkept.core.secrets import Masker
from everkept.core.sessions import ToolCall, format_signature
from everkept.core.text import clip_text
from everkept.core.times import Clock
from everkept.families.memories.consolidation import ReflectStrategy
from everkept.families.memories.context import HEADINGS, ContextSection, build_context_block, gather_candidates
from everkept.families.memories.graph_walk import GraphRoute, WalkDirection, walk_graph
from everkept.families.memories.lifecycle import MemoryPromotion
from everkept.families.memories.memories import MemoryWriter
from everkept.families.memories.memory_documents import MemoryStatus, read_memory_status
from everkept.families.memories.memory_record import Amendment, NewMemory
from everkept.families.memories.model import (
    CONTENT_LIMIT,
    DEFAULT_IMPORTANCE,
    METADATA_LIMIT,
    PATH_LIMIT,
    Author,
    Content,
    EntityChange,
    ForgottenMemory,
    Importance,
    InProject,
    MemoryContext,
    MemoryGraph,
    MemoryId,
    MemoryOptions,
    MemorySource,
    MemoryType,
    OccurredAt,
    Pinned,
    PromotedMemory,
    PromotionTarget,
    Reason,
    RecalledMemories,
    RelatedEntities,
    Scope,
    SessionId,
    StoredMemory,
    Strategy,
    Tag,
    TagChange,
    TaggedMemory,
    Tags,
    TimeRange,
    UpdatedMemory,
)
from everkept.families.memories.recall import MemoryRecall, RecallRequest
from everkept.families.memories.reflection import ReflectionResult, reflect_session
from everkept.families.memories.stores import (
    MemoryStores,
    SessionUses,
    get_session_id,
    is_known_session,
    require_session_id,
)
from everkept.graph.entities import MAX_NAME_CHARACTERS
from everkept.tools.schema import JSON, Field
from everkept.tools.tool import Effect, ToolFamily, ToolWarning, tool
from everkept.values import replace

QUERY_LIMIT = 10_000  # characters
STRATEGIES = (
    "hybrid: words and meaning; keyword: words; vector: meaning; "
    "graph: around the entities the query names; default hybrid"
)
REFLECT_STRATEGIES = "summarize: by topic; extract_patterns: recurring themes; full: both; default full"

Type = Annotated[
    MemoryType,
    Field("Fact or decision (default); event; how-to; short-lived note", name="type", aliases=("memory_type",)),
]
ManyTypes = Annotated[
    list[MemoryType],
    Field(
        "Only these types; default: all",
        name="type",
        aliases=("memory_type",),
        one_or_more=True,
        max_items=10,
        listed=False,
    ),
]
ManyScopes = Annotated[list[Scope], Field("Scopes to search; default: all", one_or_more=True, max_items=10)]


class MemoryTools(ToolFamily):
    """Tools for memories, from a single remark to a lasting preference."""

    def __init__(
        self,
        choice: ProjectChoice,
        library: Library,
        indexing: VectorIndexer,
        accesses: AccessCounter,
        clock: Clock,
        options: MemoryOptions,
        bank: SectionSearch | None = None,
    ) -> None:
        self._bank = bank
        self._choice = choice
        self._library = library
        self._indexing = indexing
        self._accesses = accesses
        self._clock = clock
        self._options = options
        self.uses = SessionUses()

    @tool(Effect.REPEATABLE)
    async def store_memory(
        self,
        call: ToolCall,
        content: Content,
        memory_type: Type = "semantic",
        scope: Annotated[
            Scope, Field("Recalled in this session, this project (default), or all projects (user)")
        ] = "project",
        importance: Importance = DEFAULT_IMPORTANCE,
        tags: Tags | None = None,
        source: Annotated[MemorySource, Field("Where it comes from", listed=False)] | None = None,
        related_entities: RelatedEntities | None = None,
        session_id: SessionId | None = None,
        author: Author | None = None,
        occurred_at: OccurredAt | None = None,
        pinned: Pinned | None = None,
        supersedes: Annotated[str, Field("Id of the memory it replaces", max_length=MAX_NAME_CHARACTERS, blank=False)]
        | None = None,
        metadata: Annotated[JSON, Field("Your own keys, kept with it", max_length=METADATA_LIMIT, listed=False)]
        | None = None,
        project: InProject | None = None,
    ) -> StoredMemory:
        """Save a lasting decision, preference, fact or procedure. Not for secrets or current task state."""
        find_session = require_session_id if scope == SESSION_SCOPE else get_session_id
        wanted = NewMemory(
            content=content,
            type=memory_type,
            scope=scope,
            importance=importance,
            session=find_session(call, session_id, self._options),
            tags=tags or (),
            source=source or MemorySource(),
            entities=related_entities or (),
            author=format_signature(author or "") or None,
            occurred_at=occurred_at,
            pinned=bool(pinned),
            supersedes=supersedes,
            metadata=metadata,
        )
        return await self._build_writer(call, project, session_id).store(wanted)

    @tool(view="memories")
    async def recall_memories(
        self,
        call: ToolCall,
        query: Annotated[str, Field("Question; dates like last week work", max_length=QUERY_LIMIT, blank=False)],
        scope: ManyScopes | None = None,
        memory_type: ManyTypes | None = None,
        strategy: Annotated[Strategy, Field(STRATEGIES, listed=False)] = "hybrid",
        limit: Annotated[int, Field("Results, 1 to 50, default 10", ge=1, le=50)] = 10,
        min_importance: Annotated[
            float, Field("Only memories at least this important, 0 to 1, default 0", ge=0, le=1, listed=False)
        ] = 0,
        tags: Annotated[list[Tag], Field("With any of these tags", max_items=100)] | None = None,
        time_range: Annotated[TimeRange, Field("Only what happened in this range", listed=False)] | None = None,
        relationship_type: Annotated[
            str, Field("Only with this relationship to an entity", max_length=MAX_NAME_CHARACTERS, listed=False)
        ]
        | None = None,
        include_forgotten: Annotated[
            bool, Field("true: include forgotten memories; default false", listed=False)
        ] = False,
        include_superseded: Annotated[
            bool, Field("true: include older versions of updated facts; default false", listed=False)
        ] = False,
        session_id: SessionId | None = None,
        as_of: Annotated[int, Field("Search what was stored at this time, ISO 8601", moment=True, listed=False)]
        | None = None,
        explain: Annotated[
            bool, Field("true: add `why` (parts of the score) and `related_entities`; default false", listed=False)
        ]
        | None = None,
        include_bank: Annotated[bool, Field("true: search the memory bank's files too; default false", listed=False)]
        | None = None,
        all_projects: Annotated[
            bool, Field("true: search the memories of all projects; default false", listed=False)
        ] = False,
        project: InProject | None = None,
    ) -> RecalledMemories:
        """Search saved decisions, preferences, facts and procedures. Call it before you work on a topic.
        For past chats use recall_previous_discussions."""
        find_session = require_session_id if scope == [SESSION_SCOPE] else get_session_id
        session = find_session(call, session_id, self._options)
        wanted = RecallRequest(
            query=query,
            session=session,
            scopes=scope or (),
            types=memory_type or (),
            strategy=strategy,
            limit=limit,
            min_importance=min_importance,
            tags=tags or (),
            time_range=time_range,
            relationship_type=relationship_type,
            include_forgotten=include_forgotten,
            include_superseded=include_superseded,
            as_of=as_of,
            explain=bool(explain),
            include_bank=bool(include_bank),
            all_projects=all_projects,
        )
        answer = await self._build_recall(call, project).recall(wanted)
        self.uses.count_recall(session, [memory.id for memory in answer.memories])
        return answer

    @tool(view="graph")
    async def search_knowledge_graph(
        self,
        call: ToolCall,
        entity: Annotated[
            str, Field("Entity name; omit for an overview", aliases=("query",), max_length=MAX_NAME_CHARACTERS * 2)
        ]
        | None = None,
        relationship_type: Annotated[
            str,
            Field(
                "Only relations and memory links of this type, such as depends_on",
                max_length=MAX_NAME_CHARACTERS,
                listed=False,
            ),
        ]
        | None = None,
        direction: Annotated[WalkDirection, Field("Relations to follow; default both", listed=False)] = "both",
        depth: Annotated[int, Field("Hops, 1 to 3, default 1", ge=1, le=3)] = 1,
        include_memories: Annotated[bool, Field("false: return entities only; default true", listed=False)] = True,
        include_forgotten: Annotated[
            bool, Field("true: include forgotten memories and their stale links; default false", listed=False)
        ] = False,
        limit: Annotated[
            int, Field("Maximum entities, and maximum memories, 1 to 100, default 20", ge=1, le=100, listed=False)
        ] = 20,
        project: InProject | None = None,
    ) -> MemoryGraph:
        """Follow relations from an entity to its neighbors and their memories.
        To find entities by words use search_nodes."""
        route = GraphRoute(
            entity=(entity or "").strip() or None,
            relationship_type=relationship_type,
            direction=direction,
            depth=depth,
            include_memories=include_memories,
            include_forgotten=include_forgotten,
            limit=limit,
        )
        stores, session = self._build_stores(call, project), get_session_id(call, None, self._options)
        return await walk_graph(stores, self._accesses, route, session, self._options.time_limit)

    @tool(Effect.DESTROYS)
    async def forget_memory(
        self, call: ToolCall, memory_id: MemoryId, reason: Reason | None = None, project: InProject | None = None
    ) -> ForgottenMemory:
        """Hide a wrong or unwanted memory from recall. The user can undo it."""
        return await self._build_writer(call, project).forget(memory_id, reason)

    @tool(Effect.REPEATABLE)
    async def update_memory(
        self,
        call: ToolCall,
        memory_id: MemoryId,
        content: Annotated[str, Field("New text", max_length=CONTENT_LIMIT, blank=False)] | None = None,
        importance: Annotated[float, Field("New importance, 0 to 1", ge=0, le=1, listed=False)] | None = None,
        tags: Annotated[TagChange | list[Tag], Field("Tags to add and remove", listed=False)] | None = None,
        metadata: Annotated[
            JSON, Field("Keys to merge into the memory's metadata", max_length=METADATA_LIMIT, listed=False)
        ]
        | None = None,
        related_entities: Annotated[EntityChange, Field("Entity links to add and remove", listed=False)] | None = None,
        pinned: Pinned | None = None,
        project: InProject | None = None,
    ) -> UpdatedMemory:
        """Correct a mistake in a memory. If the fact itself changed, call store_memory with supersedes."""
        amendment = Amendment(
            content=content,
            importance=importance,
            tags=tags,
            metadata=metadata,
            entities=related_entities,
            pinned=pinned,
        )
        return await self._build_writer(call, project).update(memory_id, amendment)

    @tool(Effect.REPEATABLE)
    async def reflect_and_consolidate(
        self,
        call: ToolCall,
        session_id: SessionId | None = None,
        strategy: Annotated[ReflectStrategy, Field(REFLECT_STRATEGIES, listed=False)] = "full",
        dry_run: Annotated[bool, Field("true: only report; default false", listed=False)] = False,
        project: InProject | None = None,
    ) -> ReflectionResult:
        """Summarize this session's memories and save recurring themes; originals stay. Use after long work."""
        stores = self._build_stores(call, project)
        places = (await stores.open_project(), await stores.open_user())
        session = require_session_id(call, session_id, self._options)
        reflected = await reflect_session(
            places,
            session,
            strategy=strategy,
            dry_run=dry_run,
            indexing=self._indexing,
            writer=stores.writer,
            time_limit=self._options.time_limit,
            user=places[1],
        )
        if not dry_run:
            for store in places:
                self._indexing.wake(store)
        if session_id is None or await is_known_session(places, session):
            return reflected
        unknown = ToolWarning("unknown_session", f'Session "{clip_text(session)}" is unknown: it stored no memories.')
        return replace(reflected, warnings=[*(reflected.warnings or ()), unknown])

    @tool()
    async def get_memory_status(
        self, call: ToolCall, session_id: SessionId | None = None, project: InProject | None = None
    ) -> MemoryStatus:
        """Show memory counts, storage health and the current session."""
        session = get_session_id(call, session_id, self._options)
        stores = self._build_stores(call, project)
        return await read_memory_status(stores, self._indexing, self._options, session)

    @tool()
    async def get_memory_context(
        self,
        call: ToolCall,
        task_description: Annotated[str, Field("The task in a sentence", max_length=QUERY_LIMIT)] | None = None,
        files_in_context: Annotated[
            list[Annotated[str, Field(max_length=PATH_LIMIT)]],
            Field("Paths of the files you work on", max_items=1_000, listed=False),
        ]
        | None = None,
        max_tokens: Annotated[
            int, Field("Size limit, 100 to 8000, default 2000", ge=100, le=8_000, listed=False)
        ] = 2_000,
        sections: Annotated[
            list[ContextSection], Field("Sections to include; default: all", max_items=10, listed=False)
        ]
        | None = None,
        project: InProject | None = None,
    ) -> MemoryContext:
        """Get what is known about the user, project and task as Markdown.
        Use at a task's start, or if asked what you know."""
        session = get_session_id(call, None, self._options)
        recall = self._build_recall(call, project)
        found = await gather_candidates(
            lambda query, scopes, types, importance, limit: recall.find_records(
                RecallRequest(query, session, scopes, types, limit=limit, min_importance=importance)
            ),
            lambda where, limit: recall.find_newest(where, session, limit),
            task_description,
            files_in_context or (),
            sections or tuple(HEADINGS),
            await recall.find_by_files(files_in_context, session) if files_in_context else (),
        )
        block = build_context_block(found, max_tokens, self._clock())
        await recall.count_access(block.used)
        self.uses.count_recall(session, [record.id for record in block.used])
        return MemoryContext(
            block.text, len(block.used), block.tokens, block.truncated, warnings=list(recall.warnings) or None
        )

    @tool(Effect.WRITES)
    async def promote_memory(
        self,
        call: ToolCall,
        memory_id: MemoryId,
        target_scope: Annotated[PromotionTarget, Field("New scope")],
        reason: Reason | None = None,
        project: InProject | None = None,
    ) -> PromotedMemory:
        """Move a memory to a wider scope: session to project, or either to user."""
        masking = Masker(enabled=self._options.mask_secrets)
        stores = self._build_stores(call, project)
        promotion = MemoryPromotion(stores, self._indexing, self._accesses, masking)
        return await promotion.promote(memory_id, target_scope, reason)

    @tool(Effect.REPEATABLE)
    async def tag_memory(
        self,
        call: ToolCall,
        memory_id: MemoryId,
        add: Annotated[list[Tag], Field("Tags to add", aliases=("tags",), max_items=100)] | None = None,
        remove: Annotated[list[Tag], Field("Tags to remove", max_items=100)] | None = None,
        project: InProject | None = None,
    ) -> TaggedMemory:
        """Add or remove a memory's tags."""
        change = TagChange(add, remove)
        return await self._build_writer(call, project).tag(memory_id, change)

    def _build_writer(self, call: ToolCall, project: str | None, session: str | None = None) -> MemoryWriter:
        stores = self._build_stores(call, project, session)
        return MemoryWriter(stores, self._indexing, self._options, self.uses)

    def _build_recall(self, call: ToolCall, project: str | None) -> MemoryRecall:
        stores = self._build_stores(call, project)
        return MemoryRecall(stores, self._indexing, self._accesses, self._options, self._bank)

    def _build_stores(self, call: ToolCall, project: str | None, session: str | None = None) -> MemoryStores:
        # The command line is not a session, even if the environment names one.
        talks = call.session.is_conversation
        reaching = get_session_id(call, session, self._options) if talks else None
        return MemoryStores(self._choice, self._library, call, project, self._clock, reaching)
