"""Arguments and results of the memory tools, in the form that clients see."""

from collections.abc import Mapping
from datetime import UTC, tzinfo
from typing import Annotated, Any, ClassVar, Literal, cast

from everkept.core.answers import SectionHit
from everkept.core.ports import AccessCount
from everkept.core.records import SESSION_SCOPE, Record, Weights
from everkept.core.times import format_iso
from everkept.families.memories.memory_identity import MEMORY as MEMORY
from everkept.families.memories.memory_identity import SESSION as SESSION
from everkept.graph.entities import MAX_NAME_CHARACTERS
from everkept.retrieval.profile import SUPERSEDED_BY as SUPERSEDED_BY
from everkept.retrieval.profile import Priors, SearchProfile
from everkept.tools.schema import Field
from everkept.tools.tool import ToolWarning
from everkept.values import Value

DERIVED_FROM = "derived_from"  # verb of the link from a summary to its sources
SUPERSEDES = "supersedes"  # verb of the link from a fact to the one it replaces, and facet
MERGED_INTO = "merged_into"  # facet of a memory whose text already existed in the scope it was promoted to
PROMOTED_FACET = "promoted"  # facet: origin and version of a promoted memory
NOTHING_CODE = "nothing_fits"  # warning: no memory is relevant enough
AUTOMATIC = "automatic"  # facet of a memory that a hook stored

Scope = Literal["session", "project", "user"]
MemoryType = Literal["semantic", "episodic", "procedural", "working"]  # the most used first
Strategy = Literal["vector", "keyword", "hybrid", "graph"]
PromotionTarget = Literal["project", "user"]
SCOPES: tuple[Scope, ...] = ("session", "project", "user")  # narrowest first

CONTENT_LIMIT = 100_000  # characters
MAX_TAGS = 50  # of one memory
MAX_TAG_CHARACTERS = 100
ENTITIES_LIMIT = 100  # in one call
METADATA_LIMIT = 20_000  # characters of JSON
REASON_LIMIT = 2_000  # characters
PATH_LIMIT = 4_000  # characters
DEFAULT_IMPORTANCE = 0.5
DEFAULT_RELATIONSHIP = "about"  # of a memory to an entity of which only the name is given

MEMORY_PROFILE = SearchProfile(
    kinds=(MEMORY,),
    weights=Weights(context=0.5),  # text just before and after the match
    reading="any",
    strategy="hybrid",
    priors=Priors(importance=0.5, recency=0.3),
    folds_duplicates=True,
    hides_superseded=True,
    half_lives={"working": 1 / 24, "episodic": 1.0, "semantic": 7.0, "procedural": 30.0},
)

Tag = Annotated[str, Field(max_length=MAX_TAG_CHARACTERS, blank=False)]
SessionId = Annotated[
    str, Field("Session id; default: the current session", max_length=MAX_NAME_CHARACTERS, blank=False, listed=False)
]
MemoryId = Annotated[str, Field("Id from recall_memories", max_length=MAX_NAME_CHARACTERS, blank=False)]
InProject = Annotated[str, Field("Project name; default: the active project", listed=False)]
Content = Annotated[str, Field("One self-contained statement", max_length=CONTENT_LIMIT, blank=False)]
Importance = Annotated[float, Field("0 to 1, default 0.5", ge=0, le=1)]
Tags = Annotated[list[Tag], Field("Labels, such as decision", max_items=MAX_TAGS)]
Reason = Annotated[str, Field("Why; stored with the memory", max_length=REASON_LIMIT, listed=False)]
Author = Annotated[
    str, Field("Name of the person who said it", max_length=MAX_NAME_CHARACTERS, blank=False, listed=False)
]
OccurredAt = Annotated[int, Field("When it happened, ISO 8601; default: now", moment=True, listed=False)]
Pinned = Annotated[bool, Field("true: it never fades and comes first in context blocks", listed=False)]


class MemoryOptions(Value):
    """Settings that apply to all calls."""

    mask_secrets: bool = True
    max_per_session: int = 100
    time_limit: float | None = 2.0  # seconds for a search
    session_id: str | None = None  # of the one client of a process
    started_at: int = 0
    zone: tzinfo = UTC  # time zone for words such as "yesterday"


class MemorySource(Value):
    """Origin of a memory."""

    tool: Annotated[str, Field("Tool that produced it", max_length=MAX_NAME_CHARACTERS)] | None = None
    file: Annotated[str, Field("Path of the file", max_length=PATH_LIMIT)] | None = None
    conversation_turn: int | None = None

    def to_facts(self) -> dict[str, Any]:
        given = {"tool": self.tool, "file": self.file, "conversation_turn": self.conversation_turn}
        return {name: value for name, value in given.items() if value is not None}


class RelatedEntity(Value):
    """Entity that a memory is about, and its relationship to it. A plain text is its name.

    Without a type, it is the entity of that name.
    """

    text_field: ClassVar = "name"

    name: Annotated[str, Field(max_length=MAX_NAME_CHARACTERS, blank=False)]
    type: (
        Annotated[str, Field(aliases=("entity_type", "entityType"), max_length=MAX_NAME_CHARACTERS, blank=False)] | None
    ) = None
    relationship: Annotated[
        str, Field(aliases=("relation_type", "relationType"), max_length=MAX_NAME_CHARACTERS, blank=False)
    ] = DEFAULT_RELATIONSHIP


RelatedEntities = Annotated[
    list[RelatedEntity], Field("Graph entities it is about; relationship is a verb", max_items=ENTITIES_LIMIT)
]


