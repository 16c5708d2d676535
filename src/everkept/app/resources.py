"""Resources: stored data as documents, and notifications when they change."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol, cast
from urllib.parse import quote, unquote

from everkept.core.library import ReplicaUse, UnreachableInfo, track_replica_use
from everkept.core.ports import Library, ProjectChoice, RecordStore
from everkept.core.sessions import Account, Session, ToolCall, act_as, act_in, get_acting_account
from everkept.errors import EverkeptError, NotFound, ProjectOff
from everkept.tools.schema import to_json
from everkept.tools.tool import ToolResult
from everkept.values import Value, field, replace
from everkept.views.pages import MIME_TYPE, URI_PREFIX, read_page

if TYPE_CHECKING:  # memories are loaded only if they are offered
    from everkept.core.answers import SearchLog
    from everkept.families.memories.model import MemoryOptions
    from everkept.families.memories.toolset import MemoryTools

DEGRADED_KEY = "degraded"
MAX_SESSIONS = 1_000  # sessions whose last notice is remembered
# microseconds before a session is told again that pending writes are being sent
REPEAT_MICROSECONDS = 3600 * 1_000_000


class AbsenceNotices:
    """Remembers which session was told about which outage."""

    def __init__(self) -> None:
        self._told: dict[str, UnreachableInfo] = {}  # the last one, by session

    def mark_result(self, result: ToolResult, session: Session, noted: ReplicaUse, place: str) -> ToolResult:
        """Mark a result that did not come from the database, and explain it once per session."""
        if not noted.is_degraded or result.wire is not None:
            return result
        structured: dict[str, Any] = {**result.facts, DEGRADED_KEY: True}
        said = result.sentence
        if self._is_new(session, noted.absence):
            sentence = describe_absence(noted.absence, place)
            known = cast(list[Any], structured.get("warnings") or [])
            structured["warnings"] = [*known, {"code": DEGRADED_KEY, "message": sentence}]
            if said is not None:
                said = f"{said}\n\n{sentence}"
        return ToolResult(structured, said)

    def _is_new(self, session: Session, absence: UnreachableInfo) -> bool:
        told = self._told.get(session.id)
        if told is not None and not _is_different(absence, told):
            return False
        while len(self._told) >= MAX_SESSIONS:
            del self._told[next(iter(self._told))]
        self._told[session.id] = absence
        return True


def _is_different(absence: UnreachableInfo, told: UnreachableInfo) -> bool:
    """Return whether an outage is news. Short replays and the end of an outage are not."""
    if absence.is_catching_up:
        return (absence.since or 0) - (told.since or 0) >= REPEAT_MICROSECONDS
    return told.is_catching_up or absence.since != told.since


def describe_absence(absence: UnreachableInfo, place: str = "") -> str:
    """Describe an outage to a user, in one or two sentences."""
    database = f"The database at {place}" if place else "The database"
    if absence.is_catching_up:
        return (
            f"{database} is receiving the pending writes of this machine. Until it has them, "
            "results come from the local copy."
        )
    if absence.never_reached:
        return (
            f"{database} was never reached from this data folder. Check its address. "
            "Writes are saved on this machine and sent when it is reached."
        )
    return (
        f"{database} is unreachable. Results come from the local copy. "
        "Writes are saved on this machine and sent when it is back."
    )


CURRENT_GRAPH = "memory://knowledge-graph"
PROJECT_GRAPH = "memory://projects/{name}/knowledge-graph"
WATCH_SECONDS = 0.2  # a check costs microseconds
LIST_SECONDS = 1.0  # between checks of the list, which new and deleted files change
LIST_PAUSE_FACTOR = 50  # a slow check, such as that of a remote bank, pauses this many times as long
RESOURCE_LIST = ""  # in place of a URI
# If the library sends notifications, a check costs more, but files change without one.
NOTIFIED_WATCH_SECONDS = 1.0

Notify = Callable[[str], Awaitable[None]]
Render = Callable[[RecordStore], Awaitable[Any]]

log = logging.getLogger(__name__)


class ResourceInfo(Value):
    uri: str
    name: str
    description: str
    mime_type: str = "application/json"


class ResourceDocument(Value):
    """The content of a resource."""

    mime_type: str
    text: str
    is_degraded: bool = False  # it comes from the local copy of an unreachable database
    data: bytes | None = None  # content that is not text
    meta: dict[str, Any] | None = None


class Resources(Protocol):
    """The documents of one family."""

    async def list_resources(self, session: Session) -> list[ResourceInfo]:
        """List the documents that the session can read."""
        ...

    def list_templates(self) -> list[ResourceInfo]: ...

    def has_resource(self, uri: str) -> bool:
        """Return whether the address belongs to the family, even if the document is missing."""
        ...

    async def read(self, session: Session, uri: str) -> ResourceDocument: ...

    async def read_state(self, session: Session, uri: str) -> object:
        """Return a value that is equal until the document changes, or an error's code."""
        ...


