"""Queries of the port as SQL: filters become conditions, and each query takes few statements."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from everkept.core import store as questions
from everkept.core.records import SESSION_SCOPE, Change, Edit, Match, Record, RecordFilter, RecordLink
from everkept.engines.sqlite.connection import Connection
from everkept.engines.sqlite.rows import (
    LINK_COLUMNS,
    RECORD_COLUMNS,
    decode_before,
    decode_link,
    decode_record,
    encode_list,
)
from everkept.engines.sqlite.word_index import count_indexed_rows
from everkept.language.words import to_fts5
from everkept.values import Value, field, replace

if TYPE_CHECKING:  # a hook loads only what it uses
    from everkept.core.ports import Order, RecordTally, ScanPosition

SELECT_KEYS = "SELECT key FROM records WHERE id IN (SELECT value FROM json_each(?))"

_EVENT_TIME = "coalesce(r.occurred_at, r.created_at)"
_TOUCHED_TIME = "max(r.updated_at, coalesce(r.deleted_at, 0))"


class Conditions(Value, frozen=False):
    """SQL conditions that must all hold, with the values for their question marks."""

    parts: list[str] = field(default_factory=list[str])
    bindings: list[Any] = field(default_factory=list[Any])

    def add(self, part: str, *bindings: Any) -> None:
        self.parts.append(part)
        self.bindings.extend(bindings)

    @property
    def sql(self) -> str:
        return " AND ".join(self.parts) or "1"


def build_conditions(where: RecordFilter) -> Conditions:
    found = Conditions()
    if where.deleted is not None:
        found.add(f"r.deleted_at IS {'NOT ' if where.deleted else ''}NULL")
    if where.kinds:
        found.add(f"r.kind {_format_in(where.kinds)}", *where.kinds)
    if where.ids is not None:
        found.add("r.id IN (SELECT value FROM json_each(?))", encode_list(where.ids))
    if where.name_keys is not None:
        found.add("r.name_key IN (SELECT value FROM json_each(?))", encode_list(where.name_keys))
    if where.parents is not None:
        found.add(f"r.parent IN ({SELECT_KEYS})", encode_list(where.parents))
    _add_places(where, found)
    _add_traits(where, found)
    return found


def _add_places(where: RecordFilter, found: Conditions) -> None:
    if where.scopes:
        # With several scopes an index would return records in no useful order. Without it they come sorted by key, and
        # LIMIT ends the scan.
        column = "r.scope" if len(where.scopes) == 1 else "+r.scope"
        found.add(f"{column} {_format_in(where.scopes)}", *where.scopes)
    if where.sessions is not None:
        found.add("r.session IN (SELECT value FROM json_each(?))", encode_list(where.sessions))
    if where.places is not None:
        # SQLite uses a partial index on sessions only if the condition says IS NOT NULL.
        found.add(
            "r.session IS NOT NULL AND (r.session, r.position) IN (SELECT value ->> 0, value ->> 1 FROM json_each(?))",
            json.dumps(where.places),
        )
    if where.visible_to is not None:
        found.add(f"(r.scope <> '{SESSION_SCOPE}' OR r.session = ?)", where.visible_to)


def _add_traits(where: RecordFilter, found: Conditions) -> None:
    if where.types:
        found.add(f"r.type {_format_in(where.types)}", *where.types)
    if where.tags:
        found.add(
            "r.key IN (SELECT record FROM tags WHERE tag IN (SELECT value FROM json_each(?)))", encode_list(where.tags)
        )
    if where.pinned:
        found.add("json_extract(r.facets, '$.pinned') = 1")
    if where.automatic:
        found.add("json_extract(r.facets, '$.automatic') = 1")
    if where.min_importance is not None:
        found.add("coalesce(r.importance, 0) >= ?", where.min_importance)
    if where.after is not None:
        found.add(f"{_EVENT_TIME} >= ?", where.after)
    if where.before is not None:
        found.add(f"{_EVENT_TIME} <= ?", where.before)
    if where.created_before is not None:
        found.add("r.created_at <= ?", where.created_before)
    if where.touched_after is not None:
        found.add(f"{_TOUCHED_TIME} > ?", where.touched_after)


def _format_in(values: tuple[str, ...]) -> str:
    return "= ?" if len(values) == 1 else f"IN ({', '.join('?' * len(values))})"


_ORDER_BY = {"name": "r.name_key, r.variant, r.key", "age": "r.key", "newest": "r.key DESC"}


def get_records(db: Connection, question: questions.GetRecords) -> list[Record]:
    live = "" if question.include_deleted else " AND r.deleted_at IS NULL"
    rows = db.execute(
        f"SELECT {RECORD_COLUMNS} FROM records r WHERE r.id IN (SELECT value FROM json_each(?)){live}",
        (encode_list(question.ids),),
    )
    found = {record.id: record for record in map(decode_record, rows)}
    return [found[record_id] for record_id in dict.fromkeys(question.ids) if record_id in found]


def find_by_prefix(db: Connection, question: questions.FindByPrefix) -> list[Record]:
    rows = db.execute(
        f"SELECT {RECORD_COLUMNS} FROM records r WHERE r.id >= ? AND r.id < ? "
        "AND r.kind IN (SELECT value FROM json_each(?)) ORDER BY r.id LIMIT ?",
        (question.prefix, question.prefix + questions.LAST_CHARACTER, encode_list(question.kinds), question.limit),
    )
    return [decode_record(row) for row in rows]


def get_links(db: Connection, question: questions.GetLinks) -> list[RecordLink]:
    live = "" if question.include_deleted else " AND l.deleted_at IS NULL"
    rows = db.execute(
        f"SELECT {LINK_COLUMNS} FROM links l WHERE l.id IN (SELECT value FROM json_each(?)){live}",
        (encode_list(question.ids),),
    )
    found = {link.id: link for link in map(decode_link, rows)}
    return [found[link_id] for link_id in dict.fromkeys(question.ids) if link_id in found]


def scan(db: Connection, question: questions.ScanRecords) -> list[Record]:
    if len(question.where.kinds) > 1 and question.limit is not None and question.order != "name":
        return _scan_kinds(db, question, question.limit)
    wanted = _build_page_conditions(question.where, question.order, question.after)
    rows = db.execute(
        f"SELECT {RECORD_COLUMNS} FROM records r WHERE {wanted.sql} ORDER BY {_ORDER_BY[question.order]} LIMIT ?",
        (*wanted.bindings, -1 if question.limit is None else question.limit),
    )
    return [decode_record(row) for row in rows]


def _scan_kinds(db: Connection, question: questions.ScanRecords, limit: int) -> list[Record]:
    """Scan kind by kind: an index has the order of each kind, but not of all kinds together."""
    order = question.order
    keys: list[int] = []
    for kind in dict.fromkeys(question.where.kinds):
        wanted = _build_page_conditions(replace(question.where, kinds=(kind,)), order, question.after)
        rows = db.execute(
            f"SELECT r.key FROM records r WHERE {wanted.sql} ORDER BY {_ORDER_BY[order]} LIMIT ?",
            (*wanted.bindings, limit),
        )
        keys += [row[0] for row in rows]
    keys = sorted(keys, reverse=order == "newest")[: limit if limit >= 0 else None]
    found = db.execute(
        f"SELECT r.key, {RECORD_COLUMNS} FROM records r WHERE r.key IN (SELECT value FROM json_each(?))",
        (encode_list(keys),),
    )
    records = {key: decode_record(tuple(row)) for key, *row in found}
    return [records[key] for key in keys]


def _build_page_conditions(where: RecordFilter, order: "Order", after: "ScanPosition | None") -> Conditions:
    wanted = build_conditions(where)
    if isinstance(after, str):
        behind = "<" if order == "newest" else ">"
        wanted.add(f"r.key {behind} (SELECT key FROM records WHERE id = ?)", after)
    elif after is not None:
        wanted.add("(r.name_key, r.variant) > (?, ?)", *after)
    if order == "name":
        wanted.add("r.name_key IS NOT NULL")
    return wanted


def match(db: Connection, question: questions.MatchWords) -> list[Match]:
    wanted = build_conditions(replace(question.where, deleted=False))
    # CROSS JOIN: the index must come first, in the order of its ranking, so that LIMIT ends the scan.
    rows = db.execute(
        "SELECT r.id, (SELECT p.id FROM records p WHERE p.key = r.parent), -rank "
        "FROM words CROSS JOIN records r ON r.key = words.rowid "
        f"WHERE words MATCH ? AND rank MATCH ? AND {wanted.sql} "
        "ORDER BY rank LIMIT ?",
        (
            to_fts5(question.words),
            f"bm25({question.weights.name}, {question.weights.text}, {question.weights.context})",
            *wanted.bindings,
            question.limit,
        ),
    )
    return [Match(*row) for row in rows]


def match_text(db: Connection, question: questions.MatchText, among: Sequence[int] | None = None) -> list[Match]:
    """Match a part of the text. If `among` is given, check only the records with these keys."""
    wanted = build_conditions(replace(question.where, deleted=False))
    # CROSS JOIN: go from the keys to their records, never the other way round.
    keys = "" if among is None else "json_each(?2) k CROSS JOIN "
    joined = "" if among is None else "r.key = k.value AND "
    # SQLite's lower() is fast and handles only ASCII; ours handles every script.
    lower = "lower" if question.text.isascii() else "lowered"
    rows = db.execute(
        "SELECT r.id, (SELECT p.id FROM records p WHERE p.key = r.parent), "
        f"CASE WHEN instr({lower}(r.name), ?1) THEN 2.0 ELSE 1.0 END AS score "
        f"FROM {keys}records r WHERE {joined}{wanted.sql} AND (instr({lower}(r.name), ?1) "
        f"OR instr({lower}(r.type), ?1) OR instr({lower}(r.text), ?1)) "
        "ORDER BY score DESC, r.key LIMIT ?",
        (question.text.lower(), *([] if among is None else [encode_list(among)]), *wanted.bindings, question.limit),
    )
    return [Match(*row) for row in rows]


def list_links(db: Connection, question: questions.FindLinks) -> list[RecordLink]:
    sides = {"out": ["source"], "in": ["target"], "both": ["source", "target"]}[question.direction]
    keys = " UNION ".join(
        f"SELECT l.key FROM links l WHERE l.deleted_at IS NULL AND l.{side} IN ({SELECT_KEYS})" for side in sides
    )
    # The index of kinds is small, and both ends of a live link are live.
    going_out = (
        " AND EXISTS (SELECT 1 FROM records s INDEXED BY records_kind WHERE s.key = l.source "
        "AND s.deleted_at IS NULL AND s.kind IN (SELECT value FROM json_each(?)))"
        if question.sources
        else ""
    )
    rows = db.execute(
        f"SELECT {LINK_COLUMNS} FROM links l WHERE l.key IN ({keys}){going_out} ORDER BY l.created_at, l.key LIMIT ?",
        (
            *[encode_list(question.ids)] * len(sides),
            *([encode_list(question.sources)] if question.sources else []),
            -1 if question.limit is None else question.limit,
        ),
    )
    return [decode_link(row) for row in rows]


def scan_links(db: Connection, question: questions.ScanLinks) -> list[RecordLink]:
    rows = db.execute(
        f"SELECT {LINK_COLUMNS} FROM links l WHERE instr(lowered(l.verb), ?1) "
        "AND (?2 IS NULL OR (l.deleted_at IS NOT NULL) = ?2) ORDER BY l.key",
        (question.containing.lower(), question.deleted),
    )
    return [decode_link(row) for row in rows]


def count_live(db: Connection, _: questions.CountLive) -> dict[str, int]:
    counts: dict[str, int] = dict(
        db.execute("SELECT kind, count(*) FROM records WHERE deleted_at IS NULL GROUP BY kind")
    )
    counts["link"] = db.execute("SELECT count(*) FROM links WHERE deleted_at IS NULL").get
    return counts


def count_records(db: Connection, question: questions.CountRecords) -> int:
    if question.where == RecordFilter():  # the word index has one row per live record and knows their number
        return count_indexed_rows(db)
    wanted = build_conditions(question.where)
    return db.execute(f"SELECT count(*) FROM records r WHERE {wanted.sql}", tuple(wanted.bindings)).get


def tally(db: Connection, question: questions.TallyRecords) -> "list[RecordTally]":
    from everkept.core.answers import RecordTally

    parts = " UNION ALL ".join(
        f"SELECT kind, scope, type, {is_deleted}, count(*) FROM records INDEXED BY {index} "
        f"WHERE deleted_at IS {state} AND kind IN (SELECT value FROM json_each(?1)) "
        "GROUP BY kind, scope, type"
        for is_deleted, index, state in ((0, "records_live", "NULL"), (1, "records_deleted", "NOT NULL"))
    )
    return [
        RecordTally(kind, scope, record_type, bool(is_deleted), count)
        for kind, scope, record_type, is_deleted, count in db.execute(parts, (encode_list(question.kinds),))
    ]


def list_scopes(db: Connection, question: questions.ListScopes) -> list[str]:
    """List the scopes of a kind. SQLite skips from each scope to the next one in the index."""
    rows = db.execute(
        "SELECT DISTINCT scope FROM records INDEXED BY records_scope "
        "WHERE kind = ? AND deleted_at IS NULL ORDER BY scope",
        (question.kind,),
    )
    return [row[0] for row in rows]


def list_authors(db: Connection, _: questions.ListAuthors) -> list[str]:
    """List the authors by skipping from one to the next in the index: there are few, however many records exist."""
    smallest = "SELECT min(author) FROM records WHERE deleted_at IS NULL AND author >"
    rows = db.execute(
        f"WITH RECURSIVE found(author) AS ({smallest} '' UNION ALL "
        f"SELECT ({smallest} found.author) FROM found WHERE found.author IS NOT NULL) "
        "SELECT author FROM found WHERE author IS NOT NULL"
    )
    return [row[0] for row in rows]


def read_changes(
    db: Connection, after: int, limit: int, *, newest_first: bool, most_edits: int | None = None
) -> list[Change]:
    direction = "DESC" if newest_first else "ASC"
    heads = db.execute(
        f"SELECT seq, at, tool, client, undoes FROM changes WHERE seq > ? ORDER BY seq {direction} LIMIT ?",
        (after, limit),
    ).fetchall()
    if most_edits is not None:  # edits are numbered from 0
        large = db.execute(
            "SELECT change FROM edits WHERE change IN (SELECT value FROM json_each(?)) AND position = ?",
            (encode_list([head[0] for head in heads]), most_edits),
        )
        left_out = {row[0] for row in large}
        heads = [head for head in heads if head[0] not in left_out]
    edits: dict[int, list[Edit]] = {}
    for seq, *edit in db.execute(
        "SELECT e.change, e.operation, e.subject, e.before, "
        "CASE e.subject WHEN 'record' THEN r.id ELSE l.id END FROM edits e "
        "LEFT JOIN records r ON e.subject = 'record' AND r.key = e.item "
        "LEFT JOIN links l ON e.subject = 'link' AND l.key = e.item "
        "WHERE e.change IN (SELECT value FROM json_each(?)) ORDER BY e.change, e.position",
        (encode_list([head[0] for head in heads]),),
    ):
        edits.setdefault(seq, []).append(_decode_edit(*edit))
    return [Change(*head, edits=tuple(edits.get(head[0], ()))) for head in heads]


def read_history(db: Connection, question: questions.ReadHistory) -> list[tuple[int, Edit]]:
    things = {
        subject: encode_list([ref.id for ref in question.refs if ref.subject == subject])
        for subject in ("record", "link")
    }
    edits = " UNION ALL ".join(
        "SELECT e.change, e.position, e.operation, e.subject, e.before, x.id "
        f"FROM {subject}s x JOIN edits e ON e.item = x.key AND e.subject = '{subject}' "
        "WHERE x.id IN (SELECT value FROM json_each(?)) AND e.change > ?"
        for subject in things
    )
    rows = db.execute(f"{edits} ORDER BY 1, 2", [part for ids in things.values() for part in (ids, question.after)])
    return [(seq, _decode_edit(*edit)) for seq, _, *edit in rows]


def _decode_edit(operation: Any, subject: Any, before: str | None, item_id: str | None) -> Edit:
    return Edit(operation, subject, item_id, decode_before(before))
