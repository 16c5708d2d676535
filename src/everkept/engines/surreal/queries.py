"""Queries of the port as SurrealQL: filters as conditions, few statements, results in pages."""

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from typing import Any

from everkept.core import store as questions
from everkept.core.ports import AccessCount, Direction, RecordTally
from everkept.core.records import SESSION_SCOPE, Change, Edit, Match, Record, RecordFilter, RecordLink, Ref
from everkept.engines.surreal.connection import AnswerTooLarge
from everkept.engines.surreal.rows import (
    Row,
    build_row_id,
    decode_change,
    decode_edit,
    decode_id,
    decode_link,
    decode_record,
    encode_id,
    encode_ids,
    encode_place,
    escape_text,
    unescape_text,
)
from everkept.engines.surreal.schema import StoreTables
from everkept.values import Value, field, replace

_SIZE_SAMPLE_RECORDS = 200
_RECORD_BYTES = 500  # of a record without its text
_VECTOR_NUMBER_BYTES = 13  # of each number of a vector: once for the index, once exactly

# Fields that never change are also in the rows of words and vectors.
_UNCHANGING_FIELDS = frozenset(("kind", "parent"))
# The first of these that a filter has finds records fastest.
_FILTER_INDEXES = (
    ("parents", "record_parent"),
    ("name_keys", "record_name_key"),
    ("places", "record_place"),
    ("sessions", "record_session"),
)


class Conditions(Value, frozen=False):
    """Conditions that must all hold, with their values."""

    beside: bool  # for rows that refer to their record as `of`
    parts: list[str] = field(default_factory=list[str])
    values: dict[str, Any] = field(default_factory=dict[str, Any])

    def get_column(self, name: str) -> str:
        return f"of.{name}" if self.beside and name not in _UNCHANGING_FIELDS else name

    def add(self, part: str, **values: Any) -> None:
        self.parts.append(part)
        self.values.update(values)

    def add_in(self, column: str, name: str, values: Iterable[Any]) -> None:
        self.add(f"{self.get_column(column)} IN ${name}", **{name: list(values)})

    @property
    def text(self) -> str:
        return " AND ".join(self.parts) or "true"


def build_filter(where: RecordFilter, *, beside: bool = False) -> Conditions:
    """Return the conditions for rows of `record`, or with `beside` for rows that refer to one."""
    found = Conditions(beside)
    column = found.get_column
    if where.deleted is not None:
        found.add(f"{column('deleted_at')} IS {'NOT ' if where.deleted else ''}NONE")
    if where.ids is not None:
        found.add(f"{'of' if beside else 'id'} IN $ids", ids=encode_ids("record", where.ids))
    if where.parents is not None:
        found.add_in("parent", "parents", encode_ids("record", where.parents))
    for name, among in (
        ("kind", where.kinds or None),
        ("type", where.types or None),
        ("scope", where.scopes or None),
        ("name_key", where.name_keys),
        ("session", where.sessions),
    ):
        if among is not None:
            found.add_in(name, f"{name}s", map(escape_text, dict.fromkeys(among)))
    _add_places(where, found)
    _add_traits(where, found)
    return found


def choose_source(where: RecordFilter) -> str:
    """Return the source of a statement over `record`."""
    if where.ids is not None:
        return "$ids"
    for name, index in _FILTER_INDEXES:
        if getattr(where, name) is not None:
            return f"record WITH INDEX {index}"
    # With an index for each side of an OR, version 2 would count rows that match both sides twice.
    return "record WITH INDEX record_kind" if where.kinds else "record WITH NOINDEX"


def _add_places(where: RecordFilter, found: Conditions) -> None:
    if where.places is not None:
        places = dict.fromkeys(encode_place(*place) for place in where.places)
        found.add_in("place", "places", places)
    if where.visible_to is not None:
        scope, session = found.get_column("scope"), found.get_column("session")
        found.add(
            f"({scope} != '{SESSION_SCOPE}' OR {session} = $visible_to)", visible_to=escape_text(where.visible_to)
        )
    if where.tags:
        found.add(f"{found.get_column('tags')} CONTAINSANY $tags", tags=[escape_text(tag) for tag in where.tags])


