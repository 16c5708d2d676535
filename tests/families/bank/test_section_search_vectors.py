from dataclasses import dataclass, field

import pytest

from assistant import PromptIndexing
from everkept.core.sessions import Session
from everkept.engines.memory.store import MemoryStore
from everkept.errors import ModelUnavailable
from everkept.families.bank.model import SECTION
from everkept.families.bank.section_search import FEW, SectionVectors
from records import batch, memory

COMMAND = Session(is_conversation=False)
CONVERSATION = Session()


@dataclass
class Patient(PromptIndexing):
    """Keeps for how long it was waited for; embeds nothing where it is slow."""

    kinds: tuple[str, ...] = (SECTION,)
    waits: list[float | None] = field(default_factory=list[float | None])
    is_slow: bool = False

    async def settled(self, within: float | None = None) -> bool:
        self.waits.append(within)
        return False if self.is_slow else await super().settled(within)


@pytest.fixture
def indexing() -> Patient:
    return Patient()


async def stored(count: int) -> MemoryStore:
    store = MemoryStore()
    await store.commit(batch(*(memory(f"text {i}", kind=SECTION) for i in range(count))))
    return store


@pytest.mark.parametrize("session", [COMMAND, CONVERSATION])
async def test_what_was_just_written_is_waited_for(indexing: Patient, session: Session) -> None:
    store = await stored(3)
    assert await SectionVectors(indexing).waiting(store, session) == 0
    assert len(indexing.waits) == 1


async def test_a_command_waits_longer_and_for_many_too(indexing: Patient) -> None:
    store = await stored(FEW + 1)
    assert await SectionVectors(indexing).waiting(store, CONVERSATION) == FEW + 1
    assert indexing.waits == []
    assert indexing.woken == [store]
    assert await SectionVectors(indexing).waiting(store, COMMAND) == 0
    await SectionVectors(indexing).waiting(await stored(1), CONVERSATION)
    of_command, of_conversation = indexing.waits
    assert (of_command or 0) > (of_conversation or 0)


async def test_what_is_left_is_counted(indexing: Patient) -> None:
    indexing.is_slow = True
    vectors, store = SectionVectors(indexing), await stored(2)
    assert await vectors.waiting(store, COMMAND) == 2
    indexing.is_slow = False
    assert await vectors.waiting(store, COMMAND) == 0
    await store.commit(batch(memory("more", kind=SECTION)))
    indexing.is_slow = True
    assert await vectors.waiting(store, COMMAND) == 1


async def test_without_a_model_nothing_waits(indexing: Patient) -> None:
    store = await stored(2)
    indexing.fault = ModelUnavailable("model.onnx", "is damaged")
    assert await SectionVectors(indexing).waiting(store, COMMAND) == 0
    assert await SectionVectors(Patient(embedder=None)).waiting(store, COMMAND) == 0
    assert indexing.waits == []
