"""Promotion: a memory that reaches further, safe against a crash between two databases."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from everkept.core.accounts import check_own
from everkept.core.commits import Planned, Writer, check_writable
from everkept.core.ports import AccessBook, Indexing, RecordStore
from everkept.core.records import Record, Update, Where
from everkept.core.secrets import Masking
from everkept.core.times import Clock
from everkept.errors import Conflict, InvalidInput, NotFound, ReadOnly
from everkept.families.memories.model import (
    MEMORY,
    SCOPES,
    TAG_LIMIT,
    PromotedMemory,
)
from everkept.families.memories.moving import (
    ABSORBED,
    PROMOTED,
    Move,
    came_back,
    carried_by,
    merging,
    promoted,
    same_text,
    tombstone,
)
from everkept.families.memories.stores import Stores, still_there
from everkept.tools.tool import Warned, masking_warnings

FINISHING = "promote_memory"  # what the log calls it
PAGE = 1_000  # of the user's memories, looked at together


class Promotion:
    """Takes one memory to a broader scope: one commit within a store, a move to the user's."""

    def __init__(
        self, stores: Stores, indexing: Indexing, accesses: AccessBook, masking: Masking
    ) -> None:
        self._stores = stores
        self._indexing = indexing
        self._accesses = accesses
        self._masking = masking

    async def promote(self, memory_id: str, target: str, reason: str | None) -> PromotedMemory:
        reason = self._masking.optional(reason)
        warnings = masking_warnings(self._masking.kinds)
        source, found = await self._stores.holding(memory_id)
        if target == "user" and await self._is_resumed(found):
            previous = _note(found).get("from_scope", "project")
            return PromotedMemory(found.id, previous, target, reason, warnings=warnings or None)
        _check_broader(found, target)
        is_users = source is await self._stores.user()
        if is_users and target != "user":
            raise ReadOnly(
                f"Memory {found.id} is kept for you alone: its project is shared with you for "
                "reading.",
                hint="Promote it to `user`, where you find it in every project.",
                memory_id=found.id,
            )
        if target == "user" and not is_users:
            kept = await self._to_user(source, found, reason)
        else:
            kept = await self._within(source, found, target, reason)
        if merged := kept != found.id:
            warnings += await self._left_out(target, found, kept)
        return PromotedMemory(
            kept, found.scope, target, reason, merged=merged or None, warnings=warnings or None
        )

    async def _is_resumed(self, found: Record) -> bool:
        """Whether a crash had cut this very promotion short; now it is complete."""
        if found.scope != "user":
            return False
        project, user = await self._stores.project(), await self._stores.user()
        return await settle(project, user, [found], self._stores.writer) > 0

    async def _within(
        self, store: RecordStore, found: Record, target: str, reason: str | None
    ) -> str:
        async def plan(store: RecordStore, at: int) -> Planned[str]:
            record = await still_there(store, found.id)
            _check_broader(record, target)
            new = promoted(record, target, reason, at)
            twin = await same_text(store, new)
            if twin is None:
                values = {
                    name: getattr(new, name) for name in ("scope", "session", "variant", "facets")
                }
                return [Update(record.id, values, record.version)], record.id
            carried = await carried_by(store, record)
            steps = await merging(store, twin, new, carried, at)
            return [*steps, *tombstone(record, new, twin.id)], twin.id

        return await self._stores.commit(store, plan)

    async def _to_user(self, source: RecordStore, found: Record, reason: str | None) -> str:
        check_writable(source)  # the user's copy is made first
        check_own(source)
        user = await self._stores.user()
        access = (await self._accesses.of(source, [found.id])).get(found.id)
        kept = await Move(source, user, self._stores.writer).make(found.id, reason)
        self._indexing.wake(user)
        if access is not None:
            await user.note_accesses({kept: access.count}, access.last_at)
        return kept

    async def _left_out(self, target: str, found: Record, kept: str) -> list[Warned]:
        """Two memories can have more tags between them than one may have."""
        store = await self._stores.to_write(target)
        tags = {tag for record in await store.get([kept]) for tag in record.tags}
        missing = [tag for tag in found.tags if tag not in tags]
        if not missing or len(tags) < TAG_LIMIT:
            return []
        message = f"A memory has at most {TAG_LIMIT} tags. Left out: {', '.join(missing)}."
        return [Warned("tags_left_out", message)]


async def finish_promotions(project: RecordStore, user: RecordStore, clock: Clock) -> int:
    """Completes what a crash left, however long ago: what lives in both places is the user's."""
    where = Where(kinds=(MEMORY,), scopes=("user",))
    writer = Writer(clock, FINISHING)
    settled = 0
    last: str | None = None
    while page := await user.scan(where, after=last, limit=PAGE):
        last = page[-1].id
        settled += await settle(project, user, page, writer)
    return settled


async def settle(
    project: RecordStore, user: RecordStore, of_user: Sequence[Record], writer: Writer
) -> int:
    """Buries the project's copies of memories that the user's store has; says how many."""
    settled = 0
    arrived = {moved: (record, version) for record in of_user for moved, version in _moved(record)}
    for record in await project.get(list(arrived)) if arrived else []:
        kept, version = arrived[record.id]
        if await came_back(project, record, version):
            continue
        move = Move(project, user, writer)
        reason = _note(kept).get("reason") if kept.id == record.id else None
        try:
            # What was changed since it was copied has to be carried over first.
            if record.version != version or not await move.bury(record, kept.id, reason):
                await move.make(record.id, reason)
        except (Conflict, NotFound):
            continue  # another process is at it
        settled += 1
    return settled


def _moved(record: Record) -> list[tuple[str, int]]:
    """The memories that have become this one, each with the version that was copied."""
    moved = list(cast(Mapping[str, int], record.facets.get(ABSORBED, {})).items())
    if PROMOTED in record.facets:
        moved.append((record.id, _note(record).get("version", 1)))
    return moved


def _note(record: Record) -> Mapping[str, Any]:
    return cast(Mapping[str, Any], record.facets.get(PROMOTED, {}))


def _check_broader(record: Record, target: str) -> None:
    if SCOPES.index(target) > SCOPES.index(record.scope):
        return
    broader = SCOPES[SCOPES.index(record.scope) + 1 :]
    raise InvalidInput(
        f"Memory {record.id} has the scope {record.scope}; {target} is not broader.",
        hint=f"Broader is: {', '.join(broader)}." if broader else "Nothing is broader than user.",
        argument="target_scope",
        value=target,
    )
