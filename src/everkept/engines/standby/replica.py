"""The local copy of a database: how it is brought up to date, and which database it is of.

A server that kept everything in memory, or a backup that was put back, answers as if all were
well. What the copy has beyond it was acknowledged, and may be all that is left of it.
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

PAGE_ITEMS = 500  # things or changes at once: nobody waits long for their being written
MAX_JOINT_PAGES = 2  # pages of things that are written together, and so may trade names
MAX_CHANGES = 1_000_000

# What changes more than the log names.
PURGE_TOOL = "purge"
REDACT_TOOL = "redact"

# What is under way: what changed since the mark, or a copy of everything, in this order.
ReplicationStage = Literal["following", "records", "links", "log", "strays"]
STAGES: Sequence[ReplicationStage] = ("following", "records", "links", "log", "strays")

T = TypeVar("T")
LockIdleReplica = Callable[[], AbstractAsyncContextManager[None]]


class ReplicaMark(Value):
    """How far the copy of a store has come: up to which change, or where within everything."""

    seq: int = 0
    stage: ReplicationStage = "following"
    after: str = ""  # the last record that was copied
    is_fresh: bool = False  # it was empty when everything began to be copied
    own: int = 0  # the newest change here, as long as everything is being copied

    def encode(self) -> str:
        return json.dumps(as_dict(self))


def decode_mark(text: str | None) -> ReplicaMark:
    """What cannot be read begins anew."""
    try:
        mark = ReplicaMark(**cast(dict[str, Any], json.loads(text or "{}")))
    except (ValueError, TypeError):
        return ReplicaMark()
    return mark if mark.stage in STAGES else ReplicaMark()


class LostChanges(Exception):
    """The database has not got any more what the copy here was level with."""

    def __init__(self, mark: ReplicaMark) -> None:
        super().__init__(mark)
        self.mark = mark


class ReplicaBookmark:
    """Where the mark of a copy is kept: with the copy."""

    def __init__(
        self,
        load: Callable[[], Awaitable[str | None]],
        save: Callable[[str], Awaitable[None]],
        replaced: Callable[[], Awaitable[None]],
    ) -> None:
        """`replaced` is told when the log of the copy is that of the database again."""
        self._load = load
        self._save = save
        self.replaced = replaced

    async def read(self) -> ReplicaMark:
        return decode_mark(await self._load())

    async def write(self, mark: ReplicaMark) -> None:
        await self._save(mark.encode())


class StoreReplication:
    """One store there, its copy here. All of it can be interrupted, and goes on from there.

    What is read is read first; what is written is written while nobody else does, and only where
    the copy is as it was when the reading began.
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
        self._was_in_vain = False  # that everything was copied

    async def is_level(self, newest: int) -> bool:
        """Whether it has all that the database has, whose newest change this is."""
        self._mark = await self._bookmark.read()
        if self._mark.stage != "following" and self._mark.own != await self._here.get_revision():
            self._mark = ReplicaMark()  # what was stored here since might be missed
            await self._bookmark.write(self._mark)
        return await self._is_level(newest)

    async def catch_up(self) -> int:
        """Until it is what the database had when this began, or more: up to the change it gives.

        Raises Disturbed where it is somebody else's turn, and HasLost.
        """
        wanted = newest = await self._there.get_revision()
        if await self.is_level(newest):
            return newest
        if self._mark.seq > newest:  # another process may have come further meanwhile
            wanted = newest = await self._there.get_revision()
        while True:
            try:
                await self._run_stage(newest)
            except Conflict:
                # Something changed while it was read, in a way that only a fresh look can tell.
                await self._restart(newest)
            newest = await self._there.get_revision()
            if self._is_past_target(wanted) or await self._is_level(newest):
                return self._mark.seq

    async def _is_level(self, newest: int) -> bool:
        is_following = self._mark.stage == "following" and self._mark.seq == newest
        return is_following and await self._here.get_revision() == newest

    def _is_past_target(self, wanted: int) -> bool:
        """Who stores without end is followed without end, but others have their turn too."""
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
        """The changes since the mark, and what changed here meanwhile."""
        async with self._undisturbed():  # what waits would not be there yet
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
        # The rest of the log says less than it did, too.
        mark = ReplicaMark(seq, "log", after="0") if has_lost else ReplicaMark(seq)
        await self._write_page(rest, mark, revision)

    async def _read_items(self, refs: Sequence[Ref]) -> tuple[list[Record], list[RecordLink], list[Ref]]:
        """Those that are there as they are there, and those that are not."""
        ids = [ref.id for ref in refs if ref.subject == "record"]
        records = await self._read_paged(ids, lambda some: self._there.get(some, include_deleted=True))
        own = await self._read_paged(ids, lambda some: self._here.get(some, include_deleted=True))
        # What comes or goes below a record makes that one newer, of which the log says nothing.
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
        """From the oldest to the newest; those that came meanwhile are among the newest."""
        while page := await self._there.scan(
            RecordFilter(deleted=None), after=self._mark.after or None, limit=self._page
        ):
            await self._write_page(StorePage(page), replace(self._mark, after=page[-1].id))
        last = [self._mark.after] if self._mark.after else []
        if len(await self._there.get(last, include_deleted=True)) < len(last):
            raise Conflict("The last record that was copied is gone: none is found behind it.")

    async def _copy_links(self) -> None:
        links = await self._there.scan_links(deleted=None)
        await self._copy_records()  # those that the newest links lead to
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
        """What is here and no longer there."""
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
        """With an empty copy where even a copy of everything did not fit over what was there."""
        if self._mark.stage == "following":
            await self._start_full_copy(newest)
            return
        if self._was_in_vain:  # there is too much going on just now
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
        is_following = mark.stage == "following"
        marked = replace(mark, own=0 if is_following else await self._here.get_revision())
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
    """Those that the database has by now of records that have none here."""
    while waiting := await here.find_unembedded(model, kinds, PAGE_ITEMS):
        ids = [record.id for record in waiting]
        vectors = await there.get_vectors(model, ids)
        # A vector belongs to the text that its record has: another version is followed first.
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
    """Whether both logs have the change at which the copy was level with the database."""
    if not known:
        return False
    first, second = known[0], own[0]
    return (first.seq, first.at, first.tool, first.client) == (second.seq, second.at, second.tool, second.client)


