import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from recollect.embedders.cached import KEPT, CachedEmbedder
from recollect.embedders.hashing import HashingEmbedder
from recollect.embedders.onnx import OnnxEmbedder
from recollect.errors import ModelUnavailable


class Counting(HashingEmbedder):
    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    async def embed(self, texts: Sequence[str]) -> Any:
        self.asked.append(list(texts))
        return await super().embed(texts)


@pytest.fixture
def inner() -> Counting:
    return Counting()


async def test_a_question_is_embedded_once_even_when_asked_twice_at_once(inner: Counting) -> None:
    cached = CachedEmbedder(inner)
    first, second = await asyncio.gather(cached.embed(["a b"]), cached.embed(["a b"]))
    assert (first == second).all()
    assert (first == await HashingEmbedder().embed(["a b"])).all()
    await cached.embed(["a b"])
    assert inner.asked == [["a b"]]
    assert (cached.name, cached.dimensions) == (inner.name, inner.dimensions)


async def test_many_texts_at_once_are_not_kept(inner: Counting) -> None:
    cached = CachedEmbedder(inner)
    await cached.embed(["a", "b"])
    await cached.embed(["a", "b"])
    assert len(inner.asked) == 2


async def test_the_oldest_questions_are_forgotten(inner: Counting) -> None:
    cached = CachedEmbedder(inner)
    for number in range(KEPT + 1):
        await cached.embed([f"q{number}"])
    await cached.embed([f"q{KEPT}"])
    assert len(inner.asked) == KEPT + 1
    await cached.embed(["q0"])
    assert len(inner.asked) == KEPT + 2


async def test_who_gives_up_takes_nothing_from_the_others(inner: Counting) -> None:
    cached = CachedEmbedder(inner)
    impatient = asyncio.create_task(cached.embed(["x"]))
    patient = asyncio.create_task(cached.embed(["x"]))
    await asyncio.sleep(0)
    impatient.cancel()
    assert (await patient == await HashingEmbedder().embed(["x"])).all()


async def test_a_failure_is_not_kept(tmp_path: Path) -> None:
    cached = CachedEmbedder(OnnxEmbedder(tmp_path))
    for _ in range(2):
        with pytest.raises(ModelUnavailable):
            await cached.embed(["x"])
    await cached.close()
