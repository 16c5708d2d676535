"""The memory bank as settings have it: its parts, its project and its files as resources."""

import asyncio
import logging
import os
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path

from everkept.app.resources import Document, ResourceInfo
from everkept.core.files import FileStores
from everkept.core.ports import Library, RecordStore
from everkept.core.project_rule import ProjectRule, empty_store
from everkept.core.projects import DEFAULT_PROJECT, Home, Project, checkout_of, home_of, readable
from everkept.core.sessions import Call, Session
from everkept.core.times import Clock
from everkept.errors import (
    EverkeptError,
    FileNotFound,
    InvalidInput,
    NotFound,
    ProjectOff,
    Refused,
    Unavailable,
)
from everkept.families.bank.bank_files import found_name
from everkept.families.bank.banks import (
    GRAPH_VIEW,
    SCHEME,
    Bank,
    Banks,
    last_part,
    matching,
    path_in,
    uri_of,
)
from everkept.families.bank.guidance_tools import Surroundings
from everkept.families.bank.model import (
    ACTIVE,
    CORE_FILES,
    DECISIONS,
    PATTERNS,
    PRODUCT,
    PROGRESS,
    TODAYS_NAMES,
    BankOptions,
)
from everkept.families.bank.section_records import Stamp, as_shown, searched_files, stamp_of
from everkept.families.bank.toolset import BankFamily, Surface
from everkept.files.resolver import Files
from everkept.files.ssh_server import SshOptions
from everkept.jobs.graph_files import BankCare
from everkept.jobs.maintenance import Keeper
from everkept.settings import AUTO, Settings, environment_names, remote_bank
from everkept.tools.tool import Tool
from everkept.values import Value, field, replace

_FIRST_BANK = "bank of workspace "
_OWNER = "project of bank "


class _Belonging(Value):
    """How a bank's project is found; what is `pending` comes true with the first write."""

    rule: ProjectRule
    first_of: str | None = None  # the workspace whose first bank this becomes
    is_pending: bool = False


class BankProjects:
    """The project of the bank's own folder, whatever project the session works in.

    The first bank of a repository shares the project of the repository, in each of its worktrees.
    A second one gets a project of its own, and so does one on another machine. Where the program
    was started with a project's name, the bank of the start belongs to that one, unless it has
    one already: a bank keeps its project, whoever names another one later.
    """

    def __init__(
        self,
        library: Library,
        *,
        configured: str | None = None,
        place: Path | str | None = None,
        on_open: Callable[[RecordStore], None] | None = None,
    ) -> None:
        self._library = library
        self._configured = configured
        self._place = place
        self._on_open = on_open
        self._projects: dict[str, Project] = {}  # by the bank's address, once they are known
        self._call = Call(Session(client="memory bank"), "memory bank")

    async def project_id(self, bank: Bank) -> str | None:
        """As it was when the bank's records were last opened, or else as it is now."""
        known = self._projects.get(bank.address)
        if known is not None:
            return known.id
        found = await self._belonging(bank)
        project = None if found.is_pending else await found.rule.current(self._call)
        return None if project is None else project.id

    async def to_read(self, bank: Bank) -> RecordStore:
        if store := await self._known(bank):
            return store
        found = await self._belonging(bank)
        return empty_store() if found.is_pending else await found.rule.to_read(self._call, None)

    async def to_write(self, bank: Bank) -> RecordStore:
        if store := await self._known(bank):
            return store
        found = await self._belonging(bank)
        store = await found.rule.to_write(self._call, None)
        if found.first_of is not None:
            _, place = _place(Path(bank.home.address), bank.folder)
            await self._library.set_note(_FIRST_BANK + found.first_of, place)
        project = await found.rule.current(self._call)
        if project is not None:
            await self._library.set_note(_OWNER + bank.address, f"{project.id} {project.name}")
            self._projects[bank.address] = project
        return store

    async def _known(self, bank: Bank) -> RecordStore | None:
        """A bank keeps its project for as long as that exists, so it is asked for by its name."""
        project = self._projects.get(bank.address) or await self._owner(bank)
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

    async def _owner(self, bank: Bank) -> Project | None:
        """None where it has none yet, or none any more."""
        project_id, _, name = (await self._library.note(_OWNER + bank.address) or "").partition(" ")
        try:
            project = await self._library.project(name) if name else None
        except NotFound:
            return None
        return project if project is not None and project.id == project_id else None

    async def _belonging(self, bank: Bank) -> _Belonging:
        if owner := await self._owner(bank):
            return _Belonging(self._rule(configured=owner.name))
        if self._configured is not None and self._is_of_the_start(bank):
            return _Belonging(self._rule(configured=self._configured), is_pending=True)
        if bank.files.is_remote:
            return _Belonging(self._rule(home=_remote_home(bank)))
        workspace, place = _place(Path(bank.home.address), bank.folder)
        if workspace is None:  # in the home folder, as memories there
            return _Belonging(self._rule(configured=DEFAULT_PROJECT))
        first = await self._library.note(_FIRST_BANK + workspace.key)
        if first in (None, place):
            return _Belonging(self._rule(home=workspace), workspace.key if first is None else None)
        return _Belonging(self._rule(home=Home(bank.address, workspace.name)))

    def _is_of_the_start(self, bank: Bank) -> bool:
        if self._place is None:
            return False
        if bank.files.is_remote or isinstance(self._place, str):
            return self._place in (bank.home.address, bank.address)
        return self._place.resolve() in (Path(bank.home.address), Path(bank.address))

    def _rule(self, *, configured: str | None = None, home: Home | None = None) -> ProjectRule:
        return ProjectRule(
            self._library, configured=configured, workspace=home, on_open=self._on_open
        )


