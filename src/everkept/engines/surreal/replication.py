"""Making things what they are elsewhere: rows, log and all that is derived from them."""

from collections.abc import Mapping
from typing import Any

from everkept.core.answers import Stock
from everkept.core.records import Link, Record
from everkept.engines.commit_plan import ages_of, check_belonging, is_retold, records_of
from everkept.engines.stored_text import Shift
from everkept.engines.surreal.commit import check_unique
from everkept.engines.surreal.connection import Contended
from everkept.engines.surreal.purge import Belongings, belongings, erase
from everkept.engines.surreal.queries import rows_from
from everkept.engines.surreal.rows import (
    Row,
    change_to,
    edits_to,
    id_of,
    link_from,
    link_to,
    numbered,
    record_from,
    record_to,
    thing,
    things,
)
from everkept.engines.surreal.schema import State, Tables, Writing
from everkept.engines.surreal.search import rewrite_words
from everkept.engines.surreal.vectors import add_vectors, forget_vectors, waiting
from everkept.values import Value

_OLDER = "SELECT VALUE id FROM change WHERE id < $"


class _Restocking(Value, frozen=False):
    """What is to be, what is there of it, and what goes."""

    stock: Stock
    state: State
    records: dict[str, Record]
    links: dict[str, Link]
    rows: dict[str, Row]  # of these records, of what they belong to, and of what has a vector
    link_rows: dict[str, Row]
    doomed: Belongings
    last: int  # of the log, without what goes

    @property
    def staying(self) -> dict[str, Row]:
        return {i: row for i, row in self.rows.items() if i not in self.doomed.records}

    def link_stays(self, link_id: str) -> Row | None:
        return None if link_id in self.doomed.links else self.link_rows.get(link_id)


async def restock(tables: Tables, stock: Stock) -> None:
    """Raises Conflict, and Contended where another came in between."""
    work = await _read(tables, stock)
    await _let_go_of_moved_links(tables, work)
    items = (*work.records.values(), *work.links.values())
    check_belonging(items, work.records.keys() | work.staying.keys())
    await check_unique(
        tables,
        work.records.values(),
        work.links.values(),
        work.doomed.records.keys(),
        work.doomed.links.keys(),
    )
    writing = Writing()
    told = [row["id"] for change in stock.changes for row in edits_to(change)]
    erase(writing, work.state, work.doomed, told)
    after = await _write(tables, writing, work)
    await _write_log(tables, writing, work)
    # As if a vector had come: whoever asks for the stamp sees another one.
    writing.moves += 1
    await tables.write(work.state, writing, after, vectors=True)


async def _read(tables: Tables, stock: Stock) -> _Restocking:
    records = {record.id: record for record in stock.records}
    links = {link.id: link for link in stock.links}
    state, found = await tables.read(
        records=("SELECT * FROM $", things("record", records_of(stock))),
        links=("SELECT * FROM $", things("link", links)),
        older=(_OLDER, numbered("change", stock.log_from or 0)),
    )
    return _Restocking(
        stock,
        state,
        records,
        links,
        {id_of(row["id"]): row for row in found["records"]},
        {id_of(row["id"]): row for row in found["links"]},
        await belongings(tables, stock.gone),
        state.seq
        if stock.log_from is None
        else max((change.id for change in found["older"]), default=0),
    )


async def _let_go_of_moved_links(tables: Tables, work: _Restocking) -> None:
    """Ends of a row never change, nor can it go and come in one transaction in every version.

    So one whose ends are others goes first, and all begins anew.
    """
    moved = [
        row["id"]
        for link_id, row in work.link_rows.items()
        if (old := link_from(row)) and (new := work.links[link_id])
        if (old.source, old.target) != (new.source, new.target)
    ]
    if moved:
        writing = Writing()
        writing.delete(moved)
        await tables.write(work.state, writing, {"turn": work.state.turn + 1})
        raise Contended("links have other ends")


