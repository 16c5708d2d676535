"""What the core asks of the outside: stores of records, their library, and vectors for texts."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

from everkept.core.projects import Project, Silence, Status
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
from everkept.core.searching import Search
from everkept.core.sessions import Call
from everkept.core.stored import Access as Access
from everkept.core.stored import Embedded as Embedded
from everkept.core.stored import Purged as Purged
from everkept.core.stored import Tally as Tally
from everkept.core.stored import Token as Token
from everkept.core.usage import UsageLog
from everkept.core.walking import Direction as Direction
from everkept.core.walking import Hops, Sources
from everkept.errors import ModelUnavailable
from everkept.language.words import WordQuery

if TYPE_CHECKING:  # numpy takes a tenth of a second to import, and only who embeds needs it
    import numpy as np
    from numpy.typing import NDArray

    from everkept.core.conditions import Condition
    from everkept.core.copies import Holdings, Stock
    from everkept.core.subgraphs import Selection, Subgraph

Order = Literal["name", "age", "newest"]
# By name the `(name_key, variant)` of a record, by age its id; behind one that is purged is none.
Seen = tuple[str, str] | str
# A record or link, and values of some of its fields: gives those that are to stand instead.
Redaction = Callable[[Ref, Mapping[str, Any]], Mapping[str, Any]]


class RecordStore(Protocol):
    """One project's records. Low on purpose: it stores and answers, and never ranks or decides."""

    async def commit(self, batch: Batch) -> Change:
        """All steps, the word index and the log entry in one transaction, or Conflict."""
        ...

    async def get(self, ids: Sequence[str], *, include_deleted: bool = False) -> list[Record]:
        """The records that exist, in the order asked for."""
        ...

    async def scan(
        self,
        where: Where,
        *,
        order: Order = "age",
        after: Seen | None = None,
        limit: int | None = None,
    ) -> list[Record]:
        """Records by name or by age, all of them or those behind the last one seen."""
        ...

    async def match(
        self, words: WordQuery, where: Where, weights: Weights, limit: int
    ) -> list[Match]:
        """The best live records for a word query, best first."""
        ...

    async def containing(self, text: str, where: Where, limit: int) -> list[Match]:
        """Live records whose name, type or text contains the text, whatever its case."""
        ...

    async def links(
        self,
        ids: Sequence[str],
        *,
        direction: Direction = "both",
        sources: Sequence[str] = (),
        limit: int | None = None,
    ) -> list[Link]:
        """Live links at these records, oldest first.

        `sources` are kinds: only links that go out from a record of one of them.
        """
        ...

    async def subgraph(self, wanted: "Selection") -> "Subgraph":
        """Live records of a kind with their live children, and the live links among that kind."""
        ...

    async def walk(self, ids: Sequence[str], hops: Hops) -> list[list[Link]]:
        """The live links that a walk from these records meets, hop by hop, oldest first.

        Each link is in the first hop that meets it, and no record is gone on from twice. A hop
        that meets nothing new is the end.
        """
        ...

    async def sources_of(self, ids: Sequence[str], where: Where, limit: int) -> Sources:
        """The records that link to these and fit; they are counted, and not read.

        The counts are by the id that is linked to, those of none omitted. The links are all that
        lead here from the newest of them, oldest first; newest are those with the last links.
        """
        ...

    async def get_links(self, ids: Sequence[str], *, include_deleted: bool = False) -> list[Link]:
        """The links with these ids that exist, in the order asked for."""
        ...

    async def scan_links(self, *, deleted: bool | None, containing: str = "") -> list[Link]:
        """Links whose verb contains the text, whatever its case, in the order of arrival."""
        ...

    async def count(self) -> Mapping[str, int]:
        """Live records by kind, and live links under `link`."""
        ...

    async def how_many(self, where: Where) -> int:
        """How many records fit; none of them is read."""
        ...

    async def changes(
        self,
        *,
        after: int = 0,
        limit: int = 100,
        newest_first: bool = False,
        most_edits: int | None = None,
    ) -> list[Change]:
        """Log entries past a sequence number.

        With `most_edits`, those with more edits are omitted from the page, and not read.
        """
        ...

    async def history(self, refs: Sequence[Ref], *, after: int = 0) -> list[tuple[int, Edit]]:
        """Every edit of these things past a sequence number, oldest first, each with its own."""
        ...

    async def purge(self, refs: Sequence[Ref]) -> Purged:
        """Removes things for good, with every trace in log and index.

        A record takes its children and links with it, deleted ones too.
        """
        ...

    async def redact(self, refs: Sequence[Ref], clean: Redaction) -> Purged:
        """Rewrites what these records and links hold and held, live or deleted, for good.

        `clean` is given the values of each (of a link its verb and facets), and the old ones of
        each of its edits. What was there stays nowhere: no log, no index and no vector has it.
        Raises Conflict.
        """
        ...

    async def revision(self) -> int:
        """The sequence number of the newest change, whoever made it; 0 before the first."""
        ...

    async def stamp(self) -> tuple[int, int]:
        """Two numbers of which one grows with each change and one with each vector that comes or
        goes: while both are as they were, every question has the answer that it had."""
        ...

    async def check(self) -> list[str]:
        """What is wrong with the stored data; nothing when all is well."""
        ...

    async def tally(self, kinds: Sequence[str]) -> list[Tally]:
        """Records of these kinds counted by scope, type and whether they are deleted."""
        ...

    async def scopes(self, kind: str) -> list[str]:
        """The scopes of live records of a kind, by name. Quick, however many records there are."""
        ...

    async def authors(self) -> list[str]:
        """Everybody who is the author of a live record."""
        ...

    async def frequencies(self, words: Sequence[str]) -> Mapping[str, float]:
        """The share of live records whose indexed words include each of these, 0 to 1."""
        ...

    async def unembedded(self, model: str, kinds: Sequence[str], limit: int) -> list[Record]:
        """Live records of these kinds that have a text and no vector of the model, newest first.

        They are the queue of what is to be embedded; there is no other.
        """
        ...

    async def vector_counts(self, model: str, kinds: Sequence[str]) -> tuple[int, int]:
        """How many live records of these kinds have a vector of the model, and how many wait."""
        ...

    async def put_vectors(self, model: str, items: Sequence[Embedded]) -> int:
        """Keeps those whose record is live in that version; says how many. Not a change."""
        ...

    async def vectors(self, model: str, ids: Sequence[str]) -> Mapping[str, "NDArray[np.float32]"]:
        """The vectors that these records have of the model."""
        ...

    async def near(
        self,
        model: str,
        vector: "NDArray[np.float32]",
        where: Where,
        limit: int,
        also: Sequence[str] = (),
    ) -> list[Match]:
        """The records with the nearest vectors, best first; the score is the cosine.

        What anyone has stored is found. `also` are ids whose scores are wanted too, however far
        they are; those without a vector are left out.
        """
        ...

    async def note_accesses(self, counts: Mapping[str, int], at: int) -> None:
        """Adds to what is known of how often records were given out. Not a change."""
        ...

    async def accesses(self, ids: Sequence[str]) -> Mapping[str, Access]:
        """What is known of it; a record that was never given out is left out."""
        ...

    async def most_accessed(self, limit: int) -> Mapping[str, Access]:
        """The live records that were given out most often, by id: the most and then the last
        given out first."""
        ...

    async def restock(self, stock: "Stock") -> None:
        """Makes these things what they are elsewhere, whatever they were here: one transaction.

        Not a change of its own. Records that are new here are younger than those that are not.
        """
        ...

    async def size(self) -> int:
        """The bytes that the store takes on its disk; 0 where it has none."""
        ...


