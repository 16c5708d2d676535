"""What other processes do to the store of past conversations; each speaks in lines of JSON."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from actors import heard, say
from everkept.core.ports import PurgeResult
from everkept.core.records import Batch, Change, Ref
from everkept.engines.sqlite.library import SqliteLibrary
from everkept.engines.sqlite.store import SqliteStore
from everkept.families.history.ingest import removal
from memory_transcripts import from_json, importer
from records import DAY_ONE


def import_all(folder: str, transcripts: str) -> None:
    """Waits for a word, then imports to the end; says each commit, and at last `done`."""

    async def run() -> None:
        library = SqliteLibrary(Path(folder))
        store = cast(SqliteStore, await library.open_history_store())
        commit = store.commit

        async def told(batch: Batch) -> Change:
            change = await commit(batch)
            say("commit")
            return change

        store.commit = told
        say("ready")
        heard()
        await importer(store).import_transcripts(from_json(transcripts))
        say("done")
        await library.close()

    asyncio.run(run())


def forget_project(folder: str, project: str) -> None:
    """Forgets it in steps of five turns; says each commit and each purge."""

    async def run() -> None:
        removal.PURGE_TURNS = 5
        library = SqliteLibrary(Path(folder))
        store = cast(SqliteStore, await library.open_history_store())
        commit, purge = store.commit, store.purge

        async def told(batch: Batch) -> Change:
            change = await commit(batch)
            say("commit")
            return change

        async def purged(refs: Sequence[Ref]) -> PurgeResult:
            done = await purge(refs)
            say("purge")
            return done

        store.commit, store.purge = told, purged
        await removal.forget_conversations(store, lambda: DAY_ONE, projects=[project])
        say("done")
        await library.close()

    asyncio.run(run())
