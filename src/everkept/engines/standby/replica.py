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

from everkept.core.answers import Holdings, Stock
from everkept.core.disk import make_folder, sync, usable
from everkept.core.ports import Embedded, Library, RecordStore
from everkept.core.records import Batch, Change, Insert, Link, Record, Ref, Step, Update, Where
from everkept.core.text import counted
from everkept.core.times import iso
from everkept.engines.commit_plan import plan
from everkept.engines.standby.failover import Disturbed
from everkept.engines.standby.journal import Journal
from everkept.engines.standby.rebase import StoreView
from everkept.errors import Conflict, EverkeptError, StoreAway
from everkept.values import Value, as_dict, replace

PAGE = 500  # things or changes at once: nobody waits long for their being written
AT_ONCE = 2  # pages of things that are written together, and so may trade names
ALL = 1_000_000

# What changes more than the log names.
REMOVING = "purge"
REWRITING = "redact"

# What is under way: what changed since the mark, or a copy of everything, in this order.
Stage = Literal["following", "records", "links", "log", "strays"]
STAGES: Sequence[Stage] = ("following", "records", "links", "log", "strays")

T = TypeVar("T")
Undisturbed = Callable[[], AbstractAsyncContextManager[None]]


class Mark(Value):
    """How far the copy of a store has come: up to which change, or where within everything."""

    seq: int = 0
    stage: Stage = "following"
    after: str = ""  # the last record that was copied
    is_fresh: bool = False  # it was empty when everything began to be copied
    own: int = 0  # the newest change here, as long as everything is being copied

    def encoded(self) -> str:
        return json.dumps(as_dict(self))


def decoded(text: str | None) -> Mark:
    """What cannot be read begins anew."""
    try:
        mark = Mark(**cast(dict[str, Any], json.loads(text or "{}")))
    except (ValueError, TypeError):
        return Mark()
    return mark if mark.stage in STAGES else Mark()


class HasLost(Exception):
    """The database has not got any more what the copy here was level with."""

    def __init__(self, mark: Mark) -> None:
        super().__init__(mark)
        self.mark = mark


class Bookmark:
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

    async def mark(self) -> Mark:
        return decoded(await self._load())

    async def move(self, mark: Mark) -> None:
        await self._save(mark.encoded())