class Library(UsageLog, Protocol):
    """All projects, and what belongs to none of them."""

    async def projects(self, status: Status | None = None) -> list[Project]: ...

    async def project(self, name: str) -> Project:
        """Raises NotFound."""
        ...

    async def create(
        self, name: str, description: str, *, project_id: str = "", at: int | None = None
    ) -> Project:
        """Raises Conflict when the name is taken, by an archived project too, or the id is.

        `at` is when it was made, where it was made before now.
        """
        ...

    async def archive(self, name: str) -> Project: ...

    async def restore(self, name: str) -> Project: ...

    async def delete(self, name: str) -> None: ...

    async def open(self, name: str) -> tuple[Project, RecordStore]:
        """The project as it is now, and its store; an archived one is refused."""
        ...

    async def switch(self, name: str, *, off: bool, at: int | None = None) -> Project:
        """Switches a project off or on again; who asks for what it is already changes nothing.

        `at` is when that was done, where it was done before now.
        """
        ...

    async def silences(self) -> list[Silence]:
        """When the projects of folders were switched off, those that are so now included."""
        ...

    async def user(self) -> RecordStore:
        """The store of what belongs to the user and to no project; made when it is missing."""
        ...

    async def history(self) -> RecordStore:
        """The store of past conversations, of all projects; made when it is missing."""
        ...

    async def project_of_workspace(self, path: str) -> Project | None: ...

    async def assign_workspace(self, path: str, project: Project) -> Project:
        """Gives the workspace its project; whoever comes first wins, and is returned."""
        ...

    async def workspaces_of(self, project: Project) -> list[str]:
        """The folders whose project it is."""
        ...

    async def note(self, key: str) -> str | None:
        """A small setting that the program keeps for itself."""
        ...

    async def set_note(self, key: str, value: str | None) -> None: ...

    async def notes(self, prefix: str) -> Mapping[str, str]:
        """All whose key begins with this."""
        ...

    async def add_searches(self, searches: Sequence[Search]) -> None:
        """Keeps them; the oldest go when there are too many."""
        ...

    async def searches(self, *, session: str | None = None, limit: int = 100) -> list[Search]:
        """The newest first, of all sessions or of one."""
        ...

    async def forget_searches(self) -> int:
        """Removes them all; says how many there were."""
        ...

    async def tokens(self) -> list[Token]: ...

    async def add_token(self, token: Token, secret_hash: str) -> None: ...

    async def remove_token(self, token_id: str) -> bool: ...

    async def knows_token(self, secret_hash: str) -> bool: ...

    async def store_of(self, project: Project) -> RecordStore:
        """That of a project which may be archived, for who copies it."""
        ...

    async def holdings(self) -> "Holdings":
        """All that it has beside the records."""
        ...

    async def take_over(self, holdings: "Holdings") -> None:
        """Makes its own what they are elsewhere, and gives up what is not among them.

        Projects that stay keep their records; those that are new have none yet.
        """
        ...

    async def on_change(self, hear: Callable[[], None]) -> bool:
        """From now on `hear` is called soon after anybody has changed anything, or may have.

        False where nobody can tell: then there is nothing but to look.
        """
        ...

    @property
    def condition(self) -> "Condition":
        """What it is kept in, and how that is doing, as far as is known without asking."""
        ...

    async def close(self) -> None: ...


