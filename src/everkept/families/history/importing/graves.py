"""What stays of a turn that is gone, so that no copy of it passes for a new one."""

from everkept.core.records import Delete, Insert, Record, Step
from everkept.families.history.model import SAID, TURN

FORGOTTEN = "forgotten"  # the type of a grave


def grave_id(turn_id: str) -> str:
    """A grave is dug beside its turn, before that is purged: one of the two is always there."""
    return f"grave_{turn_id.removeprefix('turn_')}"


def buried(
    turn_id: str, conversation: str, session: str | None, happened: int, at: int
) -> list[Step]:
    """The steps that say of a turn that it must not come back, and nothing of what it was.

    Without a conversation, where that was never in either.
    """
    return _deleted(grave_id(turn_id), FORGOTTEN, conversation, session, happened, at)


def taken_back(
    turn_id: str, conversation: str, session: str | None, happened: int, at: int
) -> list[Step]:
    """The steps that leave of a turn what a deletion leaves: it may be said again."""
    return _deleted(turn_id, SAID, conversation, session, happened, at)


def _deleted(
    record_id: str, kind: str, conversation: str, session: str | None, happened: int, at: int
) -> list[Step]:
    bare = Record(
        id=record_id,
        kind=TURN,
        created_at=at,
        updated_at=at,
        type=kind,
        parent=conversation or None,
        session=session,
        occurred_at=happened,
    )
    return [Insert(bare), Delete(bare.ref)]