async def _write(tables: Tables, writing: Writing, work: _Restocking) -> dict[str, Any]:
    """The state afterwards."""
    state = work.state
    there = work.staying
    new = [r.ref for r in work.records.values() if r.id not in there]
    new += [x.ref for x in work.links.values() if work.link_stays(x.id) is None]
    ages = ages_of(new, state.ages)
    rows = {
        record_id: _row(record, there.get(record_id), ages.records.get(record_id, 0))
        for record_id, record in work.records.items()
    }
    writing.put(list(rows.values()))
    _write_links(writing, work, ages.links)
    stayed = {i: record_from(there[i]) for i in work.records if i in there}
    retold = [i for i, old in stayed.items() if is_retold(old, work.records[i])]
    forget_vectors(writing, state, retold)
    _follow(writing, state, stayed, work.records)
    before = work.doomed.before() | stayed
    known = {i: row["age"] for i, row in {**work.rows, **work.doomed.records, **rows}.items()}
    await rewrite_words(tables, Shift(before, work.records, known), writing)
    now = there | rows
    _write_accesses(writing, work.stock, now)
    numbers = [work.last, *(change.seq for change in work.stock.changes)]
    return {
        "seq": max(numbers),
        "turn": state.turn + 1,
        "ages": state.ages + len(new),
        "models": await _add_vectors(tables, writing, work, now),
    }


def _row(record: Record, old: Row | None, age: int) -> dict[str, Any]:
    row = {**record_to(record), "age": old["age"] if old else age, "embedded": waiting(record.text)}
    # The vector of the words that it had is that of the words that it has.
    if old and not is_retold(record_from(old), record):
        row["embedded"] = old.get("embedded")
    return row


def _write_links(writing: Writing, work: _Restocking, ages: Mapping[str, int]) -> None:
    rows = {
        link.id: {**link_to(link), "age": ages.get(link.id) or work.link_rows[link.id]["age"]}
        for link in work.links.values()
    }
    fresh = [row for link_id, row in rows.items() if link_id not in work.link_rows]
    writing.insert("link", fresh, relation="RELATION")
    writing.keep(row["id"] for row in rows.values())
    for link_id, row in rows.items():
        if link_id in work.link_rows:
            fields = {name: value for name, value in row.items() if name not in ("id", "in", "out")}
            writing.merge([(row["id"], fields)])


def _follow(
    writing: Writing, state: State, before: Mapping[str, Record], after: Mapping[str, Record]
) -> None:
    """What stands beside a vector, where it is another one now."""
    for record_id, old in before.items():
        new = after[record_id]
        if (old.kind, old.parent) != (new.kind, new.parent):
            row = record_to(new)
            fields = {name: row[name] for name in ("kind", "parent")}
            writing.merge([(thing(model.table, record_id), fields) for model in state.models])


def _write_accesses(writing: Writing, stock: Stock, rows: Mapping[str, Row]) -> None:
    writing.put(
        [
            {
                "id": thing("access", record_id),
                "of": rows[record_id]["id"],
                "count": known.count,
                "last_at": known.last_at,
            }
            for record_id, known in stock.accesses.items()
            if record_id in rows
        ]
    )


async def _add_vectors(
    tables: Tables, writing: Writing, work: _Restocking, rows: dict[str, Row]
) -> list[dict[str, Any]]:
    models = {model.table: model for model in work.state.models}
    for model, items in work.stock.vectors.items():
        fitting = {e.id: e for e in items if e.id in rows and rows[e.id]["version"] == e.version}
        await add_vectors(tables, models, writing, model, list(fitting.values()), rows)
    return [model.row() for model in models.values()]


async def _write_log(tables: Tables, writing: Writing, work: _Restocking) -> None:
    """Rows that stay are written over: none goes and comes in one transaction."""
    changes = work.stock.changes
    heads = {change.seq: change_to(change) for change in changes}
    edits = {tuple(row["id"].id): row for change in changes for row in edits_to(change)}
    cut = work.stock.log_from
    first = min([*heads, work.state.seq + 1 if cut is None else cut])
    if first <= work.state.seq:
        old, told = await tables.ask_all(
            [
                f"SELECT VALUE id FROM {rows_from(tables, 'change', '$seq..')}",
                f"SELECT VALUE id FROM {rows_from(tables, 'edit', '$edit..')}",
            ],
            {"seq": first, "edit": [first, 0]},
        )
        writing.delete([x for x in old if x.id not in heads and _is_cut(x.id, cut)])
        writing.delete(
            [
                x
                for x in told
                if tuple(x.id) not in edits and (x.id[0] in heads or _is_cut(x.id[0], cut))
            ]
        )
    writing.put(list(heads.values()))
    writing.put(list(edits.values()))


def _is_cut(seq: int, cut: int | None) -> bool:
    return cut is not None and seq >= cut
