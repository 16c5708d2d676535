from dataclasses import dataclass, field

import pytest

from assistant import PromptIndexing
from everkept.core.sessions import Session
from everkept.engines.memory.store import MemoryStore
from everkept.errors import ModelUnavailable
from everkept.families.bank.model import SECTION_KIND
from everkept.families.bank.section_search import MAX_AWAITED_SECTIONS, SectionEmbeddings
from records import batch, memory

COMMAND = Session(is_conversation=False)
CONVERSATION = Session()


@dataclass
class Patient(PromptIndexing):
    """Keeps for how long it was waited for; embeds nothing where it is slow."""

    kinds: tuple[str, ...] = (SECTION_KIND,)
    waits: list[float | None] = field(default_factory=list[float | None])
    is_slow: bool = False

    async def wait_until_settled(self, within: float | None = None) -> bool:
        self.waits.append(within)
        return False if self.is_slow else await super().wait_until_settled(within)


@pytest.fixture
def indexing() -> Patient:
    return Patient()


async def stored(count: int) -> MemoryStore:
    store = MemoryStore()
    await store.commit(batch(*(memory(f"text {i}", kind=SECTION_KIND) for i in range(count))))
    return store


@pytest.mark.parametrize("session", [COMMAND, CONVERSATION])
async def test_what_was_just_written_is_waited_for(indexing: Patient, session: Session) -> None:
    store = await stored(3)
    assert await SectionEmbeddings(indexing).wait_for_pending(store, session) == 0
    assert len(indexing.waits) == 1


async def test_a_command_waits_longer_and_for_many_too(indexing: Patient) -> None:
    store = await stored(MAX_AWAITED_SECTIONS + 1)
    assert await SectionEmbeddings(indexing).wait_for_pending(store, CONVERSATION) == MAX_AWAITED_SECTIONS + 1
    assert indexing.waits == []
    assert indexing.woken == [store]
    assert await SectionEmbeddings(indexing).wait_for_pending(store, COMMAND) == 0
    await SectionEmbeddings(indexing).wait_for_pending(await stored(1), CONVERSATION)
    of_command, of_conversation = indexing.waits
    assert (of_command or 0) > (of_conversation or 0)


async def test_what_is_left_is_counted(indexing: Patient) -> None:
    indexing.is_slow = True
    vectors, store = SectionEmbeddings(indexing), await stored(2)
    assert await vectors.wait_for_pending(store, COMMAND) == 2
    indexing.is_slow = False
    assert await vectors.wait_for_pending(store, COMMAND) == 0
    await store.commit(batch(memory("more", kind=SECTION_KIND)))
    indexing.is_slow = True
    assert await vectors.wait_for_pending(store, COMMAND) == 1


async def test_without_a_model_nothing_waits(indexing: Patient) -> None:
    store = await stored(2)
    indexing.fault = ModelUnavailable("model.onnx", "is damaged")
    assert await SectionEmbeddings(indexing).wait_for_pending(store, COMMAND) == 0
    assert await SectionEmbeddings(Patient(embedder=None)).wait_for_pending(store, COMMAND) == 0
    assert indexing.waits == []
