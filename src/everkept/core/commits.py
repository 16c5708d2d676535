"""Commits: plan for a state, commit, plan again if the state has changed; and undo.

Every write of a family, import, undo or replay goes through `commit`, which records what the call touched.
"""

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence, Set
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol, TypeVar, runtime_checkable

from everkept.core.ports import RecordStore
from everkept.core.records import (
    AMENDABLE,
    Batch,
    Change,
    Delete,
    Edit,
    Record,
    RecordFilter,
    RecordLink,
    Ref,
    Restore,
    Step,
    Update,
)
from everkept.core.times import Clock
from everkept.errors import Conflict, Refused
from everkept.values import Value, field, replace


class TouchedIds(Value, frozen=False):
    """Ids of the records and links that a call touched, each once, in order."""

    ids: dict[str, None] = field(default_factory=dict[str, None])
    is_over: bool = False


_touched: ContextVar[TouchedIds | None] = ContextVar("touched", default=None)


@contextmanager
def collect_touched() -> Generator[TouchedIds, None, None]:
    """Collect what is touched in this block, also in tasks that start in it."""
    noted = TouchedIds()
    token = _touched.set(noted)
    try:
        yield noted
    finally:
        noted.is_over = True  # for tasks that outlive the block
        _touched.reset(token)


def note_touched(ids: Iterable[str | None]) -> None:
    """Note ids that the call touched: for changes, and for answers that may not name the ids. Costs nothing if no one
    collects.
    """
    noted = _touched.get()
    if noted is not None and not noted.is_over:
        noted.ids.update((each, None) for each in ids if each)


T = TypeVar("T")
Planned = tuple[list[Step], T]
Plan = Callable[[RecordStore, int], Awaitable[Planned[T]]]

MAX_ATTEMPTS = 100  # other processes may commit between a read and the write

log = logging.getLogger(__name__)


async def commit(store: RecordStore, batch: Batch) -> Change:
    """Commit one batch and record what it touched. Raise Conflict if the state has changed.

    Derived records follow from files, so they do not count as touched.
    """
    change = await store.commit(batch)
    if not batch.derived:
        note_touched(edit.id for edit in change.edits)
    return change


async def retry(
    attempt: Callable[[], Awaitable[T]], what: str | None = None, *, again: Callable[[], Awaitable[bool]] | None = None
) -> T:
    """Call `attempt` until it raises no Conflict. Each attempt reads the store again.

    After a Conflict, `again` returns whether another attempt can succeed. The last Conflict says that other processes
    keep changing `what`, or is raised unchanged.
    """
    for left in reversed(range(MAX_ATTEMPTS)):
        try:
            return await attempt()
        except Conflict as conflict:
            log.debug("another writer was faster: %s", conflict)
            if again is not None and not await again():
                raise
            if not left and what is None:
                raise
    raise Conflict(f"Others keep changing {what}.", hint="Try again when they have finished.")


async def retry_moved(store: RecordStore, attempt: Callable[[int], Awaitable[T]], what: str | None = None) -> T:
    """Call `attempt` with the store's revision, again after each Conflict in which the store has changed."""
    seen = 0

    async def attempt_once() -> T:
        nonlocal seen
        seen = await store.get_revision()
        return await attempt(seen)

    async def has_moved() -> bool:
        return await store.get_revision() != seen

    return await retry(attempt_once, what, again=has_moved)


class ChangeWriter(Value):
    """Commits in the name of one tool and client."""

    clock: Clock
    tool: str
    client: str = ""

    async def commit(self, store: RecordStore, plan: Plan[T]) -> T:
        """Plan and commit until the state does not change in between."""
        return await retry(lambda: self.attempt(store, plan))

    async def attempt(self, store: RecordStore, plan: Plan[T]) -> T:
        """Plan and commit once. Raise Conflict if the state has changed in between."""
        at = self.clock()
        steps, answer = await plan(store, at)
        if steps:
            await self.commit_steps(store, steps, at)
        return answer

    async def commit_steps(self, store: RecordStore, steps: Sequence[Step], at: int) -> Change:
        return await commit(store, Batch(tuple(steps), at, self.tool, self.client))


@runtime_checkable
class RestrictedStore(Protocol):
    """Store that some of its readers may not write."""

    def check_writable(self) -> None:
        """Raise the error that a commit would raise."""
        ...


def check_writable(store: RecordStore) -> None:
    """Check before a write to another place that a refusal would leave half done."""
    if isinstance(store, RestrictedStore):
        store.check_writable()


def is_writable(store: RecordStore) -> bool:
    try:
        check_writable(store)
    except Refused:
        return False
    return True


Things = dict[Ref, Record | RecordLink]


def find_undone(changes: Sequence[Change]) -> set[int]:
    """Return the changes that are undone at present. An undo that was itself undone does not count."""
    taken_back: set[int] = set()
    for change in sorted(changes, key=lambda c: -c.seq):
        if change.undoes is not None and change.seq not in taken_back:
            taken_back.add(change.undoes)
    return taken_back


