"""Queries of the port as SQL: records, links, walks, counts, accesses and the change log."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import product
from typing import Any

from everkept.core import store as questions
from everkept.core.answers import Sources, Subgraph, apply_limit, assemble, list_other_ends
from everkept.core.ports import AccessCount, Direction, Order, RecordTally, ScanPosition
from everkept.core.records import Change, Edit, Match, Record, RecordFilter, RecordLink, Ref
from everkept.core.store import CountSources, FindLinks, ReadChanges, ReadHistory, WalkLinks
from everkept.engines.postgres.rows import (
    LINK_COLUMNS,
    RECORD_COLUMNS,
    Conditions,
    build_filter,
    decode_change,
    decode_edit,
    decode_link,
    decode_record,
    escape_text,
    escape_texts,
    format_filter,
    unescape_text,
)
from everkept.engines.postgres.schema import INDEX_PREFIX_CHARACTERS, VECTOR_INDEX_PREFIX
from everkept.engines.postgres.statements import Cursor, ask, ask_last, to_limit
from everkept.values import replace

# By name: the index has the beginning of a name, and the rest sorts the few names that share it.
_NAME_PREFIX = f"left(r.name_key, {INDEX_PREFIX_CHARACTERS})"
_ORDER_BY = {"name": f"{_NAME_PREFIX}, r.name_key, r.variant, r.age", "age": "r.age", "newest": "r.age DESC"}
SIDES: dict[Direction, tuple[str, ...]] = {"out": ("source",), "in": ("target",), "both": ("source", "target")}
SIGMA, FINAL_SIGMA = "\u03a3", "\u03c2"  # lower() gives a final sigma at the end of a word
MAX_CASED_CODE = 0x1F000  # no script beyond this code has two cases
MAX_PARTS = 16  # of a query that is split by kind and scope
_IN_ORDER = "JOIN unnest(%s::text[]) WITH ORDINALITY AS w(id, number) ON w.id = {0}.id"


def get_records(cursor: Cursor, store: int, question: questions.GetRecords) -> list[Record]:
    if not question.ids:
        return []
    live = "" if question.include_deleted else " AND r.deleted_at IS NULL"
    rows = ask_last(
        cursor,
        f"SELECT {RECORD_COLUMNS} FROM records r {_IN_ORDER.format('r')} WHERE r.store = %s{live} ORDER BY w.number",
        escape_texts(question.ids),
        store,
    )
    return [decode_record(row) for row in rows]


def find_by_prefix(cursor: Cursor, store: int, question: questions.FindByPrefix) -> list[Record]:
    prefix = escape_text(question.prefix)
    rows = ask_last(
        cursor,
        f"SELECT {RECORD_COLUMNS} FROM records r WHERE r.store = %s AND r.id >= %s AND r.id < %s "
        "AND r.kind = ANY(%s::text[]) ORDER BY r.id LIMIT %s",
        store,
        prefix,
        prefix + questions.LAST_CHARACTER,
        list(question.kinds),
        question.limit,
    )
    return [decode_record(row) for row in rows]


def get_links(cursor: Cursor, store: int, question: questions.GetLinks) -> list[RecordLink]:
    live = "" if question.include_deleted else " AND l.deleted_at IS NULL"
    rows = ask_last(
        cursor,
        f"SELECT {LINK_COLUMNS} FROM links l {_IN_ORDER.format('l')} WHERE l.store = %s{live} ORDER BY w.number",
        escape_texts(question.ids),
        store,
    )
    return [decode_link(row) for row in rows]


def scan(cursor: Cursor, store: int, question: questions.ScanRecords) -> list[Record]:
    where, order, after = question.where, question.order, question.after
    wheres = [where] if order == "name" or to_limit(question.limit) is None else _split_filter(where)
    if len(wheres) == 1:
        wanted = _build_page_filter(store, where, order, after)
        source, values = f"records r WHERE {wanted.sql}", wanted.values
    else:
        source, values = _build_union(store, wheres, order, after, question.limit)
    rows = ask_last(
        cursor,
        f"SELECT {RECORD_COLUMNS} FROM {source} ORDER BY {_ORDER_BY[order]} LIMIT %s",
        *values,
        to_limit(question.limit),
    )
    return [decode_record(row) for row in rows]


def _split_filter(where: RecordFilter) -> list[RecordFilter]:
    """Return one filter per kind and scope. An index returns each part in order, but a combined result needs a sort."""
    kinds = [(kind,) for kind in dict.fromkeys(where.kinds)] or [()]
    scopes = [(scope,) for scope in dict.fromkeys(where.scopes)] if where.kinds else []
    parts = list(product(kinds, scopes or [where.scopes]))
    if len(parts) > MAX_PARTS:
        return [where]
    return [replace(where, kinds=kind, scopes=scope) for kind, scope in parts]


def _build_union(
    store: int, wheres: Sequence[RecordFilter], order: Order, after: ScanPosition | None, limit: int | None
) -> tuple[str, list[Any]]:
    wanted = [_build_page_filter(store, where, order, after) for where in wheres]
    parts = " UNION ALL ".join(
        f"(SELECT r.id FROM records r WHERE {each.sql} ORDER BY {_ORDER_BY[order]} LIMIT %s)" for each in wanted
    )
    values = [value for each in wanted for value in (*each.values, to_limit(limit))]
    return f"({parts}) AS f JOIN records r ON r.store = %s AND r.id = f.id", [*values, store]


def _build_page_filter(store: int, where: RecordFilter, order: Order, after: ScanPosition | None) -> Conditions:
    wanted = build_store_filter(store, where)
    if isinstance(after, str):
        behind = "<" if order == "newest" else ">"
        wanted.add(
            f"r.age {behind} (SELECT a.age FROM records a WHERE a.store = %s AND a.id = %s)", store, escape_text(after)
        )
    elif after is not None:
        name, variant = map(escape_text, after)
        wanted.add(f"{_NAME_PREFIX} >= %s", name[:INDEX_PREFIX_CHARACTERS])
        wanted.add("(r.name_key, r.variant) > (%s, %s)", name, variant)
    if order == "name":
        wanted.add("r.name_key IS NOT NULL")
    return wanted


def build_store_filter(store: int, where: RecordFilter) -> Conditions:
    """Return the conditions of `where` for one store."""
    wanted = build_filter(where)
    wanted.parts.insert(0, "r.store = %s")
    wanted.values.insert(0, store)
    return wanted


def match_text(cursor: Cursor, store: int, question: questions.MatchText) -> list[Match]:
    wanted = build_store_filter(store, replace(question.where, deleted=False))
    holds, part = _build_text_condition(question.text)
    parts = [holds.format(f"r.{name}") for name in ("name", "type", "text")]
    rows = ask_last(
        cursor,
        f"SELECT r.id, r.parent, coalesce({parts[0]}, false) AS named FROM records r "
        f"WHERE {wanted.sql} AND ({' OR '.join(parts)}) ORDER BY named DESC, r.age LIMIT %s",
        part,
        *wanted.values,
        *[part] * len(parts),
        to_limit(question.limit),
    )
    return [
        Match(unescape_text(record_id), parent and unescape_text(parent), 1.0 + named)
        for record_id, parent, named in rows
    ]


def _build_text_condition(text: str) -> tuple[str, str]:
    """Return a case-insensitive condition on a column that contains the text, and its value.

    The columns compare by bytes, so `lower` handles only ASCII. For other letters, the condition names both cases.
    """
    wanted = escape_text(text.lower())
    if wanted.isascii():
        for special in "\\%_":
            wanted = wanted.replace(special, f"\\{special}")
        return "lower({0}) LIKE %s", f"%{wanted}%"
    return "{0} ~ %s", "".join(map(_format_either_case, wanted))


def _format_either_case(character: str) -> str:
    alike = sorted({character, *_map_capitals().get(character, ())})
    written = "".join(f"\\U{ord(case):08x}" for case in alike)
    return f"[{written}]"


@cache
def _map_capitals() -> Mapping[str, Sequence[str]]:
    """Map each lower-case letter to its capitals. A letter may have several."""
    found: dict[str, list[str]] = {FINAL_SIGMA: [SIGMA]}
    for character in map(chr, range(MAX_CASED_CODE)):
        lower = character.lower()
        if len(lower) == 1 and lower != character:
            found.setdefault(lower, []).append(character)
    return found


def list_links(cursor: Cursor, store: int, question: questions.FindLinks) -> list[RecordLink]:
    if not question.ids:
        return []
    wanted, sources = escape_texts(question.ids), question.sources
    # One index lookup per side: with OR, PostgreSQL would read all links.
    found = " UNION ".join(
        f"SELECT x.id FROM links x WHERE x.store = %s AND x.{side} = ANY(%s::text[]) AND x.deleted_at IS NULL"
        for side in SIDES[question.direction]
    )
    kinds = (
        " AND EXISTS (SELECT FROM records s WHERE s.store = l.store AND s.id = l.source AND s.kind = ANY(%s::text[]))"
    )
    rows = ask_last(
        cursor,
        f"SELECT {LINK_COLUMNS} FROM ({found}) AS f JOIN links l ON l.store = %s AND l.id = f.id"
        f"{f' WHERE true{kinds}' if sources else ''} ORDER BY l.created_at, l.age LIMIT %s",
        *[value for _ in SIDES[question.direction] for value in (store, wanted)],
        store,
        *([escape_texts(sources)] if sources else []),
        to_limit(question.limit),
    )
    return [decode_link(row) for row in rows]


def read_subgraph(cursor: Cursor, store: int, question: questions.ReadSubgraph) -> Subgraph:
    wanted, kind = question.wanted, question.wanted.kind
    if wanted.ids is None:
        where = RecordFilter(kinds=(kind,))
        some = questions.ScanRecords(where, wanted.order, wanted.after, wanted.row_limit)
        records = scan(cursor, store, some)
    else:
        found = get_records(cursor, store, questions.GetRecords(wanted.ids))
        records = [record for record in found if record.kind == kind]
    records, has_more = apply_limit(wanted, records)
    ids = tuple(record.id for record in records)
    if not ids:
        return Subgraph([], [], has_more)
    of_them = RecordFilter(kinds=(wanted.leaf_kind,), parents=ids)
    children = scan(cursor, store, questions.ScanRecords(of_them))
    found_links = list_links(cursor, store, questions.FindLinks(ids, wanted.direction, (kind,)))
    ends = get_records(cursor, store, questions.GetRecords(list_other_ends(records, found_links)))
    return assemble(records, children, found_links, ends, has_more=has_more)


def scan_links(cursor: Cursor, store: int, question: questions.ScanLinks) -> list[RecordLink]:
    state = {None: "true", False: "l.deleted_at IS NULL", True: "l.deleted_at IS NOT NULL"}[question.deleted]
    holds, part = _build_text_condition(question.containing)
    rows = ask_last(
        cursor,
        f"SELECT {LINK_COLUMNS} FROM links l WHERE l.store = %s AND {state} "
        f"AND {holds.format('l.verb')} ORDER BY l.age",
        store,
        part,
    )
    return [decode_link(row) for row in rows]


_CHANGES_QUERY = "SELECT seq, at, tool, client, undoes FROM changes WHERE store = %s AND "
_EDITS_QUERY = (
    "SELECT e.seq, e.operation, e.subject, e.item, e.before FROM edits e "
    "WHERE e.store = %s AND e.seq IN ({0}) ORDER BY e.seq, e.position"
)
# Edits are numbered from 0.
_SMALL_CHANGES = (
    "NOT EXISTS (SELECT FROM edits x WHERE x.store = changes.store AND x.seq = changes.seq "
    "AND x.position = %s) AND seq IN (SELECT seq FROM changes WHERE store = %s AND {0})"
)


def read_change(cursor: Cursor, store: int, seq: int) -> Change:
    return _read_with_edits(cursor, store, "seq = %s", seq)[0]


def read_changes(cursor: Cursor, store: int, question: ReadChanges) -> list[Change]:
    order = "DESC" if question.newest_first else "ASC"
    page = f"seq > %s ORDER BY seq {order} LIMIT %s"
    if question.most_edits is None:
        return _read_with_edits(cursor, store, page, question.after, to_limit(question.limit))
    small = f"{_SMALL_CHANGES.format(page)} ORDER BY seq {order}"
    return _read_with_edits(cursor, store, small, question.most_edits, store, question.after, to_limit(question.limit))


def read_history(cursor: Cursor, store: int, question: ReadHistory) -> list[tuple[int, Edit]]:
    if not question.refs:
        return []
    rows = ask_last(
        cursor,
        "SELECT seq, operation, subject, item, before FROM edits WHERE store = %s "
        "AND item = ANY(%s::text[]) AND seq > %s ORDER BY seq, position",
        store,
        escape_texts([ref.id for ref in question.refs]),
        question.after,
    )
    wanted = set(question.refs)
    edits = [(seq, decode_edit(tuple(edit))) for seq, *edit in rows]
    return [(seq, edit) for seq, edit in edits if Ref(edit.subject, edit.id or "") in wanted]


def _read_with_edits(cursor: Cursor, store: int, which: str, *values: Any) -> list[Change]:
    heads = ask(cursor, f"{_CHANGES_QUERY} {which}", store, *values)
    numbers = f"SELECT seq FROM changes WHERE store = %s AND {which}"
    rows = ask_last(cursor, _EDITS_QUERY.format(numbers), store, store, *values)
    edits: dict[int, list[Edit]] = defaultdict(list)
    for seq, *edit in rows:
        edits[seq].append(decode_edit(tuple(edit)))
    return [decode_change(head, edits[head[0]]) for head in heads]


# One row per hop: the links at the records of the previous hop, oldest first, and the first new records that they
# reach. Each row has only the ids of its links. The rest is looked up at the end, link by link, because the planner
# cannot know how many there are.
_WALK = """
WITH RECURSIVE hops(number, edge, seen, met) AS (
    SELECT 0, w.ids, w.ids, '{{}}'::text[] COLLATE "C"
    FROM (SELECT %s::text[] COLLATE "C") AS w(ids)
    UNION ALL
    SELECT h.number + 1, n.edge, h.seen || n.edge, n.met
    FROM hops h CROSS JOIN LATERAL (
        WITH found AS MATERIALIZED (
            SELECT l.id, l.source, l.target,
                row_number() OVER (ORDER BY l.created_at, l.age) AS place
            FROM ({sides}) AS l {kinds} ORDER BY l.created_at, l.age LIMIT %s)
        SELECT
            ARRAY(SELECT f.id FROM found f) AS met,
            ARRAY(
                SELECT e.id
                FROM found f CROSS JOIN LATERAL (VALUES (f.source), (f.target)) AS e(id)
                WHERE e.id NOT IN (SELECT unnest(h.seen))
                GROUP BY e.id ORDER BY min(f.place) LIMIT %s) AS edge
    ) AS n
    WHERE h.number < %s AND cardinality(h.edge) > 0)
