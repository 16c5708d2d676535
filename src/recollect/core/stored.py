"""What stores and libraries say beside records."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # numpy takes a tenth of a second to import, and only who embeds needs it
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Purged:
    """What a purge removed, or a redaction rewrote.

    `complete` is False while a reader keeps old pages alive.
    """

    records: int
    links: int
    complete: bool


@dataclass(frozen=True, slots=True)
class Embedded:
    """A vector of length one for the text that a record had in this version."""

    id: str
    version: int
    vector: "NDArray[np.float32]"


@dataclass(frozen=True, slots=True)
class Access:
    """How often a record was given out, and when last."""

    count: int
    last_at: int


@dataclass(frozen=True, slots=True)
class Tally:
    """How many records share these traits."""

    kind: str
    scope: str
    type: str | None
    is_deleted: bool
    count: int


@dataclass(frozen=True, slots=True)
class Token:
    """A bearer token as it is kept: its hash, never itself."""

    id: str
    label: str
    created_at: int