class Copying:
    """One store there, its copy here. All of it can be interrupted, and goes on from there.

    What is read is read first; what is written is written while nobody else does, and only where
    the copy is as it was when the reading began.
    """

    def __init__(
        self,
        there: RecordStore,
        here: RecordStore,
        bookmark: Bookmark,
        undisturbed: Undisturbed,
        *,
        page: int = PAGE,
    ) -> None:
        self._there = there
        self._here = here
        self._bookmark = bookmark
        self._undisturbed = undisturbed
        self._page = page
        self._mark = Mark()
        self._was_in_vain = False  # that everything was copied

    async def is_level(self, newest: int) -> bool:
        """Whether it has all that the database has, whose newest change this is."""
        self._mark = await self._bookmark.mark()
        if self._mark.stage != "following" and self._mark.own != await self._here.revision():
            self._mark = Mark()  # what was stored here since might be missed
            await self._bookmark.move(self._mark)
        return await self._is_level(newest)

    async def catch_up(self) -> int:
        """Until it is what the database had when this began, or more: up to the change it gives.

        Raises Disturbed where it is somebody else's turn, and HasLost.
        """
        wanted = newest = await self._there.revision()
        if await self.is_level(newest):
            return newest
        if self._mark.seq > newest:  # another process may have come further meanwhile
            wanted = newest = await self._there.revision()
        while True:
            try:
                await self._go_on(newest)
            except Conflict:
                # Something changed while it was read, in a way that only a fresh look can tell.
                await self._begin_anew(newest)
            newest = await self._there.revision()
            if self._is_past(wanted) or await self._is_level(newest):
                return self._mark.seq

    async def _is_level(self, newest: int) -> bool:
        is_following = self._mark.stage == "following" and self._mark.seq == newest
        return is_following and await self._here.revision() == newest

    def _is_past(self, wanted: int) -> bool:
        """Who stores without end is followed without end, but others have their turn too."""
        return self._mark.stage == "following" and self._mark.seq > wanted

    async def _go_on(self, newest: int) -> None:
        if self._mark.seq > newest:
            raise HasLost(self._mark)
        match self._mark.stage:
            case "following" if self._mark.seq:
                await self._follow(newest)
            case "following":
                await self._copy_all(newest)
            case "records":
                await self._copy_records()
                await self._move(replace(self._mark, stage="links"))
            case "links":
                await self._copy_links()
                await self._move(replace(self._mark, stage="log", after="0"))
            case "log":
                await self._copy_log()
                await self._move(replace(self._mark, stage="strays"))
            case "strays":
                if not self._mark.is_fresh:
                    await self._remove_strays()
                await self._move(Mark(self._mark.seq))

    async def _follow(self, newest: int) -> None:
        """The changes since the mark, and what changed here meanwhile."""
        async with self._undisturbed():  # what waits would not be there yet
            own = await self._here.changes(after=self._mark.seq - 1, limit=ALL)
        known = await self._there.changes(after=self._mark.seq - 1, limit=self._page + 1)
        begins_there = bool(own) and own[0].seq == self._mark.seq
        if begins_there and not _begin_alike(known, own):
            raise HasLost(self._mark)
        if not begins_there or any(c.tool == REWRITING for c in known[1:]):
            await self._copy_all(newest)
            return
        changes, revision = known[1:], own[-1].seq
        records, links, gone = await self._things(_refs([*changes, *own[1:]]))
        rest = Stock((), (), (), changes, self._mark.seq + 1)
        if len(records) + len(links) + len(gone) <= AT_ONCE * self._page:
            rest = replace(rest, records=records, links=links, gone=gone)
        else:
            for stock in _portions(records, links, gone, self._page):
                await self._put(stock, self._mark, revision)
        seq = changes[-1].seq if changes else self._mark.seq
        has_lost = any(change.tool == REMOVING for change in changes)
        # The rest of the log says less than it did, too.
        mark = Mark(seq, "log", after="0") if has_lost else Mark(seq)
        await self._put(rest, mark, revision)

    async def _things(self, refs: Sequence[Ref]) -> tuple[list[Record], list[Link], list[Ref]]:
        """Those that are there as they are there, and those that are not."""
        ids = [ref.id for ref in refs if ref.subject == "record"]
        records = await self._paged(ids, lambda some: self._there.get(some, include_deleted=True))
        own = await self._paged(ids, lambda some: self._here.get(some, include_deleted=True))
        # What comes or goes below a record makes that one newer, of which the log says nothing.
        known = {None, *ids}
        above = dict.fromkeys(r.parent for r in (*records, *own) if r.parent not in known)
        records += await self._paged(
            [parent for parent in above if parent],
            lambda some: self._there.get(some, include_deleted=True),
        )
        named = [ref.id for ref in refs if ref.subject == "link"]
        links = await self._paged(
            named, lambda some: self._there.get_links(some, include_deleted=True)
        )
        found = {thing.ref for thing in (*records, *links)}
        return records, links, [ref for ref in refs if ref not in found]

    async def _paged(
        self, ids: Sequence[str], ask: Callable[[Sequence[str]], Awaitable[list[T]]]
    ) -> list[T]:
        return [thing for some in _parts(ids, self._page) for thing in await ask(some)]

    async def _copy_all(self, newest: int) -> None:
        is_fresh = not await self._here.how_many(Where(deleted=None))
        await self._move(Mark(newest, "records", is_fresh=is_fresh))

    async def _copy_records(self) -> None:
        """From the oldest to the newest; those that came meanwhile are among the newest."""
        while page := await self._there.scan(
            Where(deleted=None), after=self._mark.after or None, limit=self._page
        ):
            await self._put(Stock(page), replace(self._mark, after=page[-1].id))
        last = [self._mark.after] if self._mark.after else []
        if len(await self._there.get(last, include_deleted=True)) < len(last):
            raise Conflict("The last record that was copied is gone: none is found behind it.")

    async def _copy_links(self) -> None:
        links = await self._there.scan_links(deleted=None)
        await self._copy_records()  # those that the newest links lead to
        for some in _parts(links, self._page):
            await self._put(Stock(links=some), self._mark)

    async def _copy_log(self) -> None:
        while (after := int(self._mark.after or 0)) < self._mark.seq:
            page = await self._there.changes(after=after, limit=self._page)
            changes = [change for change in page if change.seq <= self._mark.seq]
            last = changes[-1].seq if changes else self._mark.seq
            stock = Stock(changes=changes, log_from=after + 1)
            await self._put(stock, replace(self._mark, after=str(last)))
        await self._put(Stock(log_from=self._mark.seq + 1), self._mark)

    async def _remove_strays(self) -> None:
        """What is here and no longer there."""
        after = ""
        while page := await self._here.scan(
            Where(deleted=None), after=after or None, limit=self._page
        ):
            ids = [record.id for record in page]
            there = {r.id for r in await self._there.get(ids, include_deleted=True)}
            after = next((i for i in reversed(ids) if i in there), after)
            await self._remove([record.ref for record in page if record.id not in there])
        for some in _parts(await self._here.scan_links(deleted=None), self._page):
            ids = [link.id for link in some]
            known = {x.id for x in await self._there.get_links(ids, include_deleted=True)}
            await self._remove([link.ref for link in some if link.id not in known])

    async def _begin_anew(self, newest: int) -> None:
        """With an empty copy where even a copy of everything did not fit over what was there."""
        if self._mark.stage == "following":
            await self._copy_all(newest)
            return
        if self._was_in_vain:  # there is too much going on just now
            raise Disturbed
        self._was_in_vain = True
        while page := await self._here.scan(Where(deleted=None), limit=self._page):
            await self._remove([record.ref for record in page])
        await self._put(Stock(log_from=1), Mark(newest, "records", is_fresh=True))

    async def _remove(self, gone: Sequence[Ref]) -> None:
        if gone:
            await self._put(Stock(gone=gone), self._mark)

    async def _put(self, stock: Stock, mark: Mark, revision: int | None = None) -> None:
        async with self._undisturbed():
            await self._expect_as_it_was(revision)
            await self._here.restock(stock)
            if stock.log_from is not None:
                await self._bookmark.replaced()
            await self._mark_as(mark)

    async def _move(self, mark: Mark) -> None:
        async with self._undisturbed():
            await self._expect_as_it_was(None)
            await self._mark_as(mark)

    async def _mark_as(self, mark: Mark) -> None:
        is_following = mark.stage == "following"
        marked = replace(mark, own=0 if is_following else await self._here.revision())
        await self._bookmark.move(marked)
        self._mark = marked

    async def _expect_as_it_was(self, revision: int | None) -> None:
        expected = revision if self._mark.stage == "following" else self._mark.own
        if await self._bookmark.mark() != self._mark:
            raise Disturbed
        if expected is not None and await self._here.revision() != expected:
            raise Disturbed


