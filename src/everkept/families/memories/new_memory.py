"""A memory as it is asked for, and the record that it becomes."""

from collections.abc import Sequence
from typing import Any

from everkept.core.records import Record
from everkept.families.memories.amending import clean_tags
from everkept.families.memories.identity import moment_of, new_memory_id, place_of, text_key
from everkept.families.memories.linking import check_entities
from everkept.families.memories.model import (
    AUTOMATIC,
    DEFAULT_IMPORTANCE,
    MEMORY,
    SUPERSEDES,
    MemoryType,
    RelatedEntity,
    Scope,
    Source,
)
from everkept.graph.entities import check_name
from everkept.values import Value, replace

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
