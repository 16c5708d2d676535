"""Other processes that store in a database which comes and goes, all with one data folder."""

import asyncio
from pathlib import Path

from actors import say
from records import batch, entity
from standby import over_server


def store_until_killed(url: str, namespace: str, folder: str, who: str, count: int) -> None:
    """Says the name of each record that it was told to be stored."""

    async def run() -> None:
        library = over_server(url, namespace, Path(folder))
        store = await library.open_user_store()
        for number in range(count):
            name = f"{who}-{number}"
            await store.commit(batch(entity(name), client=who))
            say(name)
        await library.close()

    asyncio.run(run())
