"""Local replica of a database: how it is updated, and how the database is identified.

A server that kept everything in memory, or was restored from a backup, answers normally. Data that only the replica has
was acknowledged, and may be the only copy left.
"""

import json
import logging
import shutil
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, suppress
from itertools import count
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar, cast
from uuid import uuid4

from everkept.core.answers import CatalogData, StorePage
from everkept.core.disk import make_folder, sync, translate_os_errors
from everkept.core.ports import Library, RecordStore, RecordVector
from everkept.core.records import Batch, Change, Insert, Record, RecordFilter, RecordLink, Ref, Step, Update
from everkept.core.text import format_count
from everkept.core.times import format_iso
from everkept.engines.commit_plan import plan_commit
from everkept.engines.standby.failover import ReplicaBusy
from everkept.engines.standby.journal import Journal
from everkept.engines.standby.rebase import CachedStoreView
from everkept.errors import Conflict, EverkeptError, StoreUnreachable
from everkept.values import Value, as_dict, replace

PAGE_ITEMS = 500  # records, links or changes written together, so that no caller waits long
MAX_JOINT_PAGES = 2  # pages written in one step, so that their records may swap names
MAX_CHANGES = 1_000_000

# Tools whose changes affect more than their log entries name.
PURGE_TOOL = "purge"
REDACT_TOOL = "redact"

# Current stage: changes since the mark, or a full copy in this order.
ReplicationStage = Literal["following", "records", "links", "log", "strays"]
STAGES: Sequence[ReplicationStage] = ("following", "records", "links", "log", "strays")

T = TypeVar("T")
LockIdleReplica = Callable[[], AbstractAsyncContextManager[None]]


class ReplicaMark(Value):
    """Progress of a store's replica: the last change, or the position within a full copy."""

    seq: int = 0
    stage: ReplicationStage = "following"
    after: str = ""  # id of the last copied record
    is_fresh: bool = False  # the replica was empty when the full copy began
    own: int = 0  # newest change of the replica, during a full copy

    def encode(self) -> str:
        return json.dumps(as_dict(self))


def decode_mark(text: str | None) -> ReplicaMark:
    """Decode a mark. Start over if it cannot be read."""
    try:
        mark = ReplicaMark(**cast(dict[str, Any], json.loads(text or "{}")))
    except (ValueError, TypeError):
        return ReplicaMark()
    return mark if mark.stage in STAGES else ReplicaMark()


class LostChanges(Exception):
    """The database no longer has a change that the replica has received."""

    def __init__(self, mark: ReplicaMark) -> None:
        super().__init__(mark)
        self.mark = mark


class ReplicaBookmark:
    """Storage of a replica's mark, with the replica itself."""

    def __init__(
        self,
        load: Callable[[], Awaitable[str | None]],
        save: Callable[[str], Awaitable[None]],
        replaced: Callable[[], Awaitable[None]],
    ) -> None:
        """`replaced` is called when the log of the replica is the database's again."""
        self._load = load
        self._save = save
        self.replaced = replaced

    async def read(self) -> ReplicaMark:
        return decode_mark(await self._load())

    async def write(self, mark: ReplicaMark) -> None:
        await self._save(mark.encode())