SELECT m.hop, {columns}
FROM (SELECT i.id, min(h.number) AS hop FROM hops h CROSS JOIN unnest(h.met) AS i(id)
    GROUP BY i.id) AS m
CROSS JOIN LATERAL (SELECT * FROM links WHERE store = %s AND id = m.id LIMIT 1) AS l
ORDER BY m.hop, l.created_at, l.age
"""
_SIDE = (
    "SELECT x.id, x.source, x.target, x.created_at, x.age FROM links x "
    "WHERE x.store = %s AND x.{side} = ANY(h.edge) AND x.deleted_at IS NULL"
)
_KINDS = "WHERE EXISTS (SELECT FROM records s WHERE s.store = %s AND s.id = l.source AND s.kind = ANY(%s::text[]))"
# Links to some records from matching records, in order. A result row is either a link with its place, or the number of
# sources of one record.
_SOURCES = """
WITH met AS MATERIALIZED (
    SELECT {columns}, row_number() OVER (ORDER BY l.created_at, l.age) AS place
    FROM links l JOIN records r ON r.store = l.store AND r.id = l.source
    WHERE l.store = %s AND l.target = ANY(%s::text[]) AND l.deleted_at IS NULL AND {wanted})
SELECT 0, l.target, count(DISTINCT l.source)::text, NULL, NULL, NULL, NULL, NULL
FROM met l GROUP BY l.target
UNION ALL
SELECT l.place, {columns} FROM met l
WHERE l.source IN (SELECT source FROM met GROUP BY source ORDER BY max(place) DESC LIMIT %s)
ORDER BY 1
"""


def walk(cursor: Cursor, store: int, question: WalkLinks) -> list[list[RecordLink]]:
    hops = question.hops
    if hops.count == 1:  # a plain query is faster for one hop
        plain = FindLinks(question.ids, hops.direction, hops.sources, hops.limit)
        found = list_links(cursor, store, plain)
        return [found] if found else []
    sides = SIDES[hops.direction]
    rows = ask_last(
        cursor,
        _WALK.format(
            sides=" UNION ".join(_SIDE.format(side=side) for side in sides),
            kinds=_KINDS if hops.sources else "",
            columns=LINK_COLUMNS,
        ),
        escape_texts(question.ids),
        *[store] * len(sides),
        *((store, escape_texts(hops.sources)) if hops.sources else ()),
        to_limit(hops.limit),
        to_limit(hops.width),
        hops.count,
        store,
    )
    walked: dict[int, list[RecordLink]] = {}
    for hop, *row in rows:
        walked.setdefault(hop, []).append(decode_link(tuple(row)))
    return list(walked.values())


def count_sources(cursor: Cursor, store: int, question: CountSources) -> Sources:
    wanted, values = format_filter(question.where)
    statement = _SOURCES.format(columns=LINK_COLUMNS, wanted=wanted)
    counts: dict[str, int] = {}
    links: list[RecordLink] = []
    for place, *row in ask_last(
        cursor, statement, store, escape_texts(question.ids), *values, to_limit(question.limit)
    ):
        if place:
            links.append(decode_link(tuple(row)))
        else:
            counts[unescape_text(row[0])] = int(row[1])
    return Sources(counts, links)


def _format_size_sum(*tables: str) -> str:
    return " + ".join(f"pg_total_relation_size('{table}')" for table in tables)


# Jumps from each value to the next one in the index: there are few values, however many records.
_DISTINCT = """
WITH RECURSIVE found(value) AS (
    (SELECT {0} FROM records r WHERE {1} ORDER BY 1 LIMIT 1) UNION ALL
    SELECT (SELECT {0} FROM records r WHERE {1} AND {0} > found.value ORDER BY 1 LIMIT 1)
    FROM found WHERE found.value IS NOT NULL)
