"""What the methods of the Python API return. All types and the mappings in them are frozen."""

import copy
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, NoReturn, TypeAlias, cast

from everkept.core.records import Record
from everkept.core.times import format_iso
from everkept.families.documents.document import DocumentWrite as DocumentWrite
from everkept.families.documents.document import StoredDocument
from everkept.families.memories.model import MemoryView
from everkept.tools.schema import to_json
from everkept.values import Value, field

MemoryType: TypeAlias = Literal["semantic", "episodic", "procedural", "working"]
Scope: TypeAlias = Literal["session", "project", "user"]
Author: TypeAlias = Literal["user", "assistant"]
Strategy: TypeAlias = Literal["hybrid", "keyword", "vector", "graph"]

# An answer of a tool, as JSON.
Facts: TypeAlias = Mapping[str, Any]


def freeze(value: Any) -> Any:
    """Return a JSON value with frozen mappings and lists at every depth."""
    if isinstance(value, dict):
        return FrozenDict({name: freeze(each) for name, each in cast(dict[str, Any], value).items()})
    if isinstance(value, list):
        return FrozenList(map(freeze, cast(list[Any], value)))
    return value


def freeze_mapping(value: Mapping[str, Any]) -> Mapping[str, Any]:
    return cast(Mapping[str, Any], freeze(dict(value)))


def _refuse(self: object, *_: object, **__: object) -> NoReturn:
    raise TypeError("A result cannot be changed. Change a copy of it, such as copy.deepcopy(value).")


class FrozenDict(dict[str, Any]):
    """Mapping of a result. A deep copy is a plain `dict`."""

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[str, Any]:
        return {name: copy.deepcopy(value, memo) for name, value in self.items()}

    def __reduce__(self) -> tuple[Any, ...]:
        return freeze, (copy.deepcopy(self),)


class FrozenList(list[Any]):
    """List of a result. A deep copy is a plain `list`."""

    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
    append = clear = extend = insert = pop = remove = reverse = sort = _refuse

    def __deepcopy__(self, memo: dict[int, Any]) -> list[Any]:
        return [copy.deepcopy(value, memo) for value in self]

    def __reduce__(self) -> tuple[Any, ...]:
        return freeze, (copy.deepcopy(self),)


class Related(Value):
    """An entity that a memory is about."""

    name: str
    type: str
    relationship: str


class Remembered(Value):
    """The memory that `remember` stored, or the one that had the text already."""

    id: str
    existed: bool
    warnings: tuple[str, ...] = ()

    @classmethod
    def from_facts(cls, facts: Facts) -> "Remembered":
        return cls(facts["memory_id"], bool(facts.get("existing")), list_warnings(facts))


class Hit(Value):
    """A memory. After `recall` it has a score from 0 to 1, and `why` has the parts of the score."""

    id: str
    text: str
    score: float
    type: str
    scope: str
    importance: float
    created_at: datetime
    tags: tuple[str, ...] = ()
    occurred_at: datetime | None = None
    author: str | None = None
    session: str | None = None
    pinned: bool = False
    automatic: bool = False
    forgotten: bool = False
    superseded_by: str | None = None
    source: Mapping[str, Any] = field(default_factory=dict[str, Any])
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    related: tuple[Related, ...] = ()
    why: Mapping[str, float] = field(default_factory=dict[str, float])

    @classmethod
    def from_facts(cls, facts: Facts) -> "Hit":
        return cls(
            id=facts["id"],
            text=facts["content"],
            score=facts["relevance_score"],
            type=facts["type"],
            scope=facts["scope"],
            importance=facts["importance"],
            created_at=parse_moment(facts["created_at"]),
            tags=tuple(facts["tags"]),
            occurred_at=parse_optional_moment(facts.get("occurred_at")),
            author=facts.get("author"),
            session=facts.get("session_id"),
            pinned=bool(facts.get("pinned")),
            automatic=bool(facts.get("automatic")),
            forgotten=bool(facts.get("forgotten")),
            superseded_by=facts.get("superseded_by"),
            source=freeze_mapping(facts.get("source") or {}),
            metadata=freeze_mapping(facts.get("metadata") or {}),
            related=tuple(
                Related(each["name"], each["type"], each["relationship"])
                for each in cast(Sequence[Facts], facts.get("related_entities") or ())
            ),
            why=freeze_mapping(facts.get("why") or {}),
        )


class Recall(Value):
    """The memories that `recall` found, best first. `total` counts all matches."""

    hits: tuple[Hit, ...]
    total: int
    warnings: tuple[str, ...] = ()

    @classmethod
    def from_facts(cls, facts: Facts) -> "Recall":
        hits = tuple(Hit.from_facts(each) for each in facts["memories"])
        return cls(hits, facts["total_matched"], list_warnings(facts))

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.hits)

    def __len__(self) -> int:
        return len(self.hits)

    def __getitem__(self, index: int) -> Hit:
        return self.hits[index]


class Context(Value):
    """Text for a prompt: what is known about the user, the project and the task."""

    text: str
    memories: int
    tokens: int
    truncated: bool

    @classmethod
    def from_facts(cls, facts: Facts) -> "Context":
        return cls(facts["context_block"], facts["memories_used"], facts["tokens_used"], facts["truncated"])


class Change(Value):
    """One committed write. Pass its `reference` to `undo`."""

    reference: str
    project: str
    summary: str
    tool: str
    client: str
    at: datetime
    undone: bool = False


class Relation(Value):
    """A directed relation between two entities, by their names."""

    source: str
    verb: str
    target: str

    @classmethod
    def from_facts(cls, facts: Facts) -> "Relation":
        return cls(facts["from"], facts["relation_type"], facts["to"])


