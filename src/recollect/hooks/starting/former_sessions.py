"""Past sessions of a project and conversations of its folder, a line for each."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from recollect.core.fencing import as_data
from recollect.core.records import Record, Where
from recollect.core.text import counted, digest
from recollect.core.times import ago
from recollect.families.history.model import CONVERSATION
from recollect.families.memories.filling import Entry
from recollect.families.memories.kinds import NOTHING_STORED, SESSION

if TYPE_CHECKING:
    from recollect.core.ports import RecordStore

LOOKED_AT = 40  # records a question, of which some may not be meant
LONGEST_TEXT = 1_000  # characters that are read of a title or a summary

_EMPTY = ("", NOTHING_STORED)


async def summaries(store: "RecordStore | None") -> dict[str, Record]:
    """What sessions came to, by their ids."""
    if store is None:
        return {}
    found = await store.scan(Where(kinds=(SESSION,)), order="newest", limit=LOOKED_AT)
    return {record.id: record for record in found if record.text not in _EMPTY}


async def conversations(history: "RecordStore | None", folder: Path | None) -> dict[str, Record]:
    """Those that were held in the folder, by the ids of their sessions; not those of agents."""
    if history is None or folder is None:
        return {}
    found: list[Record] = []
    for name in _names(folder):
        where = Where(kinds=(CONVERSATION,), scopes=(name,))
        found += await history.scan(where, order="newest", limit=LOOKED_AT)
    return {record.session or record.id: record for record in found if _is_told(record)}


def lines(
    summed_up: dict[str, Record], talks: dict[str, Record], session: str, now: int
) -> list[Entry]:
    """The newest first, but the session itself: what was kept of one in both ways is one line."""
    keys = [key for key in {**summed_up, **talks} if key != session]
    pairs = [[each[key] for each in (talks, summed_up) if key in each] for key in keys]
    pairs.sort(key=_ended, reverse=True)
    return [_line(records, now) for records in pairs]


def _names(folder: Path) -> list[str]:
    """As transcripts may call it."""
    return list(dict.fromkeys((str(folder), str(folder.resolve()))))


def _is_told(record: Record) -> bool:
    facets = record.facets
    has_turns = facets.get("turns") and not facets.get("left_out")
    return bool(record.name and has_turns and not facets.get("part_of"))


def _ended(records: Sequence[Record]) -> int:
    return max(int(r.facets.get("ended_at") or r.facets.get("ended") or r.at) for r in records)


def _line(records: Sequence[Record], now: int) -> Entry:
    said = [as_data((record.name or record.text)[:LONGEST_TEXT]) for record in records]
    turns = [r.facets["turns"] for r in records if r.kind == CONVERSATION]
    source = ["session", *(counted(int(n), "turn") for n in turns), ago(_ended(records), now)]
    text = ": ".join(filter(None, said))
    return Entry(records[0], text, "; ".join(source), digest(text))
