"""The memory bank that the settings describe: its parts, its project, and its files as resources."""

import asyncio
import logging
import os
from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from everkept.accounts.project_rule import ProjectRule, get_empty_store
from everkept.app.resources import ResourceDocument, ResourceInfo
from everkept.core.disk import make_folder, translate_os_errors
from everkept.core.files import FileStore, FileStores
from everkept.core.ports import Library, RecordStore
from everkept.core.projects import (
    DEFAULT_PROJECT,
    Project,
    WorkspaceInfo,
    find_checkout,
    find_workspace,
    to_project_name,
)
from everkept.core.sessions import Session, ToolCall
from everkept.core.text import format_count
from everkept.core.times import Clock
from everkept.errors import EverkeptError, FileNotFound, InvalidInput, NotFound, ProjectOff, Refused, Unavailable
from everkept.families.bank.bank_files import detect_encoding, find_name
from everkept.families.bank.banks import (
    GRAPH_VIEW,
    URI_SCHEME,
    Bank,
    Banks,
    build_uri,
    find_matching,
    get_last_part,
    get_media_type,
    parse_uri,
)
from everkept.families.bank.guidance_tools import RuntimeInfo
from everkept.families.bank.model import (
    ACTIVE,
    CORE_FILES,
    CURRENT_NAMES,
    DECISIONS,
    PATTERNS,
    PRODUCT,
    PROGRESS,
    VERSIONS_FOLDER,
    BankOptions,
)
from everkept.families.bank.section_records import FileStamp, decode_text, get_stamp, list_searched_files
from everkept.families.bank.toolset import BankFamily, BankSurface
from everkept.files.resolver import FileStoreResolver
from everkept.files.ssh_server import SshOptions
from everkept.jobs.graph_files import GraphFileUpdater
from everkept.jobs.maintenance import Maintenance
from everkept.settings import AUTO, Settings, find_remote_bank, list_environment_names
from everkept.tools.tool import Tool
from everkept.values import Value, field, replace

GIT_SECONDS = 2.0  # to read a name from its configuration
_FIRST_BANK_NOTE = "bank of workspace "
BANK_PROJECT_NOTE = "project of bank "


class _ProjectLookup(Value):
    """Way in which a bank's project was found. With `pending`, the first write creates it."""

    rule: ProjectRule
    first_of: str | None = None  # workspace whose first bank this becomes
    is_pending: bool = False


