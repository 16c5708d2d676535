"""The change log over all databases, a line for each change, and undo."""

import logging
from collections.abc import Sequence

from everkept.app.engines import Numbered, NumberedHere, nothing_numbered_here
from everkept.core.commits import commit, plan_undo, retry, undone
from everkept.core.ports import Library, RecordStore
from everkept.core.projects import USER
from everkept.core.records import Batch, Change, Edit, Link, Record, Ref
from everkept.core.text import clipped
from everkept.core.times import Clock
from everkept.errors import EverkeptError, InvalidInput, NotFound, ProjectOff, Refused
from everkept.families.bank.model import INDEX_BANK, TAKE_IN
from everkept.families.memories.lifecycle import FADING
from everkept.families.memories.memory_identity import SESSION
from everkept.families.memories.memory_record import HOOKS
from everkept.families.memories.stores import CLOSING
from everkept.values import Value

PURGE = "purge"
REDACT = "redact"
LONGEST = 200  # characters of a summary
LONGEST_TEXT = 60  # characters of a text in it
MOST_NAMES = 3
SESSION_KIND = "session"  # the kind of the records that conversations have
_FOR_GOOD = {PURGE: "removed for good", REDACT: "secrets removed for good"}
_SIGNS = {"insert": "+", "update": "~", "delete": "-", "restore": "+"}


async def summaries(store: RecordStore, changes: Sequence[Change]) -> list[str]:
    """`+ entity Alice, + 2 × observation on Alice` and the like, asked for all at once."""
    refs = {Ref(e.subject, e.id) for change in changes for e in change.edits if e.id}
    records = await store.get([r.id for r in refs if r.subject == "record"], include_deleted=True)
    links = await store.get_links([r.id for r in refs if r.subject == "link"], include_deleted=True)
    known = {record.id: record for record in records}
    ends = {record.parent for record in records if record.parent}
    ends |= {end for link in links for end in (link.source, link.target)}
    for record in await store.get(list(ends - known.keys()), include_deleted=True):
        known[record.id] = record
    told = _Told(known, {link.id: link for link in links})
    return [told.summary(change) for change in changes]


class _Named(Value):
    """A thing as a summary speaks of it; the owner is what it hangs on."""

    kind: str
    name: str = ""
    owner: str = ""


class _Told:
    def __init__(self, records: dict[str, Record], links: dict[str, Link]) -> None:
        self._records = records
        self._links = links

    def summary(self, change: Change) -> str:
        if change.tool in _FOR_GOOD:
            return _FOR_GOOD[change.tool]
        groups: dict[tuple[str, str], list[_Named]] = {}
        told = [self._named(edit) for edit in change.edits]
        # A session is begun by the first memory of it, which is what somebody did.
        is_beside = any(named.kind != SESSION_KIND for named in told)
        for edit, named in zip(change.edits, told, strict=True):
            if is_beside and named.kind == SESSION_KIND:
                continue
            groups.setdefault((_SIGNS[edit.operation], named.kind), []).append(named)
        parts = [f"{sign} {_counted(kind, things)}" for (sign, kind), things in groups.items()]
        return clipped(", ".join(parts) or "what it touched was purged", LONGEST)

    def _named(self, edit: Edit) -> _Named:
        thing = (self._records if edit.subject == "record" else self._links).get(edit.id or "")
        if thing is None:
            return _Named("purged")
        if isinstance(thing, Link):
            ends = self._name(thing.source), thing.verb, self._name(thing.target)
            return _Named("relation", " ".join(ends))
        if thing.parent is None:
            return _Named(thing.kind, self._name(thing.id))
        text = clipped(thing.name or thing.text, LONGEST_TEXT)
        return _Named(thing.kind, f'"{text}"', self._name(thing.parent))

    def _name(self, record_id: str) -> str:
        record = self._records.get(record_id)
        return clipped((record and (record.name or record.text)) or record_id, LONGEST_TEXT)


def _counted(kind: str, things: Sequence[_Named]) -> str:
    owners = list(dict.fromkeys(thing.owner for thing in things if thing.owner))
    where = f"{kind} on {_listed(owners)}" if owners else kind
    if len(things) == 1:
        return f"{where}{':' if owners else ''} {things[0].name}".rstrip()
    names = _listed([thing.name for thing in things])
    return f"{len(things)} × {where}" + (f" ({names})" if names and len(owners) < 2 else "")


def _listed(names: Sequence[str]) -> str:
    shown = [name for name in names[:MOST_NAMES] if name]
    return ", ".join(shown + ["…"] * (len(names) > MOST_NAMES and bool(shown)))


