"""Tools for projects and for the graph of one project."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Literal

from everkept.core.ports import Library, ProjectChanger, ProjectChoice, RecordStore
from everkept.core.secrets import Masker
from everkept.core.sessions import ToolCall
from everkept.core.text import format_count
from everkept.core.times import Clock, format_iso
from everkept.errors import ProjectExists
from everkept.families.graph.graph import JSON, Graph, read_entity_views, read_graph_page
from everkept.families.graph.model import (
    BATCH_LIMIT,
    PAGE_LIMIT,
    AddedObservations,
    CreatedEntities,
    CreatedEntity,
    CreatedRelations,
    CurrentProject,
    DeletionResult,
    EntityRef,
    FoundNodes,
    GraphPage,
    NewEntity,
    NewObservations,
    ObservationDeletion,
    ObservationView,
    OpenedNodes,
    ProjectDeletion,
    ProjectList,
    ProjectView,
    RelationSpec,
    RelationView,
    TrashedView,
)
from everkept.graph.entities import ENTITY, OBSERVATION, NameAndTypeIdentity, find_candidates
from everkept.retrieval.candidates import find_page_by_tiers
from everkept.retrieval.profile import SearchPlace, SearchProfile
from everkept.tools.schema import Field
from everkept.tools.tool import (
    Effect,
    ToolFamily,
    ToolResult,
    ToolWarning,
    build_elsewhere_warning,
    build_masking_warnings,
    tool,
)

SEARCH_PROFILE = SearchProfile(kinds=(ENTITY, OBSERVATION), merge_children=True)
NO_PROJECT_MESSAGE = "No project is currently active. Use switch_project to select one."

PENDING_MESSAGE = 'Project "{name}" is active. The first write creates it.'

# Reads the access of the acting account to projects, by project id. The owner has full access and no entries.
ReadAccesses = Callable[[], Awaitable[Mapping[str, str]]]

ProjectName = Annotated[str, Field("Project name")]
OptionalProject = Annotated[str, Field("Project name; default: the active project", listed=False)]
Cursor = Annotated[str, Field("next_cursor of the previous page")]


class ProjectTools(ToolFamily):
    """Tools for projects, each with its own graph."""

    def __init__(
        self,
        library: Library,
        choice: ProjectChoice,
        accesses: ReadAccesses,
        get_changes: Callable[[], ProjectChanger],
        *,
        mask: bool = True,
    ) -> None:
        self._library = library
        self._get_changes = get_changes
        self._mask = mask
        self._choice = choice
        self._accesses = accesses

    @tool()
    async def list_projects(
        self, status: Annotated[Literal["active", "archived", "all"], Field("Default: active")] = "active"
    ) -> ProjectList:
        """List projects, and what is in the trash."""
        found = await self._library.list_projects(None if status == "all" else status)
        accesses = await self._accesses()
        trash = [TrashedView.from_trashed(each) for each in await self._get_changes().list_trash()]
        views = [ProjectView.from_project(each, access=accesses.get(each.id)) for each in found]
        return ProjectList(views, trash or None)

    @tool(Effect.WRITES)
    async def create_project(
        self,
        call: ToolCall,
        name: Annotated[str, Field("Unique, such as shop-api", max_length=1_000)],
        description: Annotated[str, Field("What the project is for", max_length=10_000, listed=False)] = "",
    ) -> ProjectView:
        """Create a project and make it active for this session."""
        masking = Masker(enabled=self._mask)
        name, description = masking.mask(name), masking.mask(description)
        try:
            project = await self._library.create(name, description)
        except ProjectExists:
            archived = await self._library.list_projects("archived")
            raise ProjectExists(name, is_archived=any(each.name == name for each in archived)) from None
        notes = [_select_project(call, name), *(each.message for each in build_masking_warnings(masking.kinds))]
        return ProjectView.from_project(project, " ".join(filter(None, notes)) or None)

    @tool(Effect.SESSION_ONLY)
    async def switch_project(
        self, call: ToolCall, name: Annotated[str, Field("Name from list_projects")]
    ) -> ProjectView:
        """Make a project active for this session."""
        project, _ = await self._library.open(name)
        return ProjectView.from_project(project, _select_project(call, name))

    @tool()
    async def get_current_project(self, call: ToolCall) -> CurrentProject:
        """Show the active project."""
        project = await self._choice.find_active(call)
        if project is None:
            pending = await self._choice.find_pending_name(call)
            return CurrentProject(message=PENDING_MESSAGE.format(name=pending) if pending else NO_PROJECT_MESSAGE)
        return CurrentProject(
            project.id,
            project.name,
            project.description,
            project.status,
            format_iso(project.created_at),
            format_iso(project.updated_at),
            project.is_off or None,
        )

    @tool(Effect.DESTROYS)
    async def archive_project(self, call: ToolCall, name: ProjectName) -> ProjectView:
        """Archive a project. Its data is kept; restore_project reverses it."""
        project = await self._get_changes().archive(name, call.session.client)
        _deselect_project(call, name)
        return ProjectView.from_project(project)

    @tool(Effect.DESTROYS)
    async def delete_project(self, call: ToolCall, name: ProjectName) -> ProjectDeletion:
        """Move a project to the trash. Only if the user asks; otherwise archive_project."""
        deleted = await self._get_changes().delete(name, call.session.client)
        _deselect_project(call, name)
        return ProjectDeletion.from_trashed(deleted)

    @tool(Effect.WRITES)
    async def restore_project(
        self,
        call: ToolCall,
        name: ProjectName,
        new_name: Annotated[str, Field("Name for a deleted project whose name is in use", listed=False)] | None = None,
    ) -> ProjectView:
        """Restore an archived or deleted project without switching to it."""
        return ProjectView.from_project(await self._get_changes().restore(name, call.session.client, new_name))


class GraphTools(ToolFamily):
    """Tools for the entities, observations and relations of one project."""

    def __init__(
        self,
        library: Library,
        choice: ProjectChoice,
        clock: Clock,
        *,
        mask: bool = True,
        time_limit: float | None = None,
    ) -> None:
        self._library = library
        self._choice = choice
        self._clock = clock
        self._mask = mask
        self._time_limit = time_limit  # of a search

    @tool(Effect.REPEATABLE)
    async def create_entities(
        self,
        call: ToolCall,
        entities: Annotated[list[NewEntity], Field(max_items=BATCH_LIMIT)],
        project: OptionalProject | None = None,
    ) -> CreatedEntities:
        """Add people, systems or concepts to the graph. Existing ones (same name and type) gain the observations."""
        graph = self._build_graph(call, project)
        made = await graph.create_entities(entities)
        return CreatedEntities(
            [
                CreatedEntity(
                    entry.record.id,
                    entry.record.name or "",
                    entry.record.type or "",
                    entry.is_new,
                    [ObservationView.from_record(observation) for observation in entry.observations],
                    format_iso(entry.record.created_at),
                    format_iso(entry.record.updated_at),
                )
                for entry in made
            ],
            build_masking_warnings(graph.masking.kinds) or None,
        )

    @tool(Effect.REPEATABLE)
    async def add_observations(
        self,
        call: ToolCall,
        observations: Annotated[list[NewObservations], Field(max_items=BATCH_LIMIT)],
        project: OptionalProject | None = None,
    ) -> AddedObservations:
        """Add facts to existing entities; skips known facts."""
        graph = self._build_graph(call, project)
        made = await graph.add_observations(observations)
        added = [ObservationView.from_record(record) for entry in made for record in entry.observations]
        given = sum(len(item.contents) for item in observations)
        return AddedObservations(added, given - len(added), build_masking_warnings(graph.masking.kinds) or None)

    @tool(Effect.REPEATABLE)
    async def create_relations(
        self,
        call: ToolCall,
        relations: Annotated[list[RelationSpec], Field(max_items=BATCH_LIMIT)],
        project: OptionalProject | None = None,
    ) -> CreatedRelations:
        """Link existing entities: from, relation_type, to."""
        graph = self._build_graph(call, project)
        links, names = await graph.create_relations(relations)
        new = [RelationView.from_link(link, names) for link in links]
        existed = len(relations) - len(new)
        return CreatedRelations(new, existed, build_masking_warnings(graph.masking.kinds) or None)

    @tool(view="graph")
    async def search_nodes(
        self,
        call: ToolCall,
        query: Annotated[str, Field('Words; AND, OR, NOT, "phrase" and prefix* work', max_length=10_000)],
        limit: Annotated[int, Field("Maximum entities, 1 to 100, default 20", ge=1, le=100, listed=False)] = 20,
        cursor: Cursor | None = None,
        project: OptionalProject | None = None,
    ) -> Annotated[ToolResult, FoundNodes]:
        """Find people, systems and other entities by words in names, types and observations."""
        store = await self._choice.open_to_read(call, project)
        found = await find_page_by_tiers([SearchPlace(store)], query, SEARCH_PROFILE, limit, cursor)
        ids = [match.id for _, match in found.matches]
        answer: JSON = {"entities": await read_entity_views(store, ids)}
        if found.tier is not None:
            answer["matched"] = found.tier
        if found.next_cursor is not None:
            answer["next_cursor"] = found.next_cursor
        if not ids and (warning := await self._look_elsewhere(store, query)) is not None:
            answer["warnings"] = [{"code": warning.code, "message": warning.message}]
        return ToolResult(answer)

    @tool()
    async def open_nodes(
        self,
        call: ToolCall,
        names: Annotated[list[EntityRef], Field("Names, `name (type)` or ids", max_items=BATCH_LIMIT)],
        project: OptionalProject | None = None,
    ) -> Annotated[ToolResult, OpenedNodes]:
        """Get entities by exact name, with observations and relations. Lists names that were not found."""
        store = await self._choice.open_to_read(call, project)
        found = await find_candidates(store, list(dict.fromkeys(names)))
        ids = dict.fromkeys(record.id for meant in found.values() for record in meant)
        answer: JSON = {"entities": await read_entity_views(store, list(ids))}
        if missing := [name for name, meant in found.items() if not meant]:
            answer["not_found"] = missing
        return ToolResult(answer)

    @tool(view="graph")
    async def read_graph(
        self,
        call: ToolCall,
        limit: Annotated[
            int, Field("Entities per page, 1 to 1000, default 200", ge=1, le=PAGE_LIMIT, listed=False)
        ] = 200,
        cursor: Cursor | None = None,
        project: OptionalProject | None = None,
    ) -> Annotated[ToolResult, GraphPage]:
        """Page through the whole graph. Large: prefer search_nodes."""
        store = await self._choice.open_to_read(call, project)
        return ToolResult(await read_graph_page(store, limit, cursor))

    @tool(Effect.DESTROYS)
    async def delete_entities(
        self,
        call: ToolCall,
        names: Annotated[
            list[EntityRef], Field("Names, `name (type)` or ids", aliases=("entityNames",), max_items=BATCH_LIMIT)
        ],
        project: OptionalProject | None = None,
    ) -> DeletionResult:
        """Delete entities with their observations and relations. The user can undo it."""
        return _build_deletion_result(
            await self._build_graph(call, project).delete_entities(names), "entity", "entities"
        )

    @tool(Effect.DESTROYS)
    async def delete_observations(
        self,
        call: ToolCall,
        deletions: Annotated[list[ObservationDeletion], Field(max_items=BATCH_LIMIT)],
        project: OptionalProject | None = None,
    ) -> DeletionResult:
        """Delete observations from entities."""
        count = await self._build_graph(call, project).delete_observations(deletions)
        return _build_deletion_result(count, "observation")

    @tool(Effect.DESTROYS)
    async def delete_relations(
        self,
        call: ToolCall,
        relations: Annotated[list[RelationSpec], Field(max_items=BATCH_LIMIT)],
        project: OptionalProject | None = None,
    ) -> DeletionResult:
        """Delete relations that are no longer true; the entities stay."""
        return _build_deletion_result(await self._build_graph(call, project).delete_relations(relations), "relation")

    async def _look_elsewhere(self, own: RecordStore, query: str) -> ToolWarning | None:
        """Return a warning if another project has a close entity. Only a search that finds nothing pays for it."""
        from everkept.retrieval.other_projects import find_entity_elsewhere

        found = await find_entity_elsewhere(self._library, own, query, self._time_limit)
        return None if found is None else build_elsewhere_warning(found.project, found.record.name)

    def _build_graph(self, call: ToolCall, project: str | None) -> Graph:
        async def open_store() -> RecordStore:
            return await self._choice.open_to_write(call, project)

        return Graph(open_store, call, self._clock, NameAndTypeIdentity(), mask=self._mask)


def _select_project(call: ToolCall, name: str) -> str | None:
    if call.session.stateful:
        call.session.project = name
        return None
    return f'This connection keeps no state: pass project="{name}" with each call.'


def _deselect_project(call: ToolCall, name: str) -> None:
    if call.session.project == name:
        call.session.project = None


def _build_deletion_result(count: int, one: str, many: str | None = None) -> DeletionResult:
    return DeletionResult(count, f"Deleted {format_count(count, one, many)}.")