class StoreReplication:
    """Replication of one store. It can be interrupted at any time, and continues from there.

    All data is read first. It is written while no other process writes, and only if the replica has not changed since.
    """

    def __init__(
        self,
        there: RecordStore,
        here: RecordStore,
        bookmark: ReplicaBookmark,
        undisturbed: LockIdleReplica,
        *,
        page: int = PAGE_ITEMS,
    ) -> None:
        self._there = there
        self._here = here
        self._bookmark = bookmark
        self._undisturbed = undisturbed
        self._page = page
        self._mark = ReplicaMark()
        self._was_in_vain = False  # a full copy has failed once

    async def is_level(self, newest: int) -> bool:
        """Return whether the replica has everything up to `newest`, the newest change of the database."""
        self._mark = await self._bookmark.read()
        if self._mark.stage != "following" and self._mark.own != await self._here.get_revision():
            self._mark = ReplicaMark()  # changes made here since then could be missed
            await self._bookmark.write(self._mark)
        return await self._is_level(newest)

    async def catch_up(self) -> int:
        """Replicate at least all changes up to now. Return the last number. Raise ReplicaBusy or LostChanges."""
        wanted = newest = await self._there.get_revision()
        if await self.is_level(newest):
            return newest
        if self._mark.seq > newest:  # another process may have replicated further since then
            wanted = newest = await self._there.get_revision()
        while True:
            try:
                await self._run_stage(newest)
            except Conflict:
                # The data changed while it was read, so start with a fresh read.
                await self._restart(newest)
            newest = await self._there.get_revision()
            if self._is_past_target(wanted) or await self._is_level(newest):
                return self._mark.seq

    async def _is_level(self, newest: int) -> bool:
        is_following = self._mark.stage == "following" and self._mark.seq == newest
        return is_following and await self._here.get_revision() == newest

    def _is_past_target(self, wanted: int) -> bool:
        """Return whether to stop although the database has newer changes, so that other stores get their turn."""
        return self._mark.stage == "following" and self._mark.seq > wanted

    async def _run_stage(self, newest: int) -> None:
        if self._mark.seq > newest:
            raise LostChanges(self._mark)
        match self._mark.stage:
            case "following" if self._mark.seq:
                await self._follow(newest)
            case "following":
                await self._start_full_copy(newest)
            case "records":
                await self._copy_records()
                await self._move_mark(replace(self._mark, stage="links"))
            case "links":
                await self._copy_links()
                await self._move_mark(replace(self._mark, stage="log", after="0"))
            case "log":
                await self._copy_log()
                await self._move_mark(replace(self._mark, stage="strays"))
            case "strays":
                if not self._mark.is_fresh:
                    await self._remove_strays()
                await self._move_mark(ReplicaMark(self._mark.seq))

    async def _follow(self, newest: int) -> None:
        """Apply the changes since the mark, and replace changes that were made only here."""
        async with self._undisturbed():  # pending writes would not be in the database yet
            own = await self._here.read_changes(after=self._mark.seq - 1, limit=MAX_CHANGES)
        known = await self._there.read_changes(after=self._mark.seq - 1, limit=self._page + 1)
        begins_there = bool(own) and own[0].seq == self._mark.seq
        if begins_there and not _is_same_start(known, own):
            raise LostChanges(self._mark)
        if not begins_there or any(c.tool == REDACT_TOOL for c in known[1:]):
            await self._start_full_copy(newest)
            return
        changes, revision = known[1:], own[-1].seq
        records, links, gone = await self._read_items(_list_refs([*changes, *own[1:]]))
        rest = StorePage((), (), (), changes, self._mark.seq + 1)
        if len(records) + len(links) + len(gone) <= MAX_JOINT_PAGES * self._page:
            rest = replace(rest, records=records, links=links, gone=gone)
        else:
            for stock in _split_pages(records, links, gone, self._page):
                await self._write_page(stock, self._mark, revision)
        seq = changes[-1].seq if changes else self._mark.seq
        has_lost = any(change.tool == PURGE_TOOL for change in changes)
        # A purge also erased earlier log entries, so copy the whole log.
        mark = ReplicaMark(seq, "log", after="0") if has_lost else ReplicaMark(seq)
        await self._write_page(rest, mark, revision)

    async def _read_items(self, refs: Sequence[Ref]) -> tuple[list[Record], list[RecordLink], list[Ref]]:
        """Return records and links of the database, and references to those it no longer has."""
        ids = [ref.id for ref in refs if ref.subject == "record"]
        records = await self._read_paged(ids, lambda some: self._there.get(some, include_deleted=True))
        own = await self._read_paged(ids, lambda some: self._here.get(some, include_deleted=True))
        # Adding or removing a child updates its parent, which the log does not name.
        known = {None, *ids}
        above = dict.fromkeys(r.parent for r in (*records, *own) if r.parent not in known)
        records += await self._read_paged(
            [parent for parent in above if parent], lambda some: self._there.get(some, include_deleted=True)
        )
        named = [ref.id for ref in refs if ref.subject == "link"]
        links = await self._read_paged(named, lambda some: self._there.get_links(some, include_deleted=True))
        found = {thing.ref for thing in (*records, *links)}
        return records, links, [ref for ref in refs if ref not in found]

    async def _read_paged(self, ids: Sequence[str], ask: Callable[[Sequence[str]], Awaitable[list[T]]]) -> list[T]:
        return [thing for some in _split_items(ids, self._page) for thing in await ask(some)]

    async def _start_full_copy(self, newest: int) -> None:
        is_fresh = not await self._here.count_records(RecordFilter(deleted=None))
        await self._move_mark(ReplicaMark(newest, "records", is_fresh=is_fresh))

    async def _copy_records(self) -> None:
        """Copy records, oldest first. Records added since then are among the newest."""
        while page := await self._there.scan(
            RecordFilter(deleted=None), after=self._mark.after or None, limit=self._page
        ):
            await self._write_page(StorePage(page), replace(self._mark, after=page[-1].id))
        last = [self._mark.after] if self._mark.after else []
        if len(await self._there.get(last, include_deleted=True)) < len(last):
            raise Conflict("The last copied record no longer exists.", hint="Copy all records again.")

    async def _copy_links(self) -> None:
        links = await self._there.scan_links(deleted=None)
        await self._copy_records()  # records that the newest links refer to
        for some in _split_items(links, self._page):
            await self._write_page(StorePage(links=some), self._mark)

    async def _copy_log(self) -> None:
        while (after := int(self._mark.after or 0)) < self._mark.seq:
            page = await self._there.read_changes(after=after, limit=self._page)
            changes = [change for change in page if change.seq <= self._mark.seq]
            last = changes[-1].seq if changes else self._mark.seq
            stock = StorePage(changes=changes, log_from=after + 1)
            await self._write_page(stock, replace(self._mark, after=str(last)))
        await self._write_page(StorePage(log_from=self._mark.seq + 1), self._mark)

    async def _remove_strays(self) -> None:
        """Remove records and links that the database no longer has."""
        after = ""
        while page := await self._here.scan(RecordFilter(deleted=None), after=after or None, limit=self._page):
            ids = [record.id for record in page]
            there = {r.id for r in await self._there.get(ids, include_deleted=True)}
            after = next((i for i in reversed(ids) if i in there), after)
            await self._remove([record.ref for record in page if record.id not in there])
        for some in _split_items(await self._here.scan_links(deleted=None), self._page):
            ids = [link.id for link in some]
            known = {x.id for x in await self._there.get_links(ids, include_deleted=True)}
            await self._remove([link.ref for link in some if link.id not in known])

    async def _restart(self, newest: int) -> None:
        """Start a full copy. If that has failed before, start it with an empty replica."""
        if self._mark.stage == "following":
            await self._start_full_copy(newest)
            return
        if self._was_in_vain:  # the database changes too fast now
            raise ReplicaBusy
        self._was_in_vain = True
        while page := await self._here.scan(RecordFilter(deleted=None), limit=self._page):
            await self._remove([record.ref for record in page])
        await self._write_page(StorePage(log_from=1), ReplicaMark(newest, "records", is_fresh=True))

    async def _remove(self, gone: Sequence[Ref]) -> None:
        if gone:
            await self._write_page(StorePage(gone=gone), self._mark)

    async def _write_page(self, stock: StorePage, mark: ReplicaMark, revision: int | None = None) -> None:
        async with self._undisturbed():
            await self._expect_unchanged(revision)
            await self._here.replicate(stock)
            if stock.log_from is not None:
                await self._bookmark.replaced()
            await self._save_mark(mark)

    async def _move_mark(self, mark: ReplicaMark) -> None:
        async with self._undisturbed():
            await self._expect_unchanged(None)
            await self._save_mark(mark)

    async def _save_mark(self, mark: ReplicaMark) -> None:
        marked = replace(mark, own=0 if mark.stage == "following" else await self._here.get_revision())
        await self._bookmark.write(marked)
        self._mark = marked

    async def _expect_unchanged(self, revision: int | None) -> None:
        expected = revision if self._mark.stage == "following" else self._mark.own
        if await self._bookmark.read() != self._mark:
            raise ReplicaBusy
        if expected is not None and await self._here.get_revision() != expected:
            raise ReplicaBusy


