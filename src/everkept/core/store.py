"""The port of a store: one project's records."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from everkept.core import questions
from everkept.core.questions import Order, Question, Redaction, Seen, Upkeep

if TYPE_CHECKING:  # a hook loads only what it uses
    import numpy as np
    from numpy.typing import NDArray

    from everkept.core.records import (
        Batch,
        Change,
        Edit,
        Link,
        Match,
        Record,
        Ref,
        Weights,
        Where,
    )
    from everkept.core.store_values import Access, Embedded, Purged, Stock, Tally
    from everkept.core.subgraphs import Selection, Subgraph
    from everkept.core.walking import Direction, Hops, Sources
    from everkept.language.words import WordQuery

A = TypeVar("A")

# From the type of a question to the function that answers it, of the store and the question.
Answers = Mapping[type[Question[Any]], Callable[[Any, Any], Awaitable[Any]]]
Upkeeps = Mapping[type[Upkeep[Any]], Callable[[Any, Any], Awaitable[Any]]]


class RecordStore(ABC):
    """One project's records. It stores and answers, and never ranks or decides.

    An engine or wrapper defines the three abstract methods. All others are shorter spellings of a
    question or an upkeep, whose type documents them.
    """

    @abstractmethod
    async def ask(self, question: Question[A]) -> A:
        """Return the answer to a question."""

    @abstractmethod
    async def commit(self, batch: "Batch") -> "Change":
        """Apply all steps, update the word index and add the log entry in one transaction.

        Raises Conflict.
        """

    @abstractmethod
    async def maintain(self, upkeep: Upkeep[A]) -> A:
        """Do a write that is not a change, and return its result."""

    async def get(self, ids: Sequence[str], *, include_deleted: bool = False) -> "list[Record]":
        return await self.ask(questions.GetRecords(ids, include_deleted))

    async def scan(
        self,
        where: "Where",
        *,
        order: Order = "age",
        after: Seen | None = None,
        limit: int | None = None,
    ) -> "list[Record]":
        return await self.ask(questions.ScanRecords(where, order, after, limit))

    async def match(
        self, words: "WordQuery", where: "Where", weights: "Weights", limit: int
    ) -> "list[Match]":
        return await self.ask(questions.MatchWords(words, where, weights, limit))

    async def containing(self, text: str, where: "Where", limit: int) -> "list[Match]":
        return await self.ask(questions.MatchText(text, where, limit))

    async def links(
        self,
        ids: Sequence[str],
        *,
        direction: "Direction" = "both",
        sources: Sequence[str] = (),
        limit: int | None = None,
    ) -> "list[Link]":
        return await self.ask(questions.FindLinks(ids, direction, sources, limit))

    async def subgraph(self, wanted: "Selection") -> "Subgraph":
        return await self.ask(questions.ReadSubgraph(wanted))

    async def walk(self, ids: Sequence[str], hops: "Hops") -> "list[list[Link]]":
        return await self.ask(questions.WalkLinks(ids, hops))

    async def sources_of(self, ids: Sequence[str], where: "Where", limit: int) -> "Sources":
        return await self.ask(questions.CountSources(ids, where, limit))

    async def get_links(self, ids: Sequence[str], *, include_deleted: bool = False) -> "list[Link]":
        return await self.ask(questions.GetLinks(ids, include_deleted))

    async def scan_links(self, *, deleted: bool | None, containing: str = "") -> "list[Link]":
        return await self.ask(questions.ScanLinks(deleted, containing))

    async def count(self) -> Mapping[str, int]:
        return await self.ask(questions.CountLive())

    async def how_many(self, where: "Where") -> int:
        return await self.ask(questions.CountRecords(where))

    async def changes(
        self,
        *,
        after: int = 0,
        limit: int = 100,
        newest_first: bool = False,
        most_edits: int | None = None,
    ) -> "list[Change]":
        return await self.ask(questions.ReadChanges(after, limit, newest_first, most_edits))

    async def history(self, refs: "Sequence[Ref]", *, after: int = 0) -> "list[tuple[int, Edit]]":
        return await self.ask(questions.ReadHistory(refs, after))

    async def revision(self) -> int:
        return await self.ask(questions.GetRevision())

    async def stamp(self) -> tuple[int, int]:
        return await self.ask(questions.GetStamp())

    async def check(self) -> list[str]:
        return await self.ask(questions.FindFaults())

    async def tally(self, kinds: Sequence[str]) -> "list[Tally]":
        return await self.ask(questions.TallyRecords(kinds))

    async def scopes(self, kind: str) -> list[str]:
        return await self.ask(questions.ListScopes(kind))

    async def authors(self) -> list[str]:
        return await self.ask(questions.ListAuthors())

    async def frequencies(self, words: Sequence[str]) -> Mapping[str, float]:
        return await self.ask(questions.MeasureWords(words))

    async def unembedded(self, model: str, kinds: Sequence[str], limit: int) -> "list[Record]":
        return await self.ask(questions.FindUnembedded(model, kinds, limit))

    async def vector_counts(self, model: str, kinds: Sequence[str]) -> tuple[int, int]:
        return await self.ask(questions.CountVectors(model, kinds))

    async def vectors(self, model: str, ids: Sequence[str]) -> "Mapping[str, NDArray[np.float32]]":
        return await self.ask(questions.GetVectors(model, ids))

    async def near(
        self,
        model: str,
        vector: "NDArray[np.float32]",
        where: "Where",
        limit: int,
        also: Sequence[str] = (),
    ) -> "list[Match]":
        return await self.ask(questions.FindNear(model, vector, where, limit, also))

    async def accesses(self, ids: Sequence[str]) -> "Mapping[str, Access]":
        return await self.ask(questions.GetAccesses(ids))

    async def most_accessed(self, limit: int) -> "Mapping[str, Access]":
        return await self.ask(questions.ListMostAccessed(limit))

    async def size(self) -> int:
        return await self.ask(questions.MeasureSize())

    async def purge(self, refs: "Sequence[Ref]") -> "Purged":
        return await self.maintain(questions.Purge(refs))

    async def redact(self, refs: "Sequence[Ref]", clean: Redaction) -> "Purged":
        return await self.maintain(questions.Redact(refs, clean))

    async def put_vectors(self, model: str, items: "Sequence[Embedded]") -> int:
        return await self.maintain(questions.PutVectors(model, items))

    async def note_accesses(self, counts: Mapping[str, int], at: int) -> None:
        await self.maintain(questions.NoteAccesses(counts, at))

    async def restock(self, stock: "Stock") -> None:
        await self.maintain(questions.Restock(stock))


class TableStore(RecordStore):
    """A store that finds the function for each question and upkeep in a table."""

    answers: ClassVar[Answers]
    upkeeps: ClassVar[Upkeeps]

    async def ask(self, question: Question[A]) -> A:
        return await self.answers[type(question)](self, question)

    async def maintain(self, upkeep: Upkeep[A]) -> A:
        return await self.upkeeps[type(upkeep)](self, upkeep)
