"""What stores and searches answer with beside records: counts, parts of a graph, findings."""

import base64
import json
from collections.abc import Iterable, Mapping, Sequence, Set
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeVar, cast

from everkept.core.projects import OffHistory, Project
from everkept.core.records import Change, Record, RecordLink, Ref
from everkept.core.sessions import ToolCall
from everkept.errors import InvalidInput
from everkept.values import Value, field

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class PurgeResult(Value):
    """What a purge removed, or a redaction rewrote.

    `complete` is False while a reader keeps old pages alive.
    """

    records: int
    links: int
    complete: bool


class RecordVector(Value):
    """A vector of length one for the text that a record had in this version."""

    id: str
    version: int
    vector: "NDArray[np.float32]"


class AccessCount(Value):
    """How often a record was given out, and when last."""

    count: int
    last_at: int


class RecordTally(Value):
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
LEASE_PREFIX = "lease."


class StorePage(Value):
    """Part of a store, with versions, times, deletions and the numbers of the log as they are.

    A record's parent and a link's ends are in it, or where it goes already. Of its records and
    links it is enough that none stands for the same as another once all is there: they may come
    in any order and trade names.
    """

    records: Sequence[Record] = ()
    links: Sequence[RecordLink] = ()
    gone: Sequence[Ref] = ()  # purged there: with every trace
    changes: Sequence[Change] = ()
    log_from: int | None = None  # what the log has from this number on goes first
    accesses: Mapping[str, AccessCount] = field(default_factory=dict[str, AccessCount])
    # By model; those of a version that its record does not have are left out.
    vectors: Mapping[str, Sequence[RecordVector]] = field(default_factory=dict[str, Sequence[RecordVector]])


class CatalogData(Value):
    """What a library has beside the records, but for what was asked and how often."""

    projects: Sequence[Project] = ()
    workspaces: Mapping[str, str] = field(default_factory=dict[str, str])  # folder, project id
    switching: Mapping[str, OffHistory] = field(default_factory=dict[str, OffHistory])  # project id
    notes: Mapping[str, str] = field(default_factory=dict[str, str])
    tokens: Sequence[tuple[Token, str]] = ()  # each with the hash of its secret


Direction = Literal["out", "in", "both"]


class Hops(Value):
    """How far a walk goes, and along what.

    `sources` are kinds: only links that go out from a record of one of them. Of the links at the
    records of one hop the oldest are followed, up to `limit`; of the records that they lead to the
    walk goes on from those that they name first, up to `width`.
    """

    count: int
    direction: Direction = "both"
    sources: Sequence[str] = ()
    width: int | None = None
    limit: int | None = None


class Sources(Value):
    """The records that link to some others: how many to each, and the links from the newest."""

    counts: Mapping[str, int]
    links: list[RecordLink]


def count_sources(links: Sequence[RecordLink], limit: int) -> Sources:
    """Answer `CountSources` from all the links in their order."""
    about: dict[str, set[str]] = {}
    for link in links:
        about.setdefault(link.target, set()).add(link.source)
    newest = set(islice(dict.fromkeys(link.source for link in reversed(links)), limit))
    return Sources(
        {target: len(sources) for target, sources in about.items()}, [link for link in links if link.source in newest]
    )


def list_next_ids(links: Iterable[RecordLink], seen: Set[str], width: int | None = None) -> list[str]:
    """Where the links lead that was not seen yet, as they name it: the records of the next hop."""
    ends = dict.fromkeys(end for link in links for end in (link.source, link.target))
    return [end for end in ends if end not in seen][:width]


T = TypeVar("T")

# A child of a record: its id, its text and when it was created. There may be many of them, and a
# plain tuple takes a quarter of the time of a named one.
Leaf = tuple[str, str, int]


class Selection(NamedTuple):
    """Which live records of a kind, and which of their links.

    With `ids` these records, in that order. Otherwise all of them by name or by age, or those by
    name behind the `(name_key, variant)` of the last one seen.
    """

    kind: str
    leaf_kind: str
    ids: Sequence[str] | None = None
    order: Literal["name", "age"] = "age"
    after: tuple[str, str] | None = None
    limit: int | None = None
    direction: Literal["out", "both"] = "both"

    @property
    def row_limit(self) -> int | None:
        """The limit, and one more that tells whether there are more."""
        return None if self.limit is None else self.limit + 1


class Node(NamedTuple):
    """A record, and its children by age."""

    id: str
    name: str
    type: str
    name_key: str
    variant: str
    facets: Mapping[str, Any]
    created_at: int
    updated_at: int
    leaves: list[Leaf]


class Edge(NamedTuple):
    """A link between two records of the kind, with the names of both."""

    id: str
    source: str
    source_name: str
    verb: str
    target: str
    target_name: str
    created_at: int


