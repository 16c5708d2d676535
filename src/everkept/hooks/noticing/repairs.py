"""What is known of a failure: what it said in this session, and what mended it in another."""

from collections.abc import Sequence

from everkept.core.records import Record, Where
from everkept.core.tokens import token_count
from everkept.families.memories.context import entry_of, is_current
from everkept.families.memories.fencing import fenced
from everkept.families.memories.kinds import MEMORY
from everkept.hooks.model import Answer, Around, HookEvent
from everkept.hooks.noticing.outcomes import signatures
from everkept.hooks.noticing.tags import FAILED, FIXED
from everkept.hooks.places import project_of

LOOKED_AT = 100  # memories, the newest
MOST_TOKENS = 300
LONGEST_TEXT = 2_000  # characters that are read of a memory
INTRODUCTION = "Everkept: the same error was met before in this project, and then mended."


def said_of_failure(head: str, event: HookEvent, around: Around) -> list[str]:
    """The lines that the memory of a failure has below its head; none where it is forgotten."""
    where = Where(kinds=(MEMORY,), sessions=(event.session.strip(),), tags=(FAILED,))
    found: list[Record] = around.run(_newest(where, event, around))
    for record in found:
        first, *rest = record.text.splitlines()
        if first == head:
            return rest
    return []


def mended_before(lines: Sequence[str], event: HookEvent, around: Around) -> Answer | None:
    """What helped in another session against one of these lines; told once."""
    known = signatures(lines)
    if not known:
        return None
    where = Where(kinds=(MEMORY,), scopes=("project",), tags=(FIXED,), automatic=True)
    found: list[Record] = around.run(_newest(where, event, around))
    for record in found:
        is_elsewhere = record.session != event.session.strip() and is_current(record)
        if is_elsewhere and known & signatures(record.text.splitlines()[1:]):
            return _told(record, around)
    return None


async def _newest(where: Where, event: HookEvent, around: Around) -> list[Record]:
    if around.room is None:
        return []
    project = await project_of(event.folder, around.settings, around.room)
    if project is None or project.is_off:
        return []
    _, store = await around.room.open(project.name)
    return await store.scan(where, order="newest", limit=LOOKED_AT)


def _told(record: Record, around: Around) -> Answer | None:
    entry = entry_of(record, LONGEST_TEXT, around.now)
    line = entry.fitting(MOST_TOKENS - token_count(_framed("")))
    if line is None or not around.ledger.claim([record.id]):
        return None
    return Answer(context=_framed(f"{line}\n"))


def _framed(body: str) -> str:
    return f"{INTRODUCTION}\n{fenced(body)}"
