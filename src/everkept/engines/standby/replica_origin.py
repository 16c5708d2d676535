"""Whether the database is the one that the copy here was made of, and has not lost any of it.

A server that kept everything in memory, or a backup that was put back, answers as if all were
well. What the copy has beyond it was acknowledged, and may be all that is left of it.
"""

import logging
import shutil
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack, suppress
from itertools import count
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from everkept.core.disk import make_folder, sync, usable
from everkept.core.ports import Library, RecordStore
from everkept.core.records import Batch, Change, Insert, Record, Step, Update
from everkept.core.store_values import Holdings, Stock
from everkept.core.text import counted
from everkept.core.times import iso
from everkept.engines.commit_plan import plan
from everkept.engines.standby.journal import Journal
from everkept.engines.standby.rebase import StoreView
from everkept.errors import Conflict, EverkeptError, StoreAway
from everkept.values import replace

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
    from everkept.engines.sqlite.care.snapshot import copy_to, held

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