class Embedder(Protocol):
    """Texts as vectors, near each other where the meanings are."""

    @property
    def name(self) -> str:
        """Kept with each vector: only vectors of the same name can be compared."""
        ...

    @property
    def dimensions(self) -> int: ...

    @property
    def fault(self) -> ModelUnavailable | None:
        """What is known to be wrong, as far as that can be said without loading a model."""
        ...

    async def embed(self, texts: Sequence[str]) -> "NDArray[np.float32]":
        """A row of length one for each text, the empty one included, in their order.

        Neither the other texts nor the order change a row by more than rounding. Raises
        ModelUnavailable.
        """
        ...

    async def close(self) -> None:
        """Gives back memory; calls under way end as they would have."""
        ...


class Indexing(Protocol):
    """Sees to it that what is stored gets its vector, soon and in the background."""

    @property
    def embedder(self) -> Embedder | None:
        """None where meaning is switched off."""
        ...

    @property
    def fault(self) -> ModelUnavailable | None:
        """Why texts get no vectors, where that is known."""
        ...

    @property
    def kinds(self) -> Sequence[str]:
        """Of the records that get vectors."""
        ...

    def wake(self, store: RecordStore) -> None:
        """Something was stored there, or may be waiting. Returns at once."""
        ...

    async def settled(self, within: float | None = None) -> bool:
        """Waits until nothing is left to do; False where that many seconds did not suffice."""
        ...


class AccessBook(Protocol):
    """Counts what is given out, in batches: it is no change, and no reader waits for it."""

    def note(self, store: RecordStore, ids: Sequence[str]) -> None: ...

    async def of(self, store: RecordStore, ids: Sequence[str]) -> Mapping[str, Access]:
        """With what is counted but not stored yet."""
        ...


class ProjectChoice(Protocol):
    """The one rule that says which project a call means."""

    async def to_read(self, call: Call, name: str | None) -> RecordStore:
        """A project that is yet to be made reads as an empty one."""
        ...

    async def to_write(self, call: Call, name: str | None) -> RecordStore: ...

    async def current(self, call: Call) -> Project | None:
        """What a call without a name would mean; None when nothing is chosen or made yet."""
        ...

    def pending(self, call: Call) -> str | None:
        """The name of a project that is chosen but not made yet."""
        ...
