"""The application: what the surfaces offer. Its parts are built at the first need of one."""

import logging
import time
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from recollect.core.sessions import Call, Report, Session
from recollect.core.times import Clock, now
from recollect.errors import ReadOnly, RecollectError
from recollect.settings import Settings
from recollect.tools.tool import Result

if TYPE_CHECKING:  # a server answers the handshake before it has loaded them
    from recollect.app.build import Parts
    from recollect.app.projects import ProjectRule
    from recollect.app.resources import GraphResources, Watcher
    from recollect.app.timeline import Timeline
    from recollect.core.ports import Library
    from recollect.tools.toolset import Toolset

log = logging.getLogger(__name__)

RECALL = (
    "Recollect remembers across conversations. When the user mentions people, systems or past "
    "work, look with search_nodes before you answer."
)
KEEP = (
    "When you learn a lasting fact, keep it: create_entities, add_observations, create_relations."
)
CHOOSE = "Use {tools} first when no project is active."


class App:
    """Tools, resources and the change log over one library. Close it when done."""

    def __init__(
        self, settings: Settings, *, library: "Library | None" = None, clock: Clock = now
    ) -> None:
        self.settings = settings
        self.clock = clock
        self._given_library = library

    @cached_property
    def _parts(self) -> "Parts":
        from recollect.app.build import build

        return build(self.settings, self._given_library, self.clock)

    @property
    def library(self) -> "Library":
        return self._parts.library

    @property
    def choice(self) -> "ProjectRule":
        return self._parts.choice

    @property
    def tools(self) -> "Toolset":
        """Those that are offered: where only reading is allowed, the ones that read."""
        return self._parts.offered

    @property
    def timeline(self) -> "Timeline":
        return self._parts.timeline

    @property
    def resources(self) -> "GraphResources":
        return self._parts.resources

    @property
    def watcher(self) -> "Watcher":
        return self._parts.watcher

    @property
    def instructions(self) -> str:
        """When to recall and when to store, naming only tools that are offered."""
        settings = self.settings
        sentences = [RECALL]
        if not settings.read_only:
            sentences.append(KEEP)
        if settings.dialect == "recollect" and not settings.project:
            choosing = ["switch_project"] + ([] if settings.read_only else ["create_project"])
            sentences.append(CHOOSE.format(tools=" or ".join(choosing)))
        return " ".join(sentences)

    async def call(
        self,
        session: Session,
        name: str,
        arguments: Mapping[str, Any],
        report: Report | None = None,
    ) -> Result:
        """Runs one tool and logs one line about it. Deliberate errors come out as they are."""
        tool = self._parts.tools.get(name)
        if name not in self.tools:
            raise ReadOnly(f"{name} writes, and only reading is allowed here.", tool=name)
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
        if "_parts" in vars(self):
            await self.watcher.close()
            await self.library.close()
