"""The ten tools: memories of a session, a project and a user."""

from typing import Annotated

from everkept.core.answers import SectionSearch
from everkept.core.ports import AccessBook, Indexing, Library, ProjectChoice
from everkept.core.records import SESSION_SCOPE
from everkept.core.secrets import Masking
from everkept.core.sessions import Call, signed
from everkept.core.times import Clock
from everkept.families.memories.consolidation import ReflectStrategy
from everkept.families.memories.context import HEADINGS, Section, context_block, gather
from everkept.families.memories.lifecycle import Promotion
from everkept.families.memories.memories import Memories
from everkept.families.memories.memory_documents import MemoryStatus, memory_status
from everkept.families.memories.memory_record import Amendment, NewMemory
from everkept.families.memories.model import (
    DEFAULT_IMPORTANCE,
    METADATA_LIMIT,
    PATH_LIMIT,
    Author,
    Content,
    EntityChange,
    ForgottenMemory,
    Importance,
    InProject,
    KnowledgeGraph,
    MemoryContext,
    MemoryId,
    MemoryType,
    OccurredAt,
    Options,
    Pinned,
    Promotable,
    PromotedMemory,
    Reason,
    RecalledMemories,
    RelatedEntities,
    Scope,
    SessionId,
    Source,
    StoredMemory,
    Strategy,
    Tag,
    TagChange,
    TaggedMemory,
    Tags,
    TimeRange,
    UpdatedMemory,
)
from everkept.families.memories.recall import Recall, Route, Wanted, Way, walk
from everkept.families.memories.reflection import Reflected, reflect
from everkept.families.memories.stores import Stores, Uses, required_session, session_of
from everkept.graph.entities import NAME_LIMIT
from everkept.tools.schema import JSON, Field
from everkept.tools.tool import Effect, Family, tool

QUERY_LIMIT = 10_000  # characters

Type = Annotated[
    MemoryType,
    Field(
        "Event, fact, how-to, or short-lived.",
        name="type",
        aliases=("memory_type",),
    ),
]
ManyTypes = Annotated[
    list[MemoryType],
    Field("Default all.", name="type", aliases=("memory_type",), one_or_more=True, max_items=10),
]
ManyScopes = Annotated[list[Scope], Field("Default all.", one_or_more=True, max_items=10)]


