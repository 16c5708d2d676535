"""One commit: read the records of its steps, plan, and write everything in one transaction."""

from collections.abc import Collection, Iterable, Sequence
from uuid import uuid4

from everkept.core.records import Batch, Change, Record, RecordLink
from everkept.engines.commit_plan import CommitPlan, PrefetchSet, assign_ages, get_unique_name, plan_commit
from everkept.engines.stored_text import RecordShift
from everkept.engines.surreal.connection import DiskFailure
from everkept.engines.surreal.queries import read_with_edits
from everkept.engines.surreal.rows import (
    Row,
    decode_id,
    decode_link,
    decode_record,
    diff_fields,
    encode_change,
    encode_edge,
    encode_edits,
    encode_id,
    encode_ids,
    encode_link,
    encode_record,
    escape_text,
)
from everkept.engines.surreal.schema import StoreState, StoreTables, TransactionBuilder
from everkept.engines.surreal.search import rewrite_words
from everkept.engines.surreal.vectors import forget_vectors, get_pending_mark
from everkept.errors import Conflict, EverkeptError, StoreUnreachable, Unavailable
from everkept.values import replace

_LIVE_BY_NAME = "SELECT * FROM record WITH INDEX record_name_key WHERE name_key IN $names AND deleted_at IS NONE"
_LIVE_BY_EDGE = "SELECT * FROM link WITH INDEX link_edge WHERE edge IN $edges AND deleted_at IS NONE"


async def check_unique(
    tables: StoreTables,
    records: Iterable[Record],
    links: Iterable[RecordLink],
    gone: Collection[str] = (),
    gone_links: Collection[str] = (),
) -> None:
    """Raise Conflict if one of these items would be the same as another.

    Pass all changed items. Those in `gone` and `gone_links` are ignored.
    """
    named = {record.id: record for record in records}
    live = [r for r in named.values() if r.deleted_at is None and r.name_key is not None]
    if live:
        names = sorted({escape_text(r.name_key or "") for r in live})
        found = map(decode_record, await tables.ask(_LIVE_BY_NAME, names=names))
        others = [r for r in found if r.id not in named and r.id not in gone]
        keys = [get_unique_name(r) for r in (*live, *others)]
        if len(set(keys)) < len(keys):
            raise Conflict("Two records would have the same name or text.", hint="Delete or rename one of them first.")
    joined = {link.id: link for link in links}
    edges = [encode_edge(x) for x in joined.values() if x.deleted_at is None]
    if edges:
        rows = map(decode_link, await tables.ask(_LIVE_BY_EDGE, edges=sorted(set(edges))))
        edges += [encode_edge(x) for x in rows if x.id not in joined and x.id not in gone_links]
        if len(set(edges)) < len(edges):
            raise Conflict("Two links would be the same relation.", hint="Delete one of them first.")


CHANGE_BY_KEY = "SELECT * FROM change WITH INDEX change_key WHERE key IN $"
_RECORDS_BY_NAME = "SELECT * FROM record WITH INDEX record_name_key WHERE name_key IN $ AND deleted_at IS NONE"
_LINKS_BY_EDGE = "SELECT * FROM link WITH INDEX link_edge WHERE edge IN $ AND deleted_at IS NONE"
_CHILDREN_BY_PARENT = "SELECT * FROM record WITH INDEX record_parent WHERE parent IN $ ORDER BY age"
_LINKS_AT_RECORDS = "SELECT ->link.* AS going, <-link.* AS coming FROM $"


