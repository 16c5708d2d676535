"""Bringing the local copy of a store up to what the database has by now."""

import json
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Literal, TypeVar, cast

from everkept.core.ports import Embedded, RecordStore
from everkept.core.records import Change, Link, Record, Ref, Where
from everkept.core.store_values import Stock
from everkept.engines.standby.failover import Disturbed
from everkept.errors import Conflict
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
