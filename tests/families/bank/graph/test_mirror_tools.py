"""The tools that care for the graph's log, as an assistant calls them."""

import json
import os
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from everkept.errors import BankNotFound, InvalidInput, MarkerMismatch, NotFound
from everkept.families.bank.graph.mirror import MirrorMaintenanceTools, MirrorTools
from graph_mirror import LOG, Mirroring, as_lines, entity_deleted, mirrored, observed, related, replay, upserted


@pytest.fixture
async def here(tmp_path: Path) -> AsyncGenerator[Mirroring, None]:
    async with mirrored(tmp_path) as machine:
        families = (kind(machine.banking.banks, machine.mirror) for kind in KINDS)
        machine.banking.offer(*families)
        yield machine


KINDS = (MirrorTools, MirrorMaintenanceTools)


def put_team_log(here: Mirroring) -> None:
    """A folder as the public server leaves it."""
    at = here.clock()
    here.append(
        upserted("Shop API", at, port=8443),
        upserted("Orders DB", at),
        upserted("Old API", at),
        observed("Shop API", "Runs on port 8443", at),
        related("Shop API", "reads_from", "Orders DB", at),
        entity_deleted("Old API", here.clock()),
    )


async def test_a_rebuild_takes_the_log_in_and_writes_what_is_derived(here: Mirroring) -> None:
    put_team_log(here)
    before = here.path.read_bytes()
    answer = await here.banking("graph_rebuild")
    stats = {"entityCount": 2, "observationCount": 1, "relationCount": 1}
    stats |= {"entityTypes": ["thing"], "relationTypes": ["reads_from"]}
    assert answer == {
        "success": True,
        "message": "Rebuilt the graph with 4 updates from graph/graph.jsonl.",
        "stats": stats,
        "takenIn": 4,
        "skippedLines": 0,
    }
    assert here.path.read_bytes() == before
    assert here.told() == await here.stored()
    snapshot = json.loads(here.banking.get("graph/graph.snapshot.json"))
    assert snapshot["meta"]["type"] == "memory_bank_graph"
    assert [len(snapshot[part]) for part in ("entities", "observations", "relations")] == [2, 1, 1]
    index = json.loads(here.banking.get("graph/graph.index.json"))
    assert (index["lastEventLineCount"], index["stats"]) == (7, stats)
    assert index["nameToEntityId"].keys() == {"shop api", "orders db"}
    assert "Shop API --reads_from--> Orders DB" in here.banking.get("graph/graph.md")


async def test_a_second_rebuild_takes_in_nothing(here: Mirroring) -> None:
    put_team_log(here)
    await here.banking("graph_rebuild")
    before = here.path.read_bytes()
    answer = await here.banking("graph_rebuild")
    assert (answer["takenIn"], answer["message"]) == (0, "Rebuilt the graph.")
    assert here.path.read_bytes() == before


async def test_a_rebuild_finds_what_was_changed_in_place(here: Mirroring) -> None:
    """As wide as before and with the same time: only a reading of all of it tells."""
    put_team_log(here)
    await here.meet()
    info = here.path.stat()
    text = here.path.read_text(encoding="utf-8")
    here.path.write_text(text.replace("port 8443", "port 9443"), encoding="utf-8")
    os.utime(here.path, ns=(info.st_atime_ns, info.st_mtime_ns))
    assert await here.meet() == []
    await here.banking("graph_rebuild")
    assert "Runs on port 9443" in await here.texts()
    assert here.told() == await here.stored()


async def test_a_compaction_keeps_the_graph_and_a_copy(here: Mirroring) -> None:
    put_team_log(here)
    before = here.path.read_bytes()
    answer = await here.banking("graph_compact")
    assert (answer["success"], answer["before"], answer["after"]) == (True, 7, 7)
    assert (here.banking.folder / answer["copy"]).read_bytes() == before
    assert here.told() == await here.stored() == replay(before)
    assert here.lines[-1]["type"] == "snapshot_written"
    size = here.path.stat().st_size
    assert await here.meet() == await here.follow() == []
    assert here.path.stat().st_size == size


