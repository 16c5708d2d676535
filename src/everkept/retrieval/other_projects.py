"""Records of other projects: the places of a search in all projects, and a hint where to look."""

import asyncio

from everkept.core.ports import Library, RecordStore
from everkept.core.projects import Project
from everkept.core.records import Record, RecordFilter
from everkept.errors import EverkeptError, NotFound, Refused
from everkept.graph.entities import ENTITY, OBSERVATION, read_entities
from everkept.language.telling_words import list_stems
from everkept.retrieval.excerpts import compute_coverage
from everkept.retrieval.profile import Deadline, SearchPlace, SearchProfile
from everkept.retrieval.search import search
from everkept.values import Value, replace

MAX_HINT_PROJECTS = 12  # the ones that changed last
HINT_TIME_SHARE = 0.15  # of the time limit for a search
MAX_HINT_CANDIDATES = 5  # records compared with the query
HINT_COVERAGE = 0.75  # share of the query's words that a close record has

_ENTITIES = SearchProfile(kinds=(ENTITY, OBSERVATION), merge_children=True, strategy="keyword")


class FoundElsewhere(Value):
    """Record of another project that is close to a query."""

    project: str
    record: Record


async def open_all_projects(library: Library) -> list[tuple[Project, RecordStore]]:
    """Open all projects that the account may read and that are neither off nor archived."""
    listed = await library.list_projects("active")
    opened = await asyncio.gather(*(_open(library, project) for project in listed))
    return [each for each in opened if each is not None]


async def find_elsewhere(
    library: Library,
    own: RecordStore | None,
    query: str,
    profile: SearchProfile,
    where: RecordFilter,
    time_limit: float | None,
) -> FoundElsewhere | None:
    """Return the record of another project that is closest to the query, or None if none is close.

    Only a few projects are searched, by words alone and for a moment, because most queries find nothing there.
    """
    asked = list_stems(query)
    if not asked:
        return None
    deadline = Deadline.from_seconds(None if time_limit is None else HINT_TIME_SHARE * time_limit)
    return await deadline.run(_find_closest(library, own, query, asked, replace(profile, strategy="keyword"), where))


async def find_entity_elsewhere(
    library: Library, own: RecordStore | None, query: str, time_limit: float | None
) -> FoundElsewhere | None:
    """Return the entity of another project's graph that is closest to the query, or None if none is close."""
    return await find_elsewhere(library, own, query, _ENTITIES, RecordFilter(), time_limit)


async def _open(library: Library, project: Project) -> tuple[Project, RecordStore] | None:
    if project.is_off:
        return None
    try:
        return await library.open(project.name)
    except (NotFound, Refused):  # deleted or archived since it was listed
        return None


async def _find_closest(
    library: Library,
    own: RecordStore | None,
    query: str,
    asked: frozenset[str],
    profile: SearchProfile,
    where: RecordFilter,
) -> FoundElsewhere | None:
    try:
        listed = await library.list_projects("active")
        newest = sorted(listed, key=lambda project: -project.updated_at)[: MAX_HINT_PROJECTS + 1]
        opened = [each for each in await asyncio.gather(*(_open(library, p) for p in newest)) if each is not None]
        others = [(project, store) for project, store in opened if store is not own][:MAX_HINT_PROJECTS]
        if not others:
            return None
        places = [SearchPlace(store, where) for _, store in others]
        hits = (await search(places, query, profile, limit=MAX_HINT_CANDIDATES)).hits
        texts = [await _read_text(others[hit.place][1], hit.record) for hit in hits]
    except EverkeptError:  # a hint is not worth an error
        return None
    covered = [(compute_coverage(asked, text), hit) for text, hit in zip(texts, hits, strict=True)]
    share, best = max(covered, key=lambda each: each[0], default=(0.0, None))
    return None if best is None or share < HINT_COVERAGE else FoundElsewhere(others[best.place][0].name, best.record)


async def _read_text(store: RecordStore, record: Record) -> str:
    """Return the text of a record, with the observations of an entity."""
    texts = [record.name or "", record.text]
    if record.kind == ENTITY:
        for node in (await read_entities(store, [record.id])).nodes:
            texts += [node.type, *(text for _, text, _ in node.leaves)]
    return "\n".join(texts)
