"""The composition root: settings become the parts of an application."""

from dataclasses import dataclass
from pathlib import Path

from recollect import __version__
from recollect.app.accesses import BatchedAccesses
from recollect.app.indexing import Indexer
from recollect.app.keeping import Keeper, Shelf
from recollect.app.memory_resources import MemoryResources
from recollect.app.projects import DEFAULT_PROJECT, ProjectRule
from recollect.app.resources import AllResources, GraphResources, Render, Resources, Watcher
from recollect.app.timeline import Timeline
from recollect.core.ports import Embedder, Library
from recollect.core.times import Clock, LocalZone
from recollect.families.graph.toolset import GraphTools, ProjectTools
from recollect.families.graph.views import graph_page
from recollect.families.memories.model import MEMORY, Options
from recollect.families.memories.toolset import MemoryTools
from recollect.settings import AUTO, Settings, chosen_toolsets
from recollect.tools.tool import Effect
from recollect.tools.toolset import Toolset, combined, filtered

EMBEDDED_KINDS = (MEMORY,)


@dataclass(frozen=True, slots=True)
class Parts:
    library: Library
    choice: ProjectRule
    tools: Toolset
    offered: Toolset
    timeline: Timeline
    resources: AllResources
    watcher: Watcher
    keeper: Keeper
    shelf: Shelf
    memories: MemoryTools


def build(
    settings: Settings, library: Library | None, embedder: Embedder | None, clock: Clock
) -> Parts:
    """Touches no file: the library opens its databases at the first call."""
    library = library or _library(settings, clock)
    choice = _graph_rule(settings, library)
    indexer = Indexer(embedder or _embedder(settings), EMBEDDED_KINDS)
    keeper = Keeper(library, indexer, BatchedAccesses(clock), clock)
    rule = _memory_rule(settings, library, keeper)
    options = _options(settings, clock)
    memories = MemoryTools(rule, library, indexer, keeper.accesses, clock, options)
    tools = _tools(settings, library, choice, memories, clock)
    documents: dict[str, Resources] = {
        "memories": MemoryResources(memories, rule, library, options),
        "graph": GraphResources(library, choice, _graph_document(settings)),
    }
    resources = AllResources([documents[name] for name in _families(settings)])
    return Parts(
        library=library,
        choice=choice,
        tools=tools,
        offered=_readers(tools) if settings.read_only else tools,
        timeline=Timeline(library, clock),
        resources=resources,
        watcher=Watcher(resources),
        keeper=keeper,
        shelf=Shelf(library, rule, keeper),
        memories=memories,
    )


def _library(settings: Settings, clock: Clock) -> Library:
    if settings.deployment_mode == "embedded-memory":
        from recollect.engines.memory.library import MemoryLibrary

        return MemoryLibrary(clock)
    from recollect.engines.sqlite.library import SqliteLibrary

    return SqliteLibrary(settings.data_dir, clock=clock, synchronous=settings.synchronous)


def _embedder(settings: Settings) -> Embedder | None:
    if settings.embedding_model == "none":
        return None
    from recollect.embedders.cached import CachedEmbedder
    from recollect.embedders.onnx import OnnxEmbedder

    return CachedEmbedder(OnnxEmbedder())


def _options(settings: Settings, clock: Clock) -> Options:
    in_memory = settings.deployment_mode == "embedded-memory"
    return Options(
        mask_secrets=settings.mask_secrets,
        max_per_session=settings.max_memories_per_session,
        time_limit=settings.recall_time_limit,
        # Over HTTP there are many clients, each with a session of its own.
        session_id=settings.session_id if settings.transport == "stdio" else None,
        mode=settings.deployment_mode,
        path="" if in_memory else str(settings.data_dir),
        engine_version=__version__,
        started_at=clock(),
        zone=LocalZone(),
    )


def _graph_document(settings: Settings) -> Render:
    if settings.dialect == "server-memory":
        from recollect.families.graph.server_memory import whole_graph

        return whole_graph
    return lambda store: graph_page(store, limit=None, cursor=None)


def _graph_rule(settings: Settings, library: Library) -> ProjectRule:
    if settings.project == AUTO:
        return ProjectRule(library, workspace=settings.path)
    if settings.dialect == "server-memory":
        return ProjectRule(library, configured=settings.project or DEFAULT_PROJECT)
    return ProjectRule(library, configured=settings.project)


def _memory_rule(settings: Settings, library: Library, keeper: Keeper) -> ProjectRule:
    """Memories always have a project; where none is configured, it is the working folder's."""
    if settings.project not in (None, AUTO):
        return ProjectRule(library, configured=settings.project, on_open=keeper.meet)
    # A client of HTTP works in a folder of its own; like the home folder, ours is none of its.
    has_folder = settings.transport == "stdio" or settings.project == AUTO
    folder = settings.path if has_folder else Path.home()
    return ProjectRule(library, workspace=folder, on_open=keeper.meet)


def _tools(
    settings: Settings,
    library: Library,
    choice: ProjectRule,
    memories: MemoryTools,
    clock: Clock,
) -> Toolset:
    mask = settings.mask_secrets
    if settings.dialect == "server-memory":
        from recollect.families.graph.server_memory import ServerMemoryTools

        return Toolset(ServerMemoryTools(choice, clock, mask=mask).tools())
    families = {
        "memories": memories.tools,
        "graph": lambda: [
            *ProjectTools(library, choice).tools(),
            *GraphTools(choice, clock, mask=mask).tools(),
        ],
    }
    return combined(*(families[name]() for name in _families(settings)))


def _families(settings: Settings) -> tuple[str, ...]:
    return ("graph",) if settings.dialect == "server-memory" else chosen_toolsets(settings)


def _readers(tools: Toolset) -> Toolset:
    # switch_project writes nothing but what the session remembers.
    return filtered(tools, lambda item: item.effect in (Effect.READS, Effect.SELECTS))
