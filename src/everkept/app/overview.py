"""Overview of all projects: their content, and who has access to it."""

import asyncio
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from everkept.accounts.access_log import LOG_FOLDER
from everkept.accounts.account_library import GuardedLibrary
from everkept.accounts.accounts import Accounts
from everkept.accounts.quotas import StoredAmount, measure_stores
from everkept.app.history import HistoryOverview as PastOverview
from everkept.app.history import ImportedHistory
from everkept.core.ports import Library, RecordStore
from everkept.core.projects import USER_PROJECT, Project, find_workspace_key, is_trash_name
from everkept.core.records import Record, RecordFilter
from everkept.core.sessions import is_private_name, parse_private_name
from everkept.core.text import clip_text
from everkept.core.times import Clock, format_iso
from everkept.errors import EverkeptError, StoreUnreachable
from everkept.families.history.model import TURN
from everkept.families.memories.model import MEMORY
from everkept.graph.entities import ENTITY
from everkept.peers.peer_file import PeerList
from everkept.values import Value, field, replace

if TYPE_CHECKING:
    from everkept.jobs.maintenance import Indexer

SHOWN_WEEKS = 12  # weeks of growth to show
MAX_RECALLED = 5
MAX_SHOWN_CHARACTERS = 200  # of a recalled text
WEEK_MICROSECONDS = 7 * 86_400_000_000

_SIDE_FILES = ("-wal", "-shm")  # files that belong to a database
_SERVER_MODES = ("local-server", "remote")  # modes in which the local files are a copy


class ProjectCounts(Value):
    """Counts of one project. Archived and unreadable projects are not counted."""

    name: str
    status: str
    size_bytes: int  # 0 if unknown
    memories: int | None = None
    automatic: int | None = None  # among the memories
    entities: int | None = None
    conversations: int = 0
    off: bool | None = None
    problem: str | None = None


class WeekCounts(Value):
    since: str
    memories: int
    turns: int


class RecalledMemory(Value):
    id: str
    project: str
    times: int
    last_at: str
    content: str


class StoredFile(Value):
    file: str
    size_bytes: int
    project: str | None = None


class StorageTotals(Value):
    projects: int
    memories: int
    automatic: int
    entities: int
    conversations: int
    turns: int
    with_vectors: int
    without_vectors: int
    size_bytes: int
    here_bytes: int | None = None  # files on this machine, if a server holds the data


class AccountCounts(Value):
    """Counts of all accounts' private data together. No details are shown."""

    accounts: int = 0
    memories: int = 0
    size_bytes: int = 0
    unreadable: int = 0  # stores that cannot be read


class StorageOverview(Value):
    totals: StorageTotals
    types: Mapping[str, int]  # of memories
    user: ProjectCounts
    projects: list[ProjectCounts]
    weeks: list[WeekCounts]
    recalled: list[RecalledMemory]
    history: PastOverview
    elsewhere: int  # conversations in folders of no project
    files: list[StoredFile]
    accounts: AccountCounts


class _StoreCounts(Value):
    """Counts of one store of memories and entities."""

    size: int = 0
    entities: int = 0
    automatic: int = 0
    embedded: int = 0
    waiting: int = 0
    types: Counter[str] = field(default_factory=Counter[str])
    weeks: list[int] = field(default_factory=lambda: [0] * SHOWN_WEEKS)
    recalled: list[RecalledMemory] = field(default_factory=list[RecalledMemory])


