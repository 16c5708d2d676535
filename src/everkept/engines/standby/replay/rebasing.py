"""A batch that was planned on what was last seen, made to fit what is stored by now.

Nothing that was acknowledged is given up for it: where two have written the same, the later one
wins and the log keeps the other; where two have made the same, both stay.
"""

from collections.abc import Sequence

from everkept.core.ports import RecordStore
from everkept.core.records import (
    Batch,
    Delete,
    Insert,
    Link,
    Record,
    Ref,
    Restore,
    Step,
    Update,
)
from everkept.engines.planning import Planner
from everkept.engines.standby.replay.looking import StoreView
from everkept.errors import Conflict
from everkept.values import replace

_FEW = 8  # characters of an id that tell it from most others


class _DoesNotFit(Exception):
    """What a step builds on is gone."""


async def rebased(batch: Batch, store: RecordStore) -> Batch | None:
    """The same batch for the store as it is, perhaps with no step left.

    None where it cannot be made to fit: what it changes, or what a record or link of it belongs
    to, is gone.
    """
    view = StoreView(store)
    await view.read_ahead(batch.steps)
    rebase = _Rebase(batch, view)
    try:
        steps = [fitting for step in batch.steps for fitting in await rebase.fitting(step)]
    except _DoesNotFit:
        return None
    return replace(batch, steps=tuple(steps), revision=None)


class _Rebase:
    """One batch, with what its steps so far have made of what is stored."""

    def __init__(self, batch: Batch, view: StoreView) -> None:
        self._view = view
        self._planner = Planner(batch, view)
        self._named: dict[str, None] = {}  # records that may have got a name in the batch
        self._doubled: set[str] = set()  # links that are there under another id

    async def fitting(self, step: Step) -> Sequence[Step]:
        """What does there what the step was to do: nothing where it is so already."""
        match step:
            case Insert(Record() as record):
                return await self._insert(record)
            case Insert(Link() as link):
                return await self._insert_link(link)
            case Update():
                return await self._update(step)
            case Delete(ref):
                thing = await self._thing(ref)
                is_there = thing is not None and thing.deleted_at is None
                return [await self._first(step)] if is_there else []
            case Restore(ref):
                return await self._restore(ref)
            case _:
                raise TypeError(step)

    async def _insert(self, record: Record) -> Sequence[Step]:
        if await self._planner.record(record.id):
            return []
        if record.parent is not None:
            await self._live(record.parent)
        self._named[record.id] = None
        others = _other_variants(record.variant, record.id)
        renamed = (Insert(replace(record, variant=each)) for each in others)
        return [await self._first(Insert(record), *renamed)]

    async def _insert_link(self, link: Link) -> Sequence[Step]:
        there = await self._planner.link(link.id)
        return [] if there else await self._unless_doubled(Insert(link), link)

    async def _update(self, step: Update) -> Sequence[Step]:
        record = await self._live(step.id)
        self._named[record.id] = None
        fresh = replace(step, version=record.version)
        others = _other_variants(step.values.get("variant", record.variant), record.id)
        renamed = (replace(fresh, values={**step.values, "variant": each}) for each in others)
        return [await self._first(fresh, *renamed)]

    async def _restore(self, ref: Ref) -> Sequence[Step]:
        thing = await self._thing(ref)
        if ref.id in self._doubled or (thing and thing.deleted_at is None):
            return []
        if thing is None:
            raise _DoesNotFit
        if isinstance(thing, Link):
            return await self._unless_doubled(Restore(ref), thing)
        if thing.parent is not None:
            await self._live(thing.parent)
        self._named[thing.id] = None
        if await self._fits(Restore(ref)):
            return [Restore(ref)]
        return await self._restore_beside(thing)

    async def _restore_beside(self, record: Record) -> Sequence[Step]:
        """What is deleted cannot be renamed: whoever has its name gives way for a moment."""
        holder = await self._holder(record)
        away = await self._renamed(holder.id, _other_variants(holder.variant, holder.id))
        back = await self._first(Restore(record.ref))
        beside = await self._renamed(record.id, _other_variants(record.variant, record.id))
        return [away, back, beside, await self._renamed(holder.id, (holder.variant,))]

    async def _renamed(self, record_id: str, variants: Sequence[str]) -> Step:
        record = await self._live(record_id)
        at, version = record.updated_at, record.version
        return await self._first(
            *(Update(record_id, {"variant": each}, version, at) for each in variants)
        )

    async def _holder(self, wanted: Record) -> Record:
        there = (record.id for record in await self._view.namesakes(wanted))
        for record_id in (*there, *self._named):
            record = await self._planner.record(record_id)
            if record and record.deleted_at is None and _stand_for_the_same(record, wanted):
                return record
        raise _DoesNotFit

    async def _unless_doubled(self, step: Step, link: Link) -> Sequence[Step]:
        await self._live(link.source)
        await self._live(link.target)
        if await self._fits(step):
            return [step]
        self._doubled.add(link.id)
        return []

    async def _first(self, *steps: Step) -> Step:
        for step in steps:
            if await self._fits(step):
                return step
        raise _DoesNotFit

    async def _fits(self, step: Step) -> bool:
        try:
            await self._planner.apply(step)
        except Conflict:
            return False
        return True

    async def _live(self, record_id: str) -> Record:
        record = await self._planner.record(record_id)
        if record is None or record.deleted_at is not None:
            raise _DoesNotFit
        return record

    async def _thing(self, ref: Ref) -> Record | Link | None:
        if ref.subject == "record":
            return await self._planner.record(ref.id)
        return await self._planner.link(ref.id)


def _other_variants(variant: str, record_id: str) -> tuple[str, ...]:
    """That nothing but this record has, the shortest first."""
    return f"{variant}~{record_id[:_FEW]}", f"{variant}~{record_id}"


def _stand_for_the_same(one: Record, other: Record) -> bool:
    return (one.kind, one.name_key, one.variant, one.parent) == (
        other.kind,
        other.name_key,
        other.variant,
        other.parent,
    )
