"""How often tools of the gateway were called, kept in `_meta.db`."""

from collections.abc import Sequence

from everkept.core.usage import Usage
from everkept.engines.sqlite.sql import Connection

_COLUMNS = "tool, calls, errors, total_ms, longest_ms, last_at"


def add(db: Connection, rows: Sequence[Usage]) -> None:
    """What others have added meanwhile stays: the sum is made by the database."""
    db.executemany(
        f"INSERT INTO usage({_COLUMNS}) VALUES (?,?,?,?,?,?) ON CONFLICT(tool) DO UPDATE SET "
        "calls = calls + excluded.calls, "
        "errors = errors + excluded.errors, "
        "total_ms = total_ms + excluded.total_ms, "
        "longest_ms = max(longest_ms, excluded.longest_ms), "
        "last_at = max(last_at, excluded.last_at)",
        [(u.tool, u.calls, u.errors, u.total_ms, u.longest_ms, u.last_at) for u in rows],
    )


def most_called(db: Connection) -> list[Usage]:
    rows = db.execute(f"SELECT {_COLUMNS} FROM usage ORDER BY calls DESC, tool")
    return [Usage(*row) for row in rows]