class BankProjects:
    """The project of a bank's folder, whatever project the session uses.

    The first bank of a repository shares the repository's project, in each of its worktrees. A second bank, or one on
    another machine, gets its own project. If the program was started with a project name, the bank of the start joins
    that project, unless it already has one. A bank keeps its project.
    """

    def __init__(
        self,
        library: Library,
        *,
        configured: str | None = None,
        place: Path | str | None = None,
        on_open: Callable[[RecordStore], None] | None = None,
        mask: bool = True,
    ) -> None:
        self._library = library
        self._mask = mask
        self._configured = configured
        self._place = place
        self._on_open = on_open
        self._projects: dict[str, Project] = {}  # by the bank's address
        self._call = ToolCall(Session(client="memory bank"), "memory bank")

    async def find_project_id(self, bank: Bank) -> str | None:
        """Return the project at the last time the bank's records were opened, otherwise the current one."""
        known = self._projects.get(bank.address)
        if known is not None:
            return known.id
        found = await self._look_up_project(bank)
        project = None if found.is_pending else await found.rule.find_active(self._call)
        return None if project is None else project.id

    async def open_to_read(self, bank: Bank) -> RecordStore:
        if store := await self._find_known_store(bank):
            return store
        found = await self._look_up_project(bank)
        return get_empty_store() if found.is_pending else await found.rule.open_to_read(self._call, None)

    async def open_to_write(self, bank: Bank) -> RecordStore:
        if store := await self._find_known_store(bank):
            return store
        found = await self._look_up_project(bank)
        store = await found.rule.open_to_write(self._call, None)
        if found.first_of is not None:
            _, place = _locate_bank(Path(bank.home.address), bank.folder)
            await self._library.set_note(_FIRST_BANK_NOTE + found.first_of, place)
        project = await found.rule.find_active(self._call)
        if project is not None:
            await self._library.set_note(BANK_PROJECT_NOTE + bank.address, f"{project.id} {project.name}")
            self._projects[bank.address] = project
        return store

    async def _find_known_store(self, bank: Bank) -> RecordStore | None:
        """Open the store of the bank's project by name, since a bank keeps its project while that exists."""
        project = self._projects.get(bank.address) or await self._find_project(bank)
        if project is None:
            return None
        try:
            opened, store = await self._library.open(project.name)
        except NotFound:
            opened, store = None, None
        if store is None or opened is None or opened.id != project.id:
            self._projects.pop(bank.address, None)
            return None
        if opened.is_off:
            raise ProjectOff(opened.name)
        self._projects[bank.address] = project
        if self._on_open is not None:
            self._on_open(store)
        return store

    async def _find_project(self, bank: Bank) -> Project | None:
        """Return the bank's project, or None if it has none."""
        project_id, _, name = (await self._library.get_note(BANK_PROJECT_NOTE + bank.address) or "").partition(" ")
        try:
            project = await self._library.get_project(name) if name else None
        except NotFound:
            return None
        return project if project is not None and project.id == project_id else None

    async def _look_up_project(self, bank: Bank) -> _ProjectLookup:
        if owner := await self._find_project(bank):
            return _ProjectLookup(self._build_rule(configured=owner.name))
        if self._configured is not None and self._is_start_bank(bank):
            return _ProjectLookup(self._build_rule(configured=self._configured), is_pending=True)
        if bank.files.is_remote:
            return _ProjectLookup(self._build_rule(home=_build_remote_home(bank)))
        workspace, place = _locate_bank(Path(bank.home.address), bank.folder)
        if workspace is None:  # in the home folder, where memories use the same project
            return _ProjectLookup(self._build_rule(configured=DEFAULT_PROJECT))
        first = await self._library.get_note(_FIRST_BANK_NOTE + workspace.key)
        if first in (None, place):
            return _ProjectLookup(self._build_rule(home=workspace), workspace.key if first is None else None)
        return _ProjectLookup(self._build_rule(home=WorkspaceInfo(bank.address, workspace.name)))

    def _is_start_bank(self, bank: Bank) -> bool:
        if self._place is None:
            return False
        if bank.files.is_remote or isinstance(self._place, str):
            return self._place in (bank.home.address, bank.address)
        return self._place.resolve() in (Path(bank.home.address), Path(bank.address))

    def _build_rule(self, *, configured: str | None = None, home: WorkspaceInfo | None = None) -> ProjectRule:
        return ProjectRule(self._library, configured=configured, workspace=home, on_open=self._on_open, mask=self._mask)


def _locate_bank(folder: Path, name: str) -> tuple[WorkspaceInfo | None, str]:
    """Return the workspace and the bank's path in it. Every worktree has the same path."""
    folder = folder.resolve()
    root = find_checkout(folder) or folder
    return find_workspace(folder), (folder.relative_to(root) / name).as_posix()


def _build_remote_home(bank: Bank) -> WorkspaceInfo:
    name = get_last_part(bank.home.address) or get_last_part(bank.address)
    return WorkspaceInfo(bank.address, to_project_name(name))


class BankParts(Value):
    """The parts of a memory bank that is served."""

    family: BankFamily
    files: FileStores
    care: GraphFileUpdater

    async def close(self) -> None:
        await self.care.close()
        await self.files.close()


def build_bank(settings: Settings, library: Library, maintenance: Maintenance, clock: Clock) -> BankParts:
    remote = find_remote_bank(settings)
    folder = settings.path  # over HTTP only if it is given
    named = None if settings.project in (None, AUTO) else settings.project
    options = BankOptions(
        place=remote or (None if folder is None else str(_find_bank_home(folder, settings.folder))),
        folder=settings.folder,
        username=settings.username,
        read_author=partial(read_git_user, None if folder is None else os.fspath(folder)),
        mode=settings.mode,
        mask_secrets=settings.mask_secrets,
        read_only=settings.read_only,
        free_paths=settings.transport != "http",
    )
    files = FileStoreResolver(SshOptions(key=settings.ssh_key, known_hosts=settings.known_hosts))
    projects = BankProjects(
        library,
        configured=named,
        place=remote or (None if folder is None else _find_bank_home(folder, settings.folder)),
        on_open=maintenance.register_store,
        mask=settings.mask_secrets,
    )
    start = os.fspath(settings.path or Path())
    around = RuntimeInfo(start, list_environment_names(), _find_current_folder())

    async def open_versions(name: str, make: bool) -> FileStore:
        place = settings.data_dir / VERSIONS_FOLDER / name
        if make and not place.is_dir():
            with translate_os_errors(place):
                make_folder(place)
        return await files.open_folder(str(place))

    in_memory = settings.deployment_mode == "embedded-memory"  # nothing stays on the disk
    family = BankFamily(
        files, library, projects, maintenance.indexer, clock, options, around, None if in_memory else open_versions
    )
    return BankParts(family, files, GraphFileUpdater(family.banks, projects, family.mirror))


