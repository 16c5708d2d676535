"""The questions of the port as SQL, each against one connection and in few statements."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from recollect.core.ports import Direction, Order
from recollect.core.records import Change, Edit, Link, Match, Record, Ref, Weights, Where
from recollect.core.words import WordQuery, to_fts5
from recollect.engines.sqlite.rows import LINK_COLUMNS, RECORD_COLUMNS, link_from, record_from
from recollect.engines.sqlite.sql import Connection

_KEYS_OF_IDS = "SELECT key FROM records WHERE id IN (SELECT value FROM json_each(?))"


def get_records(db: Connection, ids: Sequence[str], *, include_deleted: bool) -> list[Record]:
    where = Where(ids=tuple(ids), deleted=None if include_deleted else False)
    found = {record.id: record for record in scan(db, where)}
    return [found[record_id] for record_id in dict.fromkeys(ids) if record_id in found]


def get_links(db: Connection, ids: Sequence[str], *, include_deleted: bool) -> list[Link]:
    live = "" if include_deleted else " AND l.deleted_at IS NULL"
    rows = db.execute(
        f"SELECT {LINK_COLUMNS} FROM links l WHERE l.id IN (SELECT value FROM json_each(?)){live}",
        (_listed(ids),),
    )
    found = {link.id: link for link in map(link_from, rows)}
    return [found[link_id] for link_id in dict.fromkeys(ids) if link_id in found]


def scan(
    db: Connection,
    where: Where,
    order: Order = "age",
    after: tuple[str, str] | None = None,
    limit: int | None = None,
) -> list[Record]:
    conditions, bindings = _conditions(where)
    if after is not None:
        conditions.append("(r.name_key, r.variant) > (?, ?)")
        bindings.extend(after)
    sorting = "r.name_key, r.variant, r.key" if order == "name" else "r.key"
    if order == "name":
        conditions.append("r.name_key IS NOT NULL")
    rows = db.execute(
        f"SELECT {RECORD_COLUMNS} FROM records r WHERE {' AND '.join(conditions)} "
        f"ORDER BY {sorting} LIMIT ?",
        (*bindings, -1 if limit is None else limit),
    )
    return [record_from(row) for row in rows]


def match(
    db: Connection, words: WordQuery, where: Where, weights: Weights, limit: int
) -> list[Match]:
    conditions, bindings = _conditions(replace(where, deleted=False))
    # CROSS JOIN: the index must lead, in the order of its own ranking, so that LIMIT ends it.
    rows = db.execute(
        "SELECT r.id, (SELECT p.id FROM records p WHERE p.key = r.parent), -rank "
        "FROM words CROSS JOIN records r ON r.key = words.rowid "
        f"WHERE words MATCH ? AND rank MATCH ? AND {' AND '.join(conditions)} "
        "ORDER BY rank LIMIT ?",
        (
            to_fts5(words),
            f"bm25({weights.name}, {weights.text}, {weights.context})",
            *bindings,
            limit,
        ),
    )
    return [Match(*row) for row in rows]


def containing(db: Connection, text: str, where: Where, limit: int) -> list[Match]:
    conditions, bindings = _conditions(replace(where, deleted=False))
    # SQLite's own lower() is quick and knows ASCII; ours knows every script.
    lower = "lower" if text.isascii() else "lowered"
    rows = db.execute(
        "SELECT r.id, (SELECT p.id FROM records p WHERE p.key = r.parent), "
        f"CASE WHEN instr({lower}(r.name), ?1) THEN 2.0 ELSE 1.0 END AS score FROM records r "
        f"WHERE {' AND '.join(conditions)} AND (instr({lower}(r.name), ?1) "
        f"OR instr({lower}(r.type), ?1) OR instr({lower}(r.text), ?1)) "
        "ORDER BY score DESC, r.key LIMIT ?",
        (text.lower(), *bindings, limit),
    )
    return [Match(*row) for row in rows]


def links(
    db: Connection, ids: Sequence[str], direction: Direction, limit: int | None
) -> list[Link]:
    sides = {"out": ["source"], "in": ["target"], "both": ["source", "target"]}[direction]
    keys = " UNION ".join(
        f"SELECT l.key FROM links l WHERE l.deleted_at IS NULL AND l.{side} IN ({_KEYS_OF_IDS})"
        for side in sides
    )
    rows = db.execute(
        f"SELECT {LINK_COLUMNS} FROM links l WHERE l.key IN ({keys}) "
        "ORDER BY l.created_at, l.key LIMIT ?",
        (*[_listed(ids)] * len(sides), -1 if limit is None else limit),
    )
    return [link_from(row) for row in rows]


def scan_links(db: Connection, deleted: bool | None, containing: str) -> list[Link]:
    rows = db.execute(
        f"SELECT {LINK_COLUMNS} FROM links l WHERE instr(lowered(l.verb), ?1) "
        "AND (?2 IS NULL OR (l.deleted_at IS NOT NULL) = ?2) ORDER BY l.key",
        (containing.lower(), deleted),
    )
    return [link_from(row) for row in rows]


def count(db: Connection) -> dict[str, int]:
    counts: dict[str, int] = dict(
        db.execute("SELECT kind, count(*) FROM records WHERE deleted_at IS NULL GROUP BY kind")
    )
    counts["link"] = db.execute("SELECT count(*) FROM links WHERE deleted_at IS NULL").get
    return counts


def changes(db: Connection, after: int, limit: int, *, newest_first: bool) -> list[Change]:
    direction = "DESC" if newest_first else "ASC"
    heads = db.execute(
        f"SELECT seq, at, tool, client, undoes FROM changes WHERE seq > ? "
        f"ORDER BY seq {direction} LIMIT ?",
        (after, limit),
    ).fetchall()
    edits: dict[int, list[Edit]] = {}
    for seq, *edit in db.execute(
        "SELECT e.change, e.operation, e.subject, e.before, "
        "CASE e.subject WHEN 'record' THEN r.id ELSE l.id END FROM edits e "
        "LEFT JOIN records r ON e.subject = 'record' AND r.key = e.item "
        "LEFT JOIN links l ON e.subject = 'link' AND l.key = e.item "
        "WHERE e.change IN (SELECT value FROM json_each(?)) ORDER BY e.change, e.position",
        (_listed([head[0] for head in heads]),),
    ):
        edits.setdefault(seq, []).append(_edit(*edit))
    return [Change(*head, edits=tuple(edits.get(head[0], ()))) for head in heads]


def history(db: Connection, refs: Sequence[Ref], after: int) -> list[tuple[int, Edit]]:
    things = {
        subject: _listed([ref.id for ref in refs if ref.subject == subject])
        for subject in ("record", "link")
    }
    edits = " UNION ALL ".join(
        "SELECT e.change, e.position, e.operation, e.subject, e.before, x.id "
        f"FROM {subject}s x JOIN edits e ON e.item = x.key AND e.subject = '{subject}' "
        "WHERE x.id IN (SELECT value FROM json_each(?)) AND e.change > ?"
        for subject in things
    )
    rows = db.execute(
        f"{edits} ORDER BY 1, 2", [part for ids in things.values() for part in (ids, after)]
    )
    return [(seq, _edit(*edit)) for seq, _, *edit in rows]


def _edit(operation: Any, subject: Any, before: str | None, item_id: str | None) -> Edit:
    return Edit(operation, subject, item_id, None if before is None else json.loads(before))


def _conditions(where: Where) -> tuple[list[str], list[Any]]:
    conditions: list[str] = []
    bindings: list[Any] = []
    if where.deleted is not None:
        conditions.append(f"r.deleted_at IS {'NOT ' if where.deleted else ''}NULL")
    if where.kinds:
        conditions.append(f"r.kind IN ({', '.join('?' * len(where.kinds))})")
        bindings.extend(where.kinds)
    if where.ids is not None:
        conditions.append("r.id IN (SELECT value FROM json_each(?))")
        bindings.append(_listed(where.ids))
    if where.name_keys is not None:
        conditions.append("r.name_key IN (SELECT value FROM json_each(?))")
        bindings.append(_listed(where.name_keys))
    if where.parents is not None:
        conditions.append(f"r.parent IN ({_KEYS_OF_IDS})")
        bindings.append(_listed(where.parents))
    return conditions or ["1"], bindings


def _listed(values: Sequence[Any]) -> str:
    return json.dumps(list(values))
