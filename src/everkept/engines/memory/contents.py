"""Contents of a store of the reference engine, with functions to read and change them."""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from everkept.core.answers import StorePage
from everkept.core.ports import AccessCount, RecordVector, Redaction
from everkept.core.records import Change, Edit, Match, Record, RecordLink, Ref
from everkept.engines.commit_plan import (
    UniqueEdge,
    UniqueName,
    check_references,
    get_edit_ref,
    get_unique_edge,
    get_unique_name,
    is_vector_outdated,
    redact_edit,
    redact_link,
    redact_record,
)
from everkept.errors import Conflict
from everkept.values import Value, replace

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class StoreContents(Value):
    """Records and links sorted by age, and the change log."""

    records: Mapping[str, Record]
    links: Mapping[str, RecordLink]
    changes: Sequence[Change]

    def collect_belongings(self, refs: Collection[Ref]) -> tuple[set[str], set[str]]:
        """Return the ids of these records with their descendants, and of these links with all links of the records."""
        wanted = set(refs)
        purge_set = {record_id for record_id, r in self.records.items() if r.ref in wanted}
        while below := {r.id for r in self.records.values() if r.parent in purge_set} - purge_set:
            purge_set |= below
        links = {x.id for x in self.links.values() if x.ref in wanted or purge_set & {x.source, x.target}}
        return purge_set, links

    def exclude(self, records: Collection[str], links: Collection[str]) -> "StoreContents":
        """Return the contents without these records and links, in the log too."""
        gone = {"record": records, "link": links}
        return StoreContents(
            {k: r for k, r in self.records.items() if k not in records},
            {k: x for k, x in self.links.items() if k not in links},
            [
                replace(change, edits=tuple(e for e in change.edits if e.id not in gone[e.subject]))
                for change in self.changes
            ],
        )

    def check_unique(self) -> None:
        """Raise Conflict if two live records or links have the same key."""
        named = (r for r in self.records.values() if r.deleted_at is None)
        names = [get_unique_name(r) for r in named if r.name_key is not None]
        if len(set(names)) < len(names):
            raise Conflict("Two records would have the same name or text.", hint="Delete or rename one of them first.")
        live = [x for x in self.links.values() if x.deleted_at is None]
        if len(set(map(get_unique_edge, live))) < len(live):
            raise Conflict("Two links would be the same relation.", hint="Delete one of them first.")


class ContentsView:
    """View of the contents for one commit. It never suspends, so no other task runs between reads and writes."""

    def __init__(self, records: Mapping[str, Record], links: Mapping[str, RecordLink]) -> None:
        self._records = records
        self._links = links

    async def find_record(self, record_id: str) -> Record | None:
        return self._records.get(record_id)

    async def find_link(self, link_id: str) -> RecordLink | None:
        return self._links.get(link_id)

    async def list_children(self, record_ids: Sequence[str]) -> Sequence[Record]:
        found = [born for record_id in record_ids for born in self._children_by_parent.get(record_id, ())]
        return [record for _, record in sorted(found, key=lambda born: born[0])]

    async def list_links(self, record_id: str) -> Sequence[RecordLink]:
        return self._links_by_record.get(record_id, ())

    async def list_namesakes(self, record: Record) -> Sequence[Record]:
        return self._records_by_name.get(get_unique_name(record), ())

    async def list_duplicates(self, link: RecordLink) -> Sequence[RecordLink]:
        return self._links_by_edge.get(get_unique_edge(link), ())

    @cached_property
    def _children_by_parent(self) -> Mapping[str | None, Sequence[tuple[int, Record]]]:
        """Children by parent, each with the number of older records."""
        below: defaultdict[str | None, list[tuple[int, Record]]] = defaultdict(list)
        for age, record in enumerate(self._records.values()):
            below[record.parent].append((age, record))
        return below

    @cached_property
    def _links_by_record(self) -> Mapping[str, Sequence[RecordLink]]:
        at: defaultdict[str, list[RecordLink]] = defaultdict(list)
        for link in self._links.values():
            for end in {link.source, link.target}:
                at[end].append(link)
        return at

    @cached_property
    def _records_by_name(self) -> Mapping[UniqueName, Sequence[Record]]:
        named: defaultdict[UniqueName, list[Record]] = defaultdict(list)
        for record in self._records.values():
            if record.deleted_at is None and record.name_key is not None:
                named[get_unique_name(record)].append(record)
        return named

    @cached_property
    def _links_by_edge(self) -> Mapping[UniqueEdge, Sequence[RecordLink]]:
        joined: defaultdict[UniqueEdge, list[RecordLink]] = defaultdict(list)
        for link in self._links.values():
            if link.deleted_at is None:
                joined[get_unique_edge(link)].append(link)
        return joined