async def copy_vectors(
    there: RecordStore,
    here: RecordStore,
    model: str,
    kinds: Sequence[str],
    undisturbed: Undisturbed,
) -> None:
    """Those that the database has by now of records that have none here."""
    while waiting := await here.unembedded(model, kinds, PAGE):
        ids = [record.id for record in waiting]
        vectors = await there.vectors(model, ids)
        # A vector belongs to the text that its record has: another version is followed first.
        versions = {record.id: record.version for record in await there.get(list(vectors))}
        items = [
            Embedded(record.id, record.version, vectors[record.id])
            for record in waiting
            if versions.get(record.id) == record.version
        ]
        if not items:
            return
        async with undisturbed():
            if not await here.put_vectors(model, items):
                return


def _begin_alike(known: Sequence[Change], own: Sequence[Change]) -> bool:
    """Whether both logs have the change at which the copy was level with the database."""
    if not known:
        return False
    first, second = known[0], own[0]
    return (first.seq, first.at, first.tool, first.client) == (
        second.seq,
        second.at,
        second.tool,
        second.client,
    )


def _refs(changes: Iterable[Change]) -> list[Ref]:
    """Each once, in the order in which they are first mentioned."""
    named = (edit for change in changes for edit in change.edits)
    return list(dict.fromkeys(Ref(edit.subject, edit.id) for edit in named if edit.id))