def _find_bank_home(folder: Path, name: str) -> Path:
    """Return the folder's own bank, otherwise the one at the repository's root."""
    root = find_checkout(folder)
    if root is not None and not (folder / name).is_dir() and (root / name).is_dir():
        return root
    return folder.absolute()


def read_git_user(folder: str | None) -> str | None:
    """Return the user's name in git, or None if git or the name is missing."""
    import subprocess  # only the first entry of a process needs it

    try:
        found = subprocess.run(
            ["git", *(["-C", folder] if folder else []), "config", "--get", "user.name"],
            capture_output=True,
            check=True,
            encoding="utf-8",
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=GIT_SECONDS,
            creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip() or None


async def read_author(settings: Settings) -> str | None:
    """Return the name of the person at this machine: the configured one, or git's."""
    folder = None if settings.path is None else os.fspath(settings.path)
    return settings.username or await asyncio.to_thread(read_git_user, folder)


def _find_current_folder() -> str | None:
    """Return the current folder, or None if it was deleted."""
    try:
        return str(Path.cwd())
    except OSError:
        return None


def list_bank_tools(settings: Settings, bank: BankParts) -> list[Tool]:
    if settings.dialect == "anthropic-memory":
        from everkept.families.bank.anthropic_memory import AnthropicMemoryTools

        return AnthropicMemoryTools(bank.family.memory_files, read_only=settings.read_only).list_tools()
    surface = BankSurface(extras=settings.bank_extras, of_mode=settings.mode_tools)
    return bank.family.list_tools(surface)


MARKDOWN = "text/markdown"
MAX_LISTED_FILES = 100  # further documents can still be read
MAX_READ_BYTES = 16 * 1024 * 1024  # a document is sent in one message
REMOTE_CACHE_MICROSECONDS = 2_000_000  # between two queries to another machine
DESCRIPTIONS = {
    PRODUCT: "Product and project information",
    ACTIVE: "Current project state",
    PROGRESS: "Progress history",
    DECISIONS: "Decision history",
    PATTERNS: "System architecture patterns",
}

log = logging.getLogger(__name__)


class _RemoteSnapshot(Value):
    """The last answer of a bank on another machine, or its error."""

    at: int
    address: str = ""
    files: Mapping[str, FileStamp] = field(default_factory=dict[str, FileStamp])
    fault: Unavailable | None = None


class BankResources:
    """The documents of the session's bank."""

    def __init__(self, banks: Banks, clock: Clock) -> None:
        self._banks = banks
        self._clock = clock
        self._looks: dict[str, _RemoteSnapshot] = {}
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def list_resources(self, session: Session) -> list[ResourceInfo]:
        """List core files first. An unreachable bank must not hide other documents."""
        try:
            bank = await self._get_bank(session)
            files = await list_searched_files(bank)
            seen = await bank.files.survey()
            graph = await bank.files.read_info(GRAPH_VIEW)
        except NotFound:
            return []
        except EverkeptError as error:
            log.warning("memory bank documents not listed: %s", error)
            return []
        names = {CURRENT_NAMES.get(info.path, info.path): info for info in files}
        media = [name for name in seen.files if name not in seen.links and get_media_type(name)]
        infos = [_build_info(name) for name in (*names, *sorted(media))][:MAX_LISTED_FILES]
        return [*infos, *([_build_info(GRAPH_VIEW)] if graph else [])]

    def list_templates(self) -> list[ResourceInfo]:
        return [ResourceInfo(URI_SCHEME + "{name}", "memory-bank-file", "A file of the memory bank.", MARKDOWN)]

    def has_resource(self, uri: str) -> bool:
        return uri.startswith(URI_SCHEME)

    async def read(self, session: Session, uri: str) -> ResourceDocument:
        path = parse_uri(uri)
        bank = await self._get_bank(session)
        found = await _find_path(bank, path)
        try:
            info = await bank.files.read_info(found) if found else None
            if info is None or info.is_folder:
                raise FileNotFound(path)
            if info.size > MAX_READ_BYTES:
                raise Refused(
                    f"{path} is {format_count(info.size, 'byte')} long; a resource has at most {MAX_READ_BYTES:,}.",
                    hint="Read parts of it with read_memory_bank_file, startLine and endLine.",
                    uri=uri,
                )
            data = await bank.files.read(info.path)
            if bank.history:
                bank.history.note(info.path, data)
        except NotFound:
            error = NotFound("resource", uri, hint="Call resources/list to see the documents.")
            suggestion = "Create the file with write_memory_bank_file."
            error.facts = {**error.facts, "expectedPath": f"{bank.address}/{path}", "suggestion": suggestion}
            raise error from None
        if get_media_type(path) is not None:
            return ResourceDocument(_get_mime_type(path), "", data=data)
        if b"\0" in data and detect_encoding(data) is None:
            return ResourceDocument("application/octet-stream", "", data=data)
        return ResourceDocument(_get_mime_type(path), decode_text(data))

    async def read_state(self, session: Session, uri: str) -> object:
        """Return the state of a file. A missing core file has a state too; other missing files are errors."""
        try:
            path = parse_uri(uri)
            address, found = await self._read_stamp(session, path)
        except InvalidInput:
            return NotFound.code
        except EverkeptError as error:
            return error.code
        if found is None and path not in CORE_FILES:
            return NotFound.code
        return address, found

    async def _get_bank(self, session: Session) -> Bank:
        return await self._banks.require_bank(ToolCall(session, "resource"))

    async def _read_stamp(self, session: Session, path: str) -> tuple[str, FileStamp | None]:
        """Return the bank's address and a stamp that changes with the file's content."""
        chosen = session.bank or ""
        look = self._find_recent(chosen)
        if look is None:
            async with self._locks[chosen]:  # concurrent callers wait for the same query
                look = self._find_recent(chosen) or await self._read_snapshot(session, chosen)
        if isinstance(look, Bank):
            return look.address, await _read_local_stamp(look, path)
        if look.fault is not None:
            raise look.fault.with_traceback(None)
        name = path if path == GRAPH_VIEW or get_media_type(path) else find_matching(look.files, path)
        return look.address, look.files.get(name or "")

    async def _read_snapshot(self, session: Session, chosen: str) -> _RemoteSnapshot | Bank:
        """Return the cached listing of a remote bank, or the bank itself if it is on this machine."""
        try:
            bank = await self._get_bank(session)
            if not bank.files.is_remote:
                return bank
            look = _RemoteSnapshot(self._clock(), bank.address, await _read_stamps(bank))
        except Unavailable as error:
            look = self._note_failure(chosen, error)
        self._looks[chosen] = look
        return look

    def _find_recent(self, chosen: str) -> _RemoteSnapshot | None:
        look = self._looks.get(chosen)
        return look if look and self._clock() - look.at < REMOTE_CACHE_MICROSECONDS else None

    def _note_failure(self, chosen: str, error: Unavailable) -> _RemoteSnapshot:
        """Keep the last listing: a lost connection changes no file."""
        log.info("memory bank not read: %s", error)
        before = self._looks.get(chosen)
        if before is None or before.fault is not None:
            return _RemoteSnapshot(self._clock(), fault=error)
        return replace(before, at=self._clock())


async def _find_path(bank: Bank, path: str) -> str | None:
    """Return the path of a document in the bank, or None."""
    return path if path == GRAPH_VIEW or get_media_type(path) else await find_name(bank, path)


async def _read_local_stamp(bank: Bank, path: str) -> FileStamp | None:
    found = await _find_path(bank, path)
    info = await bank.files.read_info(found) if found else None
    return get_stamp(info) if info and not info.is_folder else None


async def _read_stamps(bank: Bank) -> dict[str, FileStamp]:
    """List the stamps of all files with one query."""
    graph = await bank.files.read_info(GRAPH_VIEW)
    found = [*await list_searched_files(bank), *([graph] if graph else [])]
    return {info.path: get_stamp(info) for info in found}


def _build_info(path: str) -> ResourceInfo:
    description = DESCRIPTIONS.get(path, f"{path} of the memory bank")
    if path == GRAPH_VIEW:
        description = "The knowledge graph as people read it"
    return ResourceInfo(build_uri(path), path, description, _get_mime_type(path))


def _get_mime_type(path: str) -> str:
    return get_media_type(path) or ("application/json" if path.lower().endswith(".json") else MARKDOWN)
