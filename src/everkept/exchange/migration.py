"""The copy of everything in one database into another, compared with it page by page."""

import hashlib
import json
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any

from everkept.app.engines import BROUGHT, UNDER_WAY
from everkept.core.answers import Holdings, Stock
from everkept.core.ports import Embedded, Library, RecordStore
from everkept.core.projects import USER, Project
from everkept.core.records import Change, Link, Record, Ref, Where
from everkept.core.times import iso
from everkept.errors import Conflict
from everkept.values import Value, as_dict, field, replace

PAGE = 200  # records, links or log entries that are written at once
MOST_PASSES = 5  # over a store that is written to meanwhile
ALL = Where(deleted=None)

Step = Callable[[int], None]  # takes how many more are done


class Compared(Value, frozen=False):
    """What was counted while two stores were compared, and where they differ."""

    records: int = 0
    links: int = 0
    changes: int = 0
    vectors: int = 0
    digest: str = ""
    differing: list[Record] = field(default_factory=list[Record])
    differing_links: list[Link] = field(default_factory=list[Link])
    gone: list[Ref] = field(default_factory=list[Ref])
    log_from: int | None = None
    foreign: Change | None = None  # that only the copy has: somebody else made it there
    is_whole: bool = True  # nothing was removed while it was looked through

    @property
    def is_equal(self) -> bool:
        differs = self.differing or self.differing_links or self.gone or self.log_from
        return self.is_whole and not differs


async def copy(source: RecordStore, target: RecordStore, model: str, step: Step) -> Compared:
    """Goes on behind what an earlier attempt has brought there.

    Raises Conflict where the source is written to faster than it can be copied, and where
    somebody else has written to the target: nothing of that is removed.
    """
    expect_own(await foreign_change(source, target))
    await _bring(source, target, model, step)
    for _ in range(MOST_PASSES):
        compared = await compare(source, target, model)
        if compared.is_equal:
            return compared
        expect_own(compared.foreign)
        await _mend(source, target, model, compared)
    raise Conflict(
        "What is copied changes all the time, so the copy never is the same.",
        hint="Stop the programs that write there, then run the same command again.",
    )


async def foreign_change(source: RecordStore, target: RecordStore) -> Change | None:
    """The first that the target has and the source never had."""
    async for mine, theirs in _side_by_side(source, target):
        if theirs is None:
            break
        if not _is_copied(mine, theirs):
            return theirs
    return None


def expect_own(foreign: Change | None) -> None:
    if foreign is not None:
        made = f"{foreign.tool} at {iso(foreign.at)}"
        raise Conflict(
            f"Somebody else has written to the unfinished copy ({made}): what is there is not "
            "written over.",
            hint="Copy into another, empty place, and stop the programs that use this one.",
            change=foreign.seq,
        )


async def compare(source: RecordStore, target: RecordStore, model: str) -> Compared:
    """All records, links and log entries of both, a page at a time in the order of their age.

    The logs come last: whatever somebody else has put into the copy is in its log by then.
    """
    found = Compared()
    digest = hashlib.sha256()
    async for mine, theirs in _pages_of_both(source, target):
        for record in mine:
            digest.update(_line(record))
        found.records += len(mine)
        differing = await _compare_pages(source, target, found, mine, theirs)
        differing |= await _compare_belongings(source, target, model, found, mine)
        found.differing += [record for record in mine if record.id in differing]
    found.is_whole = found.records == await source.how_many(ALL)
    links = {link.id: link for link in await target.scan_links(deleted=None)}
    for link in await source.scan_links(deleted=None):
        found.links += 1
        digest.update(_line(link))
        if links.pop(link.id, None) != link:
            found.differing_links.append(link)
    found.gone += [Ref("link", link_id) for link_id in links]
    await _compare_logs(source, target, found, digest.update)
    found.digest = digest.hexdigest()
    return found


async def _compare_pages(
    source: RecordStore,
    target: RecordStore,
    found: Compared,
    mine: Sequence[Record],
    theirs: Sequence[Record],
) -> set[str]:
    """Those that differ. Where one side has more, what is on a page here is on another there."""
    if mine == theirs:
        return set()
    here, there = ({record.id: record for record in page} for page in (mine, theirs))
    apart = await target.get([each for each in here if each not in there], include_deleted=True)
    there |= {record.id: record for record in apart}
    unknown = [record.id for record in theirs if record.id not in here]
    known = {record.id for record in await source.get(unknown, include_deleted=True)}
    found.gone += [Ref("record", each) for each in unknown if each not in known]
    return {record.id for record in mine if there.get(record.id) != record}