def _portions(
    records: Sequence[Record], links: Sequence[Link], gone: Sequence[Ref], page: int
) -> Iterable[Stock]:
    yield from (Stock(gone=some) for some in _parts(gone, page))
    yield from (Stock(some) for some in _parts(records, page))
    yield from (Stock(links=some) for some in _parts(links, page))


def _parts(things: Sequence[T], page: int) -> list[Sequence[T]]:
    return [things[start : start + page] for start in range(0, len(things), page)]


OWN = "standby."  # how the keys of notes begin that belong to the copy and its database
# How the keys of its names begin, in both: a database with none of those that are known is
# another. Several programs that find it without one at the same moment give it one each.
LINEAGE = OWN + "lineage"
KEPT = OWN + "kept"  # where the copy of a database that has lost something is
_DRAFT = ".part"

log = logging.getLogger(__name__)


def names_in(notes: Mapping[str, str]) -> set[tuple[str, str]]:
    return {(key, value) for key, value in notes.items() if key.startswith(LINEAGE)}


def without_own(notes: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in notes.items() if not key.startswith(OWN)}


async def named(primary: Library, known: Mapping[str, str]) -> Holdings:
    """What the database has, and a name of its own where nobody has given it one."""
    holdings = await primary.holdings()
    if names_in(holdings.notes) or names_in(known):
        return holdings
    name = uuid4().hex
    try:
        await primary.set_note(f"{LINEAGE}.{name}", name)
    except StoreAway:
        raise
    except EverkeptError as error:  # who may only read goes without
        log.debug("the database cannot be named: %r", error)
    return await primary.holdings()


async def expect_the_same(primary: Library, replica: Library, journal: Journal) -> None:
    """What waits is for the database that was here. Raises StoreAway where another answers."""
    waiting = journal.counts().waiting
    known = names_in(await replica.notes(LINEAGE)) if waiting else set[tuple[str, str]]()
    if known and known.isdisjoint(names_in(await primary.notes(LINEAGE))):
        raise StoreAway(
            f"Another database answers than the one that {counted(waiting, 'write')} here wait "
            f"for: bring that one back. To use this one, move {journal.folder} away first.",
        )


def is_another(theirs: Holdings, own: Holdings) -> bool:
    """Whether it is not the database that the copy is of, and lacks something that the copy has.

    What others have removed from the same database is ordinary.
    """
    known = names_in(own.notes)
    if not known or known & names_in(theirs.notes):
        return False
    return not _things(own) <= _things(theirs)


def _things(holdings: Holdings) -> set[str]:
    return {
        *(project.id for project in holdings.projects),
        *(token.id for token, _ in holdings.tokens),
        *holdings.workspaces,
        *(key for key in holdings.notes if not key.startswith(OWN)),
    }


def keep_aside(folder: Path, at: int) -> Path:
    """Copies the databases of a folder that others have open; gives where they are now."""
    from everkept.engines.sqlite.snapshot import copy_to, held

    target = _place_beside(folder, at)
    draft = target.with_name(target.name + _DRAFT)
    with ExitStack() as stack:
        stack.enter_context(usable(draft))
        shutil.rmtree(draft, ignore_errors=True)
        moment = stack.enter_context(held(folder, lenient=True))
        for name, source in moment.databases.items():
            make_folder((draft / name).parent)
            copy_to(source, draft / name, _quietly)
            _on_disk(draft / name)
        draft.rename(target)
    return target


