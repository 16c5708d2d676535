"""The four documents that show memories to whoever reads and does not ask."""

import json
from collections import Counter

from recollect.core.entities import ENTITY, OBSERVATION
from recollect.core.ports import RecordStore
from recollect.core.records import Where
from recollect.core.text import clipped
from recollect.core.times import iso
from recollect.families.memories.fencing import as_data, fenced
from recollect.families.memories.model import MEMORY, SESSION
from recollect.families.memories.sessions import Use, stored_by
from recollect.families.memories.status import MemoryStatus
from recollect.families.memories.topics import TYPES, key_topics
from recollect.families.memories.walking import OVERVIEW
from recollect.tools.schema import to_json

STATUS = "memory://status"
SESSION_SUMMARY = "memory://session/summary"
KNOWLEDGE_GRAPH = "memory://project/knowledge-graph"
PREFERENCES = "memory://user/preferences"

MOST_SUMMED_UP = 1_000  # memories of a session
MOST_PREFERENCES = 50
MOST_ENTITIES = 30
MOST_VERBS = 20
MOST_LINKS = 10_000  # from memories that are counted for their entities
LINE = 300  # characters of a memory


def status_text(status: MemoryStatus) -> str:
    return json.dumps(to_json(status), ensure_ascii=False, indent=2)


async def session_text(
    project: RecordStore, user: RecordStore, session: str | None, started_at: int, use: Use
) -> str:
    """What the session has stored and recalled so far."""
    if session is None:
        return "## Session Memory Summary\nThis connection keeps no session.\n"
    stored = await stored_by((project, user), session, MOST_SUMMED_UP)
    made = [record for record in await project.get([session]) if record.kind == SESSION]
    counts = Counter(record.type for record in stored)
    listed = ", ".join(f"{counts[kind]} {kind}" for kind in TYPES if counts[kind])
    consolidated = sum("consolidated" in record.facets for record in stored)
    topics = _short(", ".join(key_topics(stored))) or "none yet"
    started = _minute(made[0].created_at if made else started_at)
    return "\n".join(
        [
            "## Session Memory Summary",
            f"**Session:** {_short(session)} | Started: {started}",
            f"**Memories stored:** {len(stored)}" + (f" ({listed})" if listed else ""),
            f"**Memories recalled:** {use.queries} queries, "
            f"{len(use.served)} unique memories served",
            f"**Memories consolidated:** {consolidated}",
            f"**Key topics:** {topics}",
            "",
        ]
    )


async def graph_text(project: RecordStore) -> str:
    """Entities, the kinds of their relations, and how closely they are knit."""
    counts = await project.count()
    entities = await project.scan(Where(kinds=(ENTITY,)), order="newest", limit=OVERVIEW)
    by_id = {entity.id: entity for entity in entities}
    links = await project.links(list(by_id), sources=(ENTITY,)) if by_id else []
    relations = [link for link in links if link.source in by_id and link.target in by_id]
    verbs = Counter(link.verb for link in relations)
    about = (
        await project.links(list(by_id), direction="in", sources=(MEMORY,), limit=MOST_LINKS)
        if by_id
        else []
    )
    degrees = Counter(end for link in relations for end in (link.source, link.target))
    degrees.update(link.target for link in about)
    types = Counter(entity.type or "" for entity in entities)
    total = counts.get(ENTITY, 0)
    lines = [
        "## Project Knowledge Graph",
        f"**Entities:** {total}" + _listed(types),
        f"**Relationships:** {len(relations)}" + _listed(verbs),
        f"**Observations:** {counts.get(OBSERVATION, 0)}",
        f"**Links from memories:** {counts['link'] - len(links)}",
        f"**Density:** {_density(len(relations), len(entities))}",
    ]
    if len(entities) < total:
        lines.append(f"Relationships are those of the newest {len(entities):,} entities.")
    best = [
        f"- {_short(by_id[entity].name)} ({_short(by_id[entity].type)}): {count} links\n"
        for entity, count in degrees.most_common(MOST_ENTITIES)
    ]
    if best:
        lines += ["", "### Best connected", fenced("".join(best))]
    return "\n".join([*lines, ""])


async def preferences_text(user: RecordStore) -> str:
    """The user's facts and procedures, the weightiest first."""
    where = Where(kinds=(MEMORY,), scopes=("user",), types=("semantic", "procedural"))
    current = [
        record
        for record in await user.scan(where, order="newest", limit=MOST_SUMMED_UP)
        if "superseded_by" not in record.facets
    ]
    current.sort(key=lambda r: ("pinned" not in r.facets, -(r.importance or 0.0), -r.at))
    lines = ["## User Preferences"]
    if not current:
        return "\n".join([*lines, "Nothing is remembered of the user yet.", ""])
    body = ""
    for title, kind in (("Facts and preferences", "semantic"), ("Procedures", "procedural")):
        shown = [r for r in current[:MOST_PREFERENCES] if r.type == kind]
        body += f"\n### {title}\n" if shown else ""
        body += "".join(f"- {_short(r.text)} ({_minute(r.at)[:10]}; {r.id})\n" for r in shown)
    return "\n".join([*lines, fenced(body), ""])


def _listed(counts: Counter[str]) -> str:
    if not counts:
        return ""
    named = (f"{count} {_short(name)}" for name, count in counts.most_common(MOST_VERBS))
    return f" ({', '.join(named)})"


def _short(text: str | None) -> str:
    return as_data(clipped(text or "", LINE))


def _density(relations: int, entities: int) -> str:
    possible = entities * (entities - 1)
    return f"{relations / possible:.4f}" if possible else "0"


def _minute(at: int) -> str:
    return iso(at)[:16].replace("T", " ")
