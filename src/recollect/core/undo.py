"""Taking a change back: the steps that do it, or the reason why not."""

from collections import Counter
from collections.abc import Sequence

from recollect.core.ports import RecordStore
from recollect.core.records import (
    AMENDABLE,
    Change,
    Delete,
    Edit,
    Link,
    Record,
    Ref,
    Restore,
    Step,
    Update,
    Where,
)
from recollect.errors import Refused


def undone(changes: Sequence[Change]) -> set[int]:
    """Which changes are taken back at present; an undo that was itself undone does not count."""
    taken_back: set[int] = set()
    for change in sorted(changes, key=lambda c: -c.seq):
        if change.undoes is not None and change.seq not in taken_back:
            taken_back.add(change.undoes)
    return taken_back


async def plan_undo(store: RecordStore, change: Change) -> tuple[Step, ...]:
    """Raises Refused when what the change touched has changed since."""
    if not change.edits:
        raise Refused(f"Change {change.seq} ({change.tool}) left nothing that could be undone.")
    steps: list[Step] = []
    amended: Counter[str] = Counter()
    for edit in reversed(change.edits):
        if edit.id is None:
            raise _purged(change)
        ref = Ref(edit.subject, edit.id)
        current = await _current(store, change, ref)
        await _check_unchanged(store, change, ref, current)
        steps.append(await _step(store, change, edit, ref, current, amended[ref.id]))
        amended[ref.id] += edit.operation == "update"
    return tuple(steps)


async def _step(
    store: RecordStore, change: Change, edit: Edit, ref: Ref, current: Record | Link, amended: int
) -> Step:
    """`amended` is how often the steps before this one raise the record's version."""
    if edit.operation == "delete":
        return Restore(ref)
    if edit.operation == "update" and isinstance(current, Record):
        return Update(ref.id, edit.before or {}, current.version + amended)
    if isinstance(current, Record):
        await _check_nothing_hangs_on(store, change, current)
    return Delete(ref)


async def _current(store: RecordStore, change: Change, ref: Ref) -> Record | Link:
    found: Sequence[Record | Link] = (
        await store.get([ref.id], include_deleted=True)
        if ref.subject == "record"
        else await store.get_links([ref.id], include_deleted=True)
    )
    if not found:
        raise _purged(change)
    return found[0]


def _purged(change: Change) -> Refused:
    return Refused(f"Part of change {change.seq} was purged since.", change=change.seq)


async def _check_unchanged(
    store: RecordStore, change: Change, ref: Ref, current: Record | Link
) -> None:
    """Compares with how the thing stood right after the change: later edits laid back over it."""
    later = await store.history(ref, after=change.seq)
    then: dict[str, object] = {}
    for _, edit in reversed(later):
        then.update(edit.before or {})
    differs = [
        name
        for name, value in then.items()
        if (name in AMENDABLE and getattr(current, name) != value)
        or (name == "deleted_at" and (current.deleted_at is None) != (value is None))
    ]
    if differs:
        raise Refused(
            f"The {ref.subject} {ref.id} has changed since, in change {later[-1][0]}.",
            hint="Undo the later change first.",
            change=change.seq,
            changed_by=sorted({seq for seq, _ in later}),
        )


async def _check_nothing_hangs_on(store: RecordStore, change: Change, record: Record) -> None:
    own = {edit.id for edit in change.edits}
    children = await store.scan(Where(parents=(record.id,)))
    links = await store.links([record.id])
    others = [thing.id for thing in (*children, *links) if thing.id not in own]
    if others:
        raise Refused(
            f'"{record.name or record.id}" has {len(others)} observations or relations that came '
            "later.",
            hint="Undo the later changes first, or delete it.",
            change=change.seq,
            later=others[:20],
        )