class AllResources:
    """The documents of all families. Accounts do not see those of `owners`."""

    def __init__(self, families: Sequence[Resources], owners: Sequence[Resources] = ()) -> None:
        self._every = families
        self._owners = owners

    @property
    def _families(self) -> Sequence[Resources]:
        if get_acting_account() is None:
            return self._every
        return [family for family in self._every if family not in self._owners]

    async def list_resources(self, session: Session) -> list[ResourceInfo]:
        with act_in(session):
            return [info for family in self._families for info in await family.list_resources(session)]

    def list_templates(self) -> list[ResourceInfo]:
        return [info for family in self._families for info in family.list_templates()]

    def has_resource(self, uri: str) -> bool:
        return self._find_family(uri) is not None

    async def read(self, session: Session, uri: str) -> ResourceDocument:
        with act_in(session), track_replica_use() as noted:
            family = self._find_family(uri)
            if family is None:
                raise NotFound("resource", uri, hint="Call resources/list to see the documents.")
            document = await family.read(session, uri)
        return _mark_document(document, noted.absence) if noted.is_degraded else document

    async def read_state(self, session: Session, uri: str) -> object:
        with act_in(session):
            family = self._find_family(uri)
            return NotFound.code if family is None else await family.read_state(session, uri)

    def _find_family(self, uri: str) -> Resources | None:
        return next((family for family in self._families if family.has_resource(uri)), None)


def _mark_document(document: ResourceDocument, absence: UnreachableInfo) -> ResourceDocument:
    """Say in the text that it is degraded, because not every client shows other fields."""
    text = document.text
    if document.mime_type == "text/markdown":
        text = f"> {describe_absence(absence)}\n\n{text}"
    return replace(document, text=text, is_degraded=True)


class GraphResources:
    """The graph of the active project, and of each project by name."""

    def __init__(self, library: Library, choice: ProjectChoice, render: Render) -> None:
        self._library = library
        self._choice = choice
        self._render = render

    async def list_resources(self, session: Session) -> list[ResourceInfo]:
        current = ResourceInfo(CURRENT_GRAPH, "knowledge-graph", "The knowledge graph of the active project.")
        named = [
            ResourceInfo(
                build_project_uri(project.name),
                f"{project.name}: knowledge graph",
                project.description or f"The knowledge graph of {project.name}.",
            )
            for project in await self._library.list_projects("active")
        ]
        return [current, *named]

    def list_templates(self) -> list[ResourceInfo]:
        return [ResourceInfo(PROJECT_GRAPH, "project-knowledge-graph", "The knowledge graph of a project.")]

    def has_resource(self, uri: str) -> bool:
        return uri == CURRENT_GRAPH or _parse_project_name(uri) is not None

    async def read(self, session: Session, uri: str) -> ResourceDocument:
        document = to_json(await self._render(await self._open_store(session, uri)))
        return ResourceDocument("application/json", json.dumps(document, ensure_ascii=False))

    async def read_state(self, session: Session, uri: str) -> object:
        try:
            store = await self._open_store(session, uri)
            return await self._find_project_id(session, uri), await store.get_revision()
        except EverkeptError as error:
            return error.code

    async def _find_project_id(self, session: Session, uri: str) -> str | None:
        if uri != CURRENT_GRAPH:
            return uri
        project = await self._choice.find_active(ToolCall(session, "resource"))
        return project.id if project else None

    async def _open_store(self, session: Session, uri: str) -> RecordStore:
        if uri == CURRENT_GRAPH:
            return await self._choice.open_to_read(ToolCall(session, "resource"), None)
        project, store = await self._library.open(_parse_project_name(uri) or "")
        if project.is_off:
            raise ProjectOff(project.name)
        return store


