"""Answers of stores and searches other than records: counts, parts of a graph, findings."""

import base64
import json
from collections.abc import Iterable, Mapping, Sequence, Set
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeVar, cast

from everkept.core.projects import OffHistory, Project
from everkept.core.records import Change, Record, RecordLink, Ref
from everkept.core.sessions import ToolCall
from everkept.core.text import clip_text
from everkept.errors import InvalidInput
from everkept.values import Value, field

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class PurgeResult(Value):
    """Result of a purge or a redaction.

    `complete` is False while a reader keeps old pages.
    """

    records: int
    links: int
    complete: bool


class RecordVector(Value):
    """Vector of length one for the text of a record in this version."""

    id: str
    version: int
    vector: "NDArray[np.float32]"


class AccessCount(Value):
    """Number of recalls of a record, and the time of the last one."""

    count: int
    last_at: int


class RecordTally(Value):
    """Number of records with these traits."""

    kind: str
    scope: str
    type: str | None
    is_deleted: bool
    count: int


class Token(Value):
    """Bearer token in its stored form: its hash, never its secret."""

    id: str
    label: str
    created_at: int


# Prefixes of short-lived notes. Copies do not have them.
LEASE_PREFIX = "lease."


class StorePage(Value):
    """Part of a store, with the original versions, times, deletions and log numbers.

    A record's parent and a link's ends are in the page or already in the target. The records may come in any order and
    exchange names. Only the final state must be free of duplicates.
    """

    records: Sequence[Record] = ()
    links: Sequence[RecordLink] = ()
    gone: Sequence[Ref] = ()  # purged there, with every trace
    changes: Sequence[Change] = ()
    log_from: int | None = None  # delete the log from this number on first
    accesses: Mapping[str, AccessCount] = field(default_factory=dict[str, AccessCount])
    # By model. Vectors of outdated record versions are omitted.
    vectors: Mapping[str, Sequence[RecordVector]] = field(default_factory=dict[str, Sequence[RecordVector]])


class CatalogData(Value):
    """Data of a library beside the records, except the logs of searches and usage."""

    projects: Sequence[Project] = ()
    workspaces: Mapping[str, str] = field(default_factory=dict[str, str])  # folder, project id
    switching: Mapping[str, OffHistory] = field(default_factory=dict[str, OffHistory])  # project id
    notes: Mapping[str, str] = field(default_factory=dict[str, str])
    tokens: Sequence[tuple[Token, str]] = ()  # each with the hash of its secret


Direction = Literal["out", "in", "both"]


class Hops(Value):
    """Limits of a walk: its depth and its links.

    `sources` are kinds: only links that start at a record of one of them. A hop follows the oldest links of its
    records, up to `limit`. The walk continues from the records that these links name first, up to `width`.
    """

    count: int
    direction: Direction = "both"
    sources: Sequence[str] = ()
    width: int | None = None
    limit: int | None = None


class Sources(Value):
    """Records that link to some others: the number for each, and the links of the newest."""

    counts: Mapping[str, int]
    links: list[RecordLink]


def count_sources(links: Sequence[RecordLink], limit: int) -> Sources:
    """Answer `CountSources` from all links in their order."""
    about: dict[str, set[str]] = {}
    for link in links:
        about.setdefault(link.target, set()).add(link.source)
    newest = set(islice(dict.fromkeys(link.source for link in reversed(links)), limit))
    return Sources(
        {target: len(sources) for target, sources in about.items()}, [link for link in links if link.source in newest]
    )


def list_next_ids(links: Iterable[RecordLink], seen: Set[str], width: int | None = None) -> list[str]:
    """Return the unseen ids that links lead to, in the order of the links: the records of the next hop."""
    ends = dict.fromkeys(end for link in links for end in (link.source, link.target))
    return [end for end in ends if end not in seen][:width]


T = TypeVar("T")

# A child of a record: its id, its text and its time of creation. A plain tuple takes a quarter of the time of a named
# one.
Leaf = tuple[str, str, int]


