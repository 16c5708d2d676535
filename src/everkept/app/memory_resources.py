"""The four documents of the memories: status, this session, the graph, the user's preferences."""

from everkept.app.resources import Document, ResourceInfo
from everkept.core.ports import Library, ProjectChoice
from everkept.core.search_ports import SearchBook
from everkept.core.sessions import Call, Session
from everkept.errors import EverkeptError, NotFound
from everkept.families.memories.model import Options
from everkept.families.memories.resources import (
    KNOWLEDGE_GRAPH,
    PREFERENCES,
    SESSION_SUMMARY,
    STATUS,
    graph_text,
    preferences_text,
    session_text,
    status_text,
)
from everkept.families.memories.sessions import session_of, started_at
from everkept.families.memories.toolset import MemoryTools

MARKDOWN = "text/markdown"
LISTED = (
    ResourceInfo(
        STATUS,
        "Memory System Status",
        "Connection health, memory counts, and storage statistics.",
    ),
    ResourceInfo(
        SESSION_SUMMARY,
        "Current Session Summary",
        "Memories stored, recalled, and consolidated this session.",
        MARKDOWN,
    ),
    ResourceInfo(
        KNOWLEDGE_GRAPH,
        "Project Knowledge Graph",
        "Entities and relationships of the current project.",
        MARKDOWN,
    ),
    ResourceInfo(
        PREFERENCES, "User Preferences", "What was learned of the user's preferences.", MARKDOWN
    ),
)
_MIME_TYPES = {info.uri: info.mime_type for info in LISTED}


class MemoryResources:
    """Fixed addresses; what they show is the caller's own project and session."""

    def __init__(
        self,
        tools: MemoryTools,
        choice: ProjectChoice,
        library: Library,
        options: Options,
        searches: SearchBook,
    ) -> None:
        self._searches = searches
        self._tools = tools
        self._choice = choice
        self._library = library
        self._options = options

    async def listed(self, session: Session) -> list[ResourceInfo]:
        return list(LISTED)

    def templates(self) -> list[ResourceInfo]:
        return []

    def has(self, uri: str) -> bool:
        return uri in _MIME_TYPES

    async def read(self, session: Session, uri: str) -> Document:
        if uri not in _MIME_TYPES:
            raise NotFound("resource", uri, hint="resources/list names what there is.")
        return Document(_MIME_TYPES[uri], await self._text(Call(session, "resource"), uri))

    async def state(self, session: Session, uri: str) -> object:
        """Both places count for each of the documents: a promotion moves between them."""
        if uri not in _MIME_TYPES:
            return NotFound.code
        call = Call(session, "resource")
        try:
            project = await self._choice.current(call)
            store = await self._choice.to_read(call, None)
            user = await self._library.user()
            return project and project.id, await store.revision(), await user.revision()
        except EverkeptError as error:
            return error.code

    async def _text(self, call: Call, uri: str) -> str:
        if uri == STATUS:
            return status_text(await self._tools.get_memory_status(call))
        if uri == PREFERENCES:
            return await preferences_text(await self._library.user())
        project = await self._choice.to_read(call, None)
        session = session_of(call, None, self._options)
        if uri == KNOWLEDGE_GRAPH:
            return await graph_text(project, session)
        use = self._tools.uses.of(session or "")
        user = await self._library.user()
        searches = await self._searches.newest(session=session) if session else []
        began = await started_at(call, (project, user), session or "", self._options)
        return await session_text(project, user, session, began, use, searches)