class Subgraph(NamedTuple):
    """Nodes as they were selected, and the edges at them by age, each once.

    It `has_more` nodes behind the last one if a limit ended it.
    """

    nodes: list[Node]
    edges: list[Edge]
    has_more: bool = False


def apply_limit(wanted: Selection, found: Sequence[T]) -> tuple[Sequence[T], bool]:
    """Return what the limit allows of what was looked for, and whether there is more."""
    return found[: wanted.limit], wanted.limit is not None and len(found) > wanted.limit


def list_other_ends(records: Iterable[Record], links: Iterable[RecordLink]) -> list[str]:
    """The ends of links that are not among the records."""
    ends = {end for link in links for end in (link.source, link.target)}
    return sorted(ends - {record.id for record in records})


def assemble(
    records: Sequence[Record],
    children: Iterable[Record],
    links: Iterable[RecordLink],
    others: Iterable[Record],
    *,
    has_more: bool,
) -> Subgraph:
    """Join what was asked for in parts; `others` are the other ends of links, of any kind."""
    leaves: dict[str, list[Leaf]] = {record.id: [] for record in records}
    for child in children:
        leaves[child.parent or ""].append((child.id, child.text, child.created_at))
    names = {r.id: r.name or "" for r in (*records, *others) if r.kind == records[0].kind}
    return Subgraph(
        [
            Node(
                record.id,
                record.name or "",
                record.type or "",
                record.name_key or "",
                record.variant,
                record.facets,
                record.created_at,
                record.updated_at,
                leaves[record.id],
            )
            for record in records
        ],
        [
            Edge(link.id, link.source, names[link.source], link.verb, link.target, names[link.target], link.created_at)
            for link in links
            if link.source in names and link.target in names
        ],
        has_more,
    )


MAX_SEARCHES = 10_000  # questions that a library remembers

SearchType = Literal["semantic", "keyword", "graph"]


class SearchRecord(Value):
    """A question that somebody asked, as this machine keeps it: no secret is in it."""

    at: int
    tool: str
    query: str
    results: int
    milliseconds: float
    session: str | None = None
    filters: Mapping[str, Any] = field(default_factory=dict[str, Any])


class SearchLog(Protocol):
    """Keeps what was asked, in the background: no reader waits for it."""

    def note(self, search: SearchRecord) -> None: ...

    async def list_newest(self, *, session: str | None = None, limit: int = 100) -> list[SearchRecord]:
        """With what is noted but not stored yet, the newest first."""
        ...


class SectionHit(Value):
    """A part of a file that fits a question; `line` is the first of it, counted from 1."""

    file: str
    line: int
    text: str
    score: float
    uri: str
    heading: str | None = None


class SectionHits(Value):
    """The best parts first; `notices` are sentences about what could not be looked at."""

    hits: list[SectionHit]
    notices: list[str]


class SectionSearch(Protocol):
    """Finds the parts of the files that people and assistants share."""

    async def find_sections(self, call: ToolCall, query: str, limit: int) -> SectionHits:
        """In the files that the call means; NotFound where there are none."""
        ...


class SearchFinding(Value):
    """Something that one family found, in a form that all share."""

    id: str
    type: str  # as in `memory`, `entity`, `section`, `conversation`, `code`
    content: str
    score: float  # 0 to 1
    search_type: SearchType
    title: str | None = None
    project: str | None = None
    at: int | None = None


class SearchFindings(Value):
    """The best first; `notices` are sentences about what could not be looked at."""

    hits: list[SearchFinding]
    notices: list[str] = field(default_factory=list[str])


class Finder(Protocol):
    """Searches what one family keeps, for a search over all of them."""

    @property
    def name(self) -> str:
        """What is searched, as a person calls it: `memories`."""
        ...

    async def find(self, call: ToolCall, query: str, ways: Sequence[SearchType], limit: int) -> SearchFindings:
        """By those of the ways that it knows; nothing where there is nothing to be searched."""
        ...

    async def get_stamp(self, call: ToolCall) -> object:
        """Another value once an answer may be another."""
        ...


def encode_cursor(*position: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(position).encode()).decode()


def decode_cursor(cursor: str, *kinds: type) -> tuple[Any, ...]:
    """What `encode_cursor` was given, if it was values of these kinds."""
    try:
        found: Any = json.loads(base64.urlsafe_b64decode(cursor.encode()))
    except ValueError:
        found = None
    position = tuple(cast(list[Any], found)) if isinstance(found, list) else ()
    if len(position) != len(kinds) or not all(map(isinstance, position, kinds)):
        raise InvalidInput("`cursor` is not one that this tool gave out.", argument="cursor", value=cursor[:100])
    return position
