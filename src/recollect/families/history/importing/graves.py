"""What stays of a turn that is gone: id and time, so that no copy of it passes for a new one."""

from recollect.core.records import Delete, Insert, Record, Step
from recollect.families.history.model import SAID, TURN

FORGOTTEN = "forgotten"  # the type of a turn that must not come back
TAKEN_BACK = SAID  # of one that may be said again


def buried(
    turn_id: str, conversation: str, session: str, happened: int, kind: str, at: int
) -> list[Step]:
    """The steps that leave a deleted record without a word in it."""
    bare = Record(
        id=turn_id,
        kind=TURN,
        created_at=at,
        updated_at=at,
        type=kind,
        parent=conversation,
        session=session,
        occurred_at=happened,
    )
    return [Insert(bare), Delete(bare.ref)]