def _add_traits(where: RecordFilter, found: Conditions) -> None:
    column = found.get_column
    if where.pinned:
        found.add(f"{column('pinned')} = true")
    if where.automatic:
        found.add(f"{column('automatic')} = true")
    if where.min_importance is not None:
        found.add(f"({column('importance')} ?? 0) >= $importance", importance=where.min_importance)
    at = f"({column('occurred_at')} ?? {column('created_at')})"
    if where.after is not None:
        found.add(f"{at} >= $after", after=where.after)
    if where.before is not None:
        found.add(f"{at} <= $before", before=where.before)
    if where.created_before is not None:
        found.add(f"{column('created_at')} <= $created", created=where.created_before)
    if where.touched_after is not None:
        touched = f"math::max([{column('updated_at')}, {column('deleted_at')} ?? 0])"
        found.add(f"{touched} > $touched", touched=where.touched_after)


PAGE_ROWS = 500  # records or links per page


class PagedQuery(Value):
    """Parts of a statement. `fields` must include the id."""

    fields: str
    source: str
    condition: str
    values: Mapping[str, Any]
    order: str = ""

    def select_rows(self, most: int) -> str:
        order = f" ORDER BY {self.order}" if self.order else ""
        return f"SELECT {self.fields} FROM {self._filtered_source}{order} LIMIT {most}"

    def select_ids(self, most: int | None) -> str:
        order = f" ORDER BY {self.order}" if self.order else ""
        # Some versions sort only by selected fields.
        fields = f"id, {self.order.replace(' DESC', '')}" if self.order else "id"
        limit = "" if most is None else f" LIMIT {most}"
        return f"SELECT VALUE id FROM (SELECT {fields} FROM {self._filtered_source}{order}{limit})"

    def select_among(self, ids: str) -> str:
        return f"SELECT {self.fields} FROM {ids} WHERE {self.condition}"

    @property
    def _filtered_source(self) -> str:
        return f"{self.source} WHERE {self.condition}"


async def read_all(tables: StoreTables, question: PagedQuery, most: int | None = None) -> list[Row]:
    return [row async for page in read_pages(tables, question, PAGE_ROWS, most) for row in page]


