"""One commit: read what its steps are about, plan, and write all of it in one transaction."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from everkept.core.records import Batch, Change, Link, Record
from everkept.core.runtime import driven
from everkept.engines.commit_plan import Foreseen, Plan, ages_of, plan
from everkept.engines.postgres.indexes import Growth
from everkept.engines.postgres.queries import change_numbered
from everkept.engines.postgres.rows import RECORD_COLUMNS, Row, edge_hash, kept, kept_all, name_hash
from everkept.engines.postgres.schema import PREFIX
from everkept.engines.postgres.statements import Answer, Cursor, ask, ask_for, rows_of
from everkept.engines.postgres.vectors import forget_vectors
from everkept.engines.postgres.writes import (
    LINKS,
    RECORDS,
    State,
    StorePlace,
    aged_link,
    aged_record,
    changed_columns,
    check_open,
    found_state,
    insert,
    link_columns,
    links_at_members,
    log,
    members,
    new_words,
    record_columns,
    take,
    update,
    written,
)
from everkept.engines.stored_text import Shift
from everkept.errors import Conflict
from everkept.values import replace

SAME = f"SELECT seq FROM changes WHERE store = %s AND left(key, {PREFIX}) = %s AND key = %s"
_BY_ID = f"{RECORDS} r.id = ANY(%s::text[])"
_LINKS_BY_ID = f"{LINKS} l.id = ANY(%s::text[])"
_NAMED = f"{RECORDS} r.stands_for = ANY(%s::uuid[])"
_JOINED = f"{LINKS} l.says = ANY(%s::uuid[])"
_PARENTS = (
    f"SELECT r.age, {RECORD_COLUMNS} FROM records c JOIN records r "
    "ON r.store = c.store AND r.id = c.parent WHERE c.store = %s AND c.id = ANY(%s::text[])"
)
_BELOW = f"{RECORDS} r.parent = ANY(%s::text[]) ORDER BY r.age"
_AT = f"{LINKS} (l.source = ANY(%s::text[]) OR l.target = ANY(%s::text[])) ORDER BY l.age"

_NAMING = ("name_key", "variant")


class StoredView:
    """The records and links that were read, and where a plan asks for more, those."""

    def __init__(self, cursor: Cursor, place: StorePlace) -> None:
        self._cursor = cursor
        self._place = place
        self._store = place.number
        self.ages: dict[str, int] = {}  # of the records that were read
        self._records: dict[str, Record | None] = {}
        self._links: dict[str, Link | None] = {}
        self._named: dict[UUID, list[Record]] = {}
        self._joined: dict[UUID, list[Link]] = {}
        self._below: dict[str, list[Record]] = {}
        self._at: dict[str, list[Link]] = {}

    def take_turn(self, batch: Batch) -> tuple[State, int | None]:
        """Takes the store's row and reads ahead, in one go.

        Gives the state, and the number of the change that has the key of the batch already.
        """
        wanted = Foreseen()
        wanted.note(batch)
        names = {name_hash(record) for record in wanted.named}
        edges = {edge_hash(link) for link in wanted.joined}
        doomed = kept_all(list(wanted.doomed))
        turn = take(self._cursor, self._place)
        same = self._ask(SAME, *key_values(batch.key)) if batch.key is not None else None
        records = self._ask_for(_BY_ID, kept_all(list(wanted.records)))
        links = self._ask_for(_LINKS_BY_ID, kept_all(list(wanted.links)))
        named = self._ask_for(_NAMED, list(names))
        joined = self._ask_for(_JOINED, list(edges))
        parents = self._ask_for(_PARENTS, kept_all((*wanted.doomed, *wanted.returning)))
        family = members(self._cursor, self._store, doomed) if doomed else None
        ends = links_at_members(self._cursor, self._store, doomed) if doomed else None
        state = found_state(self._place, turn.fetchone())
        if done := rows_of(same):
            return state, done[0][0]
        self._take_in(wanted.records, rows_of(records))
        self._take_in((), rows_of(parents))
        self._take_in_links(wanted.links, rows_of(links))
        self._take_in_named(names, rows_of(named))
        self._take_in_joined(edges, rows_of(joined))
        self._take_in_family(wanted.doomed, rows_of(family), rows_of(ends))
        self._read_behind(wanted)
        return state, None

    @property
    def known(self) -> dict[str, Record]:
        """The records that were read, as they are stored."""
        return {i: record for i, record in self._records.items() if record is not None}

    async def record(self, record_id: str) -> Record | None:
        if record_id not in self._records:
            rows = self._ask(_BY_ID, [kept(record_id)]).fetchall()
            self._take_in([record_id], rows)
        return self._records[record_id]

    async def link(self, link_id: str) -> Link | None:
        if link_id not in self._links:
            rows = self._ask(_LINKS_BY_ID, [kept(link_id)]).fetchall()
            self._take_in_links([link_id], rows)
        return self._links[link_id]

    async def children(self, record_ids: Sequence[str]) -> list[Record]:
        missing = [i for i in record_ids if i not in self._below]
        if missing:
            self._below |= {i: [] for i in missing}
            for row in self._ask(_BELOW, kept_all(missing)).fetchall():
                child = self._met(row)
                self._below[child.parent or ""].append(child)
        found = [child for i in record_ids for child in self._below[i]]
        return sorted(found, key=lambda child: self.ages[child.id])

    async def links_at(self, record_id: str) -> list[Link]:
        if record_id not in self._at:
            self._at[record_id] = []
            ids = [kept(record_id)]
            self._take_in_ends(self._ask(_AT, ids, ids).fetchall(), {record_id})
        return self._at[record_id]

    async def namesakes(self, record: Record) -> list[Record]:
        name = name_hash(record)
        if name not in self._named:
            self._take_in_named([name], self._ask(_NAMED, [name]).fetchall())
        return self._named[name]

    async def doubles(self, link: Link) -> list[Link]:
        edge = edge_hash(link)
        if edge not in self._joined:
            self._take_in_joined([edge], self._ask(_JOINED, [edge]).fetchall())
        return self._joined[edge]

    def _read_behind(self, wanted: Foreseen) -> None:
        """What is known to be asked for only once the first answers are there."""
        names = self._names_to_come(wanted) - self._named.keys()
        back = [x for i in wanted.returning_links if (x := self._links[i]) is not None]
        edges = {edge_hash(link) for link in back} - self._joined.keys()
        ends = {end for link in back for end in (link.source, link.target)} - self._records.keys()
        if not (names or edges or ends):
            return
        named = self._ask_for(_NAMED, list(names))
        joined = self._ask_for(_JOINED, list(edges))
        records = self._ask_for(_BY_ID, kept_all(list(ends)))
        self._take_in_named(names, rows_of(named))
        self._take_in_joined(edges, rows_of(joined))
        self._take_in(ends, rows_of(records))

    def _names_to_come(self, wanted: Foreseen) -> set[UUID]:
        """Those that records will have which are there already."""
        names = {name_hash(r) for i in wanted.returning if (r := self._records[i]) is not None}
        now = dict(self._records)
        for step in wanted.updates:
            record = now[step.id]
            altered = {name: step.values[name] for name in _NAMING if name in step.values}
            if record is not None and altered:
                now[step.id] = record = replace(record, **altered)
                names.add(name_hash(record))
        return names

    def _ask(self, statement: str, *values: Any) -> Answer:
        return ask(self._cursor, statement, self._store, *values)

    def _ask_for(self, statement: str, wanted: Sequence[Any]) -> Answer | None:
        return ask_for(self._cursor, statement, self._store, wanted)

    def _take_in(self, ids: Iterable[str], rows: Iterable[Row]) -> None:
        self._records |= dict.fromkeys(ids)
        for row in rows:
            self._met(row)

    def _met(self, row: Row) -> Record:
        age, record = aged_record(row)
        self.ages[record.id] = age
        self._records[record.id] = record
        if record.name_key is not None and record.deleted_at is None:
            self._named[name_hash(record)] = [record]  # there is no other
        return record

    def _take_in_links(self, ids: Iterable[str], rows: Iterable[Row]) -> None:
        self._links |= dict.fromkeys(ids)
        for row in rows:
            _, link = aged_link(row)
            self._links[link.id] = link

    def _take_in_named(self, names: Iterable[UUID], rows: Iterable[Row]) -> None:
        for name in names:
            self._named.setdefault(name, [])
        for row in rows:
            self._met(row)

    def _take_in_joined(self, edges: Iterable[UUID], rows: Iterable[Row]) -> None:
        self._joined |= {edge: [] for edge in edges}
        for row in rows:
            _, link = aged_link(row)
            self._joined[edge_hash(link)].append(link)

    def _take_in_family(
        self, doomed: Iterable[str], rows: Sequence[Row], ends: Sequence[Row]
    ) -> None:
        self._records |= dict.fromkeys(doomed)
        family = [self._met(row) for row in rows]
        self._below |= {member.id: [] for member in family}
        for member in family:
            if member.parent is not None and member.parent in self._below:
                self._below[member.parent].append(member)
        self._at |= {member.id: [] for member in family}
        self._take_in_ends(ends, {member.id for member in family})

    def _take_in_ends(self, rows: Iterable[Row], ids: set[str]) -> None:
        """The links at these records, the oldest first."""
        for _, link in sorted(map(aged_link, rows), key=lambda aged: aged[0]):
            for end in {link.source, link.target} & ids:
                self._at[end].append(link)


def key_values(key: str) -> tuple[str, str]:
    """What SAME asks for: the beginning is in the index."""
    return kept(key)[:PREFIX], kept(key)


class Committed(NamedTuple):
    """A change, and what became of the store by it."""

    change: Change
    grown: Growth


def commit(cursor: Cursor, place: StorePlace, batch: Batch) -> Committed:
    """Raises Conflict where the batch does not fit what is stored; the caller rolls back."""
    view = StoredView(cursor, place)
    state, same = view.take_turn(batch)
    if same is not None:
        return Committed(change_numbered(cursor, place.number, same), Growth(0, 0))
    check_open(place, state)
    if batch.revision not in (None, state.seq):
        raise Conflict("Something else was stored meanwhile.", revision=batch.revision)
    made = driven(plan(batch, view))
    seq = state.seq + 1 if made.edits else 0
    change = Change(seq, batch.at, batch.tool, batch.client, batch.undoes, made.edits)
    if made.edits:
        _write(cursor, place, view, state, made, change, batch.key)
    return Committed(change, Growth(state.ages, state.ages + len(made.fresh)))


def _write(
    cursor: Cursor,
    place: StorePlace,
    view: StoredView,
    state: State,
    made: Plan,
    change: Change,
    key: str | None,
) -> None:
    store = place.number
    fresh, fresh_links = ages_of(made.fresh, state.ages)
    shift = Shift(made.before, made.records, {**view.ages, **fresh}, view.known)
    words = new_words(cursor, store, shift)
    with written(cursor, place, seq=change.seq, ages=state.ages + len(made.fresh)):
        update(cursor, "records", store, _altered(made, words))
        new = [made.records[record_id] for record_id in fresh]
        insert(
            cursor,
            "records",
            store,
            [{**record_columns(r), "age": fresh[r.id], "words": words.get(r.id)} for r in new],
        )
        _write_links(cursor, store, made, fresh_links)
        if made.retold:
            forget_vectors(cursor, store, sorted(made.retold))
        log(cursor, store, [change], key)


def _altered(made: Plan, words: Mapping[str, str | None]) -> dict[str, dict[str, Any]]:
    """The columns that are others now, of all records that were there."""
    altered = {
        record_id: changed_columns(record_columns(old), record_columns(made.records[record_id]))
        for record_id, old in made.before.items()
    }
    for record_id, said in words.items():
        if record_id in altered or record_id not in made.records:
            altered.setdefault(record_id, {})["words"] = said
    for record_id in made.retold & altered.keys():
        altered[record_id]["embedded"] = None
    return altered


def _write_links(cursor: Cursor, store: int, made: Plan, fresh: Mapping[str, int]) -> None:
    altered = {
        link_id: {name: link_columns(link)[name] for name in ("deleted_at", "says")}
        for link_id, link in made.links.items()
        if link_id not in fresh
    }
    update(cursor, "links", store, altered)
    new = [{**link_columns(made.links[link_id]), "age": age} for link_id, age in fresh.items()]
    insert(cursor, "links", store, new)
