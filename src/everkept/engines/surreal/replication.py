"""Replication: apply a page from another store, including the log and all derived data."""

from collections.abc import Mapping
from typing import Any

from everkept.core.answers import StorePage
from everkept.core.records import Record, RecordLink
from everkept.engines.commit_plan import assign_ages, check_references, is_vector_outdated, list_record_ids
from everkept.engines.stored_text import RecordShift
from everkept.engines.surreal.commit import check_unique
from everkept.engines.surreal.connection import WriteContention
from everkept.engines.surreal.purge import PurgeSet, erase, read_purge_set
from everkept.engines.surreal.queries import build_row_range
from everkept.engines.surreal.rows import (
    Row,
    build_row_id,
    decode_id,
    decode_link,
    decode_record,
    encode_change,
    encode_edits,
    encode_id,
    encode_ids,
    encode_link,
    encode_record,
)
from everkept.engines.surreal.schema import StoreState, StoreTables, TransactionBuilder
from everkept.engines.surreal.search import rewrite_words
from everkept.engines.surreal.vectors import add_vectors, forget_vectors, get_pending_mark
from everkept.values import Value

_OLDER_CHANGES = "SELECT VALUE id FROM change WHERE id < $"


class _PageUpdate(Value, frozen=False):
    """Page to apply, with the stored data that it affects."""

    stock: StorePage
    state: StoreState
    records: dict[str, Record]
    links: dict[str, RecordLink]
    rows: dict[str, Row]  # stored records that the page names
    link_rows: dict[str, Row]
    purge_set: PurgeSet
    last: int  # last number in the log before the part that is replaced

    @property
    def remaining_rows(self) -> dict[str, Row]:
        return {i: row for i, row in self.rows.items() if i not in self.purge_set.records}

    def find_link_row(self, link_id: str) -> Row | None:
        return None if link_id in self.purge_set.links else self.link_rows.get(link_id)


async def apply_page(tables: StoreTables, stock: StorePage) -> None:
    """Apply the page. Raise Conflict if it contradicts the stored data.

    Raise WriteContention if another write came in between.
    """
    work = await _read(tables, stock)
    await _delete_moved_links(tables, work)
    items = (*work.records.values(), *work.links.values())
    check_references(items, work.records.keys() | work.remaining_rows.keys())
    await check_unique(
        tables, work.records.values(), work.links.values(), work.purge_set.records.keys(), work.purge_set.links.keys()
    )
    writing = TransactionBuilder()
    told = [row["id"] for change in stock.changes for row in encode_edits(change)]
    erase(writing, work.state, work.purge_set, told)
    after = await _write(tables, writing, work)
    await _write_log(tables, writing, work)
    # Always advance `moves`, so that the stamp changes.
    writing.moves += 1
    await tables.write(work.state, writing, after, vectors=True)


async def _read(tables: StoreTables, stock: StorePage) -> _PageUpdate:
    records = {record.id: record for record in stock.records}
    links = {link.id: link for link in stock.links}
    state, found = await tables.read(
        records=("SELECT * FROM $", encode_ids("record", list_record_ids(stock))),
        links=("SELECT * FROM $", encode_ids("link", links)),
        older=(_OLDER_CHANGES, build_row_id("change", stock.log_from or 0)),
    )
    return _PageUpdate(
        stock,
        state,
        records,
        links,
        {decode_id(row["id"]): row for row in found["records"]},
        {decode_id(row["id"]): row for row in found["links"]},
        await read_purge_set(tables, stock.gone),
        state.seq if stock.log_from is None else max((change.id for change in found["older"]), default=0),
    )


async def _delete_moved_links(tables: StoreTables, work: _PageUpdate) -> None:
    """Delete links whose ends change, then raise WriteContention to start again.

    The ends of a row never change, and some versions cannot delete and create a row in one transaction.
    """
    moved = [
        row["id"]
        for link_id, row in work.link_rows.items()
        if (old := decode_link(row)) and (new := work.links[link_id])
        if (old.source, old.target) != (new.source, new.target)
    ]
    if moved:
        writing = TransactionBuilder()
        writing.delete(moved)
        await tables.write(work.state, writing, {"turn": work.state.turn + 1})
        raise WriteContention("links have other ends")


