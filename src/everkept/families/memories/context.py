"""The context block: what a task should know, inside a token budget and fenced as data."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, cast

from everkept.core.data_fence import as_data
from everkept.core.records import Record
from everkept.core.times import ago
from everkept.core.tokens import token_count
from everkept.families.memories.fencing import fenced
from everkept.families.memories.filling import Entry, Filling
from everkept.families.memories.identity import text_key
from everkept.values import Value

Section = Literal["preferences", "project_context", "session_history", "relevant_procedures"]

TITLE = "## Memory Context"
HEADINGS: Mapping[str, str] = {  # in the order of their priority
    "preferences": "### User Preferences",
    "project_context": "### Project Knowledge",
    "session_history": "### Recent Session",
    "relevant_procedures": "### Relevant Procedures",
}
SOURCE_LENGTH = 60  # characters of a path, a tool or a name

MOST_READ = 400_000  # characters of all candidates: making them data takes time
FEWEST_READ = 2_000  # characters of each


class Block(Value):
    """`used` are the memories in it; `truncated` where some were clipped or left out."""

    text: str
    used: list[Record]
    tokens: int
    truncated: bool


def context_block(sections: Mapping[str, Sequence[Record]], budget: int, now: int) -> Block:
    """As much of the sections as the budget allows; no more tokens than that, ever.

    Preferences have priority. What is superseded or forgotten is left out, nothing stands there
    twice, and nothing at all is no block.
    """
    current = {s: [r for r in sections.get(s, ()) if is_current(r)] for s in HEADINGS}
    longest = max(MOST_READ // max(sum(map(len, current.values())), 1), FEWEST_READ)
    entries = _entries(current, longest, now)
    filling = Filling(entries, HEADINGS, budget - _FRAME)
    body = filling.text()
    text = _block(body) if body else ""
    return Block(text, filling.used, token_count(text), filling.is_truncated)


def ranked(records: Sequence[Record]) -> list[Record]:
    """Each once: pinned ones first, those that a summary stands for last."""
    once = {record.id: record for record in records}
    return sorted(once.values(), key=_rank)


def is_current(record: Record) -> bool:
    return record.deleted_at is None and not record.facets.get("superseded_by")


def entry_of(record: Record, longest: int, now: int) -> Entry:
    """A memory as a line shows it, with no more than so many characters of its text."""
    given = cast(Mapping[str, Any], record.facets.get("source") or {})
    origins = [given.get("file"), given.get("tool"), record.author and f"by {record.author}"]
    source = [
        " ".join(part for part in (record.scope, record.type) if part),
        *(_origin(str(origin)) for origin in origins if origin),
        ago(record.at, now),
    ]
    shown = "; ".join(part for part in source if part)
    line = as_data(record.text[:longest])
    is_whole = len(record.text) <= longest
    # A whole text is on one line by now, and is its own key.
    return Entry(record, line, shown, line if is_whole else text_key(record.text), is_whole)


def _rank(record: Record) -> tuple[bool, bool]:
    return not record.facets.get("pinned"), "consolidated" in record.facets


def _block(body: str) -> str:
    return f"{TITLE}\n\n{fenced(body)}"


_FRAME = token_count(_block("\n"))


def _entries(
    sections: Mapping[str, Sequence[Record]], longest: int, now: int
) -> dict[str, list[Entry]]:
    entries = {s: [entry_of(record, longest, now) for record in sections[s]] for s in sections}
    return {s: [entry for entry in some if entry.text] for s, some in entries.items()}


@lru_cache(1_024)  # authors, tools and files are those of many memories
def _origin(text: str) -> str:
    """The end of a path tells more than its beginning."""
    line = as_data(text).replace("(", "[").replace(")", "]")
    return line if len(line) <= SOURCE_LENGTH else "…" + line[1 - SOURCE_LENGTH :]