def build_project_uri(name: str) -> str:
    return PROJECT_GRAPH.replace("{name}", quote(name, safe=""))


def _parse_project_name(uri: str) -> str | None:
    before, after = PROJECT_GRAPH.split("{name}")
    name = uri.removeprefix(before).removesuffix(after)
    if not uri.startswith(before) or not uri.endswith(after) or not name or "/" in name:
        return None
    return unquote(name)


class ViewResources:
    """The pages that draw results in a chat. Only the entries of tools name them."""

    def __init__(self, names: Collection[str]) -> None:
        self._names = names

    async def list_resources(self, session: Session) -> list[ResourceInfo]:
        return []

    def list_templates(self) -> list[ResourceInfo]:
        return []

    def has_resource(self, uri: str) -> bool:
        return uri.startswith(URI_PREFIX)

    async def read(self, session: Session, uri: str) -> ResourceDocument:
        name = uri.removeprefix(URI_PREFIX)
        if name not in self._names:
            raise NotFound("view", uri, hint="The setting `views` decides which views are offered.")
        return ResourceDocument(MIME_TYPE, read_page(name), meta={"ui": {"prefersBorder": True}})

    async def read_state(self, session: Session, uri: str) -> object:
        return uri if uri.removeprefix(URI_PREFIX) in self._names else NotFound.code


class _Subscription(Value, frozen=False, eq=False):
    session: Session
    uri: str
    notify: Notify
    account: Account | None  # account of the subscriber
    seen: object = field(default=None)
    due: float = 0.0  # time of the next check


def _read_time() -> float:
    return asyncio.get_running_loop().time()


class ResourceWatcher:
    """Notifies subscribers of changes by any process. Runs only while there are subscribers."""

    def __init__(self, resources: Resources, library: Library | None = None) -> None:
        self._resources = resources
        self._library = library
        self._news = asyncio.Event()
        self._is_told: bool | None = None  # whether the library sends notifications; None: not asked yet
        self._watches: set[_Subscription] = set()
        self._task: asyncio.Task[None] | None = None

    async def subscribe(self, session: Session, uri: str, notify: Notify) -> Callable[[], None]:
        """Subscribe to a resource and return a function that ends it. Raises NotFound."""
        watch = _Subscription(session, uri, notify, session.account or get_acting_account())
        watch.seen = await self._resources.read_state(session, uri)
        if watch.seen == NotFound.code:
            raise NotFound("resource", uri, hint="Call resources/list to see the documents.")
        return self._start(watch)

    def follow_list(self, session: Session, seen: list[str], notify: Notify) -> Callable[[], None]:
        """Report changes of the list of resources, which has the URIs `seen`. Return a function that ends it."""
        account = session.account or get_acting_account()
        return self._start(_Subscription(session, RESOURCE_LIST, notify, account, seen, _read_time() + LIST_SECONDS))

    def _start(self, watch: _Subscription) -> Callable[[], None]:
        self._watches.add(watch)
        if self._task is None or self._task.done():
            # The task serves all sessions, each one as its own account.
            with act_as(None):
                self._task = asyncio.create_task(self._run(), name="resource watcher")
        return lambda: self._watches.discard(watch)

    async def close(self) -> None:
        self._watches.clear()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _run(self) -> None:
        if self._is_told is None and self._library is not None:
            self._is_told = await self._library.on_change(self._news.set)
        while self._watches:
            is_list = all(watch.uri == RESOURCE_LIST for watch in self._watches)
            await asyncio.sleep(LIST_SECONDS if is_list else WATCH_SECONDS)
            if self._is_told and not is_list:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._news.wait(), NOTIFIED_WATCH_SECONDS)
                self._news.clear()
            for watch in list(self._watches):
                try:
                    await self._check(watch)
                except Exception:
                    # An error in one check must not end other subscriptions.
                    log.exception("resource %s not checked", watch.uri)

    async def _check(self, watch: _Subscription) -> None:
        started = _read_time()
        if started < watch.due:
            return
        with act_as(watch.account):
            now = await self._read_state(watch)
        if watch.uri == RESOURCE_LIST:
            watch.due = _read_time() + max(LIST_SECONDS / 2, LIST_PAUSE_FACTOR * (_read_time() - started))
        if now != watch.seen and watch in self._watches:
            watch.seen = now
            await self._notify(watch)

    async def _read_state(self, watch: _Subscription) -> object:
        if watch.uri != RESOURCE_LIST:
            return await self._resources.read_state(watch.session, watch.uri)
        return [info.uri for info in await self._resources.list_resources(watch.session)]

    async def _notify(self, watch: _Subscription) -> None:
        try:
            await watch.notify(watch.uri)
        except (OSError, RuntimeError) as error:
            log.info("subscriber of %s is gone: %s", watch.uri, error)
            self._watches.discard(watch)


