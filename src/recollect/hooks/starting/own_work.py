"""What a session itself has decided and done, which a compaction of its context loses."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from recollect.core.fencing import as_data
from recollect.core.records import Record, Where
from recollect.core.text import digest
from recollect.core.times import ago
from recollect.families.history.model import DECISION, TURN
from recollect.families.memories.context import entry_of, is_current
from recollect.families.memories.filling import Entry
from recollect.families.memories.kinds import MEMORY
from recollect.hooks.noticing.tags import EDITED, is_automatic

if TYPE_CHECKING:
    from recollect.core.ports import RecordStore

LOOKED_AT = 200  # memories of the session
MOST_STATED, MOST_DECISIONS, MOST_NOTICED, MOST_FILES = 20, 8, 8, 40
LONGEST_TEXT = 2_000  # characters that are read of each
SPEAKERS = ("user", "assistant")


async def own_work(
    store: "RecordStore | None", history: "RecordStore | None", session: str, now: int
) -> list[Entry]:
    """What it had stored, what was decided, which files it edited, and which commands failed."""
    if not session:
        return []
    own = [record for record in await _stored(store, session) if is_current(record)]
    noticed = [record for record in own if is_automatic(record)]
    stated = [record for record in own if not is_automatic(record)]
    commands = [record for record in noticed if EDITED not in record.tags]
    return [
        *(entry_of(record, LONGEST_TEXT, now) for record in stated[:MOST_STATED]),
        *(_decision(turn, now) for turn in await _decisions(history, session)),
        *_files([record for record in noticed if EDITED in record.tags], now),
        *(entry_of(record, LONGEST_TEXT, now) for record in commands[:MOST_NOTICED]),
    ]


async def _stored(store: "RecordStore | None", session: str) -> list[Record]:
    where = Where(kinds=(MEMORY,), sessions=(session,))
    return [] if store is None else await store.scan(where, order="newest", limit=LOOKED_AT)


async def _decisions(history: "RecordStore | None", session: str) -> list[Record]:
    where = Where(kinds=(TURN,), types=(DECISION,), sessions=(session,))
    if history is None:
        return []
    return await history.scan(where, order="newest", limit=MOST_DECISIONS)


def _decision(turn: Record, now: int) -> Entry:
    by = f"said by the {turn.author}" if turn.author in SPEAKERS else "said"
    is_whole = len(turn.text) <= LONGEST_TEXT
    text = as_data(turn.text[:LONGEST_TEXT])
    return Entry(turn, text, f"{by}; {ago(turn.at, now)}", digest(turn.text), is_whole)


def _files(records: Sequence[Record], now: int) -> list[Entry]:
    """All on one line: there may be many."""
    names = list(dict.fromkeys(name for record in records if (name := _file(record))))
    text = as_data(", ".join(names[:MOST_FILES]))
    if not text:
        return []
    source = f"edited; the last one {ago(records[0].at, now)}"
    return [Entry(records[0], f"Files: {text}", source, digest(text))]


def _file(record: Record) -> str:
    source = cast(Mapping[str, Any], record.facets.get("source") or {})
    return str(source.get("file") or "")
