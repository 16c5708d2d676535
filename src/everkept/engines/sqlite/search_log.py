"""The questions that were asked, in `_meta.db`."""

import json
from collections.abc import Sequence

from everkept.core.searching import KEPT_SEARCHES, Search
from everkept.engines.sqlite.sql import Connection


def add(db: Connection, searches: Sequence[Search]) -> None:
    db.executemany(
        "INSERT INTO searches(at, tool, query, results, milliseconds, session, filters) "
        "VALUES (?,?,?,?,?,?,?)",
        [
            (s.at, s.tool, s.query, s.results, s.milliseconds, s.session, _packed(s))
            for s in searches
        ],
    )
    db.execute(
        "DELETE FROM searches WHERE seq <= (SELECT max(seq) FROM searches) - ?", (KEPT_SEARCHES,)
    )


def newest(db: Connection, session: str | None, limit: int) -> list[Search]:
    rows = db.execute(
        "SELECT at, tool, query, results, milliseconds, session, filters FROM searches "
        "WHERE ?1 IS NULL OR session = ?1 ORDER BY seq DESC LIMIT ?2",
        (session, limit),
    )
    return [
        Search(at, tool, query, results, milliseconds, asked_in, json.loads(filters))
        for at, tool, query, results, milliseconds, asked_in, filters in rows
    ]


def forget(db: Connection) -> int:
    count: int = db.execute("SELECT count(*) FROM searches").get
    db.execute("DELETE FROM searches")
    return count


def _packed(search: Search) -> str:
    return json.dumps(search.filters, ensure_ascii=False)
