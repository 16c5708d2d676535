"""Someone who used mcp-memory-service moves over: 200 memories are found, imported once, and recalled."""

from pathlib import Path
from typing import Any

import pytest

from everkept import Memory
from everkept.core.times import parse_time
from python_packages import INSTALL_SECONDS

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(INSTALL_SECONDS + 600)]
PACKAGES = ("mcp-memory-service==12.4.0", "pysqlite3-binary==0.5.4.post2; sys_platform == 'linux'")
OLD, NEW = "Invoices are sent on the first Monday", "Invoices are sent on the second Monday"
PORT, SHIPPING = "The staging server listens on port 8443", "Norwegian customers pay no shipping above 900 kroner"
MAILS, TABS, GONE = "Mails wait in a Redis stream", "I prefer tabs over spaces", "The office closes at noon"
KINDS = {
    OLD: ("decision", ["billing"]),
    PORT: ("learning", ["proj:shop", "source:laptop"]),
    SHIPPING: ("error", ["proj:shop"]),
    MAILS: ("workflow", ["proj:shop", "queue"]),
    TABS: ("preference_signal", []),
    GONE: ("note", []),
}
SHELVES = {f"Shelf {number} of the warehouse holds {number * 7} boxes": ("note", []) for number in range(195)}
GIVEN = {
    "memories": KINDS | SHELVES,
    "deleted": GONE,
    "old": OLD,
    "new": NEW,
    "links": [(PORT, "related", MAILS), (SHIPPING, "causes", PORT)],
    "entities": [(MAILS, "Redis", "technology")],
}


@pytest.fixture
def listed(fill: Any) -> list[dict[str, Any]]:
    return fill("fill_memory_service.py", *PACKAGES, given=GIVEN)


def test_all_memories_move_over_and_are_recalled(listed: Any, everkept: Any, new_home: Path) -> None:
    found = {each["program"]: each for each in everkept("import")["found"]}
    assert found["mcp-memory-service"]["counts"]["memory"] == 201
    outcome = everkept("import", "mcp-memory-service")
    assert (outcome["memories"], outcome["skipped"]) == (201, {"deleted there": 1})
    again = everkept("import", "mcp-memory-service")
    assert (again["memories"], again["updated"]) == (0, 0)
    exported = everkept("import", "mcp-memory-service", str(new_home / "export.json"))
    assert (exported["memories"], exported["updated"]) == (0, 0)
    settings = {"data_dir": everkept("status")["connection"]["path"], "folder": new_home}
    with Memory.open(project="shop", **settings) as shop, Memory.open(project="default", **settings) as rest:
        assert shop.recall("which port does staging use?")[0].text == PORT
        assert shop.recall("shipping to Norway")[0].text == SHIPPING
        assert shop.recall("where do mails wait?")[0].text == MAILS
        assert shop.recall("tabs or spaces?")[0].text == TABS
        assert rest.recall("when are invoices sent?")[0].text == NEW
        times = {each["content"]: parse_time(each["created_at_iso"]) for each in listed}
        for text, memory in {PORT: shop, NEW: rest}.items():
            assert int(memory.recall(text)[0].created_at.timestamp() * 1000) == times[text] // 1000
        hit = shop.recall(MAILS)[0]
        assert (hit.type, hit.tags) == ("procedural", ("proj:shop", "queue", "workflow"))
        assert [(each.name, each.type) for each in hit.related] == [("Redis", "technology")]


def test_the_export_alone_knows_which_memory_was_replaced(listed: Any, everkept: Any, new_home: Path) -> None:
    outcome = everkept("import", "mcp-memory-service", str(new_home / "export.json"))
    assert outcome["memories"] == len(listed) == 201
    texts = [each["content"] for each in everkept("recall", "when are invoices sent?")["memories"]]
    assert NEW in texts
    assert OLD not in texts
