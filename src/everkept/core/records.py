"""The three stored things: a record, a link between records, and a change to either."""

from collections.abc import Mapping
from typing import Any, Literal

from everkept.values import Value, field

Subject = Literal["record", "link"]
Operation = Literal["insert", "update", "delete", "restore"]

# What has it is seen by its own session alone.
SESSION_SCOPE = "session"

# The columns of a record that an Update may set; the rest is identity or bookkeeping.
AMENDABLE = frozenset(
    {
        "type",
        "name",
        "name_key",
        "variant",
        "text",
        "facets",
        "scope",
        "session",
        "author",
        "position",
        "importance",
        "occurred_at",
        "tags",
    }
)


class Record(Value):
    """Something remembered. Its family gives `kind`, `type` and `facets` their meaning.

    Among the live children of one parent (or among those without a parent), `(kind, name_key,
    variant)` is unique wherever `name_key` is given.
    """

    id: str
    kind: str
    created_at: int
    updated_at: int
    text: str = ""
    name: str | None = None
    type: str | None = None
    name_key: str | None = None
    variant: str = ""
    parent: str | None = None
    scope: str = ""  # how far it reaches, where its family tells scopes apart
    session: str | None = None  # the conversation it comes from
    position: int | None = None  # its place in that conversation
    author: str | None = None
    importance: float | None = None
    occurred_at: int | None = None  # where that is not when it was stored
    tags: tuple[str, ...] = ()
    facets: Mapping[str, Any] = field(default_factory=dict[str, Any])
    deleted_at: int | None = None
    version: int = 1

    @property
    def ref(self) -> "Ref":
        return Ref("record", self.id)

    @property
    def effective_at(self) -> int:
        """When it happened, as far as is known."""
        return self.created_at if self.occurred_at is None else self.occurred_at


class RecordLink(Value):
    """A directed edge between two records; `(source, verb, target)` is unique while live."""

    id: str
    source: str
    verb: str
    target: str
    created_at: int
    facets: Mapping[str, Any] = field(default_factory=dict[str, Any])
    deleted_at: int | None = None

    @property
    def ref(self) -> "Ref":
        return Ref("link", self.id)


class Ref(Value):
    """Points at a record or a link."""

    subject: Subject
    id: str


class Edit(Value):
    """What one change did to one thing, with the old values of what it altered.

    `before` is None for an insert. An `id` of None means that the thing was purged since.
    """

    operation: Operation
    subject: Subject
    id: str | None
    before: Mapping[str, Any] | None = None


class Change(Value):
    """One committed transaction, as the log keeps it."""

    seq: int
    at: int
    tool: str
    client: str
    undoes: int | None
    edits: tuple[Edit, ...]


class Insert(Value):
    item: Record | RecordLink


class Update(Value):
    """Sets `values` (keys of AMENDABLE) where the record still has `version`.

    `at` is when that was done, where it was done somewhere else.
    """

    id: str
    values: Mapping[str, Any]
    version: int
    at: int | None = None


class Delete(Value):
    """Soft. A record takes its children and its links with it."""

    ref: Ref


class Restore(Value):
    """Takes a soft delete back, for this one thing."""

    ref: Ref


Step = Insert | Update | Delete | Restore


class Batch(Value):
    """What is to be committed, all of it or nothing.

    With a `revision`, nothing either once the store has another one: for steps that are right
    only where nobody has committed since they were planned. What is `derived` can be made again
    from elsewhere: the log keeps that it changed and not what it was, and of a record that is
    deleted no text stays. What is `copied` is as it was somewhere else: what it belongs to has not
    changed by it.

    A `key` makes it safe to commit a batch again whose outcome is unknown: a store that has
    committed one of that key gives its change, and does nothing.
    """

    steps: tuple[Step, ...]
    at: int
    tool: str
    client: str = ""
    undoes: int | None = None
    revision: int | None = None
    derived: bool = False
    copied: bool = False
    key: str | None = None


class RecordFilter(Value):
    """Which records are meant; an empty field does not restrict."""

    kinds: tuple[str, ...] = ()
    ids: tuple[str, ...] | None = None
    name_keys: tuple[str, ...] | None = None
    parents: tuple[str, ...] | None = None
    types: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()
    sessions: tuple[str, ...] | None = None
    places: tuple[tuple[str, int], ...] | None = None  # a session, and a position in it
    visible_to: str | None = None  # a session: what others keep in session scope stays out
    tags: tuple[str, ...] = ()  # any of them
    pinned: bool = False  # True: only those whose facet `pinned` is set
    automatic: bool = False  # likewise, `automatic`: nobody asked for them
    min_importance: float | None = None
    after: int | None = None  # `effective_at` of the record, this moment included
    before: int | None = None  # likewise
    created_before: int | None = None  # stored by then, this moment included
    touched_after: int | None = None  # changed or deleted since, this moment not included
    deleted: bool | None = False  # None: live and deleted ones


class Match(Value):
    """A record found by words or by meaning; the higher score is the better one."""

    id: str
    parent: str | None
    score: float


class Weights(Value):
    """What a hit in each part of a record counts.

    `context` holds its parent's name, and the texts just before and after it where it has a
    place in a session and whoever sees it may see them.
    """

    name: float = 4.0
    text: float = 1.0
    context: float = 0.25
