"""What commands do with the memories of a project and of the user: list, forget, compare and index them."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

from everkept.accounts.project_rule import ProjectRule
from everkept.core.commits import ChangeWriter, Planned
from everkept.core.ports import Level, Library, RecordStore
from everkept.core.projects import USER_PROJECT, Project
from everkept.core.records import Record, RecordFilter
from everkept.core.sessions import Session, ToolCall
from everkept.errors import EverkeptError, ModelUnavailable, ProjectOff
from everkept.families.memories.lifecycle import build_forget_steps, can_forget
from everkept.families.memories.model import MEMORY
from everkept.values import Value, field, replace

if TYPE_CHECKING:
    from everkept.jobs.maintenance import Maintenance

MAX_COMPARED_MEMORIES = 200  # newest memories that are compared with all others
DUPLICATE_LEVEL = Level("alike", 0.95)  # of near duplicates; one statement in two wordings is less near
MAX_PAIRS = 10
FORGET_TOOL = "forget_memory"  # tool name in the change log, also if several memories are forgotten
AUTOMATIC_REASON = "automatic"

# Indexes the files of a memory bank and returns their store, or None without a bank.
IndexBank = Callable[[ToolCall], Awaitable[RecordStore | None]]


class MemoryPair(Value):
    score: float
    first: Record
    second: Record


class IndexResult(Value, frozen=False):
    """The number of embedded texts, of texts that the time was too short for, and the errors of stores that failed."""

    done: int = 0
    pending: int = 0
    problems: list[EverkeptError] = field(default_factory=list[EverkeptError])


class MemoryAccess:
    """Memories a command can access: one project's and the user's."""

    def __init__(
        self, library: Library, choice: ProjectRule, maintenance: "Maintenance", bank: IndexBank | None = None
    ) -> None:
        self._library = library
        self._choice = choice
        self._maintenance = maintenance
        self._bank = bank

    async def list_newest(
        self, session: Session, where: RecordFilter, limit: int, *, everywhere: bool = False
    ) -> list[tuple[str, Record]]:
        """Return the newest memories of all sessions, each with the name of its project."""
        wanted = replace(where, kinds=(MEMORY,))
        found: list[tuple[str, Record]] = []
        for name, store in (await self._map_stores(session, everywhere=everywhere)).items():
            newest = await store.scan(wanted, order="newest", limit=limit)
            found += [(name, record) for record in newest]
        found.sort(key=lambda each: each[1].created_at, reverse=True)
        once = {record.id: (name, record) for name, record in reversed(found)}
        return list(once.values())[::-1][:limit]

    async def find_project(self, session: Session) -> Project | None:
        """Return the active project of a command, or None if it is not created yet."""
        return await self._choice.find_active(ToolCall(session, "command"))

    async def ensure_project(self, session: Session) -> Project:
        """Return the active project of a command. Create it if it is missing."""
        return await self._choice.ensure_project(ToolCall(session, "command"))

    async def find_memory(self, session: Session, memory_id: str) -> Record | None:
        """Find a memory by its id or the beginning of it, except a forgotten one."""
        from everkept.core.short_ids import require_one_id
        from everkept.families.memories.stores import find_memories_by_prefix

        stores = [*(await self._map_stores(session)).values()]
        for store in stores:
            for record in await store.get([memory_id, f"{MEMORY}:{memory_id}"]):
                return record
        matches = await find_memories_by_prefix(stores, memory_id)
        found = {record.id: record for _, record in matches if record.deleted_at is None}
        meant = require_one_id(MEMORY, memory_id, [*found.values()])
        return None if meant is None else found[meant]

    async def list_automatic(
        self, session: Session, where: RecordFilter, *, everywhere: bool = False
    ) -> dict[str, list[Record]]:
        """Return the automatic memories that are not pinned, by project name."""
        wanted = replace(where, kinds=(MEMORY,), automatic=True)
        places = await self._map_stores(session, everywhere=everywhere)
        found = {
            name: [record for record in await store.scan(wanted) if can_forget(record)]
            for name, store in places.items()
        }
        return {name: records for name, records in found.items() if records}

    async def forget_automatic(
        self, session: Session, found: Mapping[str, Sequence[Record]], *, everywhere: bool = False
    ) -> dict[str, int]:
        """Forget memories that are still automatic and not pinned, in one change per project. Return the counts."""
        writer = ChangeWriter(self._maintenance.clock, FORGET_TOOL, session.client)

        async def plan(ids: Sequence[str], store: RecordStore, _at: int) -> Planned[int]:
            left = [record for record in await store.get(ids) if can_forget(record)]
            steps = [step for record in left for step in build_forget_steps(record, AUTOMATIC_REASON)]
            return steps, len(left)

        counts: dict[str, int] = {}
        for name, store in (await self._map_stores(session, everywhere=everywhere)).items():
            if ids := [record.id for record in found.get(name, ())]:
                counts[name] = await writer.commit(store, partial(plan, ids))
        return {name: count for name, count in counts.items() if count}

    async def find_similar(self, session: Session) -> list[MemoryPair]:
        """Return pairs of near duplicates among the newest memories and all others."""
        embedder = self._maintenance.indexer.embedder
        if embedder is None or self._maintenance.indexer.fault is not None:
            return []
        background = await asyncio.to_thread(lambda: embedder.background)  # it may load the model
        pairs: dict[frozenset[str], MemoryPair] = {}
        for store in (await self._map_stores(session)).values():
            for pair in await _find_pairs(store, embedder.name, background.find(DUPLICATE_LEVEL)):
                pairs.setdefault(frozenset((pair.first.id, pair.second.id)), pair)
        best = sorted(pairs.values(), key=lambda pair: -pair.score)
        return best[:MAX_PAIRS]

    async def index(
        self,
        session: Session,
        report: Callable[[int, int], None],
        only: str | None = None,
        seconds: float | None = None,
    ) -> IndexResult:
        """Compute all missing embeddings now, in all projects or `only` in one, until the time is up.

        Projects that are turned off are included, because embeddings show no one their content. A store that fails does
        not stop the others. A model that another one has replaced is used again.
        """
        indexed = IndexResult()
        ends_at = None if seconds is None else time.monotonic() + seconds
        await self._maintenance.indexer.reclaim_model()
        stores = await self._list_stores_to_index(only, indexed.problems)
        total = sum([await self._count_pending(store) for store in stores])

        async def drain(store: RecordStore) -> None:
            before = indexed.done

            def further(done: int, _total: int) -> None:
                report(before + done, max(total, before + done))

            indexed.done += await self._maintenance.indexer.drain(store, further, ends_at)

        for store in stores:
            with _collect_problems(indexed.problems):
                await drain(store)
        with _collect_problems(indexed.problems), suppress(ProjectOff):  # nothing of an off project is indexed
            if self._bank is not None and (bank := await self._bank(ToolCall(session, "index"))):
                stores.append(bank)
                await drain(bank)
        if ends_at is not None:
            indexed.pending = sum([await self._count_pending(store) for store in stores])
        return indexed

    async def catch_up(self, session: Session, within: float) -> None:
        """Wait for pending embeddings, for a command that runs without a server."""
        for store in (await self._map_stores(session)).values():
            self._maintenance.indexer.register_store(store)
        await self._maintenance.indexer.wait_until_settled(within)

    async def _map_stores(self, session: Session, *, everywhere: bool = False) -> dict[str, RecordStore]:
        """Return the stores by name, the project's first, or those of all projects that are not off or archived."""
        if everywhere:
            active = await self._library.list_projects("active")
            names = [project.name for project in active if not project.is_off]
            own = {name: (await self._library.open(name))[1] for name in names}
        else:
            store = await self._choice.open_to_read(ToolCall(session, "command"), None)
            project = await self.find_project(session)
            own = {project.name if project else "": store}
        return {**own, USER_PROJECT: await self._library.open_user_store()}

    async def _list_stores_to_index(self, only: str | None, problems: list[EverkeptError]) -> list[RecordStore]:
        stores = [await self._library.open_user_store(), await self._library.open_history_store()]
        if only is not None:
            return [(await self._library.open(only))[1], *stores]
        for project in await self._library.list_projects("active"):
            with _collect_problems(problems):
                stores.append((await self._library.open(project.name))[1])
        return stores

    async def _count_pending(self, store: RecordStore) -> int:
        with suppress(EverkeptError):  # the error is reported when the store is indexed
            return (await self._maintenance.indexer.count_vectors(store))[1]
        return 0


@contextmanager
def _collect_problems(problems: list[EverkeptError]) -> Generator[None, None, None]:
    """Collect errors, except ModelUnavailable: without a model no store can be indexed."""
    try:
        yield
    except ModelUnavailable:
        raise
    except EverkeptError as error:
        problems.append(error)


async def _find_pairs(store: RecordStore, model: str, least: float) -> list[MemoryPair]:
    where = RecordFilter(kinds=(MEMORY,))
    newest = [
        r
        for r in await store.scan(where, order="newest", limit=MAX_COMPARED_MEMORIES)
        if not r.facets.get("superseded_by") and not r.facets.get("consolidated")
    ]
    vectors = await store.get_vectors(model, [record.id for record in newest])
    found: list[tuple[float, Record, str]] = []
    for record in newest:
        if record.id in vectors:
            near = await store.find_near(model, vectors[record.id], where, 2)
            found += [
                (match.score, record, match.id) for match in near if match.id != record.id and match.score >= least
            ]
    others = {r.id: r for r in await store.get([other for _, _, other in found])}
    return [
        MemoryPair(score, record, others[other])
        for score, record, other in found
        if other in others and not others[other].facets.get("superseded_by")
    ]
