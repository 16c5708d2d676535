"""The three stored things: a record, a link between records, and a change to either."""

from collections.abc import Mapping
from typing import Any, Literal

from everkept.values import Value, field

Subject = Literal["record", "link"]
Operation = Literal["insert", "update", "delete", "restore"]

# Visible only to its own session.
SESSION_SCOPE = "session"

DOCUMENT = "document"  # kind of the documents that programs store
EXPIRE_TOOL = "expire_documents"  # in the change log, when their lifetime is over

# Fields of a record that an Update may set. The rest is identity or bookkeeping.
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
    """Stored thing. Its family gives `kind`, `type` and `facets` their meaning.

    Among the live children of one parent (or among those without a parent), `(kind, name_key, variant)` is unique if
    `name_key` is set.
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
    scope: str = ""  # how far it reaches, if its family has scopes
    session: str | None = None  # the conversation it comes from
    position: int | None = None  # its position in that conversation
    author: str | None = None
    importance: float | None = None
    occurred_at: int | None = None  # if that differs from the time it was stored
    tags: tuple[str, ...] = ()
    facets: Mapping[str, Any] = field(default_factory=dict[str, Any])
    deleted_at: int | None = None
    version: int = 1

    @property
    def ref(self) -> "Ref":
        return Ref("record", self.id)

    @property
    def effective_at(self) -> int:
        """Return when it happened, as far as known."""
        return self.created_at if self.occurred_at is None else self.occurred_at


class RecordLink(Value):
    """Directed edge between two records. `(source, verb, target)` is unique while live."""

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
    """Reference to a record or a link."""

    subject: Subject
    id: str


class Edit(Value):
    """Edit of one thing by a change, with the old values of what it altered.

    `before` is None for an insert. `id` is None if the thing has been purged since.
    """

    operation: Operation
    subject: Subject
    id: str | None
    before: Mapping[str, Any] | None = None


class Change(Value):
    """One committed transaction, as the log stores it."""

    seq: int
    at: int
    tool: str
    client: str
    undoes: int | None
    edits: tuple[Edit, ...]


class Insert(Value):
    item: Record | RecordLink


class Update(Value):
    """Sets `values` (keys of AMENDABLE) if the record still has `version`.

    `at` is the time, if it was done in another place.
    """

    id: str
    values: Mapping[str, Any]
    version: int
    at: int | None = None


class Delete(Value):
    """Soft deletion. A record takes its children and links with it."""

    ref: Ref


class Restore(Value):
    """Reverses the soft deletion of this one thing."""

    ref: Ref


Step = Insert | Update | Delete | Restore


class Batch(Value):
    """Steps that are committed completely or not at all.

    With a `revision`, nothing is committed if the store has another one: for steps that are right only without other
    commits since. A `derived` batch can be created again from elsewhere. The log then keeps only that it changed, and
    no text of deleted records. A `copied` batch happened somewhere else, so parents do not count as changed. A `late`
    batch was acknowledged while its database was unreachable, so a project that was archived since then accepts it.

    A `key` makes it safe to repeat a batch with an unknown outcome: a store that has committed it returns its change
    and does nothing.
    """

    steps: tuple[Step, ...]
    at: int
    tool: str
    client: str = ""
    undoes: int | None = None
    revision: int | None = None
    derived: bool = False
    copied: bool = False
    late: bool = False
    key: str | None = None


class RecordFilter(Value):
    """Selection of records. An empty field does not restrict."""

    kinds: tuple[str, ...] = ()
    ids: tuple[str, ...] | None = None
    name_keys: tuple[str, ...] | None = None
    parents: tuple[str, ...] | None = None
    types: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()
    sessions: tuple[str, ...] | None = None
    places: tuple[tuple[str, int], ...] | None = None  # a session and a position in it
    visible_to: str | None = None  # a session; hides the session memories of others
    tags: tuple[str, ...] = ()  # at least one of them
    pinned: bool = False  # True: only records with the facet `pinned`
    automatic: bool = False  # True: only records with the facet `automatic`
    min_importance: float | None = None
    after: int | None = None  # minimum `effective_at`
    before: int | None = None  # maximum `effective_at`
    created_before: int | None = None  # maximum `created_at`
    touched_after: int | None = None  # changed or deleted after this time
    deleted: bool | None = False  # None: live and deleted records


class Match(Value):
    """Record found by words or by meaning. A higher score is better."""

    id: str
    parent: str | None
    score: float


class Weights(Value):
    """Weight of a match in each part of a record.

    `context` holds the parent's name. It also holds the texts just before and after the record in its session, if its
    readers may see them.
    """

    name: float = 4.0
    text: float = 1.0
    context: float = 0.25
