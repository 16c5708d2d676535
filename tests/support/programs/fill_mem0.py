"""Fills a store of mem0 by the package itself, and writes what it lists. A hash stands in for its embedder."""

import hashlib
import json
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

DIMENSIONS = 8


class Embedder:
    def __init__(self, *_: Any) -> None:
        self.config = None

    def embed(self, text: str, _action: str | None = None) -> list[float]:
        return [byte / 255 for byte in hashlib.sha256(text.encode()).digest()[:DIMENSIONS]]

    def embed_batch(self, texts: list[str], _action: str | None = None) -> list[list[float]]:
        return [self.embed(text) for text in texts]


def fill(folder: Path) -> None:
    os.environ |= {"MEM0_TELEMETRY": "False", "OPENAI_API_KEY": "none"}
    main = import_module("mem0.memory.main")
    main.EmbedderFactory.create = staticmethod(Embedder)
    vectors = {"path": str(folder / "qdrant"), "embedding_model_dims": DIMENSIONS, "on_disk": True}
    memory = main.Memory.from_config(
        {"vector_store": {"provider": "qdrant", "config": vectors}, "history_db_path": str(folder / "history.db")}
    )

    def add(text: str, **more: Any) -> str:
        return str(memory.add(text, user_id="ada", infer=False, **more)["results"][0]["id"])

    add("I prefer ruff over black", agent_id="coder", run_id="r1", metadata={"category": "tools", "ticket": 42})
    memory.update(add("Orders live in PostgreSQL"), "Orders live in PostgreSQL 18")
    memory.delete(add("The office closes at noon"))
    memory.add([{"role": "assistant", "content": "Noted.", "name": "bot"}], user_id="ada", infer=False)
    listed = memory.get_all(filters={"user_id": "ada"})
    (folder / "listed.json").write_text(json.dumps(listed), encoding="utf-8")
    memory.vector_store.client.close()
    memory.close()


fill(Path(sys.argv[1]))