async def copy_vectors(
    there: RecordStore, here: RecordStore, model: str, kinds: Sequence[str], undisturbed: LockIdleReplica
) -> None:
    """Copy vectors of records that have none here."""
    while waiting := await here.find_unembedded(model, kinds, PAGE_ITEMS):
        vectors = await there.get_vectors(model, [record.id for record in waiting])
        # A vector belongs to one version of its record. Other versions are replicated first.
        versions = {record.id: record.version for record in await there.get(list(vectors))}
        items = [
            RecordVector(record.id, record.version, vectors[record.id])
            for record in waiting
            if versions.get(record.id) == record.version
        ]
        if not items:
            return
        async with undisturbed():
            if not await here.put_vectors(model, items):
                return


def _is_same_start(known: Sequence[Change], own: Sequence[Change]) -> bool:
    """Return whether both logs have the change up to which the replica equaled the database."""
    if not known:
        return False
    first, second = known[0], own[0]
    return (first.seq, first.at, first.tool, first.client) == (second.seq, second.at, second.tool, second.client)


def _list_refs(changes: Iterable[Change]) -> list[Ref]:
    """Return each reference once, in the order of the first mention."""
    named = (edit for change in changes for edit in change.edits)
    return list(dict.fromkeys(Ref(edit.subject, edit.id) for edit in named if edit.id))


