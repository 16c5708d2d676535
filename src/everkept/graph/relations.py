"""Relations: links between entities, each once for its two ends and its verb."""

from collections.abc import Callable, Container, Iterable, Sequence, Set
from uuid import uuid4

from everkept.core.ports import RecordStore
from everkept.core.records import Link, Record
from everkept.graph.entities import ENTITY

Triple = tuple[str, str, str]  # the id of the source, the verb, the id of the target


def new_relation(source: str, verb: str, target: str, at: int) -> Link:
    return Link(str(uuid4()), source, verb, target, at)


def by_triple(
    links: Iterable[Link], verb_key: Callable[[str], str] = str
) -> dict[Triple, list[Link]]:
    """Group links that are the same relation; `verb_key` returns what makes two verbs the same."""
    found: dict[Triple, list[Link]] = {}
    for link in links:
        found.setdefault((link.source, verb_key(link.verb), link.target), []).append(link)
    return found


async def relations_from(
    store: RecordStore, sources: Sequence[str], verb_key: Callable[[str], str] = str
) -> dict[Triple, list[Link]]:
    links = await store.links(sources, direction="out") if sources else []
    return by_triple(links, verb_key)


async def relations_among(store: RecordStore, entities: Set[str]) -> list[Link]:
    """Return the relations that begin and end at one of the entities."""
    links = await store.links(list(entities), sources=(ENTITY,)) if entities else []
    return [link for link in links if link.source in entities and link.target in entities]


def missing_relations(wanted: Iterable[Triple], present: Container[Triple], at: int) -> list[Link]:
    """Return a new relation, once, for each that is not present."""
    absent = [triple for triple in dict.fromkeys(wanted) if triple not in present]
    return [new_relation(*triple, at) for triple in absent]


def names_of(entities: Iterable[Record | None]) -> dict[str, str]:
    """Return the names of the ends by id."""
    return {record.id: record.name or "" for record in entities if record is not None}
