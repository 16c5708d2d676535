"""Documents of programs are the same on every engine."""

from pathlib import Path
from typing import Any

import pytest

from everkept.app.app import App
from everkept.core.ports import Library
from everkept.core.sessions import Session, ToolCall
from everkept.core.times import Clock
from everkept.families.documents.document import DocumentWrite
from everkept.families.documents.documents import DocumentQuery, Documents
from everkept.settings import read_settings

CALL = ToolCall(Session(client="test"), "test")
ADA, BOB = ("users", "ada%/x"), ("users", "bob")


@pytest.fixture
def documents(library: Library, tmp_path: Path, clock: Clock) -> Documents:
    flags = {"data_dir": tmp_path / "settings", "project": "shop", "embedding_model": "none"}
    return App(read_settings(flags, {}), library=library, clock=clock).documents


async def find(documents: Documents, *namespace: str, **wanted: Any) -> list[str]:
    return [each.key for each in await documents.search(CALL, DocumentQuery(namespace, **wanted))]


@pytest.mark.smoke
async def test_values_are_kept_found_replaced_and_deleted(documents: Documents) -> None:
    value: dict[str, Any] = {
        "text": "tea 'and' \"milk\"",
        "list": [1, 2.5, 1e300, -0.0, None, True, {"ü": "\n\t\\"}],
        "": {},
    }
    writes = [DocumentWrite(ADA, f"d{number}", value | {"number": number}) for number in range(12)]
    assert await documents.write(CALL, writes) == 12
    await documents.write(CALL, [DocumentWrite(BOB, "d", {"text": "soup"}), DocumentWrite(("users2",), "d", {})])
    [found, missing] = await documents.get(CALL, [(ADA, "d3"), (ADA, "none")])
    assert found is not None
    assert (found.value, found.namespace, missing) == (value | {"number": 3}, ADA, None)
    assert await documents.list_namespaces(CALL) == [ADA, BOB, ("users2",)]
    assert await find(documents, *ADA, limit=3) == ["d11", "d10", "d9"]
    assert await find(documents, "users", filter={"number": {"$lt": 2}}) == ["d1", "d0"]
    assert await find(documents, "users", query="soup") == ["d"]
    assert len(await find(documents, query="tea", limit=99)) == 12
    changes = [DocumentWrite(ADA, "d3", {"text": "coffee"}), *(DocumentWrite(ADA, f"d{n}", None) for n in range(4, 12))]
    assert await documents.write(CALL, changes) == 9
    assert await find(documents, query="coffee") == ["d3"]
    assert sorted(await find(documents, query="tea")) == ["d0", "d1", "d2"]
    await documents.write(CALL, [DocumentWrite(ADA, "d5", {"text": "coffee again"})])
    assert sorted(await find(documents, query="coffee")) == ["d3", "d5"]


@pytest.mark.smoke
async def test_a_document_expires(documents: Documents) -> None:
    await documents.write(
        CALL, [DocumentWrite(ADA, "short", {"text": "tea"}, ttl=1e-6), DocumentWrite(ADA, "long", {}, ttl=9)]
    )
    assert await find(documents) == ["long"]
    assert await documents.expire(CALL) == 1
    assert await documents.expire(CALL) == 0
    assert await documents.list_namespaces(CALL) == [ADA]
