"""The questions of the port as SQL, each in one statement."""

from collections.abc import Mapping, Sequence
from functools import cache
from itertools import product
from typing import Any

from everkept.core import questions
from everkept.core.ports import Direction, Order, Seen
from everkept.core.records import Link, Match, Record, Where
from everkept.core.subgraphs import Subgraph, assemble, cut, other_ends
from everkept.engines.postgres.connecting.database import Cursor
from everkept.engines.postgres.records.asking import ask_last, most
from everkept.engines.postgres.records.filters import Conditions, conditions
from everkept.engines.postgres.records.rows import (
    LINK_COLUMNS,
    RECORD_COLUMNS,
    given,
    kept,
    kept_all,
    link_from,
    record_from,
)
from everkept.engines.postgres.records.schema import PREFIX
from everkept.values import replace

# By name: the beginning is what an index has, and the rest sorts those few that share it.
_NAME = f"left(r.name_key, {PREFIX})"
_SORTING = {
    "name": f"{_NAME}, r.name_key, r.variant, r.age",
    "age": "r.age",
    "newest": "r.age DESC",
}
SIDES: dict[Direction, tuple[str, ...]] = {
    "out": ("source",),
    "in": ("target",),
    "both": ("source", "target"),
}
SIGMA, FINAL_SIGMA = "\u03a3", "\u03c2"  # at the end of a word its lower case is another one
LAST_CASED = 0x1F000  # no script beyond has two cases
MOST_PARTS = 16  # of a question that is asked in parts
_IN_ORDER = "JOIN unnest(%s::text[]) WITH ORDINALITY AS w(id, number) ON w.id = {0}.id"


def get_records(cursor: Cursor, store: int, question: questions.GetRecords) -> list[Record]:
    if not question.ids:
        return []
    live = "" if question.include_deleted else " AND r.deleted_at IS NULL"
    rows = ask_last(
        cursor,
        f"SELECT {RECORD_COLUMNS} FROM records r {_IN_ORDER.format('r')} "
        f"WHERE r.store = %s{live} ORDER BY w.number",
        kept_all(question.ids),
        store,
    )
    return [record_from(row) for row in rows]


def get_links(cursor: Cursor, store: int, question: questions.GetLinks) -> list[Link]:
    if not question.ids:
        return []
    live = "" if question.include_deleted else " AND l.deleted_at IS NULL"
    rows = ask_last(
        cursor,
        f"SELECT {LINK_COLUMNS} FROM links l {_IN_ORDER.format('l')} "
        f"WHERE l.store = %s{live} ORDER BY w.number",
        kept_all(question.ids),
        store,
    )
    return [link_from(row) for row in rows]


def scan(cursor: Cursor, store: int, question: questions.ScanRecords) -> list[Record]:
    where, order, after = question.where, question.order, question.after
    wheres = [where] if order == "name" or most(question.limit) is None else _parts(where)
    if len(wheres) == 1:
        wanted = _behind(store, where, order, after)
        source, values = f"records r WHERE {wanted.sql}", wanted.values
    else:
        source, values = _by_parts(store, wheres, order, after, question.limit)
    rows = ask_last(
        cursor,
        f"SELECT {RECORD_COLUMNS} FROM {source} ORDER BY {_SORTING[order]} LIMIT %s",
        *values,
        most(question.limit),
    )
    return [record_from(row) for row in rows]


def _parts(where: Where) -> list[Where]:
    """One for each kind in each scope: an index gives each in its order, but all of them only to
    who sorts them."""
    kinds = [(kind,) for kind in dict.fromkeys(where.kinds)] or [()]
    scopes = [(scope,) for scope in dict.fromkeys(where.scopes)] if where.kinds else []
    parts = list(product(kinds, scopes or [where.scopes]))
    if len(parts) > MOST_PARTS:
        return [where]
    return [replace(where, kinds=kind, scopes=scope) for kind, scope in parts]


def _by_parts(
    store: int, wheres: Sequence[Where], order: Order, after: Seen | None, limit: int | None
) -> tuple[str, list[Any]]:
    wanted = [_behind(store, where, order, after) for where in wheres]
    parts = " UNION ALL ".join(
        f"(SELECT r.id FROM records r WHERE {each.sql} ORDER BY {_SORTING[order]} LIMIT %s)"
        for each in wanted
    )
    values = [value for each in wanted for value in (*each.values, most(limit))]
    return f"({parts}) AS f JOIN records r ON r.store = %s AND r.id = f.id", [*values, store]


def _behind(store: int, where: Where, order: Order, after: Seen | None) -> Conditions:
    wanted = within(store, where)
    if isinstance(after, str):
        behind = "<" if order == "newest" else ">"
        wanted.add(
            f"r.age {behind} (SELECT a.age FROM records a WHERE a.store = %s AND a.id = %s)",
            store,
            kept(after),
        )
    elif after is not None:
        name, variant = map(kept, after)
        wanted.add(f"{_NAME} >= %s", name[:PREFIX])
        wanted.add("(r.name_key, r.variant) > (%s, %s)", name, variant)
    if order == "name":
        wanted.add("r.name_key IS NOT NULL")
    return wanted