SELECT value FROM found WHERE length(value) < {2} UNION ALL
SELECT w.value FROM found CROSS JOIN LATERAL (
    SELECT DISTINCT r.{3} AS value FROM records r WHERE {1} AND {0} = found.value) w
WHERE length(found.value) = {2}
"""
_ACCESSES_QUERY = "SELECT a.record, a.count, a.last_at FROM accesses a "
# A vector index belongs to one store only. The number of vectors is an estimate, and unknown before the first ANALYZE.
_SIZE = f"""
SELECT (({_format_size_sum("records", "links", "accesses")}) * s.ages / greatest(a.ages, 1)
    + ({_format_size_sum("changes", "edits")}) * s.seq / greatest(a.seq, 1)
    + ({_format_size_sum("vectors")} - n.every) * v.own / greatest(v.own, v.every, 1)
    + n.own)::bigint
FROM stores s CROSS JOIN (SELECT sum(ages) AS ages, sum(seq) AS seq FROM stores) a
CROSS JOIN LATERAL (SELECT
    (SELECT count(*) FROM vectors v WHERE v.store = s.number) AS own,
    CASE WHEN c.reltuples >= 0 THEN c.reltuples::bigint ELSE (SELECT count(*) FROM vectors) END
    AS every FROM pg_class c WHERE c.oid = to_regclass('vectors')) v