class OverviewReader:
    """Reads the counts of each project once."""

    def __init__(
        self, library: Library, past: ImportedHistory, indexer: "Indexer", clock: Clock, folder: Path | None
    ) -> None:
        """`folder` holds the files, or is None if there are none."""
        self._library = library
        self._past = past
        self._indexer = indexer
        self._clock = clock
        self._folder = folder

    async def read_overview(self) -> StorageOverview:
        every = [each for each in await self._library.list_projects() if not is_trash_name(each.name)]
        projects = [project for project in every if not is_private_name(project.name)]
        homes = [project for project in every if is_private_name(project.name)]
        owners = [] if self._is_served else projects  # the files of a copy belong to no project
        files = await asyncio.to_thread(_list_files, self._folder, owners)
        talks = await self._count_conversations(projects)
        user = await self._count_store(await self._library.open_user_store(), USER_PROJECT)
        counted, shares = [user], list[ProjectCounts]()
        for project in projects:
            share = _build_project_counts(project, files, talks[project.name])
            try:
                if project.status == "active":
                    own = await self._count_project(project)
                    share = self._with_counts(share, own)
                    counted.append(own)
                elif self._is_served:
                    with suppress(StoreUnreachable):  # the copy has no archived projects
                        store = await self._library.get_store(project)
                        share = replace(share, size_bytes=await store.measure_size())
            except EverkeptError as error:
                share = replace(share, problem=error.message)
            shares.append(share)
        private, accounts = await self._count_private(homes, files)
        counted += private
        types = sum((each.types for each in counted), Counter[str]())
        turns = await self._count_weekly(await self._library.open_history_store(), TURN)
        past = await self._past.read_overview()
        mine = self._with_counts(ProjectCounts(USER_PROJECT, "active", _sum_size(files, "user.db")), user)
        here = sum(file.size_bytes for file in files)
        taken = [mine.size_bytes, accounts.size_bytes, past.database_size_bytes]
        taken += [share.size_bytes for share in shares]
        totals = StorageTotals(
            projects=len(projects),
            memories=types.total(),
            automatic=sum(each.automatic for each in counted),
            entities=sum(each.entities for each in counted),
            conversations=past.conversations,
            turns=past.turns,
            with_vectors=past.with_vectors + sum(each.embedded for each in counted),
            without_vectors=past.without_vectors + sum(each.waiting for each in counted),
            size_bytes=sum(taken) if self._is_served else here,
            here_bytes=here if self._is_served else None,
        )
        recalled = [found for each in counted for found in each.recalled]
        recalled.sort(key=lambda found: found.last_at, reverse=True)
        recalled.sort(key=lambda found: -found.times)
        stored = [sum(column) for column in zip(*(each.weeks for each in counted), strict=True)]
        return StorageOverview(
            totals,
            dict(types.most_common()),
            mine,
            sorted(shares, key=lambda share: (-(share.memories or 0), share.name)),
            [
                WeekCounts(format_iso(since)[:10], memories, said)
                for since, memories, said in zip(self._list_week_starts(), stored, turns, strict=True)
            ],
            recalled[:MAX_RECALLED],
            past,
            past.conversations - talks.total(),
            files,
            accounts,
        )

    @property
    def _is_served(self) -> bool:
        """Whether a database server holds the data, so that the local files are only a copy."""
        return self._library.condition.mode in _SERVER_MODES

    def _with_counts(self, share: ProjectCounts, counted: _StoreCounts) -> ProjectCounts:
        return replace(
            share,
            size_bytes=counted.size if self._is_served else share.size_bytes,
            memories=counted.types.total(),
            automatic=counted.automatic,
            entities=counted.entities,
        )

    async def _count_private(
        self, homes: Sequence[Project], files: Sequence[StoredFile]
    ) -> tuple[list[_StoreCounts], AccountCounts]:
        """Count the accounts' private data without showing it."""
        counted, unreadable = list[_StoreCounts](), 0
        for home in homes:
            try:
                own = await self._count_project(home)
                counted.append(replace(own, recalled=[]))
            except EverkeptError:
                unreadable += 1
        ids = {home.id for home in homes}
        size = (
            sum(each.size for each in counted)
            if self._is_served
            else sum(file.size_bytes for file in files if Path(file.file).stem in ids)
        )
        users = {found.user for home in homes if (found := parse_private_name(home.name))}
        memories = sum(each.types.total() for each in counted)
        return counted, AccountCounts(len(users), memories, size, unreadable)

    async def _count_project(self, project: Project) -> _StoreCounts:
        _, store = await self._library.open(project.name)
        counted = await self._count_store(store, project.name)
        # Projects that are off are counted and not shown.
        return replace(counted, recalled=[]) if project.is_off else counted

    async def _count_store(self, store: RecordStore, name: str) -> _StoreCounts:
        types = Counter[str]()
        for tally in await store.tally((MEMORY,)):
            if not tally.is_deleted:
                types[tally.type or ""] += tally.count
        has_memories = bool(types)
        embedded, waiting = await self._indexer.count_vectors(store)
        automatic = RecordFilter(kinds=(MEMORY,), automatic=True)
        return _StoreCounts(
            size=await store.measure_size(),
            entities=(await store.count_live()).get(ENTITY, 0),
            automatic=await store.count_records(automatic) if has_memories else 0,
            embedded=embedded,
            waiting=waiting,
            types=types,
            weeks=await self._count_weekly(store, MEMORY) if has_memories else [0] * SHOWN_WEEKS,
            recalled=await _read_recalled(store, name),
        )

    async def _count_weekly(self, store: RecordStore, kind: str) -> list[int]:
        starts = self._list_week_starts()
        ends: list[int | None] = [start - 1 for start in starts[1:]] + [None]
        return [
            await store.count_records(RecordFilter(kinds=(kind,), after=start, before=end))
            for start, end in zip(starts, ends, strict=True)
        ]

    def _list_week_starts(self) -> list[int]:
        """Return the starts of the weeks. The last week ends now."""
        today = self._clock() // (WEEK_MICROSECONDS // 7) * (WEEK_MICROSECONDS // 7)
        return [today - WEEK_MICROSECONDS * number + WEEK_MICROSECONDS // 7 for number in range(SHOWN_WEEKS, 0, -1)]

    async def _count_conversations(self, projects: Sequence[Project]) -> Counter[str]:
        """Count conversations by the project of their folder."""
        owners = {
            folder: project.name for project in projects for folder in await self._library.list_workspaces(project)
        }
        folders = await self._past.count_by_folder()
        found: Counter[str] = Counter()
        if owners:
            keys = await asyncio.to_thread(lambda: {each: find_workspace_key(each) for each in folders})
            for folder, count in folders.items():
                owner = owners.get(folder) or owners.get(keys[folder] or "")
                if owner is not None:
                    found[owner] += count
        return found


def _sum_size(files: Sequence[StoredFile], name: str) -> int:
    return sum(file.size_bytes for file in files if file.file == name)


def _build_project_counts(project: Project, files: Sequence[StoredFile], conversations: int) -> ProjectCounts:
    size = sum(file.size_bytes for file in files if file.project == project.name)
    off = True if project.is_off else None
    return ProjectCounts(project.name, project.status, size, conversations=conversations, off=off)


async def _read_recalled(store: RecordStore, name: str) -> list[RecalledMemory]:
    accesses = await store.list_most_accessed(MAX_RECALLED)
    return [
        RecalledMemory(
            record.id, name, accesses[record.id].count, format_iso(accesses[record.id].last_at), _format_content(record)
        )
        for record in (await store.get(list(accesses)) if accesses else [])
    ]


def _format_content(record: Record) -> str:
    return clip_text(" ".join((record.text or record.name or "").split()), MAX_SHOWN_CHARACTERS)


def _list_files(folder: Path | None, projects: Sequence[Project]) -> list[StoredFile]:
    """List each database with its side files, and every other file, by name."""
    if folder is None:
        return []
    names = {project.id: project.name for project in projects}
    sizes: Counter[str] = Counter()
    for place, _, found in os.walk(folder):
        for name in found:
            path = Path(place, name)
            try:
                size = path.lstat().st_size
            except OSError:  # deleted in the meantime
                continue
            shown = path.relative_to(folder).as_posix()
            sizes[next((shown.removesuffix(s) for s in _SIDE_FILES if shown.endswith(s)), shown)] += size
    return [
        StoredFile(file, sizes[file], names.get(Path(file).stem) if "/" in file else None) for file in sorted(sizes)
    ]


class TeamOverview(Value):
    """Numbers of accounts and peers, and the folder of the access log."""

    users: int = 0
    servers: int = 0  # peers that may ask this server
    peers: int = 0  # peers that this server may ask
    problem: str | None = None  # of the list of peers
    access_log: str | None = None  # its folder, or None if no server has written it yet
    access_log_bytes: int = 0
    most_records: int = 0  # of one account
    most_bytes: int = 0


async def read_team(accounts: Accounts, guarded: GuardedLibrary, folder: Path) -> TeamOverview | None:
    """Return the team's numbers, or None if there are no accounts and peers."""
    users = await accounts.list_users()
    log = folder / LOG_FOLDER
    size = sum(each.stat().st_size for each in log.rglob("*.jsonl"))
    servers = sum(user.is_peer for user in users)
    peers, problem = _count_peers(folder)
    if not (users or peers or problem or size):
        return None
    people = len(users) - servers
    amounts = [await measure_account(guarded, user.name) for user in users if not user.is_peer]
    fullest = max(amounts, default=StoredAmount(0, 0))
    return TeamOverview(people, servers, peers, problem, str(log) if size else None, size, *fullest)


async def measure_account(guarded: GuardedLibrary, name: str) -> StoredAmount:
    """Return what belongs to an account: its private data and its projects."""
    try:
        return await measure_stores(await guarded.list_own_stores(name))
    except EverkeptError:  # unreachable or damaged, which the status shows elsewhere
        return StoredAmount(0, 0)


def _count_peers(folder: Path) -> tuple[int, str | None]:
    try:
        return len(PeerList(folder).read_peers().peers), None
    except EverkeptError as error:
        return 0, error.message
