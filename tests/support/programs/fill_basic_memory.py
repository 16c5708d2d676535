"""Fills two projects of basic-memory by its own tools. Its index then shows what it understood."""

import asyncio
import os
import sys
from importlib import import_module
from pathlib import Path

SHOP_API = """\
# Shop API
Serves the checkout.
- [decision] Uses PostgreSQL for orders #db (since March)
- [port] Listens on 8443
- depends_on [[Orders DB]] (hard)
- "is part of" [[Shop]]
"""


async def fill(folder: Path) -> None:
    os.environ |= {"BASIC_MEMORY_HOME": str(folder / "main"), "BASIC_MEMORY_SEMANTIC_SEARCH_ENABLED": "false"}
    tools = import_module("basic_memory.mcp.tools")
    await tools.create_memory_project("garden", str(folder / "garden"))
    await tools.write_note("Shop API", SHOP_API, "services", tags=["shop"])
    await tools.write_note("Orders DB", "- [size] Has 40 tables\n", "services", note_type="database")
    await tools.edit_note("services/orders-db", "append", "- [engine] Runs PostgreSQL 18\n")
    await tools.write_note("Old plan", "- [plan] Use MySQL\n", "plans")
    await tools.delete_note("plans/old-plan")
    await tools.write_note("Beds", "- [plant] Tomatoes in the south bed\n- next_to [[Pond]]\n", "", project="garden")


asyncio.run(fill(Path(sys.argv[1])))
