"""Port of a store: the records of one project, and the questions that it answers.

The type parameter of a question is the type of its answer. Every hook loads this module, so it imports only the base of
value types.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar

from everkept.values import Value

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from everkept.core.answers import (
        AccessCount,
        Direction,
        Hops,
        PurgeResult,
        RecordTally,
        RecordVector,
        Selection,
        Sources,
        StorePage,
        Subgraph,
    )
    from everkept.core.records import Batch, Change, Edit, Match, Record, RecordFilter, RecordLink, Ref, Weights
    from everkept.language.words import WordQuery

A_co = TypeVar("A_co", covariant=True)

Order = Literal["name", "age", "newest"]
# Position in a scan. By name: the `(name_key, variant)` of a record. By age: its id; nothing follows a purged one.
ScanPosition = tuple[str, str] | str
# Sorts after every text that continues a prefix.
LAST_CHARACTER = "\U0010ffff"
# Takes a record or link and values of some of its fields. Returns the values to store instead.
Redaction = Callable[["Ref", Mapping[str, Any]], Mapping[str, Any]]


class TypedRequest(Value, Generic[A_co]):
    """Request with the type of its answer."""

    if not TYPE_CHECKING:  # an alias for each type of answer would take a third of the import time

        def __class_getitem__(cls, _answer: Any) -> type:
            return cls


class StoreQuestion(TypedRequest[A_co]):
    """Question to a store that changes nothing."""


class Upkeep(TypedRequest[A_co]):
    """Write that is not a change. Undo does not reverse it."""


class GetRecords(StoreQuestion["list[Record]"]):
    """The existing records with these ids, in the order of the ids."""

    ids: Sequence[str]
    include_deleted: bool = False


class FindByPrefix(StoreQuestion["list[Record]"]):
    """Records of these kinds whose id begins with the text, even deleted ones, in the order of their ids."""

    prefix: str
    kinds: Sequence[str]
    limit: int


class ScanRecords(StoreQuestion["list[Record]"]):
    """Records by name or by age: all, or the ones after the last one seen."""

    where: "RecordFilter"
    order: Order = "age"
    after: ScanPosition | None = None
    limit: int | None = None


class MatchWords(StoreQuestion["list[Match]"]):
    """Best live records for a word query, best first."""

    words: "WordQuery"
    where: "RecordFilter"
    weights: "Weights"
    limit: int


class MatchText(StoreQuestion["list[Match]"]):
    """Live records whose name, type or text contains the text, ignoring case."""

    text: str
    where: "RecordFilter"
    limit: int


class FindLinks(StoreQuestion["list[RecordLink]"]):
    """Live links at these records, oldest first.

    `sources` are kinds: only links that start at a record of one of them.
    """

    ids: Sequence[str]
    direction: "Direction" = "both"
    sources: Sequence[str] = ()
    limit: int | None = None


class ReadSubgraph(StoreQuestion["Subgraph"]):
    """Live records of a kind with their live children, and the live links among that kind."""

    wanted: "Selection"


class WalkLinks(StoreQuestion["list[list[RecordLink]]"]):
    """Live links that a walk from these records meets, hop by hop, oldest first.

    Each link is in the first hop that meets it, and the walk continues from each record once. A hop without new links
    ends the walk.
    """

    ids: Sequence[str]
    hops: "Hops"


class CountSources(StoreQuestion["Sources"]):
    """Number of matching records that link to each of these, and the links of the newest.

    The counts are by the id that is linked to, without zeros. The links are all that lead here from the newest records,
    oldest first. The newest records are the ones with the last links.
    """

    ids: Sequence[str]
    where: "RecordFilter"
    limit: int


class GetLinks(StoreQuestion["list[RecordLink]"]):
    """The existing links with these ids, in the order of the ids."""

    ids: Sequence[str]
    include_deleted: bool = False


class ScanLinks(StoreQuestion["list[RecordLink]"]):
    """Links whose verb contains the text, ignoring case, in the order of arrival."""

    deleted: bool | None
    containing: str = ""


class CountLive(StoreQuestion[Mapping[str, int]]):
    """Live records by kind, and live links under `link`."""


class CountRecords(StoreQuestion[int]):
    """Number of matching records, which are not read."""

    where: "RecordFilter"


class ReadChanges(StoreQuestion["list[Change]"]):
    """Log entries after a sequence number.

    With `most_edits`, the page omits changes with more edits, and does not read them.
    """

    after: int = 0
    limit: int = 100
    newest_first: bool = False
    most_edits: int | None = None


class ReadHistory(StoreQuestion["list[tuple[int, Edit]]"]):
    """Every edit of these records and links after a sequence number, oldest first, each with its own number."""

    refs: "Sequence[Ref]"
    after: int = 0


class GetRevision(StoreQuestion[int]):
    """Sequence number of the newest change of any process; 0 before the first."""


class GetStamp(StoreQuestion[tuple[int, int]]):
    """Two numbers. Each change raises the first, each new or deleted vector the second.

    While both stay the same, every question has the same answer.
    """


class FindFaults(StoreQuestion["list[str]"]):
    """All faults of the stored data; empty if it is sound."""


class TallyRecords(StoreQuestion["list[RecordTally]"]):
    """Records of these kinds counted by scope, type and deletion."""

    kinds: Sequence[str]


class ListScopes(StoreQuestion["list[str]"]):
    """Scopes of live records of a kind, by name. Fast for any number of records."""

    kind: str


class ListAuthors(StoreQuestion["list[str]"]):
    """All authors of live records."""


class MeasureWords(StoreQuestion[Mapping[str, float]]):
    """Share of live records whose indexed words include each of these, 0 to 1."""

    words: Sequence[str]


class FindUnembedded(StoreQuestion["list[Record]"]):
    """Live records of these kinds with a text and without a vector of the model, newest first.

    These are the only queue of pending embeddings.
    """

    model: str
    kinds: Sequence[str]
    limit: int


class CountVectors(StoreQuestion[tuple[int, int]]):
    """Number of live records of these kinds with a vector of the model, and without one."""

    model: str
    kinds: Sequence[str]


class GetVectors(StoreQuestion["Mapping[str, NDArray[np.float32]]"]):
    """Vectors of the model for these records."""

    model: str
    ids: Sequence[str]


class FindNear(StoreQuestion["list[Match]"], eq=False):
    """Records with the nearest vectors, best first. The score is the cosine.

    Every stored vector can be found. `also` are ids whose scores are wanted at any distance; records without a vector
    are omitted.
    """

    model: str
    vector: "NDArray[np.float32]"
    where: "RecordFilter"
    limit: int
    also: Sequence[str] = ()


class GetAccesses(StoreQuestion["Mapping[str, AccessCount]"]):
    """Counts of recalls of these records. Records without recalls are omitted."""

    ids: Sequence[str]


class ListMostAccessed(StoreQuestion["Mapping[str, AccessCount]"]):
    """Live records that were recalled most often, by id. Ties: the last recalled first."""

    limit: int


class MeasureSize(StoreQuestion[int]):
    """Bytes that the store takes on its disk; 0 if it has none."""


class Purge(Upkeep["PurgeResult"]):
    """Erase records and links permanently, with every trace in log and index.

    A record takes its children and links with it, even deleted ones.
    """

    refs: "Sequence[Ref]"


class Redact(Upkeep["PurgeResult"]):
    """Rewrite permanently the current and former values of these records and links.

    `clean` takes the values of each (of a link its verb and facets), and the old ones of each of its edits. No log,
    index or vector keeps the former values. Raises Conflict.
    """

    refs: "Sequence[Ref]"
    clean: Redaction


class PutVectors(Upkeep[int]):
    """Store the vectors of records that are live in that version. The answer is their number."""

    model: str
    items: "Sequence[RecordVector]"


class NoteAccesses(Upkeep[None]):
    """Add to the recall counts of records."""

    counts: Mapping[str, int]
    at: int


class Replicate(Upkeep[None]):
    """Make the store's contents equal to another store's in one transaction.

    Records that are new here are younger than the others.
    """

    stock: "StorePage"


A = TypeVar("A")

# Maps the type of a question to the function that answers it, which takes the store and the question.
Answers = Mapping[type[StoreQuestion[Any]], Callable[[Any, Any], Awaitable[Any]]]
Upkeeps = Mapping[type[Upkeep[Any]], Callable[[Any, Any], Awaitable[Any]]]


class RecordStore(ABC):
    """Records of one project. A store stores and answers, and never ranks or decides.

    An engine or wrapper defines the three abstract methods. The other methods are shorter spellings of a question or an
    upkeep, whose type documents them.
    """

    @abstractmethod
    async def ask(self, question: StoreQuestion[A]) -> A:
        """Return the answer to a question."""

    @abstractmethod
    async def commit(self, batch: "Batch") -> "Change":
        """Apply all steps, update the word index and append the log entry in one transaction.

        Raises Conflict.
        """

    @abstractmethod
    async def maintain(self, upkeep: Upkeep[A]) -> A:
        """Do a write that is not a change. Return its result."""

    async def get(self, ids: Sequence[str], *, include_deleted: bool = False) -> "list[Record]":
        return await self.ask(GetRecords(ids, include_deleted))

    async def find_by_prefix(self, prefix: str, kinds: Sequence[str], limit: int) -> "list[Record]":
        return await self.ask(FindByPrefix(prefix, kinds, limit))

    async def scan(
        self,
        where: "RecordFilter",
        *,
        order: Order = "age",
        after: ScanPosition | None = None,
        limit: int | None = None,
    ) -> "list[Record]":
        return await self.ask(ScanRecords(where, order, after, limit))

    async def scan_pages(
        self, where: "RecordFilter", size: int, *, order: Order = "age", after: ScanPosition | None = None
    ) -> "AsyncIterator[list[Record]]":
        """Yield all records in pages of `size`."""
        while page := await self.scan(where, order=order, after=after, limit=size):
            yield page
            if len(page) < size:
                return
            after = page[-1].id

    async def match(self, words: "WordQuery", where: "RecordFilter", weights: "Weights", limit: int) -> "list[Match]":
        return await self.ask(MatchWords(words, where, weights, limit))

    async def match_text(self, text: str, where: "RecordFilter", limit: int) -> "list[Match]":
        return await self.ask(MatchText(text, where, limit))

    async def find_links(
        self,
        ids: Sequence[str],
        *,
        direction: "Direction" = "both",
        sources: Sequence[str] = (),
        limit: int | None = None,
    ) -> "list[RecordLink]":
        return await self.ask(FindLinks(ids, direction, sources, limit))

    async def read_subgraph(self, wanted: "Selection") -> "Subgraph":
        return await self.ask(ReadSubgraph(wanted))

    async def walk(self, ids: Sequence[str], hops: "Hops") -> "list[list[RecordLink]]":
        return await self.ask(WalkLinks(ids, hops))

    async def count_sources(self, ids: Sequence[str], where: "RecordFilter", limit: int) -> "Sources":
        return await self.ask(CountSources(ids, where, limit))

    async def get_links(self, ids: Sequence[str], *, include_deleted: bool = False) -> "list[RecordLink]":
        return await self.ask(GetLinks(ids, include_deleted))

    async def scan_links(self, *, deleted: bool | None, containing: str = "") -> "list[RecordLink]":
        return await self.ask(ScanLinks(deleted, containing))

    async def count_live(self) -> Mapping[str, int]:
        return await self.ask(CountLive())

    async def count_records(self, where: "RecordFilter") -> int:
        return await self.ask(CountRecords(where))

    async def read_changes(
        self, *, after: int = 0, limit: int = 100, newest_first: bool = False, most_edits: int | None = None
    ) -> "list[Change]":
        return await self.ask(ReadChanges(after, limit, newest_first, most_edits))

    async def read_history(self, refs: "Sequence[Ref]", *, after: int = 0) -> "list[tuple[int, Edit]]":
        return await self.ask(ReadHistory(refs, after))

    async def get_revision(self) -> int:
        return await self.ask(GetRevision())

    async def get_stamp(self) -> tuple[int, int]:
        return await self.ask(GetStamp())

    async def find_faults(self) -> list[str]:
        return await self.ask(FindFaults())

    async def tally(self, kinds: Sequence[str]) -> "list[RecordTally]":
        return await self.ask(TallyRecords(kinds))

    async def list_scopes(self, kind: str) -> list[str]:
        return await self.ask(ListScopes(kind))

    async def list_authors(self) -> list[str]:
        return await self.ask(ListAuthors())

    async def measure_words(self, words: Sequence[str]) -> Mapping[str, float]:
        return await self.ask(MeasureWords(words))

    async def find_unembedded(self, model: str, kinds: Sequence[str], limit: int) -> "list[Record]":
        return await self.ask(FindUnembedded(model, kinds, limit))

    async def count_vectors(self, model: str, kinds: Sequence[str]) -> tuple[int, int]:
        return await self.ask(CountVectors(model, kinds))

    async def get_vectors(self, model: str, ids: Sequence[str]) -> "Mapping[str, NDArray[np.float32]]":
        return await self.ask(GetVectors(model, ids))

    async def find_near(
        self, model: str, vector: "NDArray[np.float32]", where: "RecordFilter", limit: int, also: Sequence[str] = ()
    ) -> "list[Match]":
        return await self.ask(FindNear(model, vector, where, limit, also))

    async def get_accesses(self, ids: Sequence[str]) -> "Mapping[str, AccessCount]":
        return await self.ask(GetAccesses(ids))

    async def list_most_accessed(self, limit: int) -> "Mapping[str, AccessCount]":
        return await self.ask(ListMostAccessed(limit))

    async def measure_size(self) -> int:
        return await self.ask(MeasureSize())

    async def purge(self, refs: "Sequence[Ref]") -> "PurgeResult":
        return await self.maintain(Purge(refs))

    async def redact(self, refs: "Sequence[Ref]", clean: Redaction) -> "PurgeResult":
        return await self.maintain(Redact(refs, clean))

    async def put_vectors(self, model: str, items: "Sequence[RecordVector]") -> int:
        return await self.maintain(PutVectors(model, items))

    async def note_accesses(self, counts: Mapping[str, int], at: int) -> None:
        await self.maintain(NoteAccesses(counts, at))

    async def replicate(self, stock: "StorePage") -> None:
        await self.maintain(Replicate(stock))


class TableStore(RecordStore):
    """A store that finds the function for each question and upkeep in a table."""

    answers: ClassVar[Answers]
    upkeeps: ClassVar[Upkeeps]

    async def ask(self, question: StoreQuestion[A]) -> A:
        return await self.answers[type(question)](self, question)

    async def maintain(self, upkeep: Upkeep[A]) -> A:
        return await self.upkeeps[type(upkeep)](self, upkeep)