class TagChange(Value):
    add: Annotated[list[Tag], Field("Tags to add", max_items=MAX_TAGS)] | None = None
    remove: Annotated[list[Tag], Field("Tags to remove", max_items=MAX_TAGS)] | None = None


class EntityChange(Value):
    """Links to add, and the names of entities whose links to remove."""

    add: Annotated[list[RelatedEntity], Field("Links to add", max_items=ENTITIES_LIMIT)] | None = None
    remove: Annotated[list[str], Field("Names of entities to unlink", max_items=ENTITIES_LIMIT)] | None = None


class TimeRange(Value):
    after: Annotated[int, Field("Start, ISO 8601", moment=True)] | None = None
    before: Annotated[int, Field("End, ISO 8601", moment=True)] | None = None


class StoredMemory(Value):
    """Result of storing a memory. `updated` names what an existing memory gained from this call."""

    memory_id: str
    embedding_generated: bool
    graph_edges_created: int
    scope: str
    type: str
    embedding: str | None = None
    searchable_by: str | None = None
    existing: bool | None = None
    updated: list[str] | None = None
    warnings: list[ToolWarning] | None = None


class LinkedEntity(Value):
    """Entity that a memory is about. The link of a forgotten memory is stale."""

    name: str
    type: str
    relationship: str
    stale: bool | None = None


class MemoryView(Value):
    """Recalled memory. Fields that it does not have are None."""

    id: str
    content: str
    type: str
    scope: str
    importance: float
    relevance_score: float
    tags: list[str]
    created_at: str
    access_count: int
    source: Mapping[str, Any]
    author: str | None = None
    occurred_at: str | None = None
    session_id: str | None = None
    pinned: bool | None = None
    automatic: bool | None = None
    consolidated: bool | None = None
    superseded_by: str | None = None
    forgotten: bool | None = None
    forgotten_reason: str | None = None
    metadata: Mapping[str, Any] | None = None
    related_entities: list[LinkedEntity] | None = None
    why: Mapping[str, float] | None = None
    project: str | None = None  # of a recall in all projects
    duplicates: int | None = None  # other memories that say the same

    @classmethod
    def from_record(
        cls,
        record: Record,
        score: float,
        access: AccessCount | None = None,
        why: Mapping[str, float] | None = None,
        related: list[LinkedEntity] | None = None,
        project: str | None = None,
        duplicates: int = 0,
    ) -> "MemoryView":
        facets = record.facets
        return cls(
            id=record.id,
            content=record.text,
            type=record.type or "",
            scope=record.scope,
            importance=DEFAULT_IMPORTANCE if record.importance is None else record.importance,
            relevance_score=round(score, 4),
            tags=list(record.tags),
            created_at=format_iso(record.created_at),
            access_count=access.count if access else 0,
            source=cast(Mapping[str, Any], facets.get("source") or {}),
            author=record.author,
            occurred_at=None if record.occurred_at is None else format_iso(record.occurred_at),
            session_id=None if _was_detached(record) else record.session,
            pinned=facets.get("pinned") or None,
            automatic=facets.get(AUTOMATIC) or None,
            consolidated=facets.get("consolidated") or None,
            superseded_by=facets.get("superseded_by"),
            forgotten=True if record.deleted_at is not None else None,
            forgotten_reason=facets.get("forgotten_reason") if record.deleted_at else None,
            metadata=facets.get("metadata") or None,
            related_entities=related or None,
            why=None if why is None else {part: round(value, 4) for part, value in why.items()},
            project=project,
            duplicates=duplicates or None,
        )


def _was_detached(record: Record) -> bool:
    """Return whether the memory left its session by a promotion."""
    note = cast(Mapping[str, Any], record.facets.get(PROMOTED_FACET) or {})
    return note.get("from_scope") == SESSION_SCOPE


class RecalledMemories(Value):
    """Recalled memories. `total_matched` counts all matches, not only the returned ones.

    If a search takes only its best candidates, more may match, and `total_is_lower_bound` is true.
    """

    memories: list[MemoryView]
    total_matched: int
    strategy_used: str
    query_time_ms: float
    total_is_lower_bound: bool | None = None
    bank: list[SectionHit] | None = None  # sections of the memory bank's files, if requested
    warnings: list[ToolWarning] | None = None


class ForgottenMemory(Value):
    memory_id: str
    status: str
    reason: str | None = None
    warnings: list[ToolWarning] | None = None


class UpdatedMemory(Value):
    memory_id: str
    updated_fields: list[str]
    re_embedded: bool
    version: int
    warnings: list[ToolWarning] | None = None


class TaggedMemory(Value):
    memory_id: str
    tags: list[str]
    warnings: list[ToolWarning] | None = None


class PromotedMemory(Value):
    """Result of a promotion. If `merged`, the target scope had the same text, and `memory_id` is that memory's."""

    memory_id: str
    previous_scope: str
    new_scope: str
    reason: str | None = None
    merged: bool | None = None
    warnings: list[ToolWarning] | None = None


class MemoryContext(Value):
    context_block: str
    memories_used: int
    tokens_used: int
    truncated: bool
    warnings: list[ToolWarning] | None = None


class GraphRelationship(Value):
    """Relation to another entity. With `memory_id`, a memory about both says it, and the other one is the target."""

    type: str
    target: str
    direction: str
    memory_id: str | None = None


class GraphEntity(Value):
    name: str
    type: str
    relationships: list[GraphRelationship]
    memory_count: int


class GraphStats(Value):
    entities_traversed: int
    relationships_found: int
    depth_reached: int


class MemoryGraph(Value):
    entities: list[GraphEntity]
    memories: list[MemoryView]
    graph_stats: GraphStats
    warnings: list[ToolWarning] | None = None
