"""What was asked, and how often tools were called, in the library's database."""

import json
from collections.abc import Sequence
from typing import Any

from everkept.core.searching import KEPT_SEARCHES, Search
from everkept.core.usage import Usage, summed
from everkept.engines.surreal.catalogue.desk import Desk, row_id
from everkept.engines.surreal.connecting.attempts import retried
from everkept.engines.surreal.connecting.connection import Contended, Thrown

AT_ONCE = 500  # rows in one transaction
_LAST = "((SELECT VALUE last FROM ONLY meta:searches) ?? 0)"


async def add_searches(desk: Desk, searches: Sequence[Search]) -> None:
    kept = searches[-KEPT_SEARCHES:]
    for start in range(0, len(kept), AT_ONCE):
        some = kept[start : start + AT_ONCE]
        await retried(lambda some=some: _add_some(desk, some))


async def newest_searches(desk: Desk, session: str | None, limit: int) -> list[Search]:
    if limit <= 0:
        return []
    meant = "WHERE session = $asked_in" if session is not None else ""
    [rows] = await desk.ask(
        f"SELECT * FROM search {meant} ORDER BY id DESC LIMIT $limit",
        {"asked_in": session, "limit": limit},
    )
    return [
        Search(
            row["at"],
            row["tool"],
            row["query"],
            row["results"],
            row["milliseconds"],
            row.get("session"),
            json.loads(row["filters"]),
        )
        for row in rows
    ]


async def forget_searches(desk: Desk) -> int:
    [count] = await desk.alter(
        "{ LET $gone = (SELECT VALUE id FROM search); DELETE $gone; RETURN count($gone) }"
    )
    return count


async def add_usage(desk: Desk, rows: Sequence[Usage]) -> None:
    """What others have added meanwhile stays: the sum is made by the database."""
    if not rows:
        return
    added = [
        {
            "id": row_id("usage", row.tool),
            "tool": row.tool,
            "calls": row.calls,
            "errors": row.errors,
            "total_ms": row.total_ms,
            "longest_ms": row.longest_ms,
            "last_at": row.last_at,
        }
        for row in summed(rows)
    ]
    await desk.alter(
        "FOR $row IN $rows { UPSERT $row.id SET tool = $row.tool, calls += $row.calls, "
        "errors += $row.errors, total_ms += $row.total_ms, "
        "longest_ms = math::max([longest_ms ?? 0f, $row.longest_ms]), "
        "last_at = math::max([last_at ?? 0, $row.last_at]) }",
        {"rows": added},
    )


async def usage(desk: Desk) -> list[Usage]:
    [rows] = await desk.ask("SELECT tool, calls, errors, total_ms, longest_ms, last_at FROM usage")
    return summed(Usage(**row) for row in rows)


async def _add_some(desk: Desk, searches: Sequence[Search]) -> None:
    [last] = await desk.ask(f"RETURN {_LAST}")
    rows = [_row(last + number, search) for number, search in enumerate(searches, 1)]
    end = last + len(rows)
    oldest = [
        row_id("search", number)
        for number in range(last - KEPT_SEARCHES + 1, end - KEPT_SEARCHES + 1)
        if number > 0
    ]
    try:
        await desk.alter(
            f"{{ IF {_LAST} != $last {{ THROW 'disturbed' }}; "
            "UPSERT meta:searches SET last = $end; "
            "FOR $row IN $rows { CREATE $row.id CONTENT $row RETURN NONE }; DELETE $oldest }",
            {"last": last, "end": end, "rows": rows, "oldest": oldest},
        )
    except Thrown as thrown:
        raise Contended(str(thrown)) from thrown


def _row(number: int, search: Search) -> dict[str, Any]:
    return {
        "id": row_id("search", number),
        "at": search.at,
        "tool": search.tool,
        "query": search.query,
        "results": search.results,
        "milliseconds": search.milliseconds,
        "session": search.session,
        "filters": json.dumps(search.filters, ensure_ascii=False),
    }