async def _compare_belongings(
    source: RecordStore, target: RecordStore, model: str, found: Compared, page: Sequence[Record]
) -> set[str]:
    """Those whose vector differs, or how often they were given out."""
    ids = [record.id for record in page]
    vectors, copied = await source.vectors(model, ids), await target.vectors(model, ids)
    accesses, noted = await source.accesses(ids), await target.accesses(ids)
    found.vectors += len(vectors)
    differing = {each for each, access in accesses.items() if noted.get(each) != access}
    return differing | {
        each
        for each, vector in vectors.items()
        if each not in copied or copied[each].tobytes() != vector.tobytes()
    }


async def _compare_logs(
    source: RecordStore, target: RecordStore, found: Compared, add: Callable[[bytes], None]
) -> None:
    async for mine, theirs in _side_by_side(source, target):
        if mine is not None:
            found.changes += 1
            add(_line(mine))
        if mine != theirs and found.log_from is None:
            found.log_from = next(each.seq for each in (mine, theirs) if each)
        if theirs is not None and found.foreign is None and not _is_copied(mine, theirs):
            found.foreign = theirs


def _is_copied(original: Change | None, change: Change) -> bool:
    """What was purged or redacted since then is missing in the original alone."""
    if original is None or _named(original) != _named(change):
        return False
    edited = {(edit.subject, edit.id) for edit in change.edits}
    return all((edit.subject, edit.id) in edited for edit in original.edits)


def _named(change: Change) -> tuple[int, int, str, str, int | None]:
    return change.seq, change.at, change.tool, change.client, change.undoes


async def _bring(source: RecordStore, target: RecordStore, model: str, step: Step) -> None:
    newest = await target.scan(ALL, order="newest", limit=1)
    known = await source.get([record.id for record in newest], include_deleted=True)
    if known:
        step(await target.how_many(ALL))
    async for page in _records(source, known[0].id if known else None):
        await target.restock(await _stocked(source, page, model))
        step(len(page))
    links = await source.scan_links(deleted=None)
    there = {link.id for link in await target.scan_links(deleted=None)}
    for page in _pages([link for link in links if link.id not in there]):
        await target.restock(Stock(links=page))
    last = await target.revision()
    while changes := await source.changes(after=last, limit=PAGE):
        await target.restock(Stock(changes=changes))
        last = changes[-1].seq


async def _mend(source: RecordStore, target: RecordStore, model: str, compared: Compared) -> None:
    if compared.gone:
        await target.restock(Stock(gone=compared.gone))
    # All at once: what differs may have traded names.
    stock = await _stocked(source, compared.differing, model)
    await target.restock(
        Stock(
            records=stock.records,
            links=compared.differing_links,
            accesses=stock.accesses,
            vectors=stock.vectors,
        )
    )
    if compared.log_from is not None:
        await target.restock(Stock(log_from=compared.log_from))
        last = compared.log_from - 1
        while changes := await source.changes(after=last, limit=PAGE):
            await target.restock(Stock(changes=changes))
            last = changes[-1].seq


async def _stocked(source: RecordStore, records: Sequence[Record], model: str) -> Stock:
    if not records:
        return Stock()
    ids = [record.id for record in records]
    vectors = await source.vectors(model, ids)
    embedded = [
        Embedded(record.id, record.version, vectors[record.id])
        for record in records
        if record.id in vectors
    ]
    return Stock(
        records=records,
        accesses=await source.accesses(ids),
        vectors={model: embedded} if embedded else {},
    )


async def _records(store: RecordStore, after: str | None = None) -> AsyncIterator[list[Record]]:
    while page := await store.scan(ALL, after=after, limit=PAGE):
        yield page
        after = page[-1].id


async def _pages_of_both(
    source: RecordStore, target: RecordStore
) -> AsyncIterator[tuple[list[Record], list[Record]]]:
    sides = _records(source), _records(target)
    while any(pages := [await anext(side, list[Record]()) for side in sides]):
        yield pages[0], pages[1]


async def _side_by_side(
    source: RecordStore, target: RecordStore
) -> AsyncIterator[tuple[Change | None, Change | None]]:
    sides = _changes(source), _changes(target)
    while any(pair := [await anext(side, None) for side in sides]):
        yield pair[0], pair[1]


async def _changes(store: RecordStore) -> AsyncIterator[Change]:
    last = 0
    while page := await store.changes(after=last, limit=PAGE):
        for change in page:
            yield change
        last = page[-1].seq


def _pages(links: Sequence[Link]) -> list[Sequence[Link]]:
    return [links[start : start + PAGE] for start in range(0, len(links), PAGE)]


def _line(thing: Any) -> bytes:
    return json.dumps(as_dict(thing), sort_keys=True, ensure_ascii=False).encode() + b"\n"


HISTORY = "@history"
EVERY_SEARCH = 1_000_000

Progress = Callable[[int, int], None]


