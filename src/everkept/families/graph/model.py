"""Arguments and results of the graph tools, in the form that clients see."""

from typing import Annotated

from everkept.core.projects import Project, TrashedProject
from everkept.core.records import Record, RecordLink
from everkept.core.times import format_iso
from everkept.graph.entities import MAX_NAME_CHARACTERS
from everkept.tools.schema import Field
from everkept.tools.tool import ToolWarning
from everkept.values import Value, field

TEXT_LIMIT = 100_000  # characters
BATCH_LIMIT = 1_000  # items in one call
ROW_LIMIT = 5_000  # entities and observations in one call; more would delay other callers
PAGE_LIMIT = 1_000  # entities in one answer

EntityName = Annotated[str, Field(max_length=MAX_NAME_CHARACTERS, blank=False)]
EntityRef = Annotated[str, Field(max_length=MAX_NAME_CHARACTERS * 2, blank=False)]
EntityType = Annotated[
    str, Field("Such as person or service", aliases=("entityType",), max_length=MAX_NAME_CHARACTERS, blank=False)
]
Observation = Annotated[str, Field(max_length=TEXT_LIMIT, blank=False)]
RelationType = Annotated[
    str, Field("Verb, such as depends_on", aliases=("relationType",), max_length=MAX_NAME_CHARACTERS, blank=False)
]
ObservedEntity = Annotated[
    str, Field("Name, `name (type)` or id", aliases=("entityName",), max_length=MAX_NAME_CHARACTERS * 2, blank=False)
]


class NewEntity(Value):
    name: EntityName
    entity_type: EntityType
    observations: Annotated[list[Observation], Field("One fact each", max_items=BATCH_LIMIT)] = field(
        default_factory=list[str]
    )


class NewObservations(Value):
    entity_name: ObservedEntity
    contents: Annotated[list[Observation], Field("One fact each", max_items=BATCH_LIMIT)]


class RelationSpec(Value):
    from_: Annotated[str, Field(name="from", max_length=MAX_NAME_CHARACTERS * 2, blank=False)]
    to: Annotated[str, Field(max_length=MAX_NAME_CHARACTERS * 2, blank=False)]
    relation_type: RelationType


class ObservationDeletion(Value):
    entity_name: ObservedEntity
    observations: Annotated[list[str], Field("Exact texts", max_items=BATCH_LIMIT)]


class ProjectView(Value):
    id: str
    name: str
    description: str
    status: str
    created_at: str
    updated_at: str
    note: str | None = None
    off: bool | None = None  # True if it is off
    access: str | None = None  # of an account: own, write or read

    @classmethod
    def from_project(cls, project: Project, note: str | None = None, access: str | None = None) -> "ProjectView":
        return cls(
            project.id,
            project.name,
            project.description,
            project.status,
            format_iso(project.created_at),
            format_iso(project.updated_at),
            note,
            project.is_off or None,
            access,
        )


class TrashedView(Value):
    """Deleted project. Without `until`, it stays in the trash until it is purged."""

    id: str
    name: str
    deleted_at: str
    until: str | None

    @classmethod
    def from_trashed(cls, trashed: TrashedProject) -> "TrashedView":
        until = None if trashed.until is None else format_iso(trashed.until)
        return cls(trashed.project.id, trashed.name, format_iso(trashed.deleted_at), until)


class ProjectList(Value):
    projects: list[ProjectView]
    trash: list[TrashedView] | None = None


class ProjectDeletion(Value):
    """Deleted project, and a sentence that says how long it can be restored."""

    deleted: int
    message: str
    until: str | None = None

    @classmethod
    def from_trashed(cls, trashed: TrashedProject) -> "ProjectDeletion":
        until = None if trashed.until is None else format_iso(trashed.until)
        within = f" until {until[:10]}" if until else ""
        message = (
            f'Deleted project "{trashed.name}". It is in the trash. To restore it{within}, call restore_project or run '
            f'`everkept undo`. To remove it now, run `everkept purge project "{trashed.name}"`.'
        )
        return cls(1, message, until)

    @property
    def sentence(self) -> str:
        return self.message


class CurrentProject(Value):
    """Fields of the active project, or only a message."""

    id: str | None = None
    name: str | None = None
    description: str | None = None
    status: str | None = None
    created_at: str | None = None
    updated_at: str | None = None
    off: bool | None = None
    message: str | None = None

    @property
    def sentence(self) -> str | None:
        return self.message


class DeletionResult(Value):
    """Number of deleted items, and a sentence that says it."""

    deleted: int
    message: str

    @property
    def sentence(self) -> str:
        return self.message


class ObservationView(Value):
    id: str
    entity_id: str
    content: str
    created_at: str

    @classmethod
    def from_record(cls, record: Record) -> "ObservationView":
        return cls(record.id, record.parent or "", record.text, format_iso(record.created_at))


class RelationView(Value):
    id: str
    from_: Annotated[str, Field(name="from")]
    to: str
    from_entity: str
    to_entity: str
    relation_type: str
    created_at: str

    @classmethod
    def from_link(cls, link: RecordLink, names: dict[str, str]) -> "RelationView":
        return cls(
            link.id,
            names.get(link.source, link.source),
            names.get(link.target, link.target),
            link.source,
            link.target,
            link.verb,
            format_iso(link.created_at),
        )


class EntityView(Value):
    id: str
    name: str
    entity_type: str
    observations: list[ObservationView]
    created_at: str
    updated_at: str
    relations: list[RelationView] | None = None


class CreatedEntity(Value):
    """Entity that a call asked for. `created` is false if it existed; `observations` are only the new ones."""

    id: str
    name: str
    entity_type: str
    created: bool
    observations: list[ObservationView]
    created_at: str
    updated_at: str


class CreatedEntities(Value):
    entities: list[CreatedEntity]
    warnings: list[ToolWarning] | None = None


class AddedObservations(Value):
    """Added observations. `skipped` counts the texts that their entity already had."""

    observations: list[ObservationView]
    skipped: int
    warnings: list[ToolWarning] | None = None


class CreatedRelations(Value):
    """New relations. `existed` counts the relations that already existed, which are not listed."""

    relations: list[RelationView]
    existed: int
    warnings: list[ToolWarning] | None = None


class FoundNodes(Value):
    """Found entities. `matched` is how the query was read: expression, all, any or substring."""

    entities: list[EntityView]
    matched: str | None = None
    next_cursor: str | None = None
    warnings: list[ToolWarning] | None = None


class OpenedNodes(Value):
    entities: list[EntityView]
    not_found: list[str] | None = None


class GraphPage(Value):
    """Page of entities by name, with the relations that start at them."""

    entities: list[EntityView]
    relations: list[RelationView]
    next_cursor: str | None = None