MARKDOWN = "text/markdown"


@cache
def _map_memory_documents() -> dict[str, ResourceInfo]:
    """Return the four documents of memories, by address."""
    from everkept.families.memories import memory_documents

    listed = (
        ResourceInfo(
            memory_documents.STATUS_URI,
            "Memory System Status",
            "Connection health, memory counts, and storage statistics.",
        ),
        ResourceInfo(
            memory_documents.SESSION_SUMMARY_URI,
            "Current Session Summary",
            "Memories stored, recalled, and consolidated this session.",
            MARKDOWN,
        ),
        ResourceInfo(
            memory_documents.KNOWLEDGE_GRAPH_URI,
            "Project Knowledge Graph",
            "Entities and relationships of the current project.",
            MARKDOWN,
        ),
        ResourceInfo(memory_documents.PREFERENCES_URI, "User Preferences", "The user's preferences.", MARKDOWN),
    )
    return {info.uri: info for info in listed}


class MemoryResources:
    """Documents with fixed addresses that show the caller's own project and session."""

    def __init__(
        self,
        tools: "MemoryTools",
        choice: ProjectChoice,
        library: Library,
        options: "MemoryOptions",
        searches: "SearchLog",
    ) -> None:
        self._searches = searches
        self._tools = tools
        self._choice = choice
        self._library = library
        self._options = options

    async def list_resources(self, session: Session) -> list[ResourceInfo]:
        return list(_map_memory_documents().values())

    def list_templates(self) -> list[ResourceInfo]:
        return []

    def has_resource(self, uri: str) -> bool:
        return uri in _map_memory_documents()

    async def read(self, session: Session, uri: str) -> ResourceDocument:
        if uri not in _map_memory_documents():
            raise NotFound("resource", uri, hint="Call resources/list to see the documents.")
        mime_type = _map_memory_documents()[uri].mime_type
        return ResourceDocument(mime_type, await self._render_text(ToolCall(session, "resource"), uri))

    async def read_state(self, session: Session, uri: str) -> object:
        """Return the state of both stores, because a promotion moves memories between them."""
        if uri not in _map_memory_documents():
            return NotFound.code
        call = ToolCall(session, "resource")
        try:
            project = await self._choice.find_active(call)
            store = await self._choice.open_to_read(call, None)
            user = await self._library.open_user_store()
            return project and project.id, await store.get_revision(), await user.get_revision()
        except EverkeptError as error:
            return error.code

    async def _render_text(self, call: ToolCall, uri: str) -> str:
        from everkept.families.memories import memory_documents
        from everkept.families.memories.stores import get_own_start, get_session_id

        if uri == memory_documents.STATUS_URI:
            return memory_documents.format_status(await self._tools.get_memory_status(call))
        if uri == memory_documents.PREFERENCES_URI:
            return await memory_documents.read_preferences_document(await self._library.open_user_store())
        project = await self._choice.open_to_read(call, None)
        session = get_session_id(call, None, self._options)
        if uri == memory_documents.KNOWLEDGE_GRAPH_URI:
            return await memory_documents.read_graph_document(project, session)
        use = self._tools.uses.get_use(session or "")
        user = await self._library.open_user_store()
        searches = await self._searches.list_newest(session=session) if session else []
        began = get_own_start(call, session, self._options)
        return await memory_documents.read_session_document((project, user), session, began, use, searches)