def _place(folder: Path, name: str) -> tuple[Home | None, str]:
    """The workspace, and where in it the bank lies: in each worktree it is the same bank."""
    folder = folder.resolve()
    root = checkout_of(folder) or folder
    return home_of(folder), (folder.relative_to(root) / name).as_posix()


def _remote_home(bank: Bank) -> Home:
    name = last_part(bank.home.address) or last_part(bank.address)
    return Home(bank.address, readable(name))


class BankParts(Value):
    """What there is of the memory bank where it is offered."""

    family: BankFamily
    files: FileStores
    care: BankCare

    async def close(self) -> None:
        await self.care.close()
        await self.files.close()


def build_bank(settings: Settings, library: Library, keeper: Keeper, clock: Clock) -> BankParts:
    remote = remote_bank(settings)
    folder = settings.path  # over HTTP only where it is given
    named = None if settings.project in (None, AUTO) else settings.project
    options = BankOptions(
        place=remote or (None if folder is None else str(_home_of_bank(folder, settings.folder))),
        folder=settings.folder,
        username=settings.username,
        mode=settings.mode,
        mask_secrets=settings.mask_secrets,
        read_only=settings.read_only,
        free_paths=settings.transport != "http",
    )
    files = Files(SshOptions(key=settings.ssh_key, known_hosts=settings.known_hosts))
    projects = BankProjects(
        library,
        configured=named,
        place=remote or (None if folder is None else _home_of_bank(folder, settings.folder)),
        on_open=keeper.meet,
    )
    start = os.fspath(settings.path or Path())
    around = Surroundings(start, environment_names(), _current_folder())
    family = BankFamily(files, library, projects, keeper.indexer, clock, options, around)
    return BankParts(family, files, BankCare(family.banks, projects, family.mirror))


def _home_of_bank(folder: Path, name: str) -> Path:
    """Inside a repository with a bank at its root, that one, unless the folder has its own."""
    root = checkout_of(folder)
    if root is not None and not (folder / name).is_dir() and (root / name).is_dir():
        return root
    return folder.absolute()


def _current_folder() -> str | None:
    """None where it was removed under the program."""
    try:
        return str(Path.cwd())
    except OSError:
        return None


def bank_tools(settings: Settings, bank: BankParts) -> list[Tool]:
    surface = Surface(extras=settings.bank_extras, of_mode=settings.mode_tools)
    return bank.family.tools(surface)


MARKDOWN = "text/markdown"
MOST_LISTED = 100  # documents; others can be read as well
MOST_READ = 16 * 1024 * 1024  # bytes of one document: it goes out in one message
REMOTE_INTERVAL = 2_000_000  # microseconds between two looks at another machine
DESCRIPTIONS = {
    PRODUCT: "Product and project information",
    ACTIVE: "Current project state",
    PROGRESS: "Progress history",
    DECISIONS: "Decision history",
    PATTERNS: "System architecture patterns",
}

log = logging.getLogger(__name__)


class _Look(Value):
    """What a bank on another machine had when it was last asked, or why it gave no answer."""

    at: int
    address: str = ""
    files: Mapping[str, Stamp] = field(default_factory=dict[str, Stamp])
    fault: Unavailable | None = None