def _split_pages(
    records: Sequence[Record], links: Sequence[RecordLink], gone: Sequence[Ref], page: int
) -> Iterable[StorePage]:
    yield from (StorePage(gone=some) for some in _split_items(gone, page))
    yield from (StorePage(some) for some in _split_items(records, page))
    yield from (StorePage(links=some) for some in _split_items(links, page))


def _split_items(things: Sequence[T], page: int) -> list[Sequence[T]]:
    return [things[start : start + page] for start in range(0, len(things), page)]


STANDBY_NOTES = "standby."  # key prefix of notes about the replica and its database
# Key prefix of the database's identities, in both. A database that has none of the known identities is another one.
# Several programs that find no identity at the same moment create one each.
IDENTITY_NOTES = STANDBY_NOTES + "lineage"
KEPT_COPY_NOTE = STANDBY_NOTES + "kept"  # path of the saved replica of a database that lost data
_DRAFT_SUFFIX = ".part"

log = logging.getLogger(__name__)


def select_identities(notes: Mapping[str, str]) -> set[tuple[str, str]]:
    return {(key, value) for key, value in notes.items() if key.startswith(IDENTITY_NOTES)}


def drop_standby_notes(notes: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in notes.items() if not key.startswith(STANDBY_NOTES)}


async def ensure_identity(primary: Library, known: Mapping[str, str]) -> CatalogData:
    """Return the catalog data of the database. Give it an identity if it has none."""
    catalog_data = await primary.read_catalog_data()
    if select_identities(catalog_data.notes) or select_identities(known):
        return catalog_data
    name = uuid4().hex
    try:
        await primary.set_note(f"{IDENTITY_NOTES}.{name}", name)
    except StoreUnreachable:
        raise
    except EverkeptError as error:  # a read-only database gets no identity
        log.debug("database cannot be given an identity: %r", error)
    return await primary.read_catalog_data()


async def expect_same_database(primary: Library, replica: Library, journal: Journal) -> None:
    """Raise StoreUnreachable if there are pending writes and another database answers."""
    waiting = journal.count_writes().waiting
    known = select_identities(await replica.list_notes(IDENTITY_NOTES)) if waiting else set[tuple[str, str]]()
    if known and known.isdisjoint(select_identities(await primary.list_notes(IDENTITY_NOTES))):
        raise StoreUnreachable(
            f"The database is not the one for which this machine has {format_count(waiting, 'pending write')}. "
            f"Connect the previous database, or move {journal.folder} to another folder to use this one."
        )


def is_other_database(theirs: CatalogData, own: CatalogData) -> bool:
    """Return whether this is another database than the replica's, and lacks data that the replica has."""
    known = select_identities(own.notes)
    if not known or known & select_identities(theirs.notes):
        return False
    return not _list_keys(own) <= _list_keys(theirs)


def _list_keys(catalog_data: CatalogData) -> set[str]:
    return {
        *(project.id for project in catalog_data.projects),
        *(token.id for token, _ in catalog_data.tokens),
        *catalog_data.workspaces,
        *(key for key in catalog_data.notes if not key.startswith(STANDBY_NOTES)),
    }


def save_copy(folder: Path, at: int) -> Path:
    """Copy the databases of a folder that others have open. Return the new folder."""
    from everkept.engines.sqlite.snapshot import copy_to, open_snapshot

    target = _choose_copy_folder(folder, at)
    draft = target.with_name(target.name + _DRAFT_SUFFIX)
    with ExitStack() as stack:
        stack.enter_context(translate_os_errors(draft))
        shutil.rmtree(draft, ignore_errors=True)
        moment = stack.enter_context(open_snapshot(folder, lenient=True))
        for name, source in moment.databases.items():
            make_folder((draft / name).parent)
            copy_to(source, draft / name, lambda _done, _pages: None)
            with (draft / name).open("rb+") as file:
                sync(file.fileno())  # the saved copy must survive a crash
        draft.rename(target)
    return target


