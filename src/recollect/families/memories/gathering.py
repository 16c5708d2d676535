"""What may stand in a context block: every question that it takes, asked at the same time."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import PurePosixPath

from recollect.core.records import SESSION_SCOPE, Record, Where
from recollect.families.memories.context import HEADINGS, ranked
from recollect.values import Value, replace

Texts = tuple[str, ...]
Recall = Callable[[str, Texts, Texts, float, int], Awaitable[list[Record]]]
Newest = Callable[[Where, int], Awaitable[list[Record]]]

MOST_RECALLED = 30
MOST_STANDING = 40  # pinned and important ones, whatever the task
MOST_OF_SESSION = 30
MOST_FILES = 20
IMPORTANT = 0.7  # by itself a reason to mention it

_EVENTS = ("episodic", "working")


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
    return {section: ranked(records) for section, records in zip(wanted, found, strict=True)}


class _Questions(Value):
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
