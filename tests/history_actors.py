"""What other processes do to the store of past conversations; each speaks in lines of JSON."""

import asyncio
from pathlib import Path
from typing import cast

from actors import heard, say
from recollect.core.records import Batch, Change
from recollect.engines.sqlite.library import SqliteLibrary
from recollect.engines.sqlite.store import SqliteStore
from transcribing import from_json, importer


def import_all(folder: str, transcripts: str) -> None:
    """Waits for a word, then imports to the end; says each commit, and at last `done`."""

    async def run() -> None:
        library = SqliteLibrary(Path(folder))
        store = cast(SqliteStore, await library.history())
        commit = store.commit

        async def told(batch: Batch) -> Change:
            change = await commit(batch)
            say("commit")
            return change

        store.commit = told
        say("ready")
        heard()
        await importer(store).take_in(from_json(transcripts))
        say("done")
        await library.close()

    asyncio.run(run())
