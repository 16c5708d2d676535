"""Taking back what a transcript told once, and does not when all of it is read again."""

from everkept.core.ports import RecordStore
from everkept.core.records import Delete, Record, Step, Update, Where
from everkept.core.times import Clock
from everkept.families.history.importing.checkpoints import Checkpoint, transcript_of
from everkept.families.history.importing.conversations import UNSORTED, Talk
from everkept.families.history.importing.counts import Counts
from everkept.families.history.importing.writing import commit
from everkept.families.history.model import TURN

PAGE = 200  # turns that go at once


async def take_back(
    store: RecordStore, clock: Clock, checkpoint: Checkpoint, counts: Counts
) -> None:
    """Deletes such turns; what another transcript has told too stays.

    Raises Conflict where somebody was faster: then it may go on, if the checkpoint is still ours.
    """
    assert checkpoint.stored is not None
    guard = Update(checkpoint.id, {}, checkpoint.stored.version)
    where = Where(kinds=(TURN,), tags=checkpoint.old_tags)
    while where.tags and (page := await store.scan(where, limit=PAGE)):
        lonely = [turn for turn in page if not any(map(transcript_of, _others(turn, checkpoint)))]
        steps: list[Step] = [guard]
        steps += [Update(t.id, {"tags": _others(t, checkpoint)}, t.version) for t in page]
        steps += [Delete(turn.ref) for turn in lonely]
        owners = sorted({turn.parent for turn in lonely if turn.parent})
        for conversation in await store.get(owners):
            talk = Talk.of(conversation)
            talk.tags.add(UNSORTED)
            steps.append(talk.step(clock()))
        await commit(store, steps, clock())
        counts.turns_removed += len(lonely)


def _others(turn: Record, checkpoint: Checkpoint) -> tuple[str, ...]:
    """The tags that it does not have from this transcript."""
    return tuple(tag for tag in turn.tags if transcript_of(tag) != checkpoint.id)
