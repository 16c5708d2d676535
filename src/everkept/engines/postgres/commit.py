"""One commit: read the records of its steps, plan, and write everything in one transaction."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from everkept.core.records import Batch, Change, Record, RecordLink
from everkept.core.runtime import run_without_loop
from everkept.engines.commit_plan import CommitPlan, PrefetchSet, assign_ages, plan_commit
from everkept.engines.postgres.indexes import StoreGrowth
from everkept.engines.postgres.queries import read_change
from everkept.engines.postgres.rows import RECORD_COLUMNS, Row, escape_text, escape_texts, hash_edge, hash_name
from everkept.engines.postgres.schema import INDEX_PREFIX_CHARACTERS
from everkept.engines.postgres.statements import Cursor, QueryResult, ask, ask_for, fetch_rows
from everkept.engines.postgres.vectors import forget_vectors
from everkept.engines.postgres.writes import (
    LINKS_QUERY,
    RECORDS_QUERY,
    StorePlace,
    StoreState,
    advance_state,
    ask_member_links,
    ask_members,
    ask_store_lock,
    build_link_columns,
    build_record_columns,
    check_open,
    compute_words,
    decode_aged_link,
    decode_aged_record,
    decode_state,
    diff_columns,
    insert,
    log_changes,
    update,
)
from everkept.engines.stored_text import RecordShift
from everkept.errors import Conflict
from everkept.values import replace

CHANGE_BY_KEY = f"SELECT seq FROM changes WHERE store = %s AND left(key, {INDEX_PREFIX_CHARACTERS}) = %s AND key = %s"
_RECORDS_BY_ID = f"{RECORDS_QUERY} r.id = ANY(%s::text[])"
_LINKS_BY_ID = f"{LINKS_QUERY} l.id = ANY(%s::text[])"
_RECORDS_BY_NAME = f"{RECORDS_QUERY} r.stands_for = ANY(%s::uuid[])"
_LINKS_BY_EDGE = f"{LINKS_QUERY} l.says = ANY(%s::uuid[])"
_PARENTS_BY_CHILD = (
    f"SELECT r.age, {RECORD_COLUMNS} FROM records c JOIN records r "
    "ON r.store = c.store AND r.id = c.parent WHERE c.store = %s AND c.id = ANY(%s::text[])"
)
_CHILDREN_BY_PARENT = f"{RECORDS_QUERY} r.parent = ANY(%s::text[]) ORDER BY r.age"
_LINKS_AT_RECORDS = f"{LINKS_QUERY} (l.source = ANY(%s::text[]) OR l.target = ANY(%s::text[])) ORDER BY l.age"

_NAME_FIELDS = ("name_key", "variant")


class StoredView:
    """Stored records and links for a plan: read ahead, or on demand."""

    def __init__(self, cursor: Cursor, place: StorePlace) -> None:
        self._cursor = cursor
        self._place = place
        self._store = place.number
        self.ages: dict[str, int] = {}  # by record id
        self._records: dict[str, Record | None] = {}
        self._links: dict[str, RecordLink | None] = {}
        self._named: dict[UUID, list[Record]] = {}
        self._joined: dict[UUID, list[RecordLink]] = {}
        self._below: dict[str, list[Record]] = {}
        self._at: dict[str, list[RecordLink]] = {}

    def lock_and_read(self, batch: Batch) -> tuple[StoreState, int | None]:
        """Lock the row of the store and read ahead, in one round trip.

        Return the state, and the number of an earlier change with the same key.
        """
        wanted = PrefetchSet()
        wanted.add_batch(batch)
        names = {hash_name(record) for record in wanted.named}
        edges = {hash_edge(link) for link in wanted.joined}
        purge_set = escape_texts(list(wanted.purge_set))
        turn = ask_store_lock(self._cursor, self._place)
        same = self._ask(CHANGE_BY_KEY, *encode_key(batch.key)) if batch.key is not None else None
        records = self._ask_for(_RECORDS_BY_ID, escape_texts(list(wanted.records)))
        links = self._ask_for(_LINKS_BY_ID, escape_texts(list(wanted.links)))
        named = self._ask_for(_RECORDS_BY_NAME, list(names))
        joined = self._ask_for(_LINKS_BY_EDGE, list(edges))
        parents = self._ask_for(_PARENTS_BY_CHILD, escape_texts((*wanted.purge_set, *wanted.returning)))
        family = ask_members(self._cursor, self._store, purge_set) if purge_set else None
        ends = ask_member_links(self._cursor, self._store, purge_set) if purge_set else None
        state = decode_state(self._place, turn.fetchone())
        if done := fetch_rows(same):
            return state, done[0][0]
        self._add_records(wanted.records, fetch_rows(records))
        self._add_records((), fetch_rows(parents))
        self._add_links(wanted.links, fetch_rows(links))
        self._add_named_records(names, fetch_rows(named))
        self._add_edge_links(edges, fetch_rows(joined))
        self._add_descendants(wanted.purge_set, fetch_rows(family), fetch_rows(ends))
        self._read_followups(wanted)
        return state, None

    @property
    def stored_records(self) -> dict[str, Record]:
        """Return the records that were read, by id, in their stored state."""
        return {i: record for i, record in self._records.items() if record is not None}

    async def find_record(self, record_id: str) -> Record | None:
        if record_id not in self._records:
            rows = self._ask(_RECORDS_BY_ID, [escape_text(record_id)]).fetchall()
            self._add_records([record_id], rows)
        return self._records[record_id]

    async def find_link(self, link_id: str) -> RecordLink | None:
        if link_id not in self._links:
            rows = self._ask(_LINKS_BY_ID, [escape_text(link_id)]).fetchall()
            self._add_links([link_id], rows)
        return self._links[link_id]

    async def list_children(self, record_ids: Sequence[str]) -> list[Record]:
        missing = [i for i in record_ids if i not in self._below]
        if missing:
            self._below |= {i: [] for i in missing}
            for row in self._ask(_CHILDREN_BY_PARENT, escape_texts(missing)).fetchall():
                child = self._add_record(row)
                self._below[child.parent or ""].append(child)
        found = [child for i in record_ids for child in self._below[i]]
        return sorted(found, key=lambda child: self.ages[child.id])

    async def list_links(self, record_id: str) -> list[RecordLink]:
        if record_id not in self._at:
            self._at[record_id] = []
            ids = [escape_text(record_id)]
            self._add_end_links(self._ask(_LINKS_AT_RECORDS, ids, ids).fetchall(), {record_id})
        return self._at[record_id]

    async def list_namesakes(self, record: Record) -> list[Record]:
        name = hash_name(record)
        if name not in self._named:
            self._add_named_records([name], self._ask(_RECORDS_BY_NAME, [name]).fetchall())
        return self._named[name]

    async def list_duplicates(self, link: RecordLink) -> list[RecordLink]:
        edge = hash_edge(link)
        if edge not in self._joined:
            self._add_edge_links([edge], self._ask(_LINKS_BY_EDGE, [edge]).fetchall())
        return self._joined[edge]

    def _read_followups(self, wanted: PrefetchSet) -> None:
        """Read the data that the first results show to be needed."""
        names = self._predict_names(wanted) - self._named.keys()
        back = [x for i in wanted.returning_links if (x := self._links[i]) is not None]
        edges = {hash_edge(link) for link in back} - self._joined.keys()
        ends = {end for link in back for end in (link.source, link.target)} - self._records.keys()
        if not (names or edges or ends):
            return
        named = self._ask_for(_RECORDS_BY_NAME, list(names))
        joined = self._ask_for(_LINKS_BY_EDGE, list(edges))
        records = self._ask_for(_RECORDS_BY_ID, escape_texts(list(ends)))
        self._add_named_records(names, fetch_rows(named))
        self._add_edge_links(edges, fetch_rows(joined))
        self._add_records(ends, fetch_rows(records))

    def _predict_names(self, wanted: PrefetchSet) -> set[UUID]:
        """Return the names that stored records will have after the batch."""
        names = {hash_name(r) for i in wanted.returning if (r := self._records[i]) is not None}
        now = dict(self._records)
        for step in wanted.updates:
            record = now[step.id]
            altered = {name: step.values[name] for name in _NAME_FIELDS if name in step.values}
            if record is not None and altered:
                now[step.id] = record = replace(record, **altered)
                names.add(hash_name(record))
        return names

    def _ask(self, statement: str, *values: Any) -> QueryResult:
        return ask(self._cursor, statement, self._store, *values)

    def _ask_for(self, statement: str, wanted: Sequence[Any]) -> QueryResult | None:
        return ask_for(self._cursor, statement, self._store, wanted)

    def _add_records(self, ids: Iterable[str], rows: Iterable[Row]) -> None:
        self._records |= dict.fromkeys(ids)
        for row in rows:
            self._add_record(row)

    def _add_record(self, row: Row) -> Record:
        age, record = decode_aged_record(row)
        self.ages[record.id] = age
        self._records[record.id] = record
        if record.name_key is not None and record.deleted_at is None:
            self._named[hash_name(record)] = [record]  # a name has at most one live record
        return record

    def _add_links(self, ids: Iterable[str], rows: Iterable[Row]) -> None:
        self._links |= dict.fromkeys(ids)
        for row in rows:
            _, link = decode_aged_link(row)
            self._links[link.id] = link

    def _add_named_records(self, names: Iterable[UUID], rows: Iterable[Row]) -> None:
        for name in names:
            self._named.setdefault(name, [])
        for row in rows:
            self._add_record(row)

    def _add_edge_links(self, edges: Iterable[UUID], rows: Iterable[Row]) -> None:
        self._joined |= {edge: [] for edge in edges}
        for row in rows:
            _, link = decode_aged_link(row)
            self._joined[hash_edge(link)].append(link)

    def _add_descendants(self, purge_set: Iterable[str], rows: Sequence[Row], ends: Sequence[Row]) -> None:
        self._records |= dict.fromkeys(purge_set)
        family = [self._add_record(row) for row in rows]
        self._below |= {member.id: [] for member in family}
        for member in family:
            if member.parent is not None and member.parent in self._below:
                self._below[member.parent].append(member)
        self._at |= {member.id: [] for member in family}
        self._add_end_links(ends, {member.id for member in family})

    def _add_end_links(self, rows: Iterable[Row], ids: set[str]) -> None:
        """Add the links at these records, oldest first."""
        for _, link in sorted(map(decode_aged_link, rows), key=lambda aged: aged[0]):
            for end in {link.source, link.target} & ids:
                self._at[end].append(link)


def encode_key(key: str) -> tuple[str, str]:
    """Return the values of CHANGE_BY_KEY. The index holds only the beginning of a key."""
    return escape_text(key)[:INDEX_PREFIX_CHARACTERS], escape_text(key)


class CommitResult(NamedTuple):
    """Change, and the growth of the store."""

    change: Change
    grown: StoreGrowth


def commit(cursor: Cursor, place: StorePlace, batch: Batch) -> CommitResult:
    """Write the batch. Raise Conflict if it contradicts the stored data; the caller rolls back."""
    view = StoredView(cursor, place)
    state, same = view.lock_and_read(batch)
    if same is not None:
        return CommitResult(read_change(cursor, place.number, same), StoreGrowth(0, 0))
    if not batch.late:
        check_open(place, state)
    if batch.revision not in (None, state.seq):
        raise Conflict(
            "The data changed while this write was being prepared.", hint="Try again.", revision=batch.revision
        )
    made = run_without_loop(plan_commit(batch, view))
    seq = state.seq + 1 if made.edits else 0
    change = Change(seq, batch.at, batch.tool, batch.client, batch.undoes, made.edits)
    if made.edits:
        _write(cursor, place, view, state, made, change, batch.key)
    return CommitResult(change, StoreGrowth(state.ages, state.ages + len(made.fresh)))


def _write(
    cursor: Cursor,
    place: StorePlace,
    view: StoredView,
    state: StoreState,
    made: CommitPlan,
    change: Change,
    key: str | None,
) -> None:
    store = place.number
    fresh, fresh_links = assign_ages(made.fresh, state.ages)
    shift = RecordShift(made.before, made.records, {**view.ages, **fresh}, view.stored_records)
    words = compute_words(cursor, store, shift)
    with advance_state(cursor, place, seq=change.seq, ages=state.ages + len(made.fresh)):
        update(cursor, "records", store, _build_record_updates(made, words))
        new = [made.records[record_id] for record_id in fresh]
        insert(
            cursor,
            "records",
            store,
            [{**build_record_columns(r), "age": fresh[r.id], "words": words.get(r.id)} for r in new],
        )
        _write_links(cursor, store, made, fresh_links)
        if made.retold:
            forget_vectors(cursor, store, sorted(made.retold))
        log_changes(cursor, store, [change], key)


def _build_record_updates(made: CommitPlan, words: Mapping[str, str | None]) -> dict[str, dict[str, Any]]:
    """Return the changed columns of each record that was stored before."""
    altered = {
        record_id: diff_columns(build_record_columns(old), build_record_columns(made.records[record_id]))
        for record_id, old in made.before.items()
    }
    for record_id, said in words.items():
        if record_id in altered or record_id not in made.records:
            altered.setdefault(record_id, {})["words"] = said
    for record_id in made.retold & altered.keys():
        altered[record_id]["embedded"] = None
    return altered


def _write_links(cursor: Cursor, store: int, made: CommitPlan, fresh: Mapping[str, int]) -> None:
    altered = {
        link_id: {name: build_link_columns(link)[name] for name in ("deleted_at", "says")}
        for link_id, link in made.links.items()
        if link_id not in fresh
    }
    update(cursor, "links", store, altered)
    new = [{**build_link_columns(made.links[link_id]), "age": age} for link_id, age in fresh.items()]
    insert(cursor, "links", store, new)
