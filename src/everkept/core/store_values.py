"""Values of stores and libraries beside records, and the parts that a copy of one is made of."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from everkept.core.projects import Project, Switching
from everkept.core.records import Change, Link, Record, Ref
from everkept.values import Value, field

if TYPE_CHECKING:  # numpy takes a tenth of a second to import, and only who embeds needs it
    import numpy as np
    from numpy.typing import NDArray


class Purged(Value):
    """What a purge removed, or a redaction rewrote.

    `complete` is False while a reader keeps old pages alive.
    """

    records: int
    links: int
    complete: bool


class Embedded(Value):
    """A vector of length one for the text that a record had in this version."""

    id: str
    version: int
    vector: "NDArray[np.float32]"


class Access(Value):
    """How often a record was given out, and when last."""

    count: int
    last_at: int


class Tally(Value):
    """How many records share these traits."""

    kind: str
    scope: str
    type: str | None
    is_deleted: bool
    count: int


class Token(Value):
    """A bearer token as it is kept: its hash, never itself."""

    id: str
    label: str
    created_at: int


# How the keys of notes begin that hold for a moment: no copy has them.
PASSING = "lease."


class Stock(Value):
    """Part of a store, with versions, times, deletions and the numbers of the log as they are.

    A record's parent and a link's ends are in it, or where it goes already. Of its records and
    links it is enough that none stands for the same as another once all is there: they may come
    in any order and trade names.
    """

    records: Sequence[Record] = ()
    links: Sequence[Link] = ()
    gone: Sequence[Ref] = ()  # purged there: with every trace
    changes: Sequence[Change] = ()
    log_from: int | None = None  # what the log has from this number on goes first
    accesses: Mapping[str, Access] = field(default_factory=dict[str, Access])
    # By model; those of a version that its record does not have are left out.
    vectors: Mapping[str, Sequence[Embedded]] = field(default_factory=dict[str, Sequence[Embedded]])


class Holdings(Value):
    """What a library has beside the records, but for what was asked and how often."""

    projects: Sequence[Project] = ()
    workspaces: Mapping[str, str] = field(default_factory=dict[str, str])  # folder, project id
    switching: Mapping[str, Switching] = field(default_factory=dict[str, Switching])  # project id
    notes: Mapping[str, str] = field(default_factory=dict[str, str])
    tokens: Sequence[tuple[Token, str]] = ()  # each with the hash of its secret