CROSS JOIN LATERAL (SELECT coalesce(sum(bytes), 0) AS every,
    coalesce(sum(bytes) FILTER (WHERE starts_with(relname, %s)), 0) AS own
    FROM (SELECT c.relname, pg_relation_size(c.oid) AS bytes FROM pg_index i
        JOIN pg_class c ON c.oid = i.indexrelid
        WHERE i.indrelid = to_regclass('vectors') AND starts_with(c.relname, %s)) x) n
WHERE s.number = %s
"""


def count_live(cursor: Cursor, store: int, _: questions.CountLive) -> dict[str, int]:
    rows = ask_last(
        cursor,
        "SELECT kind, count(*) FROM records WHERE store = %s AND deleted_at IS NULL GROUP BY kind "
        "UNION ALL SELECT NULL, count(*) FROM links WHERE store = %s AND deleted_at IS NULL",
        store,
        store,
    )
    return {"link" if kind is None else unescape_text(kind): many for kind, many in rows}


def count_records(cursor: Cursor, store: int, question: questions.CountRecords) -> int:
    wanted = build_store_filter(store, question.where)
    rows = ask_last(cursor, f"SELECT count(*) FROM records r WHERE {wanted.sql}", *wanted.values)
    return rows.fetchall()[0][0]


def tally(cursor: Cursor, store: int, question: questions.TallyRecords) -> list[RecordTally]:
    rows = ask_last(
        cursor,
        "SELECT kind, scope, type, deleted_at IS NOT NULL, count(*) FROM records "
        "WHERE store = %s AND kind = ANY(%s::text[]) GROUP BY 1, 2, 3, 4",
        store,
        escape_texts(question.kinds),
    )
    return [
        RecordTally(unescape_text(kind), unescape_text(scope), name and unescape_text(name), is_deleted, many)
        for kind, scope, name, is_deleted, many in rows
    ]


def list_scopes(cursor: Cursor, store: int, question: questions.ListScopes) -> list[str]:
    live = "r.store = %s AND r.kind = %s AND r.deleted_at IS NULL"
    values = store, escape_text(question.kind)
    rows = ask_last(cursor, _build_distinct_query("scope", live), *values, *values, *values)
    return sorted([unescape_text(value) for (value,) in rows])


def list_authors(cursor: Cursor, stores: Sequence[int]) -> dict[int, list[str]]:
    """Return the authors of each store."""
    distinct = _build_distinct_query("author", "r.store = s.number AND r.author IS NOT NULL AND r.deleted_at IS NULL")
    rows = ask_last(
        cursor,
        "SELECT s.number, a.value FROM unnest(%s::integer[]) AS s(number) "
        f"CROSS JOIN LATERAL ({distinct}) a WHERE a.value <> ''",
        stores,
    )
    found: dict[int, list[str]] = {store: [] for store in stores}
    for store, author in rows:
        found[store].append(unescape_text(author))
    return {store: sorted(names) for store, names in found.items()}


def _build_distinct_query(column: str, condition: str) -> str:
    """Return the query for distinct values. Long values are read too, because the index has only their beginning."""
    return _DISTINCT.format(f"left(r.{column}, {INDEX_PREFIX_CHARACTERS})", condition, INDEX_PREFIX_CHARACTERS, column)


def note_accesses(cursor: Cursor, store: int, upkeep: questions.NoteAccesses) -> None:
    """Add the counts in the order of the ids, so that two processes cannot deadlock."""
    ask_last(
        cursor,
        "INSERT INTO accesses AS a (store, record, count, last_at) "
        "SELECT r.store, r.id, n.count, %s FROM unnest(%s::text[], %s::bigint[]) AS n(id, count) "
        "JOIN records r ON r.store = %s AND r.id = n.id ORDER BY r.id "
        "ON CONFLICT (store, record) DO UPDATE SET count = a.count + excluded.count, "
        "last_at = greatest(a.last_at, excluded.last_at)",
        upkeep.at,
        [escape_text(record_id) for record_id in upkeep.counts],
        list(upkeep.counts.values()),
        store,
    )


def get_accesses(cursor: Cursor, store: int, question: questions.GetAccesses) -> dict[str, AccessCount]:
    rows = ask_last(
        cursor, f"{_ACCESSES_QUERY} WHERE a.store = %s AND a.record = ANY(%s)", store, escape_texts(question.ids)
    )
    return {unescape_text(record_id): AccessCount(many, last_at) for record_id, many, last_at in rows}


def list_most_accessed(cursor: Cursor, store: int, question: questions.ListMostAccessed) -> dict[str, AccessCount]:
    rows = ask_last(
        cursor,
        f"{_ACCESSES_QUERY} JOIN records r ON r.store = a.store AND r.id = a.record "
        "WHERE a.store = %s AND r.deleted_at IS NULL "
        "ORDER BY a.count DESC, a.last_at DESC, a.record LIMIT %s",
        store,
        to_limit(question.limit),
    )
    return {unescape_text(record_id): AccessCount(many, last_at) for record_id, many, last_at in rows}


def measure_size(cursor: Cursor, store: int, _: questions.MeasureSize) -> int:
    """Estimate the store's share of the tables, in bytes.

    The share follows from the records and changes ever added, because counting rows takes long. Vectors are counted,
    because they take the most space and not every store has any.
    """
    rows = ask_last(cursor, _SIZE, f"{VECTOR_INDEX_PREFIX}{store}_", VECTOR_INDEX_PREFIX, store).fetchall()
    return rows[0][0] if rows else 0