def _list_refs(changes: Iterable[Change]) -> list[Ref]:
    """Each once, in the order in which they are first mentioned."""
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


STANDBY_NOTES = "standby."  # how the keys of notes begin that belong to the copy and its database
# How the keys of its names begin, in both: a database with none of those that are known is
# another. Several programs that find it without one at the same moment give it one each.
IDENTITY_NOTES = STANDBY_NOTES + "lineage"
KEPT_COPY_NOTE = STANDBY_NOTES + "kept"  # where the copy of a database that has lost something is
_DRAFT_SUFFIX = ".part"

log = logging.getLogger(__name__)


def select_identities(notes: Mapping[str, str]) -> set[tuple[str, str]]:
    return {(key, value) for key, value in notes.items() if key.startswith(IDENTITY_NOTES)}


def drop_standby_notes(notes: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in notes.items() if not key.startswith(STANDBY_NOTES)}


async def ensure_identity(primary: Library, known: Mapping[str, str]) -> CatalogData:
    """What the database has, and a name of its own where nobody has given it one."""
    catalog_data = await primary.read_catalog_data()
    if select_identities(catalog_data.notes) or select_identities(known):
        return catalog_data
    name = uuid4().hex
    try:
        await primary.set_note(f"{IDENTITY_NOTES}.{name}", name)
    except StoreUnreachable:
        raise
    except EverkeptError as error:  # who may only read goes without
        log.debug("the database cannot be named: %r", error)
    return await primary.read_catalog_data()


async def expect_same_database(primary: Library, replica: Library, journal: Journal) -> None:
    """What waits is for the database that was here. Raises StoreAway where another answers."""
    waiting = journal.count_writes().waiting
    known = select_identities(await replica.list_notes(IDENTITY_NOTES)) if waiting else set[tuple[str, str]]()
    if known and known.isdisjoint(select_identities(await primary.list_notes(IDENTITY_NOTES))):
        raise StoreUnreachable(
            f"Another database answers than the one that {format_count(waiting, 'write')} here "
            f"wait "
            f"for: bring that one back. To use this one, move {journal.folder} away first."
        )


