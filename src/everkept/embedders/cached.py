"""Cache of the embeddings of recent queries, so that repeated and concurrent queries are embedded once."""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from everkept.core.ports import Background, Embedder
from everkept.core.text import blake2b
from everkept.core.times import Clock, read_clock
from everkept.errors import ModelUnavailable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MAX_CACHED_QUESTIONS = 10_000  # 19 MB when full
CACHE_MICROSECONDS = 24 * 3_600 * 1_000_000  # since the query was last asked


class CachedEmbedder:
    """Cache in front of another embedder. It keeps single texts only, because these are usually queries."""

    def __init__(self, embedder: Embedder, clock: Clock = read_clock) -> None:
        self._embedder = embedder
        self._clock = clock
        self._under_way: dict[bytes, asyncio.Task[NDArray[np.float32]]] = {}
        # Least recently asked first, each vector with the time when it was last asked for.
        self._kept: OrderedDict[bytes, tuple[NDArray[np.float32], int]] = OrderedDict()

    @property
    def name(self) -> str:
        return self._embedder.name

    @property
    def dimensions(self) -> int:
        return self._embedder.dimensions

    @property
    def fault(self) -> ModelUnavailable | None:
        return self._embedder.fault

    @property
    def background(self) -> Background:
        return self._embedder.background

    async def embed(self, texts: Sequence[str]) -> "NDArray[np.float32]":
        if len(texts) != 1:
            return await self._embedder.embed(texts)
        # A hash, because a stored text of any length may also be embedded on its own.
        key = blake2b(texts[0].encode("utf-8", "surrogatepass"), digest_size=16).digest()
        at = self._clock()
        self._drop_aged(at)
        if key in self._kept:
            vector, _ = self._kept.pop(key)
            self._kept[key] = vector, at
            return vector
        task = self._under_way.get(key)
        if task is None or task.get_loop() is not asyncio.get_running_loop():
            task = self._under_way[key] = asyncio.create_task(self._embedder.embed(texts))
            task.add_done_callback(lambda done: self._store_result(key, done))
        # A canceled caller must not cancel the embedding for the others.
        return await asyncio.shield(task)

    async def close(self) -> None:
        waiting = list(self._under_way.values())
        self._under_way.clear()
        self._kept.clear()
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        await self._embedder.close()

    def _store_result(self, key: bytes, done: "asyncio.Task[NDArray[np.float32]]") -> None:
        failed = done.cancelled() or done.exception() is not None
        if self._under_way.get(key) is not done:
            return  # closed since then
        del self._under_way[key]
        if not failed:
            self._kept[key] = done.result(), self._clock()
            if len(self._kept) > MAX_CACHED_QUESTIONS:
                self._kept.popitem(last=False)

    def _drop_aged(self, at: int) -> None:
        while self._kept:
            oldest = next(iter(self._kept))
            if at - self._kept[oldest][1] < CACHE_MICROSECONDS:
                return
            del self._kept[oldest]