async def plan_undo(store: RecordStore, change: Change, bookkeeping: Set[str] = frozenset()) -> tuple[Step, ...]:
    """Plan the reversal of a change. Raise Refused if something it touched has changed since.

    The steps are valid for one revision of the store. A changed record of a `bookkeeping` kind is kept.
    """
    if not change.edits:
        raise Refused(
            f"Change {change.seq} ({change.tool}) has nothing to undo.", hint="Choose a change with `everkept log`."
        )
    if any(edit.id is None for edit in change.edits):
        raise _build_purged_error(change)
    refs = {Ref(edit.subject, edit.id or "") for edit in change.edits}
    current = await _read_current(store, change, refs)
    if kept := await _find_changed_bookkeeping(store, change, current, bookkeeping):
        edits = tuple(e for e in change.edits if Ref(e.subject, e.id or "") not in kept)
        return await plan_undo(store, replace(change, edits=edits))
    await _check_unchanged(store, change, current)
    await _check_no_dependents(store, change, current)
    steps: list[Step] = []
    amended: Counter[str] = Counter()
    for edit in reversed(change.edits):
        ref = Ref(edit.subject, edit.id or "")
        steps.append(_build_step(edit, current[ref], amended[ref.id]))
        amended[ref.id] += edit.operation == "update"
    return tuple(steps)


def _build_step(edit: Edit, current: Record | RecordLink, amended: int) -> Step:
    """`amended` is how often the earlier steps raise the record's version."""
    if edit.operation == "delete":
        return Restore(current.ref)
    if edit.operation == "update" and isinstance(current, Record):
        return Update(current.id, edit.before or {}, current.version + amended)
    return Delete(current.ref)


async def _read_current(store: RecordStore, change: Change, refs: Set[Ref]) -> Things:
    records = [ref.id for ref in refs if ref.subject == "record"]
    links = [ref.id for ref in refs if ref.subject == "link"]
    found: Things = {
        thing.ref: thing
        for thing in (
            *await store.get(records, include_deleted=True),
            *await store.get_links(links, include_deleted=True),
        )
    }
    if len(found) < len(refs):
        raise _build_purged_error(change)
    return found


async def _find_changed_bookkeeping(store: RecordStore, change: Change, current: Things, kinds: Set[str]) -> set[Ref]:
    books = [r.ref for r in current.values() if isinstance(r, Record) and r.kind in kinds]
    later = await store.read_history(books, after=change.seq) if books else []
    return {Ref(edit.subject, edit.id or "") for _, edit in later}


def _build_purged_error(change: Change) -> Refused:
    return Refused(
        f"Part of change {change.seq} was purged since, so it cannot be undone.",
        hint="Choose another change with `everkept log`.",
        change=change.seq,
    )


async def _check_unchanged(store: RecordStore, change: Change, current: Things) -> None:
    """Compare with the state right after the change: the current values with later edits reversed."""
    later: dict[Ref, list[tuple[int, Edit]]] = {}
    for seq, edit in await store.read_history(list(current), after=change.seq):
        later.setdefault(Ref(edit.subject, edit.id or ""), []).append((seq, edit))
    for ref, edits in later.items():
        if _is_different(current[ref], [edit for _, edit in edits]):
            raise Refused(
                f"The {ref.subject} {ref.id} has changed since, in change {edits[-1][0]}.",
                hint="Undo the later change first.",
                change=change.seq,
                changed_by=sorted({seq for seq, _ in edits}),
            )


def _is_different(current: Record | RecordLink, later: Sequence[Edit]) -> bool:
    then: dict[str, object] = {}
    for edit in reversed(later):
        then.update(edit.before or {})
    return any(
        (name in AMENDABLE and getattr(current, name) != value)
        or (name == "deleted_at" and (current.deleted_at is None) != (value is None))
        for name, value in then.items()
    )


async def _check_no_dependents(store: RecordStore, change: Change, current: Things) -> None:
    """Refuse if the reversal of an insert or restore would delete data that was added later."""
    made = [
        edit.id
        for edit in change.edits
        if edit.id and edit.subject == "record" and edit.operation in ("insert", "restore")
    ]
    if not made:
        return
    later: dict[str, list[str]] = {}
    for child in await store.scan(RecordFilter(parents=tuple(made))):
        if child.ref not in current:
            later.setdefault(child.parent or "", []).append(child.id)
    for link in await store.find_links(made):
        if link.ref not in current:
            for end in {link.source, link.target}:
                later.setdefault(end, []).append(link.id)
    for record_id in made:
        if others := later.get(record_id):
            record = current[Ref("record", record_id)]
            name = record.name if isinstance(record, Record) else None
            raise Refused(
                f'"{name or record_id}" has {len(others)} later observations or relations.',
                hint="Undo the later changes first, or delete the record.",
                change=change.seq,
                later=others[:20],
            )