async def read_pages(
    tables: StoreTables, question: PagedQuery, size: int, most: int | None = None
) -> AsyncGenerator[list[Row], None]:
    """Yield all matching rows, at most `size` per page, and fewer if the database finds that too many.

    A single query reads few rows. For many rows, the ids are read first, which are short. A query for the rows after a
    given row would sort or read all of them for each page.
    """
    wanted = size if most is None else min(size, most)
    seen: set[str] = set()
    try:
        first = await tables.ask(question.select_rows(wanted), **question.values)
    except AnswerTooLarge:
        size = max(1, size // 2)
    else:
        yield first
        if len(first) < wanted or wanted == most:
            return
        seen = {decode_id(row["id"]) for row in first}
    ids = await tables.ask(question.select_ids(most), **question.values)
    left = [each for each in ids if decode_id(each) not in seen]
    while left:
        try:
            page = await tables.ask(question.select_among("$page"), page=left[:size], **question.values)
        except AnswerTooLarge:
            if size == 1:
                raise
            size //= 2
            continue
        yield page
        left = left[size:]


_ORDER_BY = {"name": "name_key, variant, age", "age": "age", "newest": "age DESC"}
_SIDES: Mapping[Direction, tuple[str, ...]] = {"out": ("->",), "in": ("<-",), "both": ("->", "<-")}
_ID_FUNCTIONS = {False: "thing", True: "record"}  # by dialect: the function that builds an id from its parts


async def get_records(tables: StoreTables, asked: questions.GetRecords) -> list[Record]:
    if not asked.ids:
        return []
    rows = await tables.ask("SELECT * FROM $ids", ids=encode_ids("record", asked.ids))
    return [decode_record(row) for row in rows if asked.include_deleted or row.get("deleted_at") is None]


async def find_by_prefix(tables: StoreTables, asked: questions.FindByPrefix) -> list[Record]:
    prefix = escape_text(asked.prefix)
    rows = await tables.ask(
        f"SELECT * FROM {build_row_range(tables, 'record', '$first..$last')} WHERE kind IN $kinds ORDER BY id"
        f"{_format_limit(asked.limit)}",
        first=prefix,
        last=prefix + questions.LAST_CHARACTER,
        kinds=list(asked.kinds),
    )
    return [decode_record(row) for row in rows]


async def get_links(tables: StoreTables, asked: questions.GetLinks) -> list[RecordLink]:
    if not asked.ids:
        return []
    rows = await tables.ask("SELECT * FROM $ids", ids=encode_ids("link", asked.ids))
    return [decode_link(row) for row in rows if asked.include_deleted or row.get("deleted_at") is None]


async def scan(tables: StoreTables, asked: questions.ScanRecords) -> list[Record]:
    wanted = build_filter(asked.where)
    if isinstance(asked.after, str):
        age = await tables.ask("SELECT VALUE age FROM $id", id=[encode_id("record", asked.after)])
        if not age:
            return []
        wanted.add(f"age {'<' if asked.order == 'newest' else '>'} $age", age=age[0])
    elif asked.after is not None:
        wanted.add("[name_key, variant] > $seen", seen=[escape_text(part) for part in asked.after])
    if asked.order == "name":
        wanted.add("name_key IS NOT NONE")
    question = PagedQuery("*", choose_source(asked.where), wanted.text, wanted.values, _ORDER_BY[asked.order])
    return [decode_record(row) for row in await read_all(tables, question, _to_limit(asked.limit))]


async def match_text(tables: StoreTables, asked: questions.MatchText) -> list[Match]:
    where = replace(asked.where, deleted=False)
    wanted = build_filter(where)
    parts = [f"string::lowercase({name} ?? '') CONTAINS $part" for name in ("name", "type", "text")]
    rows = await tables.ask(
        f"SELECT id, parent, age, {parts[0]} AS named FROM {choose_source(where)} "
        f"WHERE {wanted.text} AND ({' OR '.join(parts)}) "
        f"ORDER BY named DESC, age{_format_limit(asked.limit)}",
        part=escape_text(asked.text.lower()),
        **wanted.values,
    )
    return [Match(decode_id(row["id"]), get_parent_id(row), 1.0 + row["named"]) for row in rows]


async def list_links(tables: StoreTables, asked: questions.FindLinks) -> list[RecordLink]:
    if not asked.ids:
        return []
    kinds = " AND in.kind IN $kinds" if asked.sources else ""
    sides = [
        f"{side}(link WHERE deleted_at IS NONE{kinds}).* AS s{number}"
        for number, side in enumerate(_SIDES[asked.direction])
    ]
    rows = await tables.ask(
        f"SELECT {', '.join(sides)} FROM $ids",
        ids=encode_ids("record", asked.ids),
        kinds=[escape_text(kind) for kind in asked.sources],
    )
    found = {decode_id(link["id"]): link for row in rows for side in row.values() for link in side}
    ordered = sorted(found.values(), key=lambda link: (link["created_at"], link["age"]))
    return [decode_link(link) for link in ordered[: _to_limit(asked.limit)]]


async def scan_links(tables: StoreTables, asked: questions.ScanLinks) -> list[RecordLink]:
    state = {None: "true", False: "deleted_at IS NONE", True: "deleted_at IS NOT NONE"}[asked.deleted]
    condition = f"{state} AND string::lowercase(verb) CONTAINS $part"
    question = PagedQuery("*", "link", condition, {"part": escape_text(asked.containing.lower())}, "age")
    return [decode_link(row) for row in await read_all(tables, question)]


async def count_live(tables: StoreTables, _: questions.CountLive) -> dict[str, int]:
    kinds, links = await tables.ask_all(
        [
            "SELECT kind, count() AS count FROM record WHERE deleted_at IS NONE GROUP BY kind",
            "SELECT count() AS count FROM link WHERE deleted_at IS NONE GROUP ALL",
        ],
        {},
    )
    return {**{unescape_text(row["kind"]): row["count"] for row in kinds}, "link": _get_count(links)}


async def estimate_size(tables: StoreTables) -> int:
    """Estimate the bytes of a store from some of its records, because the server reports no sizes."""
    state = await tables.read_state()
    sample = await tables.ask(
        f"SELECT bytes::len(<bytes>text) AS size, embedded FROM record LIMIT {_SIZE_SAMPLE_RECORDS}"
    )
    if not sample:
        return 0
    vectors = {escape_text(model.name): model.dimensions * _VECTOR_NUMBER_BYTES for model in state.models}
    # A text is stored twice: once unchanged, once as words.
    sizes = [_RECORD_BYTES + 2 * row["size"] + vectors.get(row.get("embedded") or "", 0) for row in sample]
    records = max(state.ages, len(sample))
    return sum(sizes) * records // len(sizes)


async def count_records(tables: StoreTables, asked: questions.CountRecords) -> int:
    wanted = build_filter(asked.where)
    return _get_count(
        await tables.ask(
            f"SELECT count() AS count FROM {choose_source(asked.where)} WHERE {wanted.text} GROUP ALL", **wanted.values
        )
    )


async def tally(tables: StoreTables, asked: questions.TallyRecords) -> list[RecordTally]:
    rows = await tables.ask(
        "SELECT kind, scope, type, deleted_at IS NOT NONE AS gone, count() AS count FROM record "
        "WHERE kind IN $kinds GROUP BY kind, scope, type, gone",
        kinds=[escape_text(kind) for kind in dict.fromkeys(asked.kinds)],
    )
    return [
        RecordTally(
            unescape_text(row["kind"]),
            unescape_text(row["scope"]),
            row["type"] and unescape_text(row["type"]),
            row["gone"],
            row["count"],
        )
        for row in rows
    ]


async def list_scopes(tables: StoreTables, asked: questions.ListScopes) -> list[str]:
    rows = await tables.ask(
        "SELECT scope FROM record WHERE kind = $kind AND deleted_at IS NONE GROUP BY scope",
        kind=escape_text(asked.kind),
    )
    return sorted(unescape_text(row["scope"]) for row in rows)


async def list_authors(tables: StoreTables, _: questions.ListAuthors) -> list[str]:
    rows = await tables.ask(
        "SELECT author FROM record WHERE author IS NOT NONE AND author != '' AND deleted_at IS NONE GROUP BY author"
    )
    return sorted(unescape_text(row["author"]) for row in rows)


async def read_changes(tables: StoreTables, asked: questions.ReadChanges) -> list[Change]:
    await tables.ensure_ready()
    if asked.newest_first:
        heads = await _read_newest_heads(tables, asked.after, asked.limit)
    else:
        heads = await tables.ask(
            f"SELECT * FROM {build_row_range(tables, 'change', '$first..')} ORDER BY id{_format_limit(asked.limit)}",
            first=asked.after + 1,
        )
    if asked.most_edits is not None and heads:  # edits are numbered from 0
        last = [build_row_id("edit", [head["id"].id, asked.most_edits]) for head in heads]
        large = {row["id"].id[0] for row in await tables.ask("SELECT id FROM $last", last=last)}
        heads = [head for head in heads if head["id"].id not in large]
    return await read_with_edits(tables, heads)


async def _read_newest_heads(tables: StoreTables, after: int, limit: int) -> list[Row]:
    """Read from the end in steps, because version 3 applies the limit to a range before it reverses the order."""
    heads: list[Row] = []
    last, many = (await tables.read_state()).seq, limit
    while last > after and len(heads) < limit:
        first = max(after, last - many)
        rows = await tables.ask(
            f"SELECT * FROM {build_row_range(tables, 'change', '$first..$last')}", first=first + 1, last=last + 1
        )
        heads += sorted(rows, key=lambda row: -row["id"].id)
        last, many = first, 4 * many  # replication leaves gaps
    return heads[:limit]


async def read_with_edits(tables: StoreTables, heads: Sequence[Row]) -> list[Change]:
    """Return the changes of these rows."""
    if not heads:
        return []
    numbers = [head["id"].id for head in heads]
    rows = await tables.ask(
        f"SELECT * FROM {build_row_range(tables, 'edit', '$first..$last')} ORDER BY id",
        first=[min(numbers), 0],
        last=[max(numbers) + 1, 0],
    )
    edits: dict[int, list[Row]] = {number: [] for number in numbers}
    for row in rows:
        number = row["id"].id[0]
        if number in edits:
            edits[number].append(row)
    return [decode_change(head, edits[head["id"].id]) for head in heads]


async def read_history(tables: StoreTables, asked: questions.ReadHistory) -> list[tuple[int, Edit]]:
    if not asked.refs:
        return []
    rows = await tables.ask(
        "SELECT * FROM edit WITH INDEX edit_item WHERE item IN $items AND id >= $seen ORDER BY id",
        items=[escape_text(item) for item in dict.fromkeys(ref.id for ref in asked.refs)],
        seen=build_row_id("edit", [asked.after + 1, 0]),
    )
    wanted = set(asked.refs)
    edits = [(row["id"].id[0], decode_edit(row)) for row in rows]
    return [(seq, edit) for seq, edit in edits if Ref(edit.subject, edit.id or "") in wanted]


async def get_accesses(tables: StoreTables, asked: questions.GetAccesses) -> dict[str, AccessCount]:
    if not asked.ids:
        return {}
    rows = await tables.ask("SELECT * FROM $ids", ids=encode_ids("access", asked.ids))
    return {decode_id(row["id"]): AccessCount(row["count"], row["last_at"]) for row in rows}


async def list_most_accessed(tables: StoreTables, asked: questions.ListMostAccessed) -> dict[str, AccessCount]:
    rows = await tables.ask(
        "SELECT * FROM access WHERE of.age IS NOT NONE AND of.deleted_at IS NONE "
        f"ORDER BY count DESC, last_at DESC, id{_format_limit(asked.limit)}"
    )
    return {decode_id(row["id"]): AccessCount(row["count"], row["last_at"]) for row in rows}


async def note_accesses(tables: StoreTables, upkeep: questions.NoteAccesses) -> None:
    rows = [
        {"id": encode_id("access", record_id), "of": encode_id("record", record_id), "count": count}
        for record_id, count in upkeep.counts.items()
    ]
    await tables.alter(
        "FOR $row IN $rows { IF record::exists($row.of) { UPSERT $row.id SET of = $row.of, "
        "count = (count ?? 0) + $row.count, last_at = math::max([last_at ?? $at, $at]) } }",
        rows=rows,
        at=upkeep.at,
    )


def get_parent_id(row: Row) -> str | None:
    return None if row.get("parent") is None else decode_id(row["parent"])


def build_row_range(tables: StoreTables, table: str, ids: str) -> str:
    """Return the expression for the rows in a range of ids, or for one row."""
    return f"type::{_ID_FUNCTIONS[tables.is_modern]}('{table}', {ids})"


def _get_count(rows: Sequence[Row]) -> int:
    return rows[0]["count"] if rows else 0


def _to_limit(limit: int | None) -> int | None:
    return None if limit is None or limit < 0 else limit


def _format_limit(limit: int | None) -> str:
    most = _to_limit(limit)
    return "" if most is None else f" LIMIT {most}"
