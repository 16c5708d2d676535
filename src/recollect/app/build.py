"""The composition root: settings become the parts of an application."""

from dataclasses import dataclass

from recollect.app.projects import DEFAULT_PROJECT, ProjectRule
from recollect.app.resources import GraphResources, Render, Watcher
from recollect.app.timeline import Timeline
from recollect.core.ports import Library
from recollect.core.times import Clock
from recollect.engines.sqlite.library import SqliteLibrary
from recollect.families.graph.toolset import GraphTools, ProjectTools
from recollect.families.graph.views import graph_page
from recollect.settings import AUTO, Settings, chosen_toolsets
from recollect.tools.tool import Effect
from recollect.tools.toolset import Toolset, combined, filtered


@dataclass(frozen=True, slots=True)
class Parts:
    library: Library
    choice: ProjectRule
    tools: Toolset
    offered: Toolset
    timeline: Timeline
    resources: GraphResources
    watcher: Watcher


def build(settings: Settings, library: Library | None, clock: Clock) -> Parts:
    """Touches no file: the library opens its databases at the first call."""
    library = library or SqliteLibrary(
        settings.data_dir, clock=clock, synchronous=settings.synchronous
    )
    choice = _project_rule(settings, library)
    tools = _tools(settings, library, choice, clock)
    resources = GraphResources(library, choice, _graph_document(settings))
    return Parts(
        library=library,
        choice=choice,
        tools=tools,
        offered=_readers(tools) if settings.read_only else tools,
        timeline=Timeline(library, clock),
        resources=resources,
        watcher=Watcher(resources),
    )


def _graph_document(settings: Settings) -> Render:
    if settings.dialect == "server-memory":
        from recollect.families.graph.server_memory import whole_graph

        return whole_graph
    return lambda store: graph_page(store, limit=None, cursor=None)


def _project_rule(settings: Settings, library: Library) -> ProjectRule:
    if settings.project == AUTO:
        return ProjectRule(library, workspace=settings.path)
    if settings.dialect == "server-memory":
        return ProjectRule(library, configured=settings.project or DEFAULT_PROJECT)
    return ProjectRule(library, configured=settings.project)


def _tools(settings: Settings, library: Library, choice: ProjectRule, clock: Clock) -> Toolset:
    if settings.dialect == "server-memory":
        from recollect.families.graph.server_memory import ServerMemoryTools

        return Toolset(ServerMemoryTools(choice, clock).tools())
    families = {
        "graph": lambda: combined(
            ProjectTools(library, choice).tools(), GraphTools(choice, clock).tools()
        )
    }
    return combined(*(families[name]() for name in chosen_toolsets(settings)))


def _readers(tools: Toolset) -> Toolset:
    # switch_project writes nothing but what the session remembers.
    return filtered(tools, lambda item: item.effect in (Effect.READS, Effect.SELECTS))
