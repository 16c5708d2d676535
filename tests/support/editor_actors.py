"""What an editor does to its database, also as a process of its own."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import apsw

TABLE = "CREATE TABLE cursorDiskKV (key TEXT UNIQUE ON CONFLICT REPLACE, value BLOB)"


def opened(path: str | Path, *, ahead: bool = False) -> apsw.Connection:
    """The database as the editor has it; `ahead` as it writes into a second file first."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    connection = apsw.Connection(str(path))
    connection.execute(f"PRAGMA journal_mode = {'wal' if ahead else 'delete'}")
    if not connection.execute("SELECT 1 FROM sqlite_schema").fetchall():
        connection.execute(TABLE)
    return connection


def put(connection: apsw.Connection, rows: Mapping[str, Any]) -> None:
    """Values that are not text or bytes are written as JSON."""
    for key, value in rows.items():
        raw = value if value is None or isinstance(value, str | bytes) else json.dumps(value)
        connection.execute("INSERT INTO cursorDiskKV VALUES (?, ?)", (key, raw))


def conversation(own: str, *bubbles: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """The rows of a conversation, as newer versions have them."""
    headers = [{"bubbleId": f"b{place}"} for place in range(len(bubbles))]
    head = {"composerId": own, "fullConversationHeadersOnly": headers, "createdAt": 1_772_449_200_000}
    rows: dict[str, Any] = {f"composerData:{own}": head | more}
    return rows | {f"bubbleId:{own}:b{place}": dict(each) for place, each in enumerate(bubbles)}


def keep_writing(path: str) -> None:
    """Adds a message whenever it is told to, and never takes over what it wrote ahead."""
    connection = opened(path, ahead=True)
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    told: list[dict[str, Any]] = []
    for count, _ in enumerate(sys.stdin):
        told.append({"type": 1 + count % 2, "text": f"message {count}"})
        with connection:
            put(connection, conversation("c1", *told))
        sys.stdout.write(json.dumps(len(told)) + "\n")
        sys.stdout.flush()