class DerivedData:
    """Vectors and access counts of records. They are not part of the change log or of an undo."""

    def __init__(self, find: Callable[[str], Record | None]) -> None:
        self._find = find
        self._vectors: dict[str, tuple[str, NDArray[np.float32]]] = {}
        self.moves = 0  # counts vectors that were added or removed
        self._accesses: dict[str, AccessCount] = {}

    def put_vectors(self, model: str, items: Sequence[RecordVector]) -> int:
        fitting = [
            item
            for item in items
            if (record := self._find(item.id)) and record.deleted_at is None and record.version == item.version
        ]
        self._vectors |= {item.id: (model, item.vector) for item in fitting}
        self.moves += len(fitting)
        return len(fitting)

    def copy_page(self, vectors: Mapping[str, Sequence[RecordVector]], accesses: Mapping[str, AccessCount]) -> None:
        """Copy vectors and access counts, including those of deleted records."""
        for model, items in vectors.items():
            for item in items:
                record = self._find(item.id)
                if record is not None and record.version == item.version:
                    self._vectors[item.id] = (model, item.vector)
        self._accesses |= {i: access for i, access in accesses.items() if self._find(i)}
        self.moves += 1  # at least one vector may have changed

    def has_vector(self, model: str, record_id: str) -> bool:
        return self._vectors.get(record_id, ("", None))[0] == model

    def get_vectors(self, model: str, ids: Sequence[str]) -> "dict[str, NDArray[np.float32]]":
        return {i: self._vectors[i][1] for i in ids if self.has_vector(model, i)}

    def find_nearest(self, model: str, vector: "NDArray[np.float32]", records: Sequence[Record]) -> list[Match]:
        found = [
            Match(r.id, r.parent, float(self._vectors[r.id][1] @ vector))
            for r in records
            if self.has_vector(model, r.id)
        ]
        return sorted(found, key=lambda match: -match.score)

    def forget(self, ids: Collection[str], *, vectors_only: bool = False) -> None:
        for record_id in ids:
            self.moves += self._vectors.pop(record_id, None) is not None
            if not vectors_only:
                self._accesses.pop(record_id, None)

    def note_accesses(self, counts: Mapping[str, int], at: int) -> None:
        for record_id, count in counts.items():
            if self._find(record_id):
                known = self._accesses.get(record_id, AccessCount(0, at))
                self._accesses[record_id] = AccessCount(known.count + count, max(known.last_at, at))

    def get_accesses(self, ids: Sequence[str]) -> dict[str, AccessCount]:
        return {i: self._accesses[i] for i in ids if i in self._accesses}

    def list_most_accessed(self, limit: int) -> dict[str, AccessCount]:
        live = [i for i in self._accesses if (r := self._find(i)) and r.deleted_at is None]
        live.sort(key=lambda i: (-self._accesses[i].count, -self._accesses[i].last_at, i))
        return self.get_accesses(live[:limit])


class RedactedContents(Value):
    """The contents after a redaction, and references to everything that changed."""

    contents: StoreContents
    in_record: set[Ref]
    in_link: set[Ref]
    in_log: set[Ref]


def redact(contents: StoreContents, refs: Sequence[Ref], clean: Redaction) -> RedactedContents:
    """Redact these records and links. Raise Conflict if two records or links would then have the same key."""
    wanted = set(refs)
    records, links = contents.records, contents.links
    new_records = {i: redact_record(r, clean) for i, r in records.items() if r.ref in wanted}
    new_links = {i: redact_link(x, clean) for i, x in links.items() if x.ref in wanted}
    in_log: set[Ref] = set()

    def edit(old: Edit) -> Edit:
        new = redact_edit(old, wanted, clean)
        if new is not old:
            in_log.add(get_edit_ref(old))
        return new

    result = RedactedContents(
        StoreContents(
            {**records, **new_records},
            {**links, **new_links},
            [replace(c, edits=tuple(map(edit, c.edits))) for c in contents.changes],
        ),
        {new.ref for i, new in new_records.items() if new is not records[i]},
        {new.ref for i, new in new_links.items() if new is not links[i]},
        in_log,
    )
    result.contents.check_unique()
    return result


def apply_page(contents: StoreContents, stock: StorePage) -> StoreContents:
    """Apply a page of another store. Raise Conflict if keys collide or a reference has no target."""
    left = contents.exclude(*contents.collect_belongings(stock.gone))
    kept = (c for c in left.changes if stock.log_from is None or c.seq < stock.log_from)
    log = {change.seq: change for change in (*kept, *stock.changes)}
    new = StoreContents(
        {**left.records, **{record.id: record for record in stock.records}},
        {**left.links, **{link.id: link for link in stock.links}},
        [log[seq] for seq in sorted(log)],
    )
    check_references((*stock.records, *stock.links), new.records)
    new.check_unique()
    return new


def list_outdated_vectors(before: Mapping[str, Record], after: Mapping[str, Record]) -> list[str]:
    """Return the ids of records that are gone, or whose text or name changed."""
    return [old.id for old in before.values() if (new := after.get(old.id)) is None or is_vector_outdated(old, new)]