async def test_a_compaction_remembers_what_was_deleted_lately_and_no_more(here: Mirroring) -> None:
    await here.observe("Ada", "likes tea")
    await here.relate("Ada", "knows", "Bob")
    await here.delete("Bob")
    await here.follow()
    here.banking.clock.pass_days(60)
    await here.relate("Ada", "knows", "Cleo")
    await here.follow()
    await here.unrelate("knows")
    await here.forget("likes tea")
    await here.follow()
    await here.banking("graph_compact")
    kinds = [line["type"] for line in here.lines[1:-1]]
    drops = ["entity_delete", "relation_remove", "observation_delete"]
    assert kinds == [*drops, "entity_upsert", "entity_upsert"]
    assert here.told() == await here.stored()
    here.banking.clock.pass_days(60)
    await here.banking("graph_compact")
    assert [line["type"] for line in here.lines[1:3]] == drops[1:]
    here.banking.clock.pass_days(60)
    await here.banking("graph_compact")
    assert len(here.lines) == 4
    assert here.told() == await here.stored()


async def test_what_was_deleted_stays_so_where_the_compacted_log_is_pulled(here: Mirroring, tmp_path: Path) -> None:
    async with mirrored(tmp_path / "theirs") as there:
        there.banking.clock = here.banking.clock
        await here.observe("Ada", "likes tea")
        await here.relate("Ada", "knows", "Bob")
        await here.upsert("Cleo")
        await here.follow()
        pull(here, there)
        await there.meet()
        await here.delete("Bob")
        await here.forget("likes tea")
        await here.follow()
        here.append(entity_deleted("Cleo", here.clock()))
        await here.banking("graph_compact")
        pull(here, there)
        await there.meet()
        await there.follow()
        assert await there.stored() == await here.stored()
        assert (await there.stored())[0].keys() == {("Ada", "thing")}


def pull(here: Mirroring, there: Mirroring) -> None:
    there.path.parent.mkdir(exist_ok=True)
    there.path.write_bytes(here.path.read_bytes())


async def test_a_compaction_puts_a_log_in_place_of_what_is_none(here: Mirroring) -> None:
    broken = as_lines(upserted("Bob", here.clock()))
    here.path.parent.mkdir()
    here.path.write_bytes(broken)
    with pytest.raises(MarkerMismatch):
        await here.banking("graph_compact")
    assert here.path.read_bytes() == broken
    await here.upsert("Ada")
    answer = await here.banking("graph_compact")
    assert (here.banking.folder / answer["copy"]).read_bytes() == broken
    assert (answer["before"], answer["after"]) == (1, 3)
    assert here.told() == await here.stored()
    assert await here.meet() == await here.follow() == []


async def test_only_the_last_copy_is_kept(here: Mirroring) -> None:
    put_team_log(here)
    for _ in range(3):
        before = here.path.read_bytes()
        copy = (await here.banking("graph_compact"))["copy"]
        assert [path.name for path in here.path.parent.glob("*.bak")] == ["graph.jsonl.bak"]
        assert (here.banking.folder / copy).read_bytes() == before


async def test_without_a_graph_nothing_is_written(here: Mirroring) -> None:
    answer = await here.banking("graph_compact")
    assert (answer["before"], answer["after"]) == (0, 0)
    answer = await here.banking("graph_rebuild")
    assert answer["stats"]["entityCount"] == 0
    assert not here.path.parent.exists()


async def test_maintaining_does_the_same_under_one_name(here: Mirroring) -> None:
    put_team_log(here)
    stats = await here.banking("graph_maintain", operation="stats")
    assert (stats["operation"], stats["stats"]["entityCount"]) == ("stats", 2)
    rebuilt = await here.banking("graph_maintain", operation="rebuild")
    assert rebuilt["stats"] == stats["stats"]
    compacted = await here.banking("graph_maintain", operation="compact")
    assert (compacted["before"], compacted["after"]) == (7, 7)
    with pytest.raises(InvalidInput):
        await here.banking("graph_maintain", operation="polish")


async def test_an_unknown_store_or_a_missing_bank_is_an_error(here: Mirroring) -> None:
    with pytest.raises(NotFound):
        await here.banking("graph_rebuild", storeId="nowhere")
    here.banking.folder.rmdir()
    with pytest.raises(BankNotFound):
        await here.banking("graph_compact")
    assert not (here.banking.home / LOG).exists()