class Entity(Value):
    """A named thing with facts about it. `relations` are those that start or end at it, if they were read."""

    id: str
    name: str
    type: str
    observations: tuple[str, ...] = ()
    relations: tuple[Relation, ...] = ()

    @classmethod
    def from_facts(cls, facts: Facts) -> "Entity":
        return cls(
            facts["id"],
            facts["name"],
            facts["entity_type"],
            tuple(each["content"] for each in facts["observations"]),
            tuple(Relation.from_facts(each) for each in facts.get("relations") or ()),
        )


class Neighbor(Value):
    """An entity that a walk met, its relations to others, and the number of memories about it."""

    name: str
    type: str
    relations: tuple[Relation, ...]
    memories: int

    @classmethod
    def from_facts(cls, facts: Facts) -> "Neighbor":
        return cls(
            facts["name"],
            facts["type"],
            tuple(_read_direction(facts["name"], each) for each in facts["relationships"]),
            facts["memory_count"],
        )


def _read_direction(name: str, facts: Facts) -> Relation:
    if facts["direction"] == "incoming":
        return Relation(facts["target"], facts["type"], name)
    return Relation(name, facts["type"], facts["target"])


class Walk(Value):
    """The entities around another one, and the memories about them."""

    entities: tuple[Neighbor, ...]
    memories: tuple[Hit, ...]

    @classmethod
    def from_facts(cls, facts: Facts) -> "Walk":
        return cls(
            tuple(Neighbor.from_facts(each) for each in facts["entities"]),
            tuple(Hit.from_facts(each) for each in facts["memories"]),
        )


class GraphPage(Value):
    """A page of the whole graph. Pass `cursor` to read the next one; None: this is the last page."""

    entities: tuple[Entity, ...]
    relations: tuple[Relation, ...]
    cursor: str | None = None

    @classmethod
    def from_facts(cls, facts: Facts) -> "GraphPage":
        return cls(
            tuple(Entity.from_facts(each) for each in facts["entities"]),
            tuple(Relation.from_facts(each) for each in facts["relations"]),
            facts.get("next_cursor"),
        )


class Said(Value):
    """One turn to add to a conversation. Without `at`, it was said now.

    `key` identifies the turn: adding the same key again changes nothing. Without one, each call adds a new turn.
    """

    author: Author
    text: str
    at: datetime | None = None
    key: str | None = None


class Turn(Value):
    """One stored turn of a conversation."""

    id: str
    author: str
    text: str
    at: datetime
    position: int

    @classmethod
    def from_facts(cls, facts: Facts) -> "Turn":
        return cls(facts["id"], facts["author"], facts["text"], parse_moment(facts["timestamp"]), facts["position"])


class Conversation(Value):
    """Turns of a conversation in order. The cursors lead to later and earlier turns."""

    id: str
    session: str
    title: str
    source: str
    turns: tuple[Turn, ...]
    total: int
    cursor: str | None = None
    previous_cursor: str | None = None

    @classmethod
    def from_facts(cls, facts: Facts) -> "Conversation":
        return cls(
            facts["conversation_id"],
            facts["session_id"],
            facts["title"],
            facts["source"],
            tuple(Turn.from_facts(each) for each in facts["turns"]),
            facts["total_turns"],
            facts.get("next_cursor"),
            facts.get("previous_cursor"),
        )


class ConversationHit(Value):
    """A turn, a decision or code from a past conversation. `read` opens the conversation around its `id`."""

    id: str
    type: str
    text: str
    score: float
    session: str
    at: datetime
    title: str | None = None
    author: str | None = None
    folder: str | None = None
    file: str | None = None
    language: str | None = None

    @classmethod
    def from_facts(cls, facts: Facts) -> "ConversationHit":
        context = cast(Facts, facts["context"])
        return cls(
            facts["id"],
            facts["type"],
            facts["content"],
            facts["relevance_score"],
            context["session_id"],
            parse_moment(context["timestamp"]),
            facts.get("title"),
            context.get("author"),
            context["project_path"] or None,
            facts.get("file"),
            facts.get("language"),
        )


class Document(Value):
    """A JSON value under a namespace and a key. After a query it has a score from 0 to 1."""

    namespace: tuple[str, ...]
    key: str
    value: Mapping[str, Any]
    created_at: datetime
    updated_at: datetime
    score: float | None = None

    @classmethod
    def from_stored(cls, stored: StoredDocument) -> "Document":
        created_at, updated_at = (parse_moment(format_iso(at)) for at in (stored.created_at, stored.updated_at))
        return cls(stored.namespace, stored.key, freeze_mapping(stored.value), created_at, updated_at, stored.score)


class AddedTurns(Value):
    """How many turns were new, and the id of their conversation. `left_out` counts what the rules exclude."""

    conversation: str
    added: int
    left_out: int = 0


class Project(Value):
    """A separate set of memories with its own graph."""

    name: str
    description: str
    status: str
    created_at: datetime
    updated_at: datetime
    off: bool = False

    @classmethod
    def from_facts(cls, facts: Facts) -> "Project":
        return cls(
            facts["name"],
            facts["description"],
            facts["status"],
            parse_moment(facts["created_at"]),
            parse_moment(facts["updated_at"]),
            bool(facts.get("off")),
        )


def build_hit(record: Record) -> Hit:
    """Return a stored memory as a hit without a score."""
    return Hit.from_facts(to_json(MemoryView.from_record(record, 0.0)))


def list_warnings(facts: Facts) -> tuple[str, ...]:
    return tuple(each["message"] for each in facts.get("warnings") or ())


def parse_moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def parse_optional_moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
