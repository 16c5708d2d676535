"""The open todos among memories: those that are tagged so, and those that say so themselves."""

import re
from typing import TYPE_CHECKING

from everkept.core.records import Record, Weights, Where
from everkept.families.memories.memory_identity import MEMORY
from everkept.language.words import Phrase

if TYPE_CHECKING:
    from everkept.core.ports import RecordStore

TODO, DONE = "todo", frozenset({"done", "closed", "completed"})  # tags
LOOKED_AT = 40  # records a question, of which some may not be meant
LOOKED_THROUGH = 200  # the newest, for an empty box: it is no word that could be found

_SAYS_SO = re.compile(r"\s*(?:[-*+]\s+)?(?:\[ ?\](?=\s)|TODO\b|[Tt]o-?do\s*:)")
_TEXT_ALONE = Weights(name=0.0, text=1.0, context=0.0)


def is_todo(record: Record) -> bool:
    return TODO in record.tags or bool(_SAYS_SO.match(record.text))


async def open_todos(store: "RecordStore", session: str) -> list[Record]:
    """Whatever their importance, the newest first."""
    where = Where(kinds=(MEMORY,), visible_to=session)
    tagged = Where(kinds=(MEMORY,), visible_to=session, tags=(TODO,))
    matches = await store.match(Phrase((TODO,)), where, _TEXT_ALONE, LOOKED_AT)
    found = [
        *await store.scan(tagged, order="newest", limit=LOOKED_AT),
        *await store.get([match.id for match in matches]),
        *await store.scan(where, order="newest", limit=LOOKED_THROUGH),
    ]
    meant = {r.id: r for r in found if is_todo(r) and DONE.isdisjoint(r.tags)}
    return sorted(meant.values(), key=lambda record: record.at, reverse=True)
