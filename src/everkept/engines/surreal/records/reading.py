"""The questions of the port as SurrealQL, each in few statements."""

from collections.abc import Mapping, Sequence
from typing import Any

from everkept.core.ports import Access, Direction, Order, Seen, Tally
from everkept.core.records import Change, Edit, Link, Match, Record, Ref, Where
from everkept.engines.surreal.records.filters import conditions, source
from everkept.engines.surreal.records.paging import Question, every
from everkept.engines.surreal.records.rows import (
    Row,
    change_from,
    edit_from,
    given,
    id_of,
    kept,
    link_from,
    numbered,
    record_from,
    thing,
    things,
)
from everkept.engines.surreal.records.tables import Tables
from everkept.values import replace

_SORTING = {"name": "name_key, variant, age", "age": "age", "newest": "age DESC"}
_SIDES: Mapping[Direction, tuple[str, ...]] = {
    "out": ("->",),
    "in": ("<-",),
    "both": ("->", "<-"),
}
_NUMBERED = {False: "thing", True: "record"}  # by dialect: how an id is made of its parts


async def get_records(tables: Tables, ids: Sequence[str], *, include_deleted: bool) -> list[Record]:
    if not ids:
        return []
    rows = await tables.ask("SELECT * FROM $ids", ids=things("record", ids))
    return [record_from(row) for row in rows if include_deleted or row.get("deleted_at") is None]


async def get_links(tables: Tables, ids: Sequence[str], *, include_deleted: bool) -> list[Link]:
    if not ids:
        return []
    rows = await tables.ask("SELECT * FROM $ids", ids=things("link", ids))
    return [link_from(row) for row in rows if include_deleted or row.get("deleted_at") is None]


async def scan(
    tables: Tables, where: Where, order: Order, after: Seen | None, limit: int | None
) -> list[Record]:
    wanted = conditions(where)
    if isinstance(after, str):
        age = await tables.ask("SELECT VALUE age FROM $id", id=[thing("record", after)])
        if not age:
            return []
        wanted.add(f"age {'<' if order == 'newest' else '>'} $age", age=age[0])
    elif after is not None:
        wanted.add("[name_key, variant] > $seen", seen=[kept(part) for part in after])
    if order == "name":
        wanted.add("name_key IS NOT NONE")
    question = Question("*", source(where), wanted.text, wanted.values, _SORTING[order])
    return [record_from(row) for row in await every(tables, question, _most(limit))]


async def containing(tables: Tables, text: str, where: Where, limit: int) -> list[Match]:
    where = replace(where, deleted=False)
    wanted = conditions(where)
    parts = [f"string::lowercase({name} ?? '') CONTAINS $part" for name in ("name", "type", "text")]
    rows = await tables.ask(
        f"SELECT id, parent, age, {parts[0]} AS named FROM {source(where)} "
        f"WHERE {wanted.text} AND ({' OR '.join(parts)}) ORDER BY named DESC, age{_at_most(limit)}",
        part=kept(text.lower()),
        **wanted.values,
    )
    return [Match(id_of(row["id"]), parent_of(row), 1.0 + row["named"]) for row in rows]


async def links(
    tables: Tables,
    ids: Sequence[str],
    direction: Direction,
    sources: Sequence[str],
    limit: int | None,
) -> list[Link]:
    if not ids:
        return []
    kinds = " AND in.kind IN $kinds" if sources else ""
    sides = [
        f"{side}(link WHERE deleted_at IS NONE{kinds}).* AS s{number}"
        for number, side in enumerate(_SIDES[direction])
    ]
    rows = await tables.ask(
        f"SELECT {', '.join(sides)} FROM $ids",
        ids=things("record", ids),
        kinds=[kept(kind) for kind in sources],
    )
    found = {id_of(link["id"]): link for row in rows for side in row.values() for link in side}
    ordered = sorted(found.values(), key=lambda link: (link["created_at"], link["age"]))
    return [link_from(link) for link in ordered[: _most(limit)]]


async def scan_links(tables: Tables, deleted: bool | None, containing: str) -> list[Link]:
    state = {None: "true", False: "deleted_at IS NONE", True: "deleted_at IS NOT NONE"}[deleted]
    condition = f"{state} AND string::lowercase(verb) CONTAINS $part"
    question = Question("*", "link", condition, {"part": kept(containing.lower())}, "age")
    return [link_from(row) for row in await every(tables, question)]


async def count(tables: Tables) -> dict[str, int]:
    kinds, links = await tables.ask_all(
        [
            "SELECT kind, count() AS count FROM record WHERE deleted_at IS NONE GROUP BY kind",
            "SELECT count() AS count FROM link WHERE deleted_at IS NONE GROUP ALL",
        ],
        {},
    )
    return {**{given(row["kind"]): row["count"] for row in kinds}, "link": _counted(links)}


async def how_many(tables: Tables, where: Where) -> int:
    wanted = conditions(where)
    return _counted(
        await tables.ask(
            f"SELECT count() AS count FROM {source(where)} WHERE {wanted.text} GROUP ALL",
            **wanted.values,
        )
    )


async def tally(tables: Tables, kinds: Sequence[str]) -> list[Tally]:
    rows = await tables.ask(
        "SELECT kind, scope, type, deleted_at IS NOT NONE AS gone, count() AS count FROM record "
        "WHERE kind IN $kinds GROUP BY kind, scope, type, gone",
        kinds=[kept(kind) for kind in dict.fromkeys(kinds)],
    )
    return [
        Tally(
            given(row["kind"]), given(row["scope"]), _text(row["type"]), row["gone"], row["count"]
        )
        for row in rows
    ]


