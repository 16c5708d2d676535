"""Questions that a store of records answers, and the writes of a store that are not changes.

The type parameter is the type of the answer. Every hook loads this module, so that it imports
nothing but the base of value types.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from everkept.values import Value

if TYPE_CHECKING:  # the linter does not see names inside the quotes of a base class
    import numpy as np
    from numpy.typing import NDArray

    from everkept.core.records import (  # noqa: F401
        Change,
        Edit,
        Link,
        Match,
        Record,
        Ref,
        Weights,
        Where,
    )
    from everkept.core.store_values import Access, Embedded, Purged, Stock, Tally  # noqa: F401
    from everkept.core.subgraphs import Selection, Subgraph  # noqa: F401
    from everkept.core.walking import Direction, Hops, Sources  # noqa: F401
    from everkept.language.words import WordQuery

A_co = TypeVar("A_co", covariant=True)

Order = Literal["name", "age", "newest"]
# By name the `(name_key, variant)` of a record, by age its id; a purged one has nothing behind it.
Seen = tuple[str, str] | str
# Takes a record or link and values of some of its fields, and returns the values to store instead.
Redaction = Callable[["Ref", Mapping[str, Any]], Mapping[str, Any]]


class Answered(Value, Generic[A_co]):
    """A request with the type of its answer."""

    if not TYPE_CHECKING:  # an alias for each type of answer would take a third of the import

        def __class_getitem__(cls, _answer: Any) -> type:
            return cls


class Question(Answered[A_co]):
    """Something that a store can be asked, and which changes nothing."""


class Upkeep(Answered[A_co]):
    """A write that is not a change: undo does not reverse it."""


class GetRecords(Question["list[Record]"]):
    """The existing records with these ids, in the order of the ids."""

    ids: Sequence[str]
    include_deleted: bool = False


class ScanRecords(Question["list[Record]"]):
    """Records by name or by age: all of them, or the ones behind the last one seen."""

    where: "Where"
    order: Order = "age"
    after: Seen | None = None
    limit: int | None = None


class MatchWords(Question["list[Match]"]):
    """The best live records for a word query, best first."""

    words: "WordQuery"
    where: "Where"
    weights: "Weights"
    limit: int


class MatchText(Question["list[Match]"]):
    """Live records whose name, type or text contains the text, in upper or lower case."""

    text: str
    where: "Where"
    limit: int


class FindLinks(Question["list[Link]"]):
    """Live links at these records, oldest first.

    `sources` are kinds: only links that go out from a record of one of them.
    """

    ids: Sequence[str]
    direction: "Direction" = "both"
    sources: Sequence[str] = ()
    limit: int | None = None


class ReadSubgraph(Question["Subgraph"]):
    """Live records of a kind with their live children, and the live links among that kind."""

    wanted: "Selection"


class WalkLinks(Question["list[list[Link]]"]):
    """The live links that a walk from these records meets, hop by hop, oldest first.

    Each link is in the first hop that meets it, and the walk continues from each record once. A
    hop that meets nothing new ends the walk.
    """

    ids: Sequence[str]
    hops: "Hops"


class CountSources(Question["Sources"]):
    """The number of matching records that link to each of these, and the links of the newest.

    The counts are by the id that is linked to, without zeros. The links are all that lead here
    from the newest records, oldest first; the newest records are the ones with the last links.
    """

    ids: Sequence[str]
    where: "Where"
    limit: int


class GetLinks(Question["list[Link]"]):
    """The existing links with these ids, in the order of the ids."""

    ids: Sequence[str]
    include_deleted: bool = False


class ScanLinks(Question["list[Link]"]):
    """Links whose verb contains the text, in upper or lower case, in the order of arrival."""

    deleted: bool | None
    containing: str = ""


class CountLive(Question[Mapping[str, int]]):
    """Live records by kind, and live links under `link`."""


class CountRecords(Question[int]):
    """The number of matching records, which are not read."""

    where: "Where"


class ReadChanges(Question["list[Change]"]):
    """Log entries past a sequence number.

    With `most_edits`, the page omits changes with more edits, and does not read them.
    """

    after: int = 0
    limit: int = 100
    newest_first: bool = False
    most_edits: int | None = None


class ReadHistory(Question["list[tuple[int, Edit]]"]):
    """Every edit of these records and links past a sequence number, oldest first, each with its
    own number."""

    refs: "Sequence[Ref]"
    after: int = 0


class GetRevision(Question[int]):
    """The sequence number of the newest change of any process; 0 before the first."""


class GetStamp(Question[tuple[int, int]]):
    """Two numbers: each change raises the first, each vector that comes or goes the second.

    While both stay the same, every question has the same answer.
    """


class FindFaults(Question["list[str]"]):
    """Everything that is wrong with the stored data; empty if it is sound."""


class TallyRecords(Question["list[Tally]"]):
    """Records of these kinds counted by scope, type and deletion."""

    kinds: Sequence[str]


class ListScopes(Question["list[str]"]):
    """The scopes of live records of a kind, by name. Quick for any number of records."""

    kind: str


class ListAuthors(Question["list[str]"]):
    """All authors of live records."""


class MeasureWords(Question[Mapping[str, float]]):
    """The share of live records whose indexed words include each of these, 0 to 1."""

    words: Sequence[str]


class FindUnembedded(Question["list[Record]"]):
    """Live records of these kinds that have a text and no vector of the model, newest first.

    These are the only queue of pending embeddings.
    """

    model: str
    kinds: Sequence[str]
    limit: int


class CountVectors(Question[tuple[int, int]]):
    """The number of live records of these kinds with a vector of the model, and without one."""

    model: str
    kinds: Sequence[str]


class GetVectors(Question["Mapping[str, NDArray[np.float32]]"]):
    """The vectors of the model that these records have."""

    model: str
    ids: Sequence[str]


class FindNear(Question["list[Match]"], eq=False):
    """The records with the nearest vectors, best first; the score is the cosine.

    Every stored vector can be found. `also` are ids whose scores are wanted at any distance;
    records without a vector are omitted.
    """

    model: str
    vector: "NDArray[np.float32]"
    where: "Where"
    limit: int
    also: Sequence[str] = ()


class GetAccesses(Question["Mapping[str, Access]"]):
    """How often these records were recalled; a record that never was is omitted."""

    ids: Sequence[str]


class ListMostAccessed(Question["Mapping[str, Access]"]):
    """The live records that were recalled most often, by id: the most and then the last recalled
    first."""

    limit: int


class MeasureSize(Question[int]):
    """The bytes that the store takes on its disk; 0 if it has none."""


class Purge(Upkeep["Purged"]):
    """Erase records and links permanently, with every trace in log and index.

    A record takes its children and links with it, also deleted ones.
    """

    refs: "Sequence[Ref]"


class Redact(Upkeep["Purged"]):
    """Rewrite permanently the values that these records and links have and had.

    `clean` takes the values of each (of a link its verb and facets), and the old ones of each of
    its edits. No log, index or vector keeps the former values. Raises Conflict.
    """

    refs: "Sequence[Ref]"
    clean: Redaction


class PutVectors(Upkeep[int]):
    """Store the vectors of records that are live in that version; the answer is their number."""

    model: str
    items: "Sequence[Embedded]"


class NoteAccesses(Upkeep[None]):
    """Add to the numbers of how often records were recalled."""

    counts: Mapping[str, int]
    at: int


class Restock(Upkeep[None]):
    """Make the store's contents equal to another store's in one transaction.

    Records that are new here are younger than the others.
    """

    stock: "Stock"