class Selection(NamedTuple):
    """Selection of live records of a kind, and of their links.

    With `ids`, these records in that order. Otherwise all of them by name or age, or the ones by name after the last
    seen `(name_key, variant)`.
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
        """The limit plus one, to find out whether more exist."""
        return None if self.limit is None else self.limit + 1


class Node(NamedTuple):
    """Record and its children by age."""

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
    """Link between two records of the kind, with the names of both."""

    id: str
    source: str
    source_name: str
    verb: str
    target: str
    target_name: str
    created_at: int


class Subgraph(NamedTuple):
    """Nodes as they were selected, and the edges at them by age, each once.

    `has_more` is True if a limit cut off further nodes.
    """

    nodes: list[Node]
    edges: list[Edge]
    has_more: bool = False


def apply_limit(wanted: Selection, found: Sequence[T]) -> tuple[Sequence[T], bool]:
    """Return the items within the limit, and whether more exist."""
    return found[: wanted.limit], wanted.limit is not None and len(found) > wanted.limit


def list_other_ends(records: Iterable[Record], links: Iterable[RecordLink]) -> list[str]:
    """Return the ids at the ends of links that are not among the records."""
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
    """Join the parts of a subgraph. `others` are the other ends of links, of any kind."""
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


MAX_SEARCHES = 10_000  # questions that a library keeps

SearchType = Literal["semantic", "keyword", "graph"]


class SearchRecord(Value):
    """Question that was asked, as this machine stores it: without secrets."""

    at: int
    tool: str
    query: str
    results: int
    milliseconds: float
    session: str | None = None
    filters: Mapping[str, Any] = field(default_factory=dict[str, Any])


class SearchLog(Protocol):
    """Log of questions, written in the background so that readers do not wait for it."""

    def note(self, search: SearchRecord) -> None: ...

    async def list_newest(self, *, session: str | None = None, limit: int = 100) -> list[SearchRecord]:
        """Return the newest questions first, including the ones that are not stored yet."""
        ...


class SectionHit(Value):
    """Part of a file that matches a question. `line` is its first line, counted from 1."""

    file: str
    line: int
    text: str
    score: float
    uri: str
    heading: str | None = None


class SectionHits(Value):
    """The best parts first. `notices` are sentences about what could not be searched."""

    hits: list[SectionHit]
    notices: list[str]


class SectionSearch(Protocol):
    """Search in the files of a memory bank."""

    async def find_sections(self, call: ToolCall, query: str, limit: int) -> SectionHits:
        """Search the files that the call selects. Raise NotFound if there are none."""
        ...


class SearchFinding(Value):
    """Result of one family, in a form that all families share."""

    id: str
    type: str  # such as `memory`, `entity`, `section`, `conversation`, `code`
    content: str
    score: float  # 0 to 1
    search_type: SearchType
    title: str | None = None
    project: str | None = None
    at: int | None = None


class SearchFindings(Value):
    """The best first. `notices` are sentences about what could not be searched; `hints` about where else to look."""

    hits: list[SearchFinding]
    notices: list[str] = field(default_factory=list[str])
    hints: list[str] = field(default_factory=list[str])


class Finder(Protocol):
    """Search of one family, for a search in all of them."""

    @property
    def name(self) -> str:
        """Return the name of the searched things for people, such as `memories`."""
        ...

    async def find(
        self, call: ToolCall, query: str, ways: Sequence[SearchType], limit: int, *, all_projects: bool = False
    ) -> SearchFindings:
        """Search with the strategies that the family supports, in the call's project or in all projects."""
        ...

    async def get_stamp(self, call: ToolCall) -> object:
        """Return a value that changes when an answer may change."""
        ...


class TableFault(NamedTuple):
    """Part of a database server's tables that Everkept did not create, or that is missing or changed.

    A schema is `open` if everyone may create something in it.
    """

    kind: str  # such as table, column or trigger
    name: str
    problem: Literal["extra", "missing", "changed", "open"]

    @property
    def description(self) -> str:
        shown = ascii(clip_text(self.name, 60))[1:-1]
        return f'{self.kind} "{shown}" {_TABLE_PROBLEMS[self.problem]}'


_TABLE_PROBLEMS = {
    "missing": "is missing",
    "changed": "was changed",
    "extra": "was not created by Everkept",
    "open": "is open to functions of every user",
}


def list_table_faults(found: Mapping[tuple[str, str], str], ours: Mapping[tuple[str, str], str]) -> list[TableFault]:
    """Compare the definitions of parts, each by its kind and name. A column is named with its table."""
    changed = {part for part in found.keys() & ours.keys() if found[part] != ours[part]}
    faults = [
        *(TableFault(*part, "missing") for part in ours.keys() - found.keys()),
        *(TableFault(*part, "changed") for part in changed),
        *(TableFault(*part, "extra") for part in found.keys() - ours.keys()),
    ]
    whole = {fault.name for fault in faults if fault.kind == "table" and fault.problem != "changed"}
    rest = [f for f in faults if f.kind != "column" or f.name.partition(".")[0] not in whole]
    problems = list(_TABLE_PROBLEMS)
    return sorted(
        rest, key=lambda f: (f.kind != "table", f.kind in ("constraint", "index"), problems.index(f.problem), f)
    )


def encode_cursor(*position: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(position).encode()).decode()


def decode_cursor(cursor: str, *kinds: type) -> tuple[Any, ...]:
    """Return the values that `encode_cursor` encoded, if they have these types."""
    try:
        found: Any = json.loads(base64.urlsafe_b64decode(cursor.encode()))
    except (ValueError, RecursionError):
        found = None
    position = tuple(cast(list[Any], found)) if isinstance(found, list) else ()
    if len(position) != len(kinds) or not all(map(isinstance, position, kinds)):
        raise InvalidInput(
            "`cursor` is not a cursor of this tool.",
            hint="Use next_cursor of the previous page, or omit it to start again.",
            argument="cursor",
            value=cursor[:100],
        )
    return position
