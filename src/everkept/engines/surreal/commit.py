"""One commit: read what its steps are about, plan, and write all of it in one transaction."""

from collections.abc import Collection, Iterable, Sequence
from uuid import uuid4

from everkept.core.records import Batch, Change, Link, Record
from everkept.engines.commit_plan import Foreseen, Plan, ages_of, name_of, plan
from everkept.engines.stored_text import Shift
from everkept.engines.surreal.connection import DiskFailed
from everkept.engines.surreal.queries import with_edits
from everkept.engines.surreal.rows import (
    Row,
    change_to,
    changed_fields,
    edge_to,
    edits_to,
    id_of,
    kept,
    link_from,
    link_to,
    record_from,
    record_to,
    thing,
    things,
)
from everkept.engines.surreal.schema import State, Tables, Writing
from everkept.engines.surreal.search import rewrite_words
from everkept.engines.surreal.vectors import forget_vectors, waiting
from everkept.errors import Conflict, EverkeptError, StoreAway, Unavailable
from everkept.values import replace

_LIVE_BY_NAME = (
    "SELECT * FROM record WITH INDEX record_name_key "
    "WHERE name_key IN $names AND deleted_at IS NONE"
)
_LIVE_BY_EDGE = (
    "SELECT * FROM link WITH INDEX link_edge WHERE edge IN $edges AND deleted_at IS NONE"
)


async def check_unique(
    tables: Tables,
    records: Iterable[Record],
    links: Iterable[Link],
    gone: Collection[str] = (),
    gone_links: Collection[str] = (),
) -> None:
    """Raises Conflict where one of these would stand for the same as another.

    All that change are among them; those that are `gone` are in nobody's way.
    """
    named = {record.id: record for record in records}
    live = [r for r in named.values() if r.deleted_at is None and r.name_key is not None]
    if live:
        names = sorted({kept(r.name_key or "") for r in live})
        found = map(record_from, await tables.ask(_LIVE_BY_NAME, names=names))
        others = [r for r in found if r.id not in named and r.id not in gone]
        keys = [name_of(r) for r in (*live, *others)]
        if len(set(keys)) < len(keys):
            raise Conflict("Two records would stand for the same.")
    joined = {link.id: link for link in links}
    edges = [edge_to(x) for x in joined.values() if x.deleted_at is None]
    if edges:
        rows = map(link_from, await tables.ask(_LIVE_BY_EDGE, edges=sorted(set(edges))))
        edges += [edge_to(x) for x in rows if x.id not in joined and x.id not in gone_links]
        if len(set(edges)) < len(edges):
            raise Conflict("Two links would say the same.")


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


async def commit(tables: Tables, batch: Batch) -> Change:
    """Raises Conflict where the batch does not fit, StoreAway where its outcome stays unknown."""
    keyed = batch if batch.key is not None else replace(batch, key=uuid4().hex)
    try:
        return await tables.in_turn(lambda: _attempt(tables, keyed))
    except DiskFailed as error:
        return await _looked_up(tables, keyed.key or "", error)


async def _looked_up(tables: Tables, key: str, failed: DiskFailed) -> Change:
    """The change, if it was made all the same."""
    try:
        same = await tables.ask(SAME.replace("$", "$keys"), keys=[kept(key)])
        changes = await with_edits(tables, same)
    except (EverkeptError, RuntimeError) as error:
        raise StoreAway(
            f"{failed.message} Whether it was stored is unknown.",
            hint="Look for it before you store it again.",
        ) from error
    if not changes:
        raise Unavailable(f"{failed.message} Nothing of it was stored.", hint="Try again.")
    return changes[0]


async def _attempt(tables: Tables, batch: Batch) -> Change:
    """Raises Contended where another came in between."""
    view = StoredView(tables)
    state, same = await view.read_ahead(batch)
    if same:
        return (await with_edits(tables, same))[0]
    tables.check_open(state)
    if batch.revision not in (None, state.seq):
        raise Conflict("Something else was stored meanwhile.", revision=batch.revision)
    made = await plan(batch, view)
    seq = state.seq + 1 if made.edits else 0
    change = Change(seq, batch.at, batch.tool, batch.client, batch.undoes, made.edits)
    if made.edits:
        await _write(tables, view, state, made, change, batch.key)
    return change


async def _write(
    tables: Tables, view: StoredView, state: State, made: Plan, change: Change, key: str | None
) -> None:
    writing = Writing()
    ages = ages_of(made.fresh, state.ages)
    _write_records(writing, made, ages.records)
    _write_links(writing, made, ages.links)
    forget_vectors(writing, state, made.retold)
    shift = Shift(made.before, made.records, {**view.ages, **ages.records})
    await rewrite_words(tables, shift, writing)
    log(writing, change, key)
    after = {"seq": change.seq, "turn": state.turn + 1, "ages": state.ages + len(made.fresh)}
    await tables.write(state, writing, after)


def log(writing: Writing, change: Change, key: str | None = None) -> None:
    writing.insert("change", [change_to(change, key)])
    writing.insert("edit", edits_to(change))


def _write_records(writing: Writing, made: Plan, ages: dict[str, int]) -> None:
    new = [made.records[record_id] for record_id in ages]
    writing.insert("record", [fresh_row(record, ages[record.id]) for record in new])
    altered = {
        record_id: changed_fields(old, made.records[record_id])
        for record_id, old in made.before.items()
    }
    for record_id in made.retold & altered.keys():
        altered[record_id]["embedded"] = waiting(made.records[record_id].text)
    writing.merge([(thing("record", i), fields) for i, fields in altered.items() if fields])


def _write_links(writing: Writing, made: Plan, ages: dict[str, int]) -> None:
    new = [made.links[link_id] for link_id in ages]
    writing.insert("link", [fresh_link(x, ages[x.id]) for x in new], relation="RELATION")
    writing.merge(
        [
            (thing("link", link.id), {"deleted_at": link.deleted_at})
            for link in made.links.values()
            if link.id not in ages
        ]
    )


def fresh_row(record: Record, age: int) -> dict[str, object]:
    return {**record_to(record), "age": age, "embedded": waiting(record.text)}


def fresh_link(link: Link, age: int) -> dict[str, object]:
    return {**link_to(link), "age": age}