def _place_beside(folder: Path, at: int) -> Path:
    moment = iso(at)[:19].replace("-", "").replace(":", "")
    names = (f"{folder.name}.before-{moment}Z{f'-{n}' if n else ''}" for n in count())
    return next(path for name in names if not (path := folder.with_name(name)).exists())


def _on_disk(path: Path) -> None:
    """What is to outlive the copy must not be lost with it."""
    with path.open("rb+") as file:
        sync(file.fileno())


def _quietly(_done: int, _pages: int) -> None:
    """Nobody waits for it."""


MOST = 500  # commits, or acts
MOST_CHARACTERS = 8 * 1024 * 1024
_EACH = 500  # characters that a step counts for beside its text


class _Made(NamedTuple):
    change: Change
    batch: Batch
    size: int


class RecentCommits:
    """To one store, by the numbers that the database gave them."""

    def __init__(self) -> None:
        self._made: deque[_Made] = deque()
        self._size = 0

    def __bool__(self) -> bool:
        return bool(self._made)

    @property
    def is_filling(self) -> bool:
        """It is time that the copy follows: beyond the limits the oldest are given up."""
        return len(self._made) > MOST // 2 or self._size > MOST_CHARACTERS // 2

    def add(self, batch: Batch, change: Change) -> None:
        if not change.seq:  # nothing had to change
            return
        made = _Made(change, batch, sum(_size(step) for step in batch.steps))
        self._made.append(made)
        self._size += made.size
        while len(self._made) > MOST or self._size > MOST_CHARACTERS:
            self._drop(self._made[0])

    def followed(self, seq: int) -> None:
        """The copy has all of the database up to this change."""
        for made in [each for each in self._made if each.change.seq <= seq]:
            self._drop(made)

    def clear(self) -> None:
        self._made.clear()
        self._size = 0

    async def bring_to(self, here: RecordStore) -> None:
        """Only while nobody else changes the copy."""
        for made in sorted(self._made, key=lambda each: each.change.seq):
            with suppress(Conflict):  # what it builds on was never seen here
                await _put(made.batch, made.change, here)
            self._drop(made)

    def _drop(self, made: _Made) -> None:
        with suppress(ValueError):  # it was followed meanwhile
            self._made.remove(made)
            self._size -= made.size


class RecentActs:
    """To the library; each knows how to do it to another."""

    def __init__(self) -> None:
        self._done: deque[tuple[int, Callable[[Library], Awaitable[object]]]] = deque(maxlen=MOST)
        self.count = 0  # of all that there ever were

    def __bool__(self) -> bool:
        return bool(self._done)

    def add(self, act: Callable[[Library], Awaitable[object]]) -> None:
        self.count += 1
        self._done.append((self.count, act))

    def followed(self, count: int) -> None:
        """The copy has what was done when there were so many."""
        while self._done and self._done[0][0] <= count:
            self._done.popleft()

    async def bring_to(self, replica: Library) -> None:
        """Only while nobody else changes the copy."""
        for number, act in list(self._done):
            with suppress(EverkeptError):  # it is so already, or cannot be so here
                await act(replica)
            self.followed(number)


async def _put(batch: Batch, change: Change, here: RecordStore) -> None:
    """Under the number that it has in the database, where the log here has room for that."""
    if change.seq > await here.revision():
        view = StoreView(here)
        await view.read_ahead(batch.steps)
        planned = await plan(batch, view)
        things = list(planned.records.values()), list(planned.links.values())
        await here.restock(Stock(*things, changes=[change]))
        return
    known = await here.changes(after=change.seq - 1, limit=1)
    if [_named(each) for each in known] != [_named(change)]:
        await here.commit(replace(batch, revision=None))


def _named(change: Change) -> tuple[int, int, str, str]:
    return change.seq, change.at, change.tool, change.client


def _size(step: Step) -> int:
    match step:
        case Insert(Record() as record):
            return _EACH + len(record.text)
        case Update():
            return _EACH + len(str(step.values.get("text", "")))
        case _:
            return _EACH
