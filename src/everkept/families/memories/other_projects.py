"""Memories of other projects: the places of a recall in all projects, and a hint where to look."""

import asyncio
from collections.abc import Sequence

from everkept.core.ports import Library, RecordStore
from everkept.core.projects import Project
from everkept.core.records import RecordFilter
from everkept.errors import EverkeptError, NotFound, Refused
from everkept.families.memories.model import ELSEWHERE_CODE, MEMORY_PROFILE
from everkept.language.telling_words import list_stems
from everkept.retrieval.excerpts import compute_coverage
from everkept.retrieval.profile import Deadline, SearchHit, SearchPlace
from everkept.retrieval.search import search
from everkept.tools.tool import ToolWarning
from everkept.values import replace

MAX_HINT_PROJECTS = 12  # the ones that changed last
HINT_TIME_SHARE = 0.15  # of the time limit for a search
MAX_HINT_CANDIDATES = 5  # memories compared with the query
HINT_COVERAGE = 0.75  # share of the query's words that a close memory has

_PROJECT_SCOPE = ("project",)


async def open_all_projects(library: Library) -> list[tuple[Project, RecordStore]]:
    """Open all projects that the account may read and that are neither off nor archived."""
    listed = await library.list_projects("active")
    opened = await asyncio.gather(*(_open(library, project) for project in listed))
    return [each for each in opened if each is not None]


async def find_elsewhere(
    library: Library, own: RecordStore, query: str, where: RecordFilter, time_limit: float | None
) -> str | None:
    """Return the name of another project with a memory that is close to the query.

    Only a few projects are searched, by words alone and for a moment, because most queries find nothing there.
    """
    asked = list_stems(query)
    if not asked:
        return None
    deadline = Deadline.from_seconds(None if time_limit is None else HINT_TIME_SHARE * time_limit)
    return await deadline.run(_find_closest(library, own, query, asked, where))


def build_elsewhere_warning(project: str) -> ToolWarning:
    message = f'No memory here matches, but project "{project}" has a close one. To see it, pass `all_projects`.'
    return ToolWarning(ELSEWHERE_CODE, message)


async def _open(library: Library, project: Project) -> tuple[Project, RecordStore] | None:
    if project.is_off:
        return None
    try:
        return await library.open(project.name)
    except (NotFound, Refused):  # deleted or archived since it was listed
        return None


async def _find_closest(
    library: Library, own: RecordStore, query: str, asked: frozenset[str], where: RecordFilter
) -> str | None:
    try:
        listed = await library.list_projects("active")
        newest = sorted(listed, key=lambda project: -project.updated_at)[: MAX_HINT_PROJECTS + 1]
        opened = [each for each in await asyncio.gather(*(_open(library, p) for p in newest)) if each is not None]
        others = [(project, store) for project, store in opened if store is not own][:MAX_HINT_PROJECTS]
        places = [SearchPlace(store, replace(where, scopes=_PROJECT_SCOPE)) for _, store in others]
        if not places:
            return None
        profile = replace(MEMORY_PROFILE, strategy="keyword")
        found = await search(places, query, profile, limit=MAX_HINT_CANDIDATES)
    except EverkeptError:  # a hint is not worth an error
        return None
    best = _select_closest(asked, found.hits)
    return None if best is None else others[best.place][0].name


def _select_closest(asked: frozenset[str], hits: Sequence[SearchHit]) -> SearchHit | None:
    """Return the hit with the most words of the query, or None if none is close."""
    covered = [(compute_coverage(asked, f"{hit.record.name or ''}\n{hit.record.text}"), hit) for hit in hits]
    share, best = max(covered, key=lambda each: each[0], default=(0.0, None))
    return best if share >= HINT_COVERAGE else None
