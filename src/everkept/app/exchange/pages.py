"""What is exported as pages for people: memories, the graph, and conversations."""

from collections.abc import Iterator, Sequence

from everkept.core.data_fence import as_quotation
from everkept.core.ports import RecordStore
from everkept.core.projects import Project
from everkept.core.records import Link, Record, Where
from everkept.core.text import clipped
from everkept.core.times import iso
from everkept.families.memories.model import MEMORY
from everkept.graph.entities import ENTITY, OBSERVATION

TYPES = {
    "procedural": "How things are done",
    "semantic": "What is so",
    "episodic": "What happened",
    "working": "For the moment",
}


def about(projects: Sequence[Project], accounts: Sequence[str] = ()) -> str:
    lines = [
        "# What Everkept remembers",
        "",
        "Written by `everkept export`; `everkept import` with the path of this folder takes it",
        "in. The `.jsonl` files are what is taken in, a record or a link on each line. The pages",
        "beside them say the same for people, and are not read.",
        "",
        "- `user/`: what holds in every project",
        f"- `projects/`: {', '.join(clipped(project.name) for project in projects) or 'none'}",
        "- `history/`: past conversations, where they were wanted",
    ]
    if accounts:
        lines.append("- `accounts/`: what is one account's alone, as lines without pages")
    return "\n".join(lines) + "\n"


async def of_store(store: RecordStore, title: str) -> dict[str, str]:
    """The pages of a project or of the user, by their names; none where there is nothing."""
    found: dict[str, str] = {}
    memories = await store.scan(Where(kinds=(MEMORY,)))
    if memories:
        found["memories.md"] = _text(_memories(title, memories))
    entities = await store.scan(Where(kinds=(ENTITY,)), order="name")
    if entities:
        ids = tuple(entity.id for entity in entities)
        told = await store.scan(Where(kinds=(OBSERVATION,), parents=ids))
        links = await store.links(ids, direction="out", sources=(ENTITY,))
        found["graph.md"] = _text(_graph(title, entities, told, links))
    return found


def conversation(head: Record, turns: Sequence[Record]) -> str:
    facts = [iso(head.at)[:10], head.scope, str(head.facets.get("source") or "")]
    lines = [f"# {clipped(head.name or 'A conversation', 120)}", ""]
    lines += [" · ".join(fact for fact in facts if fact), ""]
    for turn in sorted(turns, key=lambda t: (t.position is None, t.position or 0, t.at, t.id)):
        when = iso(turn.at)[:16].replace("T", " ")
        lines += [f"**{clipped(turn.author or '?')}**, {when}", "", as_quotation(turn.text), ""]
    return _text(lines)


def _memories(title: str, memories: Sequence[Record]) -> Iterator[str]:
    yield f"# Memories: {clipped(title)}"
    for kind in dict.fromkeys([*TYPES, *sorted({m.type or "" for m in memories})]):
        some = [memory for memory in memories if (memory.type or "") == kind]
        if some:
            yield from ("", f"## {TYPES.get(kind, kind)}")
        for memory in some:
            yield from ("", as_quotation(memory.text), "", _traits(memory))


def _traits(memory: Record) -> str:
    traits = [
        memory.scope,
        iso(memory.at)[:10],
        None if memory.importance is None else f"importance {memory.importance:g}",
        memory.author and f"by {clipped(memory.author)}",
        memory.tags and "tags " + ", ".join(memory.tags),
        memory.facets.get("pinned") and "pinned",
        memory.facets.get("automatic") and "automatic",
        memory.facets.get("superseded_by") and f"replaced by {memory.facets['superseded_by']}",
        memory.id,
    ]
    return f"({'; '.join(str(trait) for trait in traits if trait)})"


def _graph(
    title: str, entities: Sequence[Record], told: Sequence[Record], links: Sequence[Link]
) -> Iterator[str]:
    names = {entity.id: entity.name or entity.id for entity in entities}
    lines: dict[str, list[str]] = {}
    for observation in told:
        lines.setdefault(observation.parent or "", []).append(clipped(observation.text, 2_000))
    for link in links:
        if link.target in names:
            reached = f"{clipped(link.verb)} → {clipped(names[link.target])}"
            lines.setdefault(link.source, []).append(reached)
    yield f"# Knowledge graph: {clipped(title)}"
    for entity in entities:
        yield from ("", f"## {clipped(names[entity.id])} ({clipped(entity.type or '')})", "")
        yield from (f"- {line}" for line in lines.get(entity.id, ()))


def _text(lines: Iterator[str] | Sequence[str]) -> str:
    return "\n".join(lines).rstrip("\n") + "\n"
