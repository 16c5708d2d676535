"""Other programs that open a PostgreSQL database, for tests of what happens when many do."""

import asyncio
import json
import sys
from typing import Any

from everkept.engines.postgres.library import open_database


def open_and_count(url: str, schema: str) -> None:
    """Says that it is there, waits for a word, opens it, and says how many stores it found."""

    async def run() -> int:
        opened = open_database(url, schema)
        try:
            return await opened.read(lambda cursor: len(cursor.execute("SELECT number FROM stores").fetchall()))
        finally:
            await opened.close()

    _say("there")
    sys.stdin.readline()
    _say(asyncio.run(run()))


def _say(what: Any) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()
