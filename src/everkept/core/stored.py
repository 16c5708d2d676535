"""What stores and libraries say beside records."""

from typing import TYPE_CHECKING

from everkept.values import Value

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
