from pathlib import Path

import pytest

from everkept.app.app import App
from everkept.core.sessions import Account, Session
from everkept.errors import Refused
from everkept.settings import read_settings
from hash_embedder import HashingEmbedder
from tool_calls import Client


async def test_what_is_shared_is_not_taken_from_the_others(tmp_path: Path) -> None:
    app = App(read_settings({"data_dir": tmp_path, "transport": "http"}, {}), embedder=HashingEmbedder())
    owner = Client(app, Session(client="editor"))
    anna = Client(app, Session(client="editor", account=Account("anna")))
    try:
        await app.accounts.create_token("anna", "")
        await owner("create_project", name="shop")
        await app.accounts.grant("anna", await app.library.get_project("shop"), "write")
        await anna("create_project", name="mine")
        for project in ("shop", "mine"):
            said = {"content": f"a fact of {project}", "type": "semantic", "scope": "project"}
            stored = await anna("store_memory", project=project, **said)
            asked = {"memory_id": stored["memory_id"], "target_scope": "user", "project": project}
            if project == "mine":
                assert (await anna("promote_memory", **asked))["new_scope"] == "user"
                continue
            with pytest.raises(Refused, match="hide it from all others"):
                await anna("promote_memory", **asked)
            found = await owner("recall_memories", query="fact", project="shop")
            assert [memory["content"] for memory in found["memories"]] == ["a fact of shop"]
    finally:
        await app.close()
