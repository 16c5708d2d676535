"""The application: everything that the surfaces offer, put together from settings."""

import logging
import time
from collections.abc import Mapping
from typing import Any

from recollect.app.projects import DEFAULT_PROJECT, ProjectRule
from recollect.app.resources import GraphResources, Render, Watcher
from recollect.app.timeline import Timeline
from recollect.core.ports import Library
from recollect.core.sessions import Call, Report, Session
from recollect.core.times import Clock, now
from recollect.engines.sqlite.library import SqliteLibrary
from recollect.errors import RecollectError
from recollect.families.graph.toolset import GraphTools, ProjectTools
from recollect.families.graph.views import graph_page
from recollect.settings import AUTO, Settings, chosen_toolsets
from recollect.tools.tool import Effect, Result
from recollect.tools.toolset import Toolset, combined, filtered

log = logging.getLogger(__name__)

GRAPH_INSTRUCTIONS = (
    "Recollect remembers across conversations. When the user mentions people, systems or past "
    "work, look with search_nodes before you answer. When you learn a lasting fact, keep it: "
    "create_entities, add_observations, create_relations. Use switch_project or create_project "
    "first when no project is active."
)


class App:
    """Tools, resources and the change log over one library. Close it when done."""

    def __init__(
        self, settings: Settings, *, library: Library | None = None, clock: Clock = now
    ) -> None:
        self.settings = settings
        self.library = library or SqliteLibrary(
            settings.data_dir, clock=clock, synchronous=settings.synchronous
        )
        self.choice = _project_rule(settings, self.library)
        self.tools = _tools(settings, self.library, self.choice, clock)
        self.timeline = Timeline(self.library, clock)
        self.resources = GraphResources(self.library, self.choice, _graph_document(settings))
        self.watcher = Watcher(self.resources)
        self.clock = clock

    @property
    def instructions(self) -> str:
        return GRAPH_INSTRUCTIONS if len(self.tools) else ""

    async def call(
        self,
        session: Session,
        name: str,
        arguments: Mapping[str, Any],
        report: Report | None = None,
    ) -> Result:
        """Runs one tool and logs one line about it. Deliberate errors come out as they are."""
        tool = self.tools.get(name)
        call = Call(session, name) if report is None else Call(session, name, report)
        started = time.perf_counter()
        outcome = "failed"
        try:
            result = await tool.run(call, arguments)
            outcome = "ok"
        except RecollectError as error:
            outcome = error.code
            raise
        else:
            return result
        finally:
            elapsed = (time.perf_counter() - started) * 1000
            log.info("%s %.1f ms %s", name, elapsed, outcome)

    async def close(self) -> None:
        await self.watcher.close()
        await self.library.close()


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

        offered = Toolset(ServerMemoryTools(choice, clock).tools())
    else:
        families = {
            "graph": lambda: combined(
                ProjectTools(library, choice).tools(), GraphTools(choice, clock).tools()
            )
        }
        offered = combined(*(families[name]() for name in chosen_toolsets(settings)))
    if settings.read_only:
        return filtered(offered, lambda item: item.effect is Effect.READS)
    return offered
