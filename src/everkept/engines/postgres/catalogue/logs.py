"""What was asked, and how often tools were called."""

import json
from collections.abc import Sequence

from everkept.core.searching import KEPT_SEARCHES, Search
from everkept.core.text import digest
from everkept.core.usage import Usage, summed
from everkept.engines.postgres.connecting.database import Cursor
from everkept.engines.postgres.records.asking import most


def add_searches(cursor: Cursor, searches: Sequence[Search]) -> None:
    kept = searches[-KEPT_SEARCHES:]
    cursor.ask(
        "INSERT INTO searches(at, tool, query, results, milliseconds, session, filters) "
        "SELECT * FROM unnest(%s::bigint[], %s::text[], %s::text[], %s::bigint[], "
        "%s::double precision[], %s::text[], %s::text[])",
        (
            [search.at for search in kept],
            [search.tool for search in kept],
            [search.query for search in kept],
            [search.results for search in kept],
            [search.milliseconds for search in kept],
            [search.session for search in kept],
            [json.dumps(search.filters) for search in kept],
        ),
    )
    cursor.ask(
        "DELETE FROM searches WHERE seq IN "
        # What somebody else removes just now is none of ours.
        "(SELECT seq FROM searches ORDER BY seq DESC OFFSET %s FOR UPDATE SKIP LOCKED)",
        (KEPT_SEARCHES,),
    )


def newest_searches(cursor: Cursor, session: str | None, limit: int) -> list[Search]:
    rows = cursor.ask_last(
        "SELECT at, tool, query, results, milliseconds, session, filters FROM searches "
        "WHERE %(session)s::text IS NULL OR session = %(session)s "
        "ORDER BY seq DESC LIMIT %(limit)s",
        {"session": session, "limit": most(max(limit, 0))},
    )
    return [
        Search(at, tool, query, results, milliseconds, asked_in, json.loads(filters))
        for at, tool, query, results, milliseconds, asked_in, filters in rows
    ]


def forget_searches(cursor: Cursor) -> int:
    return cursor.execute("DELETE FROM searches").rowcount


def add_usage(cursor: Cursor, rows: Sequence[Usage]) -> None:
    """What others have added meanwhile stays: the sum is made by the database."""
    # In one order, so that nobody waits for somebody who waits for them.
    for u in sorted(summed(rows), key=lambda usage: usage.tool):
        cursor.ask(
            "INSERT INTO usage(digest, tool, calls, errors, total_ms, longest_ms, last_at) "
            "VALUES (%s, %s, %s, %s, %s, %s, %s) ON CONFLICT (digest) DO UPDATE SET "
            "calls = usage.calls + excluded.calls, "
            "errors = usage.errors + excluded.errors, "
            "total_ms = usage.total_ms + excluded.total_ms, "
            "longest_ms = greatest(usage.longest_ms, excluded.longest_ms), "
            "last_at = greatest(usage.last_at, excluded.last_at)",
            (digest(u.tool), u.tool, u.calls, u.errors, u.total_ms, u.longest_ms, u.last_at),
        )


def usage(cursor: Cursor) -> list[Usage]:
    rows = cursor.ask_last("SELECT tool, calls, errors, total_ms, longest_ms, last_at FROM usage")
    return summed(Usage(*row) for row in rows)