def is_other_database(theirs: CatalogData, own: CatalogData) -> bool:
    """Whether it is not the database that the copy is of, and lacks something that the copy has.

    What others have removed from the same database is ordinary.
    """
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
    """Copies the databases of a folder that others have open; gives where they are now."""
    from everkept.engines.sqlite.snapshot import copy_to, open_snapshot

    target = _choose_copy_folder(folder, at)
    draft = target.with_name(target.name + _DRAFT_SUFFIX)
    with ExitStack() as stack:
        stack.enter_context(translate_os_errors(draft))
        shutil.rmtree(draft, ignore_errors=True)
        moment = stack.enter_context(open_snapshot(folder, lenient=True))
        for name, source in moment.databases.items():
            make_folder((draft / name).parent)
            copy_to(source, draft / name, _ignore_progress)
            _sync_file(draft / name)
        draft.rename(target)
    return target


def _choose_copy_folder(folder: Path, at: int) -> Path:
    moment = format_iso(at)[:19].replace("-", "").replace(":", "")
    names = (f"{folder.name}.before-{moment}Z{f'-{n}' if n else ''}" for n in count())
    return next(path for name in names if not (path := folder.with_name(name)).exists())


def _sync_file(path: Path) -> None:
    """What is to outlive the copy must not be lost with it."""
    with path.open("rb+") as file:
        sync(file.fileno())


def _ignore_progress(_done: int, _pages: int) -> None:
    """Nobody waits for it."""


MAX_RECENT = 500  # commits, or acts
MAX_RECENT_CHARACTERS = 8 * 1024 * 1024
_STEP_CHARACTERS = 500  # characters that a step counts for beside its text


class _RecentCommit(NamedTuple):
    change: Change
    batch: Batch
    size: int


class RecentCommits:
    """To one store, by the numbers that the database gave them."""

    def __init__(self) -> None:
        self._made: deque[_RecentCommit] = deque()
        self._size = 0

    def __bool__(self) -> bool:
        return bool(self._made)

    @property
    def is_filling(self) -> bool:
        """It is time that the copy follows: beyond the limits the oldest are given up."""
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
        """The copy has all of the database up to this change."""
        for made in [each for each in self._made if each.change.seq <= seq]:
            self._drop(made)

    def clear(self) -> None:
        self._made.clear()
        self._size = 0

    async def apply_to(self, here: RecordStore) -> None:
        """Only while nobody else changes the copy."""
        for made in sorted(self._made, key=lambda each: each.change.seq):
            with suppress(Conflict):  # what it builds on was never seen here
                await _apply_commit(made.batch, made.change, here)
            self._drop(made)

    def _drop(self, made: _RecentCommit) -> None:
        with suppress(ValueError):  # it was followed meanwhile
            self._made.remove(made)
            self._size -= made.size


LibraryAct = Callable[[Library], Awaitable[object]]


class RecentActs:
    """To the library; each knows how to do it to another."""

    def __init__(self) -> None:
        self._done: deque[tuple[int, LibraryAct]] = deque(maxlen=MAX_RECENT)
        self.count = 0  # of all that there ever were

    def __bool__(self) -> bool:
        return bool(self._done)

    def add(self, act: LibraryAct) -> None:
        self.count += 1
        self._done.append((self.count, act))

    def drop_until(self, count: int) -> None:
        """The copy has what was done when there were so many."""
        while self._done and self._done[0][0] <= count:
            self._done.popleft()

    async def apply_to(self, replica: Library) -> None:
        """Only while nobody else changes the copy."""
        for number, act in list(self._done):
            with suppress(EverkeptError):  # it is so already, or cannot be so here
                await act(replica)
            self.drop_until(number)


async def _apply_commit(batch: Batch, change: Change, here: RecordStore) -> None:
    """Under the number that it has in the database, where the log here has room for that."""
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