async def scopes(tables: Tables, kind: str) -> list[str]:
    rows = await tables.ask(
        "SELECT scope FROM record WHERE kind = $kind AND deleted_at IS NONE GROUP BY scope",
        kind=kept(kind),
    )
    return sorted(given(row["scope"]) for row in rows)


async def authors(tables: Tables) -> list[str]:
    rows = await tables.ask(
        "SELECT author FROM record WHERE author IS NOT NONE AND author != '' "
        "AND deleted_at IS NONE GROUP BY author"
    )
    return sorted(given(row["author"]) for row in rows)


async def changes(
    tables: Tables, after: int, limit: int, *, newest_first: bool, most_edits: int | None
) -> list[Change]:
    await tables.ready()
    if newest_first:
        heads = await _newest_heads(tables, after, limit)
    else:
        heads = await tables.ask(
            f"SELECT * FROM {rows_from(tables, 'change', '$first..')} ORDER BY id{_at_most(limit)}",
            first=after + 1,
        )
    if most_edits is not None and heads:  # edits are numbered from 0
        last = [numbered("edit", [head["id"].id, most_edits]) for head in heads]
        large = {row["id"].id[0] for row in await tables.ask("SELECT id FROM $last", last=last)}
        heads = [head for head in heads if head["id"].id not in large]
    return await with_edits(tables, heads)


async def _newest_heads(tables: Tables, after: int, limit: int) -> list[Row]:
    """From the end, some at a time: version 3 cuts a range before it turns it round."""
    heads: list[Row] = []
    last, many = (await tables.state()).seq, limit
    while last > after and len(heads) < limit:
        first = max(after, last - many)
        rows = await tables.ask(
            f"SELECT * FROM {rows_from(tables, 'change', '$first..$last')}",
            first=first + 1,
            last=last + 1,
        )
        heads += sorted(rows, key=lambda row: -row["id"].id)
        last, many = first, 4 * many  # there are gaps where a copy was made
    return heads[:limit]


async def with_edits(tables: Tables, heads: Sequence[Row]) -> list[Change]:
    """The changes that these rows are."""
    if not heads:
        return []
    numbers = [head["id"].id for head in heads]
    rows = await tables.ask(
        f"SELECT * FROM {rows_from(tables, 'edit', '$first..$last')} ORDER BY id",
        first=[min(numbers), 0],
        last=[max(numbers) + 1, 0],
    )
    edits: dict[int, list[Row]] = {number: [] for number in numbers}
    for row in rows:
        number = row["id"].id[0]
        if number in edits:
            edits[number].append(row)
    return [change_from(head, edits[head["id"].id]) for head in heads]


async def history(tables: Tables, refs: Sequence[Ref], after: int) -> list[tuple[int, Edit]]:
    if not refs:
        return []
    rows = await tables.ask(
        "SELECT * FROM edit WITH INDEX edit_item WHERE item IN $items AND id >= $seen ORDER BY id",
        items=[kept(item) for item in dict.fromkeys(ref.id for ref in refs)],
        seen=numbered("edit", [after + 1, 0]),
    )
    wanted = set(refs)
    edits = [(row["id"].id[0], edit_from(row)) for row in rows]
    return [(seq, edit) for seq, edit in edits if Ref(edit.subject, edit.id or "") in wanted]


async def accesses(tables: Tables, ids: Sequence[str]) -> dict[str, Access]:
    if not ids:
        return {}
    rows = await tables.ask("SELECT * FROM $ids", ids=things("access", ids))
    return {id_of(row["id"]): Access(row["count"], row["last_at"]) for row in rows}


async def most_accessed(tables: Tables, limit: int) -> dict[str, Access]:
    rows = await tables.ask(
        "SELECT * FROM access WHERE of.age IS NOT NONE AND of.deleted_at IS NONE "
        f"ORDER BY count DESC, last_at DESC, id{_at_most(limit)}"
    )
    return {id_of(row["id"]): Access(row["count"], row["last_at"]) for row in rows}


async def note_accesses(tables: Tables, counts: Mapping[str, int], at: int) -> None:
    rows = [
        {"id": thing("access", record_id), "of": thing("record", record_id), "count": count}
        for record_id, count in counts.items()
    ]
    await tables.alter(
        "FOR $row IN $rows { IF record::exists($row.of) { UPSERT $row.id SET of = $row.of, "
        "count = (count ?? 0) + $row.count, last_at = math::max([last_at ?? $at, $at]) } }",
        rows=rows,
        at=at,
    )


def parent_of(row: Row) -> str | None:
    return None if row.get("parent") is None else id_of(row["parent"])


def rows_from(tables: Tables, table: str, ids: str) -> str:
    """What a statement writes for the rows of a range of ids, or of one."""
    return f"type::{_NUMBERED[tables.is_modern]}('{table}', {ids})"


def _text(value: Any) -> str | None:
    return None if value is None else given(value)


def _counted(rows: Sequence[Row]) -> int:
    return rows[0]["count"] if rows else 0


def _most(limit: int | None) -> int | None:
    return None if limit is None or limit < 0 else limit


def _at_most(limit: int | None) -> str:
    most = _most(limit)
    return "" if most is None else f" LIMIT {most}"
