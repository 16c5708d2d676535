"""Fills a database of mcp-memory-service through its own storage; run by its own Python.

    python fill_memory_service.py PATH < memories.jsonl

Each line is a memory with `content`, `tags`, `type`, `at` (seconds since 1970) and `related`: the
places, from 0, of earlier lines that it is connected with.
"""

import asyncio
import importlib
import json
import sys
from collections.abc import Iterator
from itertools import islice
from typing import Any

BATCH = 1_000


async def main(path: str) -> None:
    # Not installed where this file is checked.
    storages: Any = importlib.import_module("mcp_memory_service.storage.sqlite_vec")
    graphs: Any = importlib.import_module("mcp_memory_service.storage.graph")
    storage = storages.SqliteVecMemoryStorage(path)
    await storage.initialize()
    graph = graphs.GraphStorage(path)
    hashes: list[str] = []
    for batch in _batches():
        memories = [_memory(line) for line in batch]
        results = await storage.store_batch(memories)
        refused = [message for stored, message in results if not stored]
        if refused:
            sys.exit(f"mcp-memory-service refused {len(refused)} memories: {refused[0]}")
        hashes += [memory.content_hash for memory in memories]
        first = len(hashes) - len(memories)
        for place, line in enumerate(batch, first):
            for other in line["related"]:
                await graph.store_association(hashes[place], hashes[other], 0.5, ["semantic"])
    await graph.close()
    await storage.close()


def _batches() -> Iterator[list[dict[str, Any]]]:
    while batch := [json.loads(line) for line in islice(sys.stdin, BATCH)]:
        yield batch


def _memory(line: dict[str, Any]) -> Any:
    models: Any = importlib.import_module("mcp_memory_service.models.memory")
    hashing: Any = importlib.import_module("mcp_memory_service.utils.hashing")
    return models.Memory(
        content=line["content"],
        content_hash=hashing.generate_content_hash(line["content"]),
        tags=line["tags"],
        memory_type=line["type"],
        created_at=line["at"],
        updated_at=line["at"],
    )


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
