"""Processes that open the folder of an embedded SurrealDB."""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from everkept.engines.surreal.drivers import EmbeddedConnection
from everkept.errors import EverkeptError

NS, DB = "memory", "default"


def _say(what: Any) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def fill(folder: str) -> None:
    """Says the number of each record once it is stored, until it is killed."""

    async def run() -> None:
        connection = EmbeddedConnection(Path(folder), NS)
        for number in range(1_000_000):
            await connection.run(DB, "CREATE a SET n = $n", {"n": number})
            _say(number)

    os.environ["SURREAL_SYNC_DATA"] = "true"
    asyncio.run(run())


def visit(folder: str) -> None:
    """Says how many records there are, or as which error it ended."""

    async def run() -> None:
        connection = EmbeddedConnection(Path(folder), NS)
        try:
            [found] = await connection.run(DB, "SELECT VALUE n FROM a")
            _say(len(found))
        except EverkeptError as error:
            _say(error.to_envelope())
        await connection.close()

    asyncio.run(run())


def outgrow(folder: str, limit: int) -> None:
    """Writes past the largest size that a file may have, then again where it may be larger."""
    import resource

    async def run() -> None:
        connection = EmbeddedConnection(Path(folder), NS)
        await connection.run(DB, "CREATE a:1 SET n = 1")
        most = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, most[1]))
        try:
            await connection.run(DB, "CREATE a:2 SET n = $n", {"n": "x" * 2 * limit})
        except EverkeptError as error:
            _say(error.to_envelope())
        resource.setrlimit(resource.RLIMIT_FSIZE, most)
        await connection.run(DB, "CREATE a:3 SET n = 3")
        _say(await connection.run(DB, "SELECT VALUE n FROM a"))
        await connection.close()

    asyncio.run(run())