def within(store: int, where: Where) -> Conditions:
    """What `where` says, of one store."""
    wanted = conditions(where)
    wanted.parts.insert(0, "r.store = %s")
    wanted.values.insert(0, store)
    return wanted


def containing(cursor: Cursor, store: int, question: questions.MatchText) -> list[Match]:
    wanted = within(store, replace(question.where, deleted=False))
    holds, part = _holding(question.text)
    parts = [holds.format(f"r.{name}") for name in ("name", "type", "text")]
    rows = ask_last(
        cursor,
        f"SELECT r.id, r.parent, coalesce({parts[0]}, false) AS named FROM records r "
        f"WHERE {wanted.sql} AND ({' OR '.join(parts)}) ORDER BY named DESC, r.age LIMIT %s",
        part,
        *wanted.values,
        *[part] * len(parts),
        most(question.limit),
    )
    return [
        Match(given(record_id), parent and given(parent), 1.0 + named)
        for record_id, parent, named in rows
    ]


def _holding(text: str) -> tuple[str, str]:
    """A condition on a column that holds a text, whatever its case, and its value.

    The columns compare by bytes, so `lower` knows ASCII alone; of other letters the condition
    names both cases itself.
    """
    wanted = kept(text.lower())
    if wanted.isascii():
        for special in "\\%_":
            wanted = wanted.replace(special, f"\\{special}")
        return "lower({0}) LIKE %s", f"%{wanted}%"
    return "{0} ~ %s", "".join(map(_either_case, wanted))


def _either_case(character: str) -> str:
    alike = sorted({character, *_capitals().get(character, ())})
    written = "".join(f"\\U{ord(case):08x}" for case in alike)
    return f"[{written}]"


@cache
def _capitals() -> Mapping[str, Sequence[str]]:
    """Of each letter that has them: there may be several, and other letters may look like them."""
    found: dict[str, list[str]] = {FINAL_SIGMA: [SIGMA]}
    for character in map(chr, range(LAST_CASED)):
        lower = character.lower()
        if len(lower) == 1 and lower != character:
            found.setdefault(lower, []).append(character)
    return found


def links(cursor: Cursor, store: int, question: questions.FindLinks) -> list[Link]:
    if not question.ids:
        return []
    wanted, sources = kept_all(question.ids), question.sources
    # A look into the index for each side: with OR, all links would be read.
    found = " UNION ".join(
        f"SELECT x.id FROM links x WHERE x.store = %s AND x.{side} = ANY(%s::text[]) "
        "AND x.deleted_at IS NULL"
        for side in SIDES[question.direction]
    )
    kinds = (
        " AND EXISTS (SELECT FROM records s WHERE s.store = l.store AND s.id = l.source "
        "AND s.kind = ANY(%s::text[]))"
    )
    rows = ask_last(
        cursor,
        f"SELECT {LINK_COLUMNS} FROM ({found}) AS f JOIN links l ON l.store = %s AND l.id = f.id"
        f"{f' WHERE true{kinds}' if sources else ''} ORDER BY l.created_at, l.age LIMIT %s",
        *[value for _ in SIDES[question.direction] for value in (store, wanted)],
        store,
        *([kept_all(sources)] if sources else []),
        most(question.limit),
    )
    return [link_from(row) for row in rows]


def subgraph(cursor: Cursor, store: int, question: questions.ReadSubgraph) -> Subgraph:
    wanted, kind = question.wanted, question.wanted.kind
    if wanted.ids is None:
        where = Where(kinds=(kind,))
        some = questions.ScanRecords(where, wanted.order, wanted.after, wanted.looked_for)
        records = scan(cursor, store, some)
    else:
        found = get_records(cursor, store, questions.GetRecords(wanted.ids))
        records = [record for record in found if record.kind == kind]
    records, has_more = cut(wanted, records)
    ids = tuple(record.id for record in records)
    if not ids:
        return Subgraph([], [], has_more)
    of_them = Where(kinds=(wanted.leaf_kind,), parents=ids)
    children = scan(cursor, store, questions.ScanRecords(of_them))
    found_links = links(cursor, store, questions.FindLinks(ids, wanted.direction, (kind,)))
    ends = get_records(cursor, store, questions.GetRecords(other_ends(records, found_links)))
    return assemble(records, children, found_links, ends, has_more=has_more)


def scan_links(cursor: Cursor, store: int, question: questions.ScanLinks) -> list[Link]:
    state = {None: "true", False: "l.deleted_at IS NULL", True: "l.deleted_at IS NOT NULL"}[
        question.deleted
    ]
    holds, part = _holding(question.containing)
    rows = ask_last(
        cursor,
        f"SELECT {LINK_COLUMNS} FROM links l WHERE l.store = %s AND {state} "
        f"AND {holds.format('l.verb')} ORDER BY l.age",
        store,
        part,
    )
    return [link_from(row) for row in rows]