# Nobody means these without naming them: what was redacted stays so, an ended session is no
# knowledge, the index follows the files, what git brought came at no call of anybody's, and what
# faded did so by itself.
BOOKKEEPING = (REDACT, CLOSING, INDEX_BANK, TAKE_IN, FADING)
PROMOTE = "promote_memory"
HERE = "~"  # before the number of a change that waits: it is that of the local copy
LONGEST_NUMBER = 18  # digits; a longer one is no number of the log's
RECENT = 1_000  # changes looked through for the newest one that can be undone

log = logging.getLogger(__name__)


class Entry(Value):
    """A change with its project and a line that tells what it did."""

    project: str
    change: Change
    summary: str
    is_undone: bool
    is_numbered_here: bool = False

    @property
    def reference(self) -> str:
        return f"{self.project}:{HERE * self.is_numbered_here}{self.change.seq}"


class _Head(Value):
    project: str
    store: RecordStore
    change: Change
    is_undone: bool
    is_numbered_here: bool


class Timeline:
    """Of all projects but those that are switched off; where one is named, it is refused."""

    def __init__(
        self, library: Library, clock: Clock, numbered_here: NumberedHere = nothing_numbered_here
    ) -> None:
        self._library = library
        self._clock = clock
        self._numbered_here = numbered_here

    async def entries(self, project: str | None, limit: int) -> list[Entry]:
        """The newest changes of one project or of all, newest first."""
        heads: list[_Head] = []
        for name in await self._names(project):
            try:
                store = await self._opened(name)
                changes = await _newest(store, limit)
                here = await self._waiting(name)
            except EverkeptError as error:
                if project is not None:
                    raise
                # One damaged project must not hide the others' log.
                log.warning("project %s is left out of the log: %s", name, error)
                continue
            taken_back = undone(changes)
            heads += [
                _Head(name, store, each, each.seq in taken_back, _is_among(here, each))
                for each in changes
            ]
        heads.sort(key=lambda head: (head.change.at, head.change.seq), reverse=True)
        return await _told(heads[:limit])

    async def store(self, name: str) -> RecordStore:
        """A project's, or the user's own, to remove things from: one that is off, too."""
        if name == USER:
            return await self._library.user()
        _, store = await self._library.open(name)
        return store

    async def undo(
        self, reference: str | None, project: str | None, client: str, *, or_user: bool = False
    ) -> Entry:
        """Takes one change back, by default the newest in force, and returns what was undone.

        With `or_user` the newest is looked for among the user's own changes too, as far as this
        client made them. What a promotion did in two places is taken back in both.
        """
        name, change = (
            await self._newest(project, client if or_user else None)
            if reference is None
            else await self._referenced(reference, project)
        )
        is_numbered_here = _is_among(await self._waiting(name), change)
        halves = [(name, change), *await self._counterparts(name, change)]
        # The user's last: a crash in between leaves what was promoted in both places, and a
        # project that is off leaves both halves as they are.
        halves.sort(key=lambda half: half[0] == USER)
        for place, its in halves:  # all of it or nothing, as far as that is known beforehand
            store = await self._opened(place)
            await self._plan(store, place, its, client, await store.revision())
        told = {place: await self._take_back(place, its, client) for place, its in halves}
        return Entry(name, change, told[name], True, is_numbered_here)

    async def _waiting(self, name: str) -> Sequence[Numbered]:
        """What was numbered here of a project or of the user's own."""
        if not self._library.condition.waiting:
            return ()
        place = None if name == USER else (await self._library.project(name)).id
        return [each for each in await self._numbered_here() if each.project_id == place]

    async def _opened(self, name: str) -> RecordStore:
        """To show it or to take something back. Raises ProjectOff."""
        if name != USER and (await self._library.project(name)).is_off:
            raise ProjectOff(name)
        return await self.store(name)

    async def _take_back(self, name: str, change: Change, client: str) -> str:
        """Says in a line what the change had done."""
        store = await self._opened(name)
        [summary] = await summaries(store, [change])
        seen = 0

        async def attempt() -> None:
            nonlocal seen
            seen = await store.revision()
            await commit(store, await self._plan(store, name, change, client, seen))

        async def has_moved() -> bool:
            return await store.revision() != seen

        await retry(attempt, f'project "{name}"', again=has_moved)
        return summary

    async def _plan(
        self, store: RecordStore, name: str, change: Change, client: str, seen: int
    ) -> Batch:
        found = await store.changes(after=change.seq - 1, limit=RECENT)
        if not found or _kept(found[0]) != _kept(change):
            raise _renumbered(f"{name}:{change.seq}")
        if change.seq in undone(found):
            raise Refused(f"Change {name}:{change.seq} is undone already.", change=change.seq)
        steps = await plan_undo(store, change, {SESSION})
        return Batch(steps, self._clock(), "undo", client, undoes=change.seq, revision=seen)

    async def _names(self, project: str | None) -> list[str]:
        if project is not None:
            return [project]
        found = await self._library.projects("active")
        return [each.name for each in found if not each.is_off] + [USER]

    async def _counterparts(self, name: str, change: Change) -> list[tuple[str, Change]]:
        """The other halves of a promotion between two databases, in force still."""
        moved = {e.id for e in change.edits if e.subject == "record" and e.id}
        if change.tool != PROMOTE or not moved:
            return []
        projects = [each.name for each in await self._library.projects("active")]
        places = projects if name == USER else [USER]
        found: list[tuple[str, Change]] = []
        for place in places:
            changes = await (await self.store(place)).changes(limit=RECENT, newest_first=True)
            taken_back = undone(changes)
            found += [
                (place, other)
                for other in changes
                if other.tool == PROMOTE
                and other.seq not in taken_back
                and any(edit.id in moved for edit in other.edits)
            ][:1]
        return found

    async def _newest(self, project: str | None, of_user: str | None) -> tuple[str, Change]:
        """With `of_user` also among what this client changed of the user's."""
        names = [name for name in await self._names(project) if name != USER or project == USER]
        if len(names) > 1:
            raise Refused(
                "There are several projects, and none is selected.",
                hint="Name one with --project, or a change as `everkept log` shows it.",
            )
        found = [(name, change) for name in names if (change := await self._in_force(name))]
        if of_user is not None and project != USER:
            change = await self._in_force(USER)
            found += [(USER, change)] if change and change.client == of_user else []
        if not found:
            raise Refused("There is no change to undo.", hint="`everkept log` shows them all.")
        name, change = max(found, key=lambda pair: pair[1].at)
        if change.tool == PURGE:
            raise Refused(
                f"The newest change, {name}:{change.seq}, is a purge: what it removed is gone "
                "for good.",
                hint="Name an earlier change, as `everkept log` shows it.",
                change=change.seq,
            )
        return name, change

    async def _in_force(self, name: str) -> Change | None:
        """The newest change that was not undone and is no undo."""
        changes = await _newest(await self._opened(name), RECENT)
        taken_back = undone(changes)
        standing = (
            change
            for change in changes
            if change.seq not in taken_back
            and change.undoes is None
            and change.tool not in BOOKKEEPING
            and not _is_of_hooks(change)
        )
        return next(standing, None)

    async def _referenced(self, reference: str, project: str | None) -> tuple[str, Change]:
        name, _, number = reference.rpartition(":")
        name = name or project or ""
        is_numbered_here, number = number.startswith(HERE), number.removeprefix(HERE)
        if not number.isdecimal() or len(number) > LONGEST_NUMBER or not name:
            raise InvalidInput(
                f'"{clipped(reference)}" names no change.',
                hint="Give it as PROJECT:NUMBER, as `everkept log` shows it.",
                argument="change",
                value=clipped(reference),
            )
        store = await self._opened(name)
        found = await store.changes(after=int(number) - 1, limit=1)
        if not found or found[0].seq != int(number):
            if is_numbered_here:
                raise _renumbered(reference)
            raise NotFound("change", reference, hint="`everkept log` shows what there is.")
        if is_numbered_here and not _is_among(await self._waiting(name), found[0]):
            raise _renumbered(reference)
        return name, found[0]


