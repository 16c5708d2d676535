"""Fills a store of mcp-memory-service by its own service, and writes what it lists.

It gets its texts with their kinds and tags. Without its model, it hashes texts for embeddings.
"""

import asyncio
import json
import os
import sqlite3
import sys
from importlib import import_module
from pathlib import Path
from typing import Any


async def fill(folder: Path, given: dict[str, Any]) -> None:
    if not hasattr(sqlite3.Connection, "enable_load_extension"):
        sys.modules["sqlite3"] = import_module("pysqlite3")
    os.environ |= {"MCP_MEMORY_ALLOW_HASH_EMBEDDINGS": "1", "HF_HUB_OFFLINE": "1"}
    database = import_module("mcp_memory_service.config").SQLITE_VEC_PATH
    storage = await import_module("mcp_memory_service.storage.factory").create_storage_instance(database)
    service = import_module("mcp_memory_service.services.memory_service").MemoryService(storage)
    hashes: dict[str, str] = {}
    for text, (kind, tags) in given["memories"].items():
        # Without a conversation, it refuses texts that are alike.
        stored = await service.store_memory(text, tags=tags, memory_type=kind, conversation_id="c1")
        hashes[text] = stored["memory"]["content_hash"]
    await service.delete_memory(hashes[given["deleted"]])
    await service.evolve_memory(hashes[given["old"]], given["new"], reason="the bank is closed")
    graph = import_module("mcp_memory_service.storage.graph").GraphStorage(database)
    for source, verb, target in given["links"]:
        await graph.store_association(hashes[source], hashes[target], 0.9, ["semantic"], relationship_type=verb)
    for text, name, kind in given["entities"]:
        await graph.store_entity_link(hashes[text], name, kind)
    await graph.close()
    await (
        import_module("mcp_memory_service.sync.exporter").MemoryExporter(storage).export_to_json(folder / "export.json")
    )
    listed = [memory.to_dict() for memory in await storage.get_all_memories()]
    (folder / "listed.json").write_text(json.dumps(listed), encoding="utf-8")
    await storage.close()


asyncio.run(fill(Path(sys.argv[1]), json.loads(sys.argv[2])))