class StoredView:
    """Stored records and links for a plan: read ahead, or on demand."""

    def __init__(self, tables: StoreTables) -> None:
        self._tables = tables
        self.ages: dict[str, int] = {}  # by record id
        self._records: dict[str, Record | None] = {}
        self._links: dict[str, RecordLink | None] = {}
        self._named: dict[str, list[Record]] = {}  # live records by name_key
        self._joined: dict[str, list[RecordLink]] = {}  # live links by edge
        self._below: dict[str, list[Record]] = {}
        self._at: dict[str, list[RecordLink]] = {}

    async def read_ahead(self, batch: Batch) -> tuple[StoreState, list[Row]]:
        """Return the state of the view, and an earlier change with the same key."""
        wanted = PrefetchSet()
        wanted.add_batch(batch)
        records = wanted.records | wanted.purge_set
        names = _predict_names(wanted)
        edges = dict.fromkeys(map(encode_edge, wanted.joined))
        state, found = await self._tables.read(
            same=(CHANGE_BY_KEY, [] if batch.key is None else [escape_text(batch.key)]),
            records=("SELECT * FROM $", encode_ids("record", records)),
            links=("SELECT * FROM $", encode_ids("link", wanted.links)),
            named=(_RECORDS_BY_NAME, [escape_text(name) for name in names]),
            joined=(_LINKS_BY_EDGE, list(edges)),
        )
        self._add_records(records, found["records"])
        self._add_links(wanted.links, found["links"])
        self._add_named_records(names, found["named"])
        self._add_edge_links(edges, found["joined"])
        if not found["same"]:
            await self._read_followups(wanted)
        return state, found["same"]

    async def find_record(self, record_id: str) -> Record | None:
        if record_id not in self._records:
            await self._read_records([record_id])
        return self._records[record_id]

    async def find_link(self, link_id: str) -> RecordLink | None:
        if link_id not in self._links:
            rows = await self._tables.ask("SELECT * FROM $ids", ids=encode_ids("link", [link_id]))
            self._add_links([link_id], rows)
        return self._links[link_id]

    async def list_children(self, record_ids: Sequence[str]) -> list[Record]:
        await self._read_children([i for i in record_ids if i not in self._below])
        found = [child for i in record_ids for child in self._below[i]]
        return sorted(found, key=lambda child: self.ages[child.id])

    async def list_links(self, record_id: str) -> list[RecordLink]:
        if record_id not in self._at:
            await self._read_end_links([record_id])
        return self._at[record_id]

    async def list_namesakes(self, record: Record) -> list[Record]:
        name = record.name_key or ""
        if name not in self._named:
            await self._read_named_records([name])
        return [r for r in self._named[name] if get_unique_name(r) == get_unique_name(record)]

    async def list_duplicates(self, link: RecordLink) -> list[RecordLink]:
        edge = encode_edge(link)
        if edge not in self._joined:
            await self._read_edge_links([edge])
        return self._joined[edge]

    async def _read_followups(self, wanted: PrefetchSet) -> None:
        """Read the data that the first results show to be needed."""
        read = wanted.records | wanted.purge_set
        met = [r for i in read if (r := self._records[i]) is not None]
        names = {r.name_key for r in met if r.name_key is not None} - self._named.keys()
        await self._read_named_records(sorted(names))
        back = [x for i in wanted.returning_links if (x := self._links[i]) is not None]
        await self._read_edge_links([encode_edge(link) for link in back])
        moving = wanted.purge_set | wanted.returning
        ends = {r.parent for r in met if r.id in moving and r.parent is not None}
        ends |= {end for link in back for end in (link.source, link.target)}
        await self._read_records(sorted(ends - self._records.keys()))
        family = level = list(wanted.purge_set)
        while level:
            children = await self._read_children(level)
            level = [child.id for child in children if child.deleted_at is None]
            family = [*family, *level]
        await self._read_end_links(family)

    async def _read_records(self, ids: Sequence[str]) -> None:
        if ids:
            rows = await self._tables.ask("SELECT * FROM $ids", ids=encode_ids("record", ids))
            self._add_records(ids, rows)

    async def _read_named_records(self, names: Sequence[str]) -> None:
        if names:
            text = _RECORDS_BY_NAME.replace("$", "$names")
            rows = await self._tables.ask(text, names=[escape_text(name) for name in names])
            self._add_named_records(names, rows)

    async def _read_edge_links(self, edges: Sequence[str]) -> None:
        if edges:
            rows = await self._tables.ask(_LINKS_BY_EDGE.replace("$", "$edges"), edges=list(edges))
            self._add_edge_links(edges, rows)

    async def _read_children(self, parents: Sequence[str]) -> list[Record]:
        if not parents:
            return []
        ids = encode_ids("record", parents)
        rows = await self._tables.ask(_CHILDREN_BY_PARENT.replace("$", "$ids"), ids=ids)
        self._below |= {i: [] for i in parents}
        children = [self._add_record(row) for row in rows]
        for child in children:
            self._below[child.parent or ""].append(child)
        return children

    async def _read_end_links(self, ids: Sequence[str]) -> None:
        if not ids:
            return
        rows = await self._tables.ask(_LINKS_AT_RECORDS.replace("$", "$ids"), ids=encode_ids("record", ids))
        found = {decode_id(x["id"]): x for row in rows for side in row.values() for x in side}
        self._at |= {i: [] for i in ids}
        for row in sorted(found.values(), key=lambda row: row["age"]):
            link = decode_link(row)
            for end in {link.source, link.target} & self._at.keys():
                self._at[end].append(link)

    def _add_records(self, ids: Iterable[str], rows: Iterable[Row]) -> None:
        self._records |= dict.fromkeys(ids)
        for row in rows:
            self._add_record(row)

    def _add_record(self, row: Row) -> Record:
        record = decode_record(row)
        self.ages[record.id] = row["age"]
        self._records[record.id] = record
        return record

    def _add_links(self, ids: Iterable[str], rows: Iterable[Row]) -> None:
        self._links |= dict.fromkeys(ids)
        self._links |= {link.id: link for link in map(decode_link, rows)}

    def _add_named_records(self, names: Iterable[str], rows: Iterable[Row]) -> None:
        self._named |= {name: [] for name in names}
        for row in rows:
            record = self._add_record(row)
            self._named[record.name_key or ""].append(record)

    def _add_edge_links(self, edges: Iterable[str], rows: Iterable[Row]) -> None:
        self._joined |= {edge: [] for edge in edges}
        for link in map(decode_link, rows):
            self._joined[encode_edge(link)].append(link)