def _choose_copy_folder(folder: Path, at: int) -> Path:
    moment = format_iso(at)[:19].replace("-", "").replace(":", "")
    names = (f"{folder.name}.before-{moment}Z{f'-{n}' if n else ''}" for n in count())
    return next(path for name in names if not (path := folder.with_name(name)).exists())


MAX_RECENT = 500  # commits or acts
MAX_RECENT_CHARACTERS = 8 * 1024 * 1024
_STEP_CHARACTERS = 500  # size that a step counts in addition to its text


class _RecentCommit(NamedTuple):
    change: Change
    batch: Batch
    size: int


class RecentCommits:
    """Recent commits to one store that the replica may not have yet, with their numbers in the database."""

    def __init__(self) -> None:
        self._made: deque[_RecentCommit] = deque()
        self._size = 0

    def __bool__(self) -> bool:
        return bool(self._made)

    @property
    def is_filling(self) -> bool:
        """Whether the replica should follow soon. Beyond the limits the oldest commits are dropped."""
        return len(self._made) > MAX_RECENT // 2 or self._size > MAX_RECENT_CHARACTERS // 2

    def add(self, batch: Batch, change: Change) -> None:
        if not change.seq:  # nothing had to change
            return
        made = _RecentCommit(change, batch, sum(_count_characters(step) for step in batch.steps))
        self._made.append(made)
        self._size += made.size
        while len(self._made) > MAX_RECENT or self._size > MAX_RECENT_CHARACTERS:
            self._drop(self._made[0])

    def drop_until(self, seq: int) -> None:
        """Drop commits that the replica has received."""
        for made in [each for each in self._made if each.change.seq <= seq]:
            self._drop(made)

    def clear(self) -> None:
        self._made.clear()
        self._size = 0

    async def apply_to(self, here: RecordStore) -> None:
        """Apply the commits to the replica. Call this only while no other process changes it."""
        for made in sorted(self._made, key=lambda each: each.change.seq):
            with suppress(Conflict):  # the replica lacks the data that the commit builds on
                await _apply_commit(made.batch, made.change, here)
            self._drop(made)

    def _drop(self, made: _RecentCommit) -> None:
        with suppress(ValueError):  # it was replicated since then
            self._made.remove(made)
            self._size -= made.size


LibraryAct = Callable[[Library], Awaitable[object]]


class RecentActs:
    """Recent acts on the library, each as a function that applies it to another library."""

    def __init__(self) -> None:
        self._done: deque[tuple[int, LibraryAct]] = deque(maxlen=MAX_RECENT)
        self.count = 0  # of all acts so far

    def __bool__(self) -> bool:
        return bool(self._done)

    def add(self, act: LibraryAct) -> None:
        self.count += 1
        self._done.append((self.count, act))

    def drop_until(self, count: int) -> None:
        """Drop the first `count` acts, which the replica has received."""
        while self._done and self._done[0][0] <= count:
            self._done.popleft()

    async def apply_to(self, replica: Library) -> None:
        """Apply the acts to the replica. Call this only while no other process changes it."""
        for number, act in list(self._done):
            with suppress(EverkeptError):  # it is already applied, or cannot be applied here
                await act(replica)
            self.drop_until(number)


async def _apply_commit(batch: Batch, change: Change, here: RecordStore) -> None:
    """Apply a commit with its number in the database, if the replica's log does not have that number yet."""
    if change.seq > await here.get_revision():
        view = CachedStoreView(here)
        await view.prefetch(batch.steps)
        planned = await plan_commit(batch, view)
        things = list(planned.records.values()), list(planned.links.values())
        await here.replicate(StorePage(*things, changes=[change]))
        return
    known = await here.read_changes(after=change.seq - 1, limit=1)
    made = (change.seq, change.at, change.tool, change.client)
    if [(each.seq, each.at, each.tool, each.client) for each in known] != [made]:
        await here.commit(replace(batch, revision=None))


def _count_characters(step: Step) -> int:
    match step:
        case Insert(Record() as record):
            return _STEP_CHARACTERS + len(record.text)
        case Update():
            return _STEP_CHARACTERS + len(str(step.values.get("text", "")))
        case _:
            return _STEP_CHARACTERS