class MemoryTools(Family):
    """What an assistant remembers, from one remark to a lasting preference."""

    def __init__(
        self,
        choice: ProjectChoice,
        library: Library,
        indexing: Indexing,
        accesses: AccessBook,
        clock: Clock,
        options: Options,
        bank: SectionSearch | None = None,
    ) -> None:
        self._bank = bank
        self._choice = choice
        self._library = library
        self._indexing = indexing
        self._accesses = accesses
        self._clock = clock
        self._options = options
        self.uses = Uses()

    @tool(Effect.REPEATABLE)
    async def store_memory(
        self,
        call: Call,
        content: Content,
        memory_type: Type,
        scope: Annotated[Scope, Field("How far it reaches; user: all projects.")],
        importance: Importance = DEFAULT_IMPORTANCE,
        tags: Tags | None = None,
        source: Annotated[Source, Field("Where it comes from.")] | None = None,
        related_entities: RelatedEntities | None = None,
        session_id: SessionId | None = None,
        author: Author | None = None,
        occurred_at: OccurredAt | None = None,
        pinned: Pinned | None = None,
        supersedes: Annotated[
            str, Field("Id of what it replaces.", max_length=NAME_LIMIT, blank=False)
        ]
        | None = None,
        project: InProject | None = None,
    ) -> StoredMemory:
        """Store a memory: a decision, preference, fact or procedure worth keeping."""
        find_session = required_session if scope == SESSION_SCOPE else session_of
        wanted = NewMemory(
            content=content,
            type=memory_type,
            scope=scope,
            importance=importance,
            session=find_session(call, session_id, self._options),
            tags=tags or (),
            source=source or Source(),
            entities=related_entities or (),
            author=signed(author or "") or None,
            occurred_at=occurred_at,
            pinned=bool(pinned),
            supersedes=supersedes,
        )
        return await self._memories(call, project, session_id).store(wanted)

    @tool()
    async def recall_memories(
        self,
        call: Call,
        query: Annotated[str, Field("What to look for.", max_length=QUERY_LIMIT)],
        scope: ManyScopes | None = None,
        memory_type: ManyTypes | None = None,
        strategy: Annotated[Strategy, Field("How to search.")] = "hybrid",
        limit: Annotated[int, Field("At most.", ge=1, le=50)] = 10,
        min_importance: Importance = 0,
        tags: Annotated[list[Tag], Field("With any of these.", max_items=100)] | None = None,
        time_range: Annotated[TimeRange, Field("When it happened.")] | None = None,
        include_forgotten: Annotated[bool, Field("Forgotten ones too.")] = False,
        session_id: SessionId | None = None,
        as_of: Annotated[int, Field("As known then.", moment=True)] | None = None,
        explain: Annotated[bool, Field("Say why.")] | None = None,
        include_bank: Annotated[bool, Field("Search the memory bank too.")] | None = None,
        project: InProject | None = None,
    ) -> RecalledMemories:
        """Find memories by meaning and words, best first. Call it before work on a topic."""
        find_session = required_session if scope == [SESSION_SCOPE] else session_of
        session = find_session(call, session_id, self._options)
        wanted = Wanted(
            query=query,
            session=session,
            scopes=scope or (),
            types=memory_type or (),
            strategy=strategy,
            limit=limit,
            min_importance=min_importance,
            tags=tags or (),
            time_range=time_range,
            include_forgotten=include_forgotten,
            as_of=as_of,
            explain=bool(explain),
            include_bank=bool(include_bank),
        )
        answer = await self._recall(call, project).recall(wanted)
        self.uses.recalled(session, [memory.id for memory in answer.memories])
        return answer

    @tool()
    async def search_knowledge_graph(
        self,
        call: Call,
        entity: Annotated[
            str,
            Field("Name; none for an overview.", aliases=("query",), max_length=NAME_LIMIT * 2),
        ]
        | None = None,
        relationship_type: Annotated[str, Field("Only such edges.", max_length=NAME_LIMIT)]
        | None = None,
        direction: Annotated[Way, Field("Of edges.")] = "both",
        depth: Annotated[int, Field("Hops.", ge=1, le=3)] = 1,
        include_memories: Annotated[bool, Field("Add linked memories.")] = True,
        limit: Annotated[int, Field("At most.", ge=1, le=100)] = 20,
        project: InProject | None = None,
    ) -> KnowledgeGraph:
        """Walk from an entity to those related to it, with the memories about them."""
        route = Route(
            entity=(entity or "").strip() or None,
            relationship_type=relationship_type,
            direction=direction,
            depth=depth,
            include_memories=include_memories,
            limit=limit,
        )
        session = session_of(call, None, self._options)
        return await walk(self._stores(call, project), self._accesses, route, session)

    @tool(Effect.DESTROYS)
    async def forget_memory(
        self,
        call: Call,
        memory_id: MemoryId,
        reason: Reason | None = None,
        project: InProject | None = None,
    ) -> ForgottenMemory:
        """Forget a memory; recall leaves it out."""
        return await self._memories(call, project).forget(memory_id, reason)

    @tool(Effect.REPEATABLE)
    async def update_memory(
        self,
        call: Call,
        memory_id: MemoryId,
        content: Content | None = None,
        importance: Importance | None = None,
        tags: Annotated[TagChange | list[Tag], Field("Labels.")] | None = None,
        metadata: Annotated[JSON, Field("Keys to merge.", max_length=METADATA_LIMIT)] | None = None,
        related_entities: Annotated[EntityChange, Field("Links to change.")] | None = None,
        pinned: Pinned | None = None,
        project: InProject | None = None,
    ) -> UpdatedMemory:
        """Change a memory; its former versions are kept."""
        amendment = Amendment(
            content=content,
            importance=importance,
            tags=tags,
            metadata=metadata,
            entities=related_entities,
            pinned=pinned,
        )
        return await self._memories(call, project).update(memory_id, amendment)

    @tool(Effect.REPEATABLE)
    async def reflect_and_consolidate(
        self,
        call: Call,
        session_id: SessionId | None = None,
        strategy: Annotated[ReflectStrategy, Field("Topics, recurring themes, or both.")] = "full",
        dry_run: Annotated[bool, Field("Only report.")] = False,
        project: InProject | None = None,
    ) -> Reflected:
        """Sum up a session's memories by topic and find recurring themes."""
        stores = self._stores(call, project)
        places = (await stores.project(), await stores.user())
        reflected = await reflect(
            places,
            required_session(call, session_id, self._options),
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
        return reflected

    @tool()
    async def get_memory_status(self, call: Call, project: InProject | None = None) -> MemoryStatus:
        """Show counts, storage and the current session."""
        session = session_of(call, None, self._options)
        stores = self._stores(call, project)
        return await memory_status(stores, self._indexing, self._options, session)

    @tool()
    async def get_memory_context(
        self,
        call: Call,
        task_description: Annotated[str, Field("The work at hand.", max_length=QUERY_LIMIT)]
        | None = None,
        files_in_context: Annotated[
            list[Annotated[str, Field(max_length=PATH_LIMIT)]], Field("Paths.", max_items=1_000)
        ]
        | None = None,
        max_tokens: Annotated[int, Field("Budget.", ge=100, le=8_000)] = 2_000,
        sections: Annotated[list[Section], Field("Default all.", max_items=10)] | None = None,
        project: InProject | None = None,
    ) -> MemoryContext:
        """Get what is known for a task as one Markdown block."""
        session = session_of(call, None, self._options)
        recall = self._recall(call, project)
        found = await gather(
            lambda query, scopes, types, importance, limit: recall.records(
                Wanted(query, session, scopes, types, limit=limit, min_importance=importance)
            ),
            lambda where, limit: recall.newest(where, session, limit),
            task_description,
            files_in_context or (),
            sections or tuple(HEADINGS),
        )
        block = context_block(found, max_tokens, self._clock())
        await recall.note(block.used)
        self.uses.recalled(session, [record.id for record in block.used])
        return MemoryContext(
            block.text,
            len(block.used),
            block.tokens,
            block.truncated,
            warnings=list(recall.warnings) or None,
        )

    @tool(Effect.WRITES)
    async def promote_memory(
        self,
        call: Call,
        memory_id: MemoryId,
        target_scope: Annotated[Promotable, Field("Broader than it has.")],
        reason: Reason | None = None,
        project: InProject | None = None,
    ) -> PromotedMemory:
        """Give a memory a broader scope."""
        masking = Masking(enabled=self._options.mask_secrets)
        stores = self._stores(call, project)
        promotion = Promotion(stores, self._indexing, self._accesses, masking)
        return await promotion.promote(memory_id, target_scope, reason)

    @tool(Effect.REPEATABLE)
    async def tag_memory(
        self,
        call: Call,
        memory_id: MemoryId,
        add: Annotated[list[Tag], Field("Tags.", aliases=("tags",), max_items=100)] | None = None,
        remove: Annotated[list[Tag], Field("Tags.", max_items=100)] | None = None,
        project: InProject | None = None,
    ) -> TaggedMemory:
        """Add and remove tags."""
        change = TagChange(add, remove)
        return await self._memories(call, project).tag(memory_id, change)

    def _memories(self, call: Call, project: str | None, session: str | None = None) -> Memories:
        stores = self._stores(call, project, session)
        return Memories(stores, self._indexing, self._options, self.uses)

    def _recall(self, call: Call, project: str | None) -> Recall:
        stores = self._stores(call, project)
        return Recall(stores, self._indexing, self._accesses, self._options, self._bank)

    def _stores(self, call: Call, project: str | None, session: str | None = None) -> Stores:
        # A person at the command line is no session, whatever the environment says of one.
        talks = call.session.is_conversation
        reaching = session_of(call, session, self._options) if talks else None
        return Stores(self._choice, self._library, call, project, self._clock, reaching)