class Copied(Value):
    """One store, after it was found to be the same in both places."""

    store: str
    records: int
    links: int
    log_entries: int
    vectors: int
    sha256: str


class Migrated(Value):
    source: str
    target: str
    projects: int
    stores: Sequence[Copied]


class End(Value):
    """One end of it: a library, and what people call it."""

    library: Library
    name: str


async def migrate(source: End, target: End, model: str, progress: Progress) -> Migrated:
    """Interrupted, the same again goes on. Raises Conflict where the target holds other things,
    also where somebody else has put them there since then."""
    holdings = await source.library.holdings()
    if origin := holdings.notes.get(UNDER_WAY):
        raise _unfinished(source, origin)
    await _begin(source, target)
    note = {UNDER_WAY: source.name, BROUGHT: json.dumps(sorted(_ids(holdings)))}
    # Active for now: no store of an archived project is written to.
    active = [replace(project, status="active") for project in holdings.projects]
    await target.library.take_over(
        replace(holdings, projects=active, notes={**holdings.notes, **note})
    )
    pairs = await _stores(source.library, target.library, holdings.projects, active)
    total = sum([await store.how_many(ALL) for _, store, _ in pairs])
    done = 0

    def step(count: int) -> None:
        nonlocal done
        done += count
        progress(done, total)

    copied: list[Copied] = []
    for name, original, replica in pairs:
        found = await copy(original, replica, model, step)
        counts = found.records, found.links, found.changes, found.vectors
        copied.append(Copied(name, *counts, found.digest))
    await _add_asked(source.library, target.library)
    await _end(source.library, target.library, holdings)
    return Migrated(source.name, target.name, len(holdings.projects), copied)


async def _begin(source: End, target: End) -> None:
    begun = await target.library.note(UNDER_WAY)
    if begun == source.name:
        await _expect_untouched(source, target)
        return
    if begun is not None:
        raise _unfinished(target, begun)
    held = await target.library.holdings()
    stores = [await target.library.user(), await target.library.history()]
    if held.projects or held.tokens or any([await store.how_many(ALL) for store in stores]):
        raise Conflict(
            f"{target.name} holds something already, and nothing there is written over.",
            hint="Name an empty place. `everkept export` and `import` bring two together.",
        )
    await target.library.set_note(UNDER_WAY, source.name)


async def _expect_untouched(source: End, target: End) -> None:
    """Before an unfinished copy is gone on with: what somebody else has put there would go."""
    there, here = await target.library.holdings(), await source.library.holdings()
    brought: list[str] = json.loads(there.notes.get(BROUGHT, "[]"))
    if foreign := _ids(there) - _ids(here) - set(brought):
        named = [project.name for project in there.projects if project.id in foreign]
        what = f"projects ({', '.join(named)})" if named else "tokens"
        raise Conflict(
            f"Somebody else has made {what} in the unfinished copy at {target.name}.",
            hint="Copy into another, empty place, and stop the programs that use this one.",
        )
    ids = {project.id for project in there.projects}
    both = [project for project in here.projects if project.id in ids]
    copies = [replace(project, status="active") for project in both]
    for _, original, copied in await _stores(source.library, target.library, both, copies):
        expect_own(await foreign_change(original, copied))


def _ids(holdings: Holdings) -> set[str]:
    tokens: Iterable[str] = (token.id for token, _ in holdings.tokens)
    return {*(project.id for project in holdings.projects), *tokens}


def _unfinished(end: End, origin: str) -> Conflict:
    return Conflict(
        f"{end.name} holds an unfinished copy of {origin}.",
        hint="Finish that one first, or name another place.",
    )


async def _end(source: Library, target: Library, holdings: Holdings) -> None:
    """Raises Conflict where projects came, went or changed meanwhile."""
    if await source.holdings() != holdings:
        raise Conflict(
            "Projects, tokens or settings changed while everything was copied.",
            hint="The same command again brings the rest over.",
        )
    await target.take_over(holdings)  # without the note, and with projects archived that were


async def _stores(
    source: Library, target: Library, projects: Sequence[Project], copies: Sequence[Project]
) -> list[tuple[str, RecordStore, RecordStore]]:
    pairs = [
        (USER, await source.user(), await target.user()),
        (HISTORY, await source.history(), await target.history()),
    ]
    for project, copied in zip(projects, copies, strict=True):
        pairs.append((project.name, await source.store_of(project), await target.store_of(copied)))
    return pairs


async def _add_asked(source: Library, target: Library) -> None:
    """What was asked of the past, and how often tools were called."""
    if not await target.searches(limit=1):
        searches = await source.searches(limit=EVERY_SEARCH)
        await target.add_searches(searches[::-1])
    if not await target.usage():
        await target.add_usage(await source.usage())
