"""Forgetting and excluding while an import runs."""

import pytest

from everkept.core.records import Batch, Change, RecordFilter
from everkept.engines.memory.store import MemoryStore
from everkept.families.history.ingest.checkpoints import close_gate, list_unfinished_folders, read_gate, reopen_gate
from everkept.families.history.ingest.removal import forget_conversations
from everkept.families.history.model import FORGET_TOOL, build_conversation_id
from memory_transcripts import SOURCE, Written, importer, texts, turn
from records import DAY_ONE


def clock() -> int:
    return DAY_ONE


class Disturbed(MemoryStore):
    """Has something else happen just before the commit of a number of an import."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.left = at
        self.excluded: list[str] = []
        self.conversations: list[str] = []
        self.projects: list[str] = []

    async def patterns(self) -> list[str]:
        return self.excluded

    async def commit(self, batch: Batch) -> Change:
        if batch.tool != FORGET_TOOL:
            self.left -= 1
            if self.left == 0:
                self.excluded = list(self.projects)
                await forget_conversations(self, clock, projects=self.projects, conversations=self.conversations)
        return await super().commit(batch)


def written() -> list[Written]:
    return [
        Written("a", [turn(f"1{n}", "hush", session="a", project="/p/x") for n in range(4)]),
        Written("b", [turn(f"2{n}", session="b", project="/q") for n in range(4)]),
        Written("c", [turn(f"3{n}", "hush", session="c", project="/p/y") for n in range(4)]),
        Written("d", [turn("41", session="d", project="/q"), turn("42", "hush", project="/p")]),
    ]


@pytest.mark.parametrize("at", range(1, 8))
async def test_a_project_that_is_forgotten_meanwhile_does_not_come_back(at: int) -> None:
    store = Disturbed(at)
    store.projects = ["/p"]
    await importer(store).import_transcripts(written(), excluded=store.patterns)
    assert store.left <= 0
    assert "hush" not in str(await store.scan(RecordFilter(deleted=None)))
    assert await texts(store, "b") == ["20", "21", "22", "23"]
    assert await texts(store, "d") == ["41"]
    await importer(store).import_transcripts(written(), excluded=store.patterns)
    assert "hush" not in str(await store.scan(RecordFilter(deleted=None)))


@pytest.mark.parametrize("at", range(2, 8))
async def test_a_conversation_that_is_forgotten_meanwhile_does_not_come_back(at: int) -> None:
    store = Disturbed(at)
    store.conversations = [build_conversation_id(SOURCE, "a")]
    fork = Written("e", [turn(f"1{n}", "hush", session="e", project="/r") for n in range(4)])
    fork.add(turn("51", session="e", project="/r"))
    await importer(store).import_transcripts([written()[0], fork, *written()[1:2]])
    assert store.left <= 0
    assert await texts(store, "a") == []
    assert await texts(store, "e") == ["51"]


@pytest.mark.parametrize("at", range(1, 9))
async def test_what_is_excluded_meanwhile_is_left_out_from_then_on(at: int) -> None:
    store = MemoryStore()
    asked = 0

    async def patterns() -> list[str]:
        nonlocal asked
        asked += 1
        return ["/q"] if asked > at else []

    await importer(store).import_transcripts(written(), excluded=patterns)
    assert len(await texts(store, "b")) < 4 or at > 4
    assert asked > 8


async def test_the_gate_remembers_what_is_being_forgotten() -> None:
    store = MemoryStore()
    before = await read_gate(store, clock)
    await close_gate(store, clock, ["/p", "/q"])
    await close_gate(store, clock, ["/q", "/r"])
    await reopen_gate(store, clock, ["/p"])
    after = await read_gate(store, clock)
    assert list_unfinished_folders(before) == []
    assert list_unfinished_folders(after) == ["/q", "/r"]
    assert after.version == before.version + 3
