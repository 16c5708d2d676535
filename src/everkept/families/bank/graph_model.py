"""What the graph's tools take and give, as it stands on the wire."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, cast

from everkept.core.records import Link, Record
from everkept.core.times import iso
from everkept.families.bank.graph_ids import entity_id, observation_id, relation_id
from everkept.graph.entities import NAME_LIMIT
from everkept.tools.schema import Field
from everkept.tools.tool import Warned
from everkept.values import Value

TEXT_LIMIT = 100_000  # characters
NODE_LIMIT = 1_000  # entities in one answer
LIST_LIMIT = 100  # results of a search

ATTRS = "attrs"  # the facet of an entity that holds its free attributes
SOURCE = "source"  # the facet of an observation that says where it comes from
# The facet of what a log has under an id that is computed otherwise: our id, and the log's.
LOG_IDS = "log_ids"
KINDS = ("manual", "tool", "import", "agent")  # of sources

EntityRef = Annotated[
    str, Field("Name, `name (type)` or id.", max_length=NAME_LIMIT * 2, blank=False)
]
FromEntity = Annotated[
    str,
    Field("Source: name, `name (type)` or id.", "from", max_length=NAME_LIMIT * 2, blank=False),
]
ToEntity = Annotated[str, Field("Target, likewise.", "to", max_length=NAME_LIMIT * 2, blank=False)]
RelationType = Annotated[
    str,
    Field("E.g. uses, depends_on.", "relationType", max_length=NAME_LIMIT, blank=False),
]
ObservationId = Annotated[str, Field("obs_ id.", "observationId", max_length=100, blank=False)]
Depth = Annotated[int, Field("Hops.", ge=1, le=2)]


class EntityView(Value):
    id: str
    name: str
    entity_type: Annotated[str, Field(name="entityType")]
    attrs: dict[str, Any] | None
    created_at: Annotated[str, Field(name="createdAt")]
    updated_at: Annotated[str, Field(name="updatedAt")]

    @classmethod
    def of(cls, record: Record) -> "EntityView":
        return cls(
            public_id(record),
            record.name or "",
            record.type or "",
            attrs_of(record) or None,
            iso(record.created_at),
            iso(record.updated_at),
        )


class Source(Value):
    kind: str
    ref: str | None = None


class ObservationView(Value):
    id: str
    entity_id: Annotated[str, Field(name="entityId")]
    text: str
    source: Source | None
    timestamp: str

    @classmethod
    def of(cls, record: Record, owner: Record) -> "ObservationView":
        return cls(
            observation_public_id(record, owner),
            public_id(owner),
            record.text,
            source_of(record),
            iso(record.at),
        )


class RelationView(Value):
    id: str
    from_id: Annotated[str, Field(name="fromId")]
    to_id: Annotated[str, Field(name="toId")]
    relation_type: Annotated[str, Field(name="relationType")]
    created_at: Annotated[str, Field(name="createdAt")]

    @classmethod
    def of(cls, link: Link, source: Record, target: Record) -> "RelationView":
        ends = public_id(source), public_id(target)
        return cls(relation_id(ends[0], link.verb, ends[1]), *ends, link.verb, iso(link.created_at))


class UpsertedEntity(Value):
    success: bool
    entity: EntityView
    warnings: list[Warned] | None = None


class AddedObservation(Value):
    success: bool
    observation: ObservationView
    warnings: list[Warned] | None = None


class Linked(Value):
    """The relation where it was made or found; what was asked for where it was removed."""

    success: bool
    relation: RelationView | None = None
    action: Literal["unlink"] | None = None
    from_: Annotated[str | None, Field(name="from")] = None
    to: str | None = None
    relation_type: Annotated[str | None, Field(name="relationType")] = None
    warnings: list[Warned] | None = None


class Unlinked(Value):
    success: bool
    warnings: list[Warned] | None = None


class Deleted(Value):
    success: bool
    message: str
    warnings: list[Warned] | None = None


class OpenedNodes(Value):
    entities: list[EntityView]
    observations: list[ObservationView]
    relations: list[RelationView]
    warnings: list[Warned] | None = None


class Noted(Value):
    """An observation as it stands below the entity it belongs to."""

    text: str
    timestamp: str


class FoundEntity(Value):
    id: str
    name: str
    entity_type: Annotated[str, Field(name="entityType")]
    attrs: dict[str, Any] | None
    observations: list[Noted]


class FoundObservation(Value):
    text: str
    entity_id: Annotated[str, Field(name="entityId")]
    entity_name: Annotated[str, Field(name="entityName")]
    timestamp: str


class FoundRelation(Value):
    from_: Annotated[str, Field(name="from")]
    to: str
    relation_type: Annotated[str, Field(name="relationType")]


class FoundNodes(Value):
    query: str
    entities: list[FoundEntity]
    observations: list[FoundObservation]
    relations: list[FoundRelation]
    warnings: list[Warned] | None = None


class DocPointer(Value):
    success: bool
    entity: str
    actions: list[str]
    warnings: list[Warned] | None = None


def own_id(entity: Record) -> str:
    """The id that is computed from name and type, by which entities are the same."""
    return entity_id(entity.name or "", entity.type or "")


def public_id(entity: Record) -> str:
    """The id it has for others: our own, unless it came with another one."""
    own = own_id(entity)
    return _log_id(entity, own) or own


def observation_public_id(observation: Record, owner: Record) -> str:
    own = own_id(owner)
    return observation_id_below(own, _log_id(owner, own) or own, observation)


def observation_id_below(own: str, public: str, observation: Record) -> str:
    """Likewise, by both ids of the entity it belongs to."""
    at = iso(observation.at)
    if observation.facets.get(LOG_IDS):
        given = _log_id(observation, observation_id(own, observation.text, at))
        if given is not None:
            return given
    return observation_id(public, observation.text, at)


def with_log_id(facets: Mapping[str, Any], own: str, given: str) -> dict[str, Any]:
    """The facets with the id that a log has in place of our own, for as long as that is so."""
    others = {name: value for name, value in facets.items() if name != LOG_IDS}
    return others | ({LOG_IDS: {own: given}} if own != given else {})


def _log_id(record: Record, own: str) -> str | None:
    found = record.facets.get(LOG_IDS)
    return cast(Mapping[str, str], found).get(own) if isinstance(found, Mapping) else None


def attrs_of(record: Record) -> dict[str, Any]:
    found = record.facets.get(ATTRS)
    return dict(cast(Mapping[str, Any], found)) if isinstance(found, Mapping) else {}


def with_attrs(facets: Mapping[str, Any], attrs: Mapping[str, Any]) -> dict[str, Any]:
    """The facets with these attributes in place of the old ones; other families' stay."""
    others = {name: value for name, value in facets.items() if name != ATTRS}
    return others | ({ATTRS: dict(attrs)} if attrs else {})


def source_of(record: Record) -> Source | None:
    found = record.facets.get(SOURCE)
    if not isinstance(found, Mapping):
        return None
    values = cast(Mapping[str, Any], found)
    return Source(str(values.get("kind", KINDS[0])), values.get("ref"))


def source_named(word: str) -> Source:
    """A word that is no kind of source says which one it was; nothing means by hand."""
    word = word.strip()
    if not word or word.lower() in KINDS:
        return Source(word.lower() or KINDS[0])
    return Source(KINDS[0], word)


def source_facets(source: Source) -> dict[str, Any]:
    ref = {} if source.ref is None else {"ref": source.ref}
    return {SOURCE: {"kind": source.kind, **ref}}