def _kept(change: Change) -> tuple[int, int, str]:
    """What of a change stays as it is, whatever is purged or redacted."""
    return change.seq, change.at, change.tool


def _is_among(waiting: Sequence[Numbered], change: Change) -> bool:
    return any((each.seq, each.at, each.tool) == _kept(change) for each in waiting)


def _renumbered(reference: str) -> Refused:
    return Refused(
        f"{clipped(reference)} was the number of a change while its database was away, and is "
        "none any more.",
        hint="`everkept log` shows what it is called there.",
        change=clipped(reference),
    )


def _is_of_hooks(change: Change) -> bool:
    """They store at no call of anybody's either, and sum up when a session is over."""
    return change.tool.startswith(HOOKS) or change.client == HOOKS


async def _newest(store: RecordStore, limit: int) -> list[Change]:
    """The newest changes but those of the index of files, which would hide all others."""
    asked = limit
    while True:
        found = await store.changes(limit=asked, newest_first=True)
        meant = [change for change in found if change.tool != INDEX_BANK]
        if len(meant) >= limit or len(found) < asked:
            return meant[:limit]
        asked *= 4


async def _told(heads: Sequence[_Head]) -> list[Entry]:
    by_store: dict[RecordStore, list[Change]] = {}
    for head in heads:
        by_store.setdefault(head.store, []).append(head.change)
    told = {
        (store, change.seq): summary
        for store, changes in by_store.items()
        for change, summary in zip(changes, await summaries(store, changes), strict=True)
    }
    return [
        Entry(h.project, h.change, told[h.store, h.change.seq], h.is_undone, h.is_numbered_here)
        for h in heads
    ]
