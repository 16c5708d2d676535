import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everkept.embedders.onnx import CACHE_MICROSECONDS, MAX_CACHED_QUESTIONS, CachedEmbedder, OnnxEmbedder
from everkept.errors import ModelUnavailable
from hash_embedder import HashingEmbedder


class Counting(HashingEmbedder):
    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    async def embed(self, texts: Sequence[str]) -> Any:
        self.asked.append(list(texts))
        return await super().embed(texts)


class Now:
    def __init__(self) -> None:
        self.at = 0

    def __call__(self) -> int:
        return self.at


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


async def test_what_was_not_asked_for_longest_makes_room(inner: Counting) -> None:
    cached = CachedEmbedder(inner)
    for number in range(MAX_CACHED_QUESTIONS):
        await cached.embed([f"q{number}"])
    await cached.embed(["q0"])
    await cached.embed(["one more"])
    assert len(inner.asked) == MAX_CACHED_QUESTIONS + 1
    await cached.embed(["q0"])
    assert len(inner.asked) == MAX_CACHED_QUESTIONS + 1
    await cached.embed(["q1"])
    assert len(inner.asked) == MAX_CACHED_QUESTIONS + 2


async def test_a_question_is_kept_for_a_day_from_when_it_was_last_asked(inner: Counting) -> None:
    now = Now()
    cached = CachedEmbedder(inner, now)
    await cached.embed(["q"])
    now.at += CACHE_MICROSECONDS - 1
    await cached.embed(["q"])
    now.at += CACHE_MICROSECONDS - 1
    await cached.embed(["q"])
    assert len(inner.asked) == 1
    now.at += CACHE_MICROSECONDS
    await cached.embed(["q"])
    assert len(inner.asked) == 2


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, CACHE_MICROSECONDS + 1)), max_size=30))
async def test_only_what_is_new_or_a_day_old_is_made(asked: list[tuple[str, int]]) -> None:
    inner, now = Counting(), Now()
    cached = CachedEmbedder(inner, now)
    last: dict[str, int] = {}
    made = 0
    for text, later in asked:
        now.at += later
        made += text not in last or now.at - last[text] >= CACHE_MICROSECONDS
        last[text] = now.at
        assert (await cached.embed([text]) == await HashingEmbedder().embed([text])).all()
    assert len(inner.asked) == made


async def test_any_text_is_a_question(inner: Counting) -> None:
    cached = CachedEmbedder(inner)
    for text in ("", "\ud800", "x" * 100_000):
        await cached.embed([text])
        await cached.embed([text])
    assert len(inner.asked) == 3


async def test_who_gives_up_takes_nothing_from_the_others(inner: Counting) -> None:
    cached = CachedEmbedder(inner)
    impatient = asyncio.create_task(cached.embed(["x"]))
    context = asyncio.create_task(cached.embed(["x"]))
    await asyncio.sleep(0)
    impatient.cancel()
    assert (await context == await HashingEmbedder().embed(["x"])).all()


def test_what_one_event_loop_has_made_serves_the_next(inner: Counting) -> None:
    cached = CachedEmbedder(inner)
    for _ in range(2):
        asyncio.run(_ask(cached))
    assert len(inner.asked) == 1


async def _ask(cached: CachedEmbedder) -> None:
    await cached.embed(["x"])


async def test_a_failure_is_not_kept(tmp_path: Path) -> None:
    cached = CachedEmbedder(OnnxEmbedder(tmp_path))
    for _ in range(2):
        with pytest.raises(ModelUnavailable):
            await cached.embed(["x"])
    await cached.close()
