"""What is stored, as a plan asks for it: read ahead in few questions, for all steps at once."""

from collections.abc import Iterable, Sequence

from everkept.core.records import Batch, Link, Record
from everkept.engines.foresight import Foreseen
from everkept.engines.planning import name_of
from everkept.engines.surreal.records.rows import (
    Row,
    edge_to,
    id_of,
    kept,
    link_from,
    record_from,
    things,
)
from everkept.engines.surreal.records.tables import State, Tables

SAME = "SELECT * FROM change WITH INDEX change_key WHERE key IN $"
_NAMED = (
    "SELECT * FROM record WITH INDEX record_name_key WHERE name_key IN $ AND deleted_at IS NONE"
)
_JOINED = "SELECT * FROM link WITH INDEX link_edge WHERE edge IN $ AND deleted_at IS NONE"
_BELOW = "SELECT * FROM record WITH INDEX record_parent WHERE parent IN $ ORDER BY age"
_ENDS = "SELECT ->link.* AS going, <-link.* AS coming FROM $"


class StoredView:
    """The records and links that were read, and where a plan asks for more, those."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self.ages: dict[str, int] = {}  # of the records that were read
        self._records: dict[str, Record | None] = {}
        self._links: dict[str, Link | None] = {}
        self._named: dict[str, list[Record]] = {}  # live ones by name_key
        self._joined: dict[str, list[Link]] = {}  # live ones by edge
        self._below: dict[str, list[Record]] = {}
        self._at: dict[str, list[Link]] = {}

    async def read_ahead(self, batch: Batch) -> tuple[State, list[Row]]:
        """The state that the view is of, and the change that has the key of the batch already."""
        wanted = Foreseen()
        wanted.note(batch)
        records = wanted.records | wanted.doomed
        names = _names_to_come(wanted)
        edges = dict.fromkeys(map(edge_to, wanted.joined))
        state, found = await self._tables.read(
            same=(SAME, [] if batch.key is None else [kept(batch.key)]),
            records=("SELECT * FROM $", things("record", records)),
            links=("SELECT * FROM $", things("link", wanted.links)),
            named=(_NAMED, [kept(name) for name in names]),
            joined=(_JOINED, list(edges)),
        )
        self._take_in(records, found["records"])
        self._take_in_links(wanted.links, found["links"])
        self._take_in_named(names, found["named"])
        self._take_in_joined(edges, found["joined"])
        if not found["same"]:
            await self._read_behind(wanted)
        return state, found["same"]

    async def record(self, record_id: str) -> Record | None:
        if record_id not in self._records:
            await self._read_records([record_id])
        return self._records[record_id]

    async def link(self, link_id: str) -> Link | None:
        if link_id not in self._links:
            rows = await self._tables.ask("SELECT * FROM $ids", ids=things("link", [link_id]))
            self._take_in_links([link_id], rows)
        return self._links[link_id]

    async def children(self, record_ids: Sequence[str]) -> list[Record]:
        await self._read_below([i for i in record_ids if i not in self._below])
        found = [child for i in record_ids for child in self._below[i]]
        return sorted(found, key=lambda child: self.ages[child.id])

    async def links_at(self, record_id: str) -> list[Link]:
        if record_id not in self._at:
            await self._read_ends([record_id])
        return self._at[record_id]

    async def namesakes(self, record: Record) -> list[Record]:
        name = record.name_key or ""
        if name not in self._named:
            await self._read_named([name])
        return [r for r in self._named[name] if name_of(r) == name_of(record)]

    async def doubles(self, link: Link) -> list[Link]:
        edge = edge_to(link)
        if edge not in self._joined:
            await self._read_joined([edge])
        return self._joined[edge]

    async def _read_behind(self, wanted: Foreseen) -> None:
        """What is known to be asked for only once the first answers are there."""
        read = wanted.records | wanted.doomed
        met = [r for i in read if (r := self._records[i]) is not None]
        names = {r.name_key for r in met if r.name_key is not None} - self._named.keys()
        await self._read_named(sorted(names))
        back = [x for i in wanted.returning_links if (x := self._links[i]) is not None]
        await self._read_joined([edge_to(link) for link in back])
        moving = wanted.doomed | wanted.returning
        ends = {r.parent for r in met if r.id in moving and r.parent is not None}
        ends |= {end for link in back for end in (link.source, link.target)}
        await self._read_records(sorted(ends - self._records.keys()))
        family = level = list(wanted.doomed)
        while level:
            children = await self._read_below(level)
            level = [child.id for child in children if child.deleted_at is None]
            family = [*family, *level]
        await self._read_ends(family)

    async def _read_records(self, ids: Sequence[str]) -> None:
        if ids:
            rows = await self._tables.ask("SELECT * FROM $ids", ids=things("record", ids))
            self._take_in(ids, rows)

    async def _read_named(self, names: Sequence[str]) -> None:
        if names:
            text = _NAMED.replace("$", "$names")
            rows = await self._tables.ask(text, names=[kept(name) for name in names])
            self._take_in_named(names, rows)

    async def _read_joined(self, edges: Sequence[str]) -> None:
        if edges:
            rows = await self._tables.ask(_JOINED.replace("$", "$edges"), edges=list(edges))
            self._take_in_joined(edges, rows)

    async def _read_below(self, parents: Sequence[str]) -> list[Record]:
        if not parents:
            return []
        ids = things("record", parents)
        rows = await self._tables.ask(_BELOW.replace("$", "$ids"), ids=ids)
        self._below |= {i: [] for i in parents}
        children = [self._met(row) for row in rows]
        for child in children:
            self._below[child.parent or ""].append(child)
        return children

    async def _read_ends(self, ids: Sequence[str]) -> None:
        if not ids:
            return
        rows = await self._tables.ask(_ENDS.replace("$", "$ids"), ids=things("record", ids))
        found = {id_of(x["id"]): x for row in rows for side in row.values() for x in side}
        self._at |= {i: [] for i in ids}
        for row in sorted(found.values(), key=lambda row: row["age"]):
            link = link_from(row)
            for end in {link.source, link.target} & self._at.keys():
                self._at[end].append(link)

    def _take_in(self, ids: Iterable[str], rows: Iterable[Row]) -> None:
        self._records |= dict.fromkeys(ids)
        for row in rows:
            self._met(row)

    def _met(self, row: Row) -> Record:
        record = record_from(row)
        self.ages[record.id] = row["age"]
        self._records[record.id] = record
        return record

    def _take_in_links(self, ids: Iterable[str], rows: Iterable[Row]) -> None:
        self._links |= dict.fromkeys(ids)
        self._links |= {link.id: link for link in map(link_from, rows)}

    def _take_in_named(self, names: Iterable[str], rows: Iterable[Row]) -> None:
        self._named |= {name: [] for name in names}
        for row in rows:
            record = self._met(row)
            self._named[record.name_key or ""].append(record)

    def _take_in_joined(self, edges: Iterable[str], rows: Iterable[Row]) -> None:
        self._joined |= {edge: [] for edge in edges}
        for link in map(link_from, rows):
            self._joined[edge_to(link)].append(link)


def _names_to_come(wanted: Foreseen) -> dict[str, None]:
    coming = [record.name_key for record in wanted.named]
    coming += [step.values.get("name_key") for step in wanted.updates]
    return {name: None for name in coming if name is not None}
