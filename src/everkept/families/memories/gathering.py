"""What may stand in a context block: every question that it takes, asked at the same time."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import chain, islice
from pathlib import PurePosixPath

from everkept.core.records import SESSION_SCOPE, Record, Where
from everkept.families.memories.context import HEADINGS, ranked
from everkept.values import Value, replace

Texts = tuple[str, ...]
Recall = Callable[[str, Texts, Texts, float, int], Awaitable[list[Record]]]
Newest = Callable[[Where, int], Awaitable[list[Record]]]

MOST_RECALLED = 30  # for a section
MOST_SEARCHED = 150  # for all sections, so that none crowds out another
MOST_STANDING = 40  # pinned and important ones, whatever the task
MOST_OF_SESSION = 30
MOST_FILES = 20
IMPORTANT = 0.7  # by itself a reason to mention it

_EVENTS = ("episodic", "working")
_SESSION = "session_history"


async def gather(
    recall: Recall, newest: Newest, task: str | None, files: Sequence[str], sections: Sequence[str]
) -> dict[str, list[Record]]:
    """Candidates for each section, best first; every question is asked at the same time.

    `recall` ranks by a query, `newest` by age; both see no session's own memories but those of
    the session that asks. Pinned memories come first, consolidated ones last.
    """
    names = (PurePosixPath(file.replace("\\", "/")).name for file in files[:MOST_FILES])
    query = " ".join(part for part in (task or "", *names) if part.strip()).strip()
    ask = _Questions(recall, newest, query, _parts(sections))
    wanted = [section for section in HEADINGS if section in sections]
    recalled, pinned, *others = await asyncio.gather(
        ask.recalled(), ask.pinned(), *(ask.others(section) for section in wanted)
    )
    return {
        section: ranked(ask.ordered(section, recalled, pinned, more))
        for section, more in zip(wanted, others, strict=True)
    }


class _Part(Value):
    """The memories that a section is about."""

    scopes: Texts
    types: Texts

    def of(self, records: Sequence[Record], most: int) -> list[Record]:
        own = (r for r in records if r.scope in self.scopes and r.type in self.types)
        return list(islice(own, most))


def _parts(sections: Sequence[str]) -> dict[str, _Part]:
    """Where procedures have no section of their own, they are project knowledge."""
    of_project = () if "relevant_procedures" in sections else ("procedural",)
    parts = {
        "preferences": _Part(("user",), ("semantic", "procedural")),
        "project_context": _Part(("project",), ("semantic", *_EVENTS, *of_project)),
        "relevant_procedures": _Part(("project", "user"), ("procedural",)),
    }
    return {section: part for section, part in parts.items() if section in sections}


class _Questions(Value):
    """What is asked once for all sections, and what a section asks for itself."""

    recall: Recall
    newest: Newest
    query: str
    parts: Mapping[str, _Part]

    async def recalled(self) -> list[Record]:
        """What the task is about, for every section in one search."""
        if not self.query or not self.parts:
            return []
        most = MOST_RECALLED if len(self.parts) == 1 else MOST_SEARCHED
        return await self.recall(self.query, self._scopes, self._types, 0.0, most)

    async def pinned(self) -> list[Record]:
        if not self.parts:
            return []
        where = Where(scopes=self._scopes, types=self._types, pinned=True)
        return await self.newest(where, MOST_STANDING * len(self.parts))

    async def others(self, section: str) -> list[Record]:
        """What a section has whatever the task: the most important, and the newest."""
        if section == _SESSION:
            return await self.newest(Where(scopes=(SESSION_SCOPE,)), MOST_OF_SESSION)
        if not self._is_standing(section):
            return []
        where = Where(scopes=self.parts[section].scopes, types=self.parts[section].types)
        important, newest = await asyncio.gather(
            self.newest(replace(where, min_importance=IMPORTANT), MOST_STANDING),
            self.newest(where, MOST_STANDING),
        )
        return [*important, *newest]

    def ordered(
        self,
        section: str,
        recalled: Sequence[Record],
        pinned: Sequence[Record],
        others: Sequence[Record],
    ) -> list[Record]:
        """The candidates of a section, the best first.

        Events of a session come first: they are what happened. What stands there whatever the
        task is led by importance; among equals by what the task is about, then by age.
        """
        if section == _SESSION:
            return sorted(others, key=lambda record: record.type not in _EVENTS)
        part = self.parts[section]
        about, standing = part.of(recalled, MOST_RECALLED), part.of(pinned, MOST_STANDING)
        if not self._is_standing(section):
            return [*standing, *about]
        found = [*about, *standing, *others]
        return sorted(found, key=lambda record: -(record.importance or 0.0))

    def _is_standing(self, section: str) -> bool:
        """Preferences hold for every task; without one the others are asked for like them."""
        return section == "preferences" or not self.query

    @property
    def _scopes(self) -> Texts:
        return tuple(dict.fromkeys(chain.from_iterable(p.scopes for p in self.parts.values())))

    @property
    def _types(self) -> Texts:
        return tuple(dict.fromkeys(chain.from_iterable(p.types for p in self.parts.values())))
