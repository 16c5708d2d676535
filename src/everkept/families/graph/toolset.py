"""The sixteen tools: projects, and the graph inside one."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Literal

from everkept.core.ports import Library, ProjectChoice, RecordStore
from everkept.core.sessions import Call
from everkept.core.times import Clock, iso
from everkept.families.graph.graph import JSON, Graph, graph_page, with_relations
from everkept.families.graph.model import (
    BATCH_LIMIT,
    PAGE_LIMIT,
    AddedObservations,
    CreatedEntities,
    CreatedEntity,
    CreatedRelations,
    CurrentProject,
    Deleted,
    EntityRef,
    FoundNodes,
    GraphPage,
    NewEntity,
    NewObservations,
    ObservationDeletion,
    ObservationView,
    OpenedNodes,
    ProjectList,
    ProjectView,
    RelationSpec,
    RelationView,
)
from everkept.graph.entities import ENTITY, OBSERVATION
from everkept.graph.lookup import ByNameAndType, candidates
from everkept.retrieval.candidates import page_by_tiers
from everkept.retrieval.profile import Place, Profile
from everkept.tools.schema import Field
from everkept.tools.tool import Effect, Family, Result, masking_warnings, tool

SEARCH = Profile(kinds=(ENTITY, OBSERVATION), merge_children=True)
NO_PROJECT = "No project is currently active. Use switch_project to select one."

PENDING = 'Project "{name}" is active; it is made at the first write.'

#: What whoever is acting may do with projects, by their ids; the owner, who may everything, none.
Accesses = Callable[[], Awaitable[Mapping[str, str]]]

ProjectName = Annotated[str, Field("Project name.")]
InProject = Annotated[str, Field("Default: the active one.")]
Cursor = Annotated[str, Field("From the page before.")]


class ProjectTools(Family):
    """Projects, each with a graph of its own."""

    def __init__(self, library: Library, choice: ProjectChoice, accesses: Accesses) -> None:
        self._library = library
        self._choice = choice
        self._accesses = accesses

    @tool()
    async def list_projects(
        self,
        status: Annotated[
            Literal["active", "archived", "all"], Field("Which projects.")
        ] = "active",
    ) -> ProjectList:
        """List projects."""
        found = await self._library.projects(None if status == "all" else status)
        accesses = await self._accesses()
        return ProjectList([ProjectView.of(each, access=accesses.get(each.id)) for each in found])

    @tool(Effect.WRITES)
    async def create_project(
        self,
        call: Call,
        name: Annotated[str, Field("Unique, slug-like.")],
        description: Annotated[str, Field("Free text.", max_length=10_000)] = "",
    ) -> ProjectView:
        """Create a project and make it the active one."""
        project = await self._library.create(name, description)
        return ProjectView.of(project, _selected(call, name))

    @tool(Effect.SELECTS)
    async def switch_project(self, call: Call, name: ProjectName) -> ProjectView:
        """Make a project the active one for this session."""
        project, _ = await self._library.open(name)
        return ProjectView.of(project, _selected(call, name))

    @tool()
    async def get_current_project(self, call: Call) -> CurrentProject:
        """Show the active project."""
        project = await self._choice.current(call)
        if project is None:
            pending = self._choice.pending(call)
            return CurrentProject(message=PENDING.format(name=pending) if pending else NO_PROJECT)
        return CurrentProject(
            project.id,
            project.name,
            project.description,
            project.status,
            iso(project.created_at),
            iso(project.updated_at),
            project.is_off or None,
        )

    @tool(Effect.DESTROYS)
    async def archive_project(self, call: Call, name: ProjectName) -> ProjectView:
        """Put a project away; restore_project brings it back."""
        project = await self._library.archive(name)
        _deselected(call, name)
        return ProjectView.of(project)

    @tool(Effect.ERASES)
    async def delete_project(self, call: Call, name: ProjectName) -> Deleted:
        """Delete a project and all its data for good."""
        await self._library.delete(name)
        _deselected(call, name)
        return Deleted(1, f'Project "{name}" permanently deleted.')

    @tool(Effect.WRITES)
    async def restore_project(self, name: ProjectName) -> ProjectView:
        """Bring an archived project back, without switching to it."""
        return ProjectView.of(await self._library.restore(name))


class GraphTools(Family):
    """Entities, observations and relations of one project."""

    def __init__(self, choice: ProjectChoice, clock: Clock, *, mask: bool = True) -> None:
        self._choice = choice
        self._clock = clock
        self._mask = mask

    @tool(Effect.REPEATABLE)
    async def create_entities(
        self,
        call: Call,
        entities: Annotated[list[NewEntity], Field("To create.", max_items=BATCH_LIMIT)],
        project: InProject | None = None,
    ) -> CreatedEntities:
        """Create entities. One that exists (same name and type) gets the new observations."""
        graph = self._graph(call, project)
        made = await graph.create_entities(entities)
        return CreatedEntities(
            [
                CreatedEntity(
                    entry.record.id,
                    entry.record.name or "",
                    entry.record.type or "",
                    entry.is_new,
                    [ObservationView.of(observation) for observation in entry.observations],
                    iso(entry.record.created_at),
                    iso(entry.record.updated_at),
                )
                for entry in made
            ],
            masking_warnings(graph.masking.kinds) or None,
        )

    @tool(Effect.REPEATABLE)
    async def add_observations(
        self,
        call: Call,
        observations: Annotated[list[NewObservations], Field("By entity.", max_items=BATCH_LIMIT)],
        project: InProject | None = None,
    ) -> AddedObservations:
        """Add facts to existing entities; known ones are skipped."""
        graph = self._graph(call, project)
        made = await graph.add_observations(observations)
        added = [ObservationView.of(record) for entry in made for record in entry.observations]
        given = sum(len(item.contents) for item in observations)
        return AddedObservations(
            added, given - len(added), masking_warnings(graph.masking.kinds) or None
        )

    @tool(Effect.REPEATABLE)
    async def create_relations(
        self,
        call: Call,
        relations: Annotated[list[RelationSpec], Field("To create.", max_items=BATCH_LIMIT)],
        project: InProject | None = None,
    ) -> CreatedRelations:
        """Create directed relations between existing entities."""
        graph = self._graph(call, project)
        links, names = await graph.create_relations(relations)
        new = [RelationView.of(link, names) for link in links]
        existed = len(relations) - len(new)
        return CreatedRelations(new, existed, masking_warnings(graph.masking.kinds) or None)

    @tool()
    async def search_nodes(
        self,
        call: Call,
        query: Annotated[
            str, Field('Words; AND, OR, NOT, "phrase" and prefix* work too.', max_length=10_000)
        ],
        limit: Annotated[int, Field("At most.", ge=1, le=100)] = 20,
        cursor: Cursor | None = None,
        project: InProject | None = None,
    ) -> Annotated[Result, FoundNodes]:
        """Find entities by name, type or observation, best first."""
        store = await self._choice.to_read(call, project)
        found = await page_by_tiers([Place(store)], query, SEARCH, limit, cursor)
        ids = [match.id for _, match in found.matches]
        answer: JSON = {"entities": await with_relations(store, ids)}
        if found.tier is not None:
            answer["matched"] = found.tier
        if found.next_cursor is not None:
            answer["next_cursor"] = found.next_cursor
        return Result(answer)

    @tool()
    async def open_nodes(
        self,
        call: Call,
        names: Annotated[
            list[EntityRef], Field("Names, `name (type)` or ids.", max_items=BATCH_LIMIT)
        ],
        project: InProject | None = None,
    ) -> Annotated[Result, OpenedNodes]:
        """Get entities by exact name, with observations and relations."""
        store = await self._choice.to_read(call, project)
        found = await candidates(store, list(dict.fromkeys(names)))
        ids = dict.fromkeys(record.id for meant in found.values() for record in meant)
        return Result({"entities": await with_relations(store, list(ids))})

    @tool()
    async def read_graph(
        self,
        call: Call,
        limit: Annotated[int, Field("Entities a page.", ge=1, le=PAGE_LIMIT)] = 200,
        cursor: Cursor | None = None,
        project: InProject | None = None,
    ) -> Annotated[Result, GraphPage]:
        """Read the whole graph, page by page. Large: prefer search_nodes."""
        store = await self._choice.to_read(call, project)
        return Result(await graph_page(store, limit, cursor))

    @tool(Effect.DESTROYS)
    async def delete_entities(
        self,
        call: Call,
        names: Annotated[
            list[EntityRef],
            Field("Names, `name (type)` or ids.", aliases=("entityNames",), max_items=BATCH_LIMIT),
        ],
        project: InProject | None = None,
    ) -> Deleted:
        """Delete entities with their observations and relations."""
        return _deleted(await self._graph(call, project).delete_entities(names), "entities")

    @tool(Effect.DESTROYS)
    async def delete_observations(
        self,
        call: Call,
        deletions: Annotated[list[ObservationDeletion], Field("By entity.", max_items=BATCH_LIMIT)],
        project: InProject | None = None,
    ) -> Deleted:
        """Delete observations by their exact text."""
        count = await self._graph(call, project).delete_observations(deletions)
        return _deleted(count, "observations")

    @tool(Effect.DESTROYS)
    async def delete_relations(
        self,
        call: Call,
        relations: Annotated[list[RelationSpec], Field("To delete.", max_items=BATCH_LIMIT)],
        project: InProject | None = None,
    ) -> Deleted:
        """Delete relations."""
        return _deleted(await self._graph(call, project).delete_relations(relations), "relations")

    def _graph(self, call: Call, project: str | None) -> Graph:
        async def open_store() -> RecordStore:
            return await self._choice.to_write(call, project)

        return Graph(open_store, call, self._clock, ByNameAndType(), mask=self._mask)


def _selected(call: Call, name: str) -> str | None:
    if call.session.stateful:
        call.session.project = name
        return None
    return f'This connection keeps no state: pass project="{name}" with each call.'


def _deselected(call: Call, name: str) -> None:
    if call.session.project == name:
        call.session.project = None


def _deleted(count: int, things: str) -> Deleted:
    return Deleted(count, f"Deleted {count} {things}.")
