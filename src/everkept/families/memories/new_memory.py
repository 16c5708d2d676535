"""A memory as it is asked for: the record it becomes, or what a stored one gains from it."""

from collections.abc import Mapping, Sequence
from typing import Any

from everkept.core.records import Record, Step, Update
from everkept.families.memories.amendment import clean_tags, not_automatic
from everkept.families.memories.identity import EVENT, moment_of, new_memory_id, place_of, text_key
from everkept.families.memories.linking import check_entities, relinked
from everkept.families.memories.model import (
    AUTOMATIC,
    DEFAULT_IMPORTANCE,
    MEMORY,
    SUPERSEDED_BY,
    SUPERSEDES,
    MemoryType,
    RelatedEntity,
    Scope,
    Source,
)
from everkept.graph.entities import check_name
from everkept.values import Value, replace

Values = dict[str, Any]


def topped_up(there: Record, new: Record, *, has_links: bool) -> tuple[list[Step], list[str]]:
    """The memory that was there gets what it lacked; what replaces another is current again."""
    # The usual importance is what a call has that says nothing of it.
    is_usual = new.importance == DEFAULT_IMPORTANCE
    values, updated = joined(there, replace(new, importance=None) if is_usual else new)
    if "tags" in values:
        values["tags"] = clean_tags(values["tags"])
    facets: Mapping[str, Any] = values.get("facets", there.facets)
    if SUPERSEDES in new.facets:
        kept = {name: value for name, value in facets.items() if name != SUPERSEDED_BY}
        facets = {**kept, SUPERSEDES: new.facets[SUPERSEDES]}
    if has_links:
        facets = relinked(facets)
        updated = [*updated, "related_entities"]
    if facets != there.facets:
        values["facets"] = facets
    return [Update(there.id, values, there.version)] if values else [], updated


def joined(there: Record, new: Record) -> tuple[Values, list[str]]:
    """The values that change, and what they are called.

    Tags are added, the higher importance counts, and what is missing is filled in. What both have
    stays as it is; so does the moment of an event, which makes it the event that it is. With one
    that somebody asked for it is automatic no longer.
    """
    values: Values = {}
    gained: list[str] = []
    facets = dict(there.facets) if AUTOMATIC in new.facets else not_automatic(there.facets)
    if missing := [tag for tag in new.tags if tag not in there.tags]:
        values["tags"] = (*there.tags, *missing)
        gained.append("tags")
    if (new.importance or 0.0) > (there.importance or 0.0):
        values["importance"] = new.importance
        gained.append("importance")
    if new.facets.get("pinned") and not facets.get("pinned"):
        facets["pinned"] = True
        gained.append("pinned")
    if new.author and not there.author:
        values["author"] = new.author
        gained.append("author")
    if new.occurred_at is not None and there.occurred_at is None and there.type != EVENT:
        values["occurred_at"] = new.occurred_at
        gained.append("occurred_at")
    if (source := _source(there, new)) and not facets.get("source"):
        facets["source"] = source
        gained.append("source")
        if there.session == new.session and there.position is None:
            values["position"] = new.position
    if facets != there.facets:
        values["facets"] = facets
    return values, gained


def told_apart(there: Record, new: Record) -> list[str]:
    """What the new one says otherwise, and the memory that is there keeps."""
    names = ("type", "author", "occurred_at")
    return [
        name
        for name in names
        if getattr(new, name) is not None and getattr(new, name) != getattr(there, name)
    ]


def _source(there: Record, new: Record) -> Values:
    """A turn is one of its own conversation."""
    source: Values = dict(new.facets.get("source") or {})
    if there.session != new.session:
        source.pop("conversation_turn", None)
    return source


UNKNOWN_SOURCE = Source()
HOOKS = "hook"  # what a source's tool begins with where nobody asked for the memory


class NewMemory(Value):
    """A memory as it is asked for; `session` is None where no session is known."""

    content: str
    type: MemoryType
    scope: Scope
    importance: float = DEFAULT_IMPORTANCE
    session: str | None = None
    tags: Sequence[str] = ()
    source: Source = UNKNOWN_SOURCE
    entities: Sequence[RelatedEntity] = ()
    author: str | None = None
    occurred_at: int | None = None
    pinned: bool = False
    supersedes: str | None = None

    @property
    def is_automatic(self) -> bool:
        return (self.source.tool or "").startswith(HOOKS)


def checked(wanted: NewMemory) -> NewMemory:
    check_entities(wanted.entities, "related_entities")
    for name, value in (("session_id", wanted.session), ("author", wanted.author)):
        if value is not None:
            check_name(value, name)
    return replace(wanted, tags=clean_tags(wanted.tags))


def new_record(wanted: NewMemory, replaced: str | None, at: int) -> Record:
    facets: dict[str, Any] = {
        "source": wanted.source.facts(),
        "pinned": wanted.pinned,
        AUTOMATIC: wanted.is_automatic,
        SUPERSEDES: replaced,
    }
    return Record(
        id=new_memory_id(at),
        kind=MEMORY,
        type=wanted.type,
        text=wanted.content,
        name_key=text_key(wanted.content),
        variant=place_of(wanted.scope, wanted.session, moment_of(wanted.type, wanted.occurred_at)),
        scope=wanted.scope,
        session=wanted.session,
        position=wanted.source.conversation_turn,
        author=wanted.author,
        importance=wanted.importance,
        occurred_at=wanted.occurred_at,
        tags=tuple(wanted.tags),
        facets={name: value for name, value in facets.items() if value},
        created_at=at,
        updated_at=at,
    )