class BankResources:
    """The documents of the bank that the session has chosen."""

    def __init__(self, banks: Banks, clock: Clock) -> None:
        self._banks = banks
        self._clock = clock
        self._looks: dict[str, _Look] = {}
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def listed(self, session: Session) -> list[ResourceInfo]:
        """Core files first; a bank that is out of reach must not hide other documents."""
        try:
            bank = await self._bank(session)
            files = await searched_files(bank)
            graph = await bank.files.info(GRAPH_VIEW)
        except NotFound:
            return []
        except EverkeptError as error:
            log.warning("the memory bank's documents are not listed: %s", error)
            return []
        names = {TODAYS_NAMES.get(info.path, info.path): info for info in files}
        infos = [_info(name) for name in names][:MOST_LISTED]
        return [*infos, *([_info(GRAPH_VIEW)] if graph else [])]

    def templates(self) -> list[ResourceInfo]:
        return [
            ResourceInfo(
                SCHEME + "{name}", "memory-bank-file", "A file of the memory bank.", MARKDOWN
            )
        ]

    def has(self, uri: str) -> bool:
        return uri.startswith(SCHEME)

    async def read(self, session: Session, uri: str) -> Document:
        path = path_in(uri)
        bank = await self._bank(session)
        found = path if path == GRAPH_VIEW else await found_name(bank, path)
        try:
            info = await bank.files.info(found) if found else None
            if info is None or info.is_folder:
                raise FileNotFound(path)
            if info.size > MOST_READ:
                raise Refused(
                    f"{path} has {info.size:,} bytes; a resource has at most {MOST_READ:,}.",
                    hint="read_memory_bank_file reads some lines: startLine, endLine.",
                    uri=uri,
                )
            data = await bank.files.read(info.path)
        except NotFound:
            raise NotFound("resource", uri, hint="resources/list names what there is.") from None
        return Document(_mime_type(path), as_shown(data))

    async def state(self, session: Session, uri: str) -> object:
        """A core file that is yet to be made can be waited for; of others there has to be one."""
        try:
            path = path_in(uri)
            address, found = await self._stamp(session, path)
        except InvalidInput:
            return NotFound.code
        except EverkeptError as error:
            return error.code
        if found is None and path not in CORE_FILES:
            return NotFound.code
        return address, found

    async def _bank(self, session: Session) -> Bank:
        return await self._banks.existing(Call(session, "resource"))

    async def _stamp(self, session: Session, path: str) -> tuple[str, Stamp | None]:
        """The address of the bank, and what tells one content of its file from another."""
        chosen = session.bank or ""
        look = self._recent(chosen)
        if look is None:
            async with self._locks[chosen]:  # whoever comes meanwhile waits for the same look
                look = self._recent(chosen) or await self._looked(session, chosen)
        if isinstance(look, Bank):
            return look.address, await _local_stamp(look, path)
        if look.fault is not None:
            raise look.fault.with_traceback(None)
        name = path if path == GRAPH_VIEW else matching(look.files, path)
        return look.address, look.files.get(name or "")

    async def _looked(self, session: Session, chosen: str) -> _Look | Bank:
        """A bank on this machine is asked about each file by itself."""
        try:
            bank = await self._bank(session)
            if not bank.files.is_remote:
                return bank
            look = _Look(self._clock(), bank.address, await _stamps(bank))
        except Unavailable as error:
            look = self._failed(chosen, error)
        self._looks[chosen] = look
        return look

    def _recent(self, chosen: str) -> _Look | None:
        look = self._looks.get(chosen)
        return look if look and self._clock() - look.at < REMOTE_INTERVAL else None

    def _failed(self, chosen: str, error: Unavailable) -> _Look:
        """A connection that is lost for a while changes no file."""
        log.info("no look at the memory bank: %s", error)
        before = self._looks.get(chosen)
        if before is None or before.fault is not None:
            return _Look(self._clock(), fault=error)
        return replace(before, at=self._clock())


async def _local_stamp(bank: Bank, path: str) -> Stamp | None:
    found = path if path == GRAPH_VIEW else await found_name(bank, path)
    info = await bank.files.info(found) if found else None
    return stamp_of(info) if info and not info.is_folder else None


async def _stamps(bank: Bank) -> dict[str, Stamp]:
    """One look for all who wait for something in the bank."""
    graph = await bank.files.info(GRAPH_VIEW)
    found = [*await searched_files(bank), *([graph] if graph else [])]
    return {info.path: stamp_of(info) for info in found}


def _info(path: str) -> ResourceInfo:
    description = DESCRIPTIONS.get(path, f"{path} of the memory bank")
    if path == GRAPH_VIEW:
        description = "The knowledge graph as people read it"
    return ResourceInfo(uri_of(path), path, description, _mime_type(path))


def _mime_type(path: str) -> str:
    return "application/json" if path.lower().endswith(".json") else MARKDOWN
