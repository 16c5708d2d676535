"""The context block: what a task should know, inside a token budget and fenced as data."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any, Literal, cast

from recollect.core.fencing import as_data
from recollect.core.records import SESSION_SCOPE, Record, Where
from recollect.core.times import ago
from recollect.core.tokens import token_count
from recollect.families.memories.fencing import fenced
from recollect.families.memories.filling import Entry, Filling
from recollect.families.memories.identity import text_key

Section = Literal["preferences", "project_context", "session_history", "relevant_procedures"]
Texts = tuple[str, ...]
Recall = Callable[[str, Texts, Texts, float, int], Awaitable[list[Record]]]
Newest = Callable[[Where, int], Awaitable[list[Record]]]

TITLE = "## Memory Context"
HEADINGS: Mapping[str, str] = {  # in the order of their priority
    "preferences": "### User Preferences",
    "project_context": "### Project Knowledge",
    "session_history": "### Recent Session",
    "relevant_procedures": "### Relevant Procedures",
}
SOURCE_LENGTH = 60  # characters of a path, a tool or a name

MOST_RECALLED = 30
MOST_STANDING = 40  # pinned and important ones, whatever the task
MOST_OF_SESSION = 30
MOST_FILES = 20
MOST_READ = 400_000  # characters of all candidates: making them data takes time
FEWEST_READ = 2_000  # characters of each
IMPORTANT = 0.7  # by itself a reason to mention it

_EVENTS = ("episodic", "working")


@dataclass(frozen=True, slots=True)
class Block:
    """`used` are the memories in it; `truncated` where some were clipped or left out."""

    text: str
    used: list[Record]
    tokens: int
    truncated: bool


async def gather(
    recall: Recall, newest: Newest, task: str | None, files: Sequence[str], sections: Sequence[str]
) -> dict[str, list[Record]]:
    """Candidates for each section, best first; every question is asked at the same time.

    `recall` ranks by a query, `newest` by age; both see no session's own memories but those of
    the session that asks. Pinned memories come first, consolidated ones last.
    """
    names = (PurePosixPath(file.replace("\\", "/")).name for file in files[:MOST_FILES])
    query = " ".join(part for part in (task or "", *names) if part.strip()).strip()
    ask = _Questions(recall, newest, query)
    # Where procedures have no section of their own, they are project knowledge.
    of_project = () if "relevant_procedures" in sections else ("procedural",)
    questions: Mapping[str, Callable[[], Awaitable[list[Record]]]] = {
        "preferences": ask.preferences,
        "project_context": lambda: ask.project(("semantic", *_EVENTS, *of_project)),
        "session_history": ask.session,
        "relevant_procedures": ask.procedures,
    }
    wanted = [section for section in HEADINGS if section in sections]
    found = await asyncio.gather(*(questions[section]() for section in wanted))
    return {section: _ranked(records) for section, records in zip(wanted, found, strict=True)}


def context_block(sections: Mapping[str, Sequence[Record]], budget: int, now: int) -> Block:
    """As much of the sections as the budget allows; no more tokens than that, ever.

    Preferences have priority. What is superseded or forgotten is left out, nothing stands there
    twice, and nothing at all is no block.
    """
    current = {s: [r for r in sections.get(s, ()) if _is_current(r)] for s in HEADINGS}
    longest = max(MOST_READ // max(sum(map(len, current.values())), 1), FEWEST_READ)
    entries = _entries(current, longest, now)
    filling = Filling(entries, HEADINGS, budget - _FRAME)
    body = filling.text()
    text = _block(body) if body else ""
    return Block(text, filling.used, token_count(text), filling.is_truncated)


@dataclass(frozen=True, slots=True)
class _Questions:
    recall: Recall
    newest: Newest
    query: str

    async def preferences(self) -> list[Record]:
        """Important ones first; among equals those that the task is about, then the newest."""
        return await self._standing(("user",), ("semantic", "procedural"))

    async def project(self, types: Texts) -> list[Record]:
        return await self._about_task(("project",), types)

    async def procedures(self) -> list[Record]:
        return await self._about_task(("project", "user"), ("procedural",))

    async def session(self) -> list[Record]:
        """Events first: they are what happened."""
        found = await self.newest(Where(scopes=(SESSION_SCOPE,)), MOST_OF_SESSION)
        return sorted(found, key=lambda record: record.type not in _EVENTS)

    async def _about_task(self, scopes: Texts, types: Texts) -> list[Record]:
        """What the task is about, and what is pinned; without a task the most important."""
        if not self.query:
            return await self._standing(scopes, types)
        pinned = Where(scopes=scopes, types=types, pinned=True)
        recalled, standing = await asyncio.gather(
            self.recall(self.query, scopes, types, 0.0, MOST_RECALLED),
            self.newest(pinned, MOST_STANDING),
        )
        return [*standing, *recalled]

    async def _standing(self, scopes: Texts, types: Texts) -> list[Record]:
        where = Where(scopes=scopes, types=types)
        asked = [
            self.newest(replace(where, pinned=True), MOST_STANDING),
            self.newest(replace(where, min_importance=IMPORTANT), MOST_STANDING),
            self.newest(where, MOST_STANDING),
        ]
        if self.query:
            asked.insert(0, self.recall(self.query, scopes, types, 0.0, MOST_RECALLED))
        found = [record for records in await asyncio.gather(*asked) for record in records]
        return sorted(found, key=lambda record: -(record.importance or 0.0))


def _ranked(records: Sequence[Record]) -> list[Record]:
    once = {record.id: record for record in records}
    return sorted(once.values(), key=lambda r: (not _is_pinned(r), "consolidated" in r.facets))


def _is_pinned(record: Record) -> bool:
    return bool(record.facets.get("pinned"))


def _block(body: str) -> str:
    return f"{TITLE}\n\n{fenced(body)}"


_FRAME = token_count(_block("\n"))


def _entries(
    sections: Mapping[str, Sequence[Record]], longest: int, now: int
) -> dict[str, list[Entry]]:
    entries = {s: [_entry(record, longest, now) for record in sections[s]] for s in sections}
    return {s: [entry for entry in some if entry.text] for s, some in entries.items()}


def _is_current(record: Record) -> bool:
    return record.deleted_at is None and not record.facets.get("superseded_by")


def _entry(record: Record, longest: int, now: int) -> Entry:
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
    return Entry(record, line, shown, text_key(line if is_whole else record.text), is_whole)


def _origin(text: str) -> str:
    """The end of a path tells more than its beginning."""
    line = as_data(text).replace("(", "[").replace(")", "]")
    return line if len(line) <= SOURCE_LENGTH else "…" + line[1 - SOURCE_LENGTH :]
