"""What other programs do to the graph of one bank; each speaks in lines of JSON."""

import asyncio
from pathlib import Path
from typing import Any

from actors import heard, say
from everkept.app.app import App
from everkept.core.sessions import Session
from everkept.settings import read_settings


def write_entities(data: str, home: str, toolsets: str, who: str, count: int) -> None:
    """One by one, through the tools of a program of its own; says what it was warned of."""

    async def run() -> None:
        flags: dict[str, Any] = {"data_dir": Path(data), "path": Path(home), "toolsets": toolsets}
        app = App(read_settings(flags | {"project": "auto", "embedding_model": "none"}, {}))
        warnings: list[Any] = []
        say("ready")
        heard()
        for number in range(count):
            name, kind = f"{who} {number}", "thing"
            if toolsets == "bank":
                made = await app.call(Session(), "graph_upsert_entity", {"name": name, "entityType": kind})
                warnings += made.facts.get("warnings", [])
            else:
                entity = {"name": name, "entity_type": kind}
                await app.call(Session(), "create_entities", {"entities": [entity]})
        await app.close()
        say(warnings)

    asyncio.run(run())