def _predict_names(wanted: PrefetchSet) -> dict[str, None]:
    coming = [record.name_key for record in wanted.named]
    coming += [step.values.get("name_key") for step in wanted.updates]
    return {name: None for name in coming if name is not None}


async def commit(tables: StoreTables, batch: Batch) -> Change:
    """Write the batch. Raise Conflict if it contradicts the stored data, StoreUnreachable if its outcome is unknown."""
    keyed = batch if batch.key is not None else replace(batch, key=uuid4().hex)
    try:
        return await tables.run_in_turn(lambda: _attempt(tables, keyed))
    except DiskFailure as error:
        return await _find_change(tables, keyed.key or "", error)


async def _find_change(tables: StoreTables, key: str, failed: DiskFailure) -> Change:
    """Return the change if it was stored in spite of the failure."""
    try:
        same = await tables.ask(CHANGE_BY_KEY.replace("$", "$keys"), keys=[escape_text(key)])
        changes = await read_with_edits(tables, same)
    except (EverkeptError, RuntimeError) as error:
        raise StoreUnreachable(
            f"{failed.message} The outcome is unknown.", hint="Check before you repeat the write."
        ) from error
    if not changes:
        raise Unavailable(f"{failed.message} Nothing was stored.", hint="Try again.")
    return changes[0]


async def _attempt(tables: StoreTables, batch: Batch) -> Change:
    """Write the batch once. Raise WriteContention if another write came in between."""
    view = StoredView(tables)
    state, same = await view.read_ahead(batch)
    if same:
        return (await read_with_edits(tables, same))[0]
    if not batch.late:
        tables.check_open(state)
    if batch.revision not in (None, state.seq):
        message = "The data changed while this write was being prepared."
        raise Conflict(message, hint="Try again.", revision=batch.revision)
    made = await plan_commit(batch, view)
    seq = state.seq + 1 if made.edits else 0
    change = Change(seq, batch.at, batch.tool, batch.client, batch.undoes, made.edits)
    if made.edits:
        await _write(tables, view, state, made, change, batch.key)
    return change


async def _write(
    tables: StoreTables, view: StoredView, state: StoreState, made: CommitPlan, change: Change, key: str | None
) -> None:
    writing = TransactionBuilder()
    ages = assign_ages(made.fresh, state.ages)
    _write_records(writing, made, ages.records)
    _write_links(writing, made, ages.links)
    forget_vectors(writing, state, made.retold)
    shift = RecordShift(made.before, made.records, {**view.ages, **ages.records})
    await rewrite_words(tables, shift, writing)
    log_change(writing, change, key)
    after = {"seq": change.seq, "turn": state.turn + 1, "ages": state.ages + len(made.fresh)}
    await tables.write(state, writing, after)


def log_change(writing: TransactionBuilder, change: Change, key: str | None = None) -> None:
    writing.insert("change", [encode_change(change, key)])
    writing.insert("edit", encode_edits(change))


def _write_records(writing: TransactionBuilder, made: CommitPlan, ages: dict[str, int]) -> None:
    new = [made.records[record_id] for record_id in ages]
    writing.insert("record", [encode_new_record(record, ages[record.id]) for record in new])
    altered = {record_id: diff_fields(old, made.records[record_id]) for record_id, old in made.before.items()}
    for record_id in made.retold & altered.keys():
        altered[record_id]["embedded"] = get_pending_mark(made.records[record_id].text)
    writing.merge([(encode_id("record", i), fields) for i, fields in altered.items() if fields])


def _write_links(writing: TransactionBuilder, made: CommitPlan, ages: dict[str, int]) -> None:
    new = [made.links[link_id] for link_id in ages]
    writing.insert("link", [encode_new_link(x, ages[x.id]) for x in new], relation="RELATION")
    writing.merge(
        [
            (encode_id("link", link.id), {"deleted_at": link.deleted_at})
            for link in made.links.values()
            if link.id not in ages
        ]
    )


def encode_new_record(record: Record, age: int) -> dict[str, object]:
    return {**encode_record(record), "age": age, "embedded": get_pending_mark(record.text)}


def encode_new_link(link: RecordLink, age: int) -> dict[str, object]:
    return {**encode_link(link), "age": age}