async def _write(tables: StoreTables, writing: TransactionBuilder, work: _PageUpdate) -> dict[str, Any]:
    """Write records, links, words, accesses and vectors. Return the new state."""
    state = work.state
    there = work.remaining_rows
    new = [r.ref for r in work.records.values() if r.id not in there]
    new += [x.ref for x in work.links.values() if work.find_link_row(x.id) is None]
    ages = assign_ages(new, state.ages)
    rows = {
        record_id: _encode_record_row(record, there.get(record_id), ages.records.get(record_id, 0))
        for record_id, record in work.records.items()
    }
    writing.put(list(rows.values()))
    _write_links(writing, work, ages.links)
    stayed = {i: decode_record(there[i]) for i in work.records if i in there}
    retold = [i for i, old in stayed.items() if is_vector_outdated(old, work.records[i])]
    forget_vectors(writing, state, retold)
    _update_vector_rows(writing, state, stayed, work.records)
    before = work.purge_set.decode_records() | stayed
    known = {i: row["age"] for i, row in {**work.rows, **work.purge_set.records, **rows}.items()}
    await rewrite_words(tables, RecordShift(before, work.records, known), writing)
    now = there | rows
    _write_accesses(writing, work.stock, now)
    numbers = [work.last, *(change.seq for change in work.stock.changes)]
    return {
        "seq": max(numbers),
        "turn": state.turn + 1,
        "ages": state.ages + len(new),
        "models": await _add_vectors(tables, writing, work, now),
    }


def _encode_record_row(record: Record, old: Row | None, age: int) -> dict[str, Any]:
    row = {**encode_record(record), "age": old["age"] if old else age, "embedded": get_pending_mark(record.text)}
    # The text is unchanged, so the vector is still valid.
    if old and not is_vector_outdated(decode_record(old), record):
        row["embedded"] = old.get("embedded")
    return row


def _write_links(writing: TransactionBuilder, work: _PageUpdate, ages: Mapping[str, int]) -> None:
    rows = {
        link.id: {**encode_link(link), "age": ages.get(link.id) or work.link_rows[link.id]["age"]}
        for link in work.links.values()
    }
    fresh = [row for link_id, row in rows.items() if link_id not in work.link_rows]
    writing.insert("link", fresh, relation="RELATION")
    writing.keep(row["id"] for row in rows.values())
    for link_id, row in rows.items():
        if link_id in work.link_rows:
            fields = {name: value for name, value in row.items() if name not in ("id", "in", "out")}
            writing.merge([(row["id"], fields)])


def _update_vector_rows(
    writing: TransactionBuilder, state: StoreState, before: Mapping[str, Record], after: Mapping[str, Record]
) -> None:
    """Update kind and parent in the rows of vectors."""
    for record_id, old in before.items():
        new = after[record_id]
        if (old.kind, old.parent) != (new.kind, new.parent):
            row = encode_record(new)
            fields = {name: row[name] for name in ("kind", "parent")}
            writing.merge([(encode_id(model.table, record_id), fields) for model in state.models])


def _write_accesses(writing: TransactionBuilder, stock: StorePage, rows: Mapping[str, Row]) -> None:
    writing.put(
        [
            {
                "id": encode_id("access", record_id),
                "of": rows[record_id]["id"],
                "count": known.count,
                "last_at": known.last_at,
            }
            for record_id, known in stock.accesses.items()
            if record_id in rows
        ]
    )


async def _add_vectors(
    tables: StoreTables, writing: TransactionBuilder, work: _PageUpdate, rows: dict[str, Row]
) -> list[dict[str, Any]]:
    models = {model.table: model for model in work.state.models}
    for model, items in work.stock.vectors.items():
        fitting = {e.id: e for e in items if e.id in rows and rows[e.id]["version"] == e.version}
        await add_vectors(tables, models, writing, model, list(fitting.values()), rows)
    return [model.to_row() for model in models.values()]


async def _write_log(tables: StoreTables, writing: TransactionBuilder, work: _PageUpdate) -> None:
    """Overwrite rows that remain, because some versions cannot delete and create a row in one transaction."""
    changes = work.stock.changes
    heads = {change.seq: encode_change(change) for change in changes}
    edits = {tuple(row["id"].id): row for change in changes for row in encode_edits(change)}
    cut = work.stock.log_from
    first = min([*heads, work.state.seq + 1 if cut is None else cut])
    if first <= work.state.seq:
        old, told = await tables.ask_all(
            [
                f"SELECT VALUE id FROM {build_row_range(tables, 'change', '$seq..')}",
                f"SELECT VALUE id FROM {build_row_range(tables, 'edit', '$edit..')}",
            ],
            {"seq": first, "edit": [first, 0]},
        )
        writing.delete([x for x in old if x.id not in heads and _is_cut(x.id, cut)])
        writing.delete([x for x in told if tuple(x.id) not in edits and (x.id[0] in heads or _is_cut(x.id[0], cut))])
    writing.put(list(heads.values()))
    writing.put(list(edits.values()))


def _is_cut(seq: int, cut: int | None) -> bool:
    return cut is not None and seq >= cut
