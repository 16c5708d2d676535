"""Vectors of recent questions: what is asked again, or in several places at once, is made once."""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from recollect.core.ports import Embedder
from recollect.errors import ModelUnavailable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

KEPT = 256  # questions; at 1.5 KB each


class CachedEmbedder:
    """Another embedder's vectors. Only single texts are kept: they are questions, as a rule."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._made: OrderedDict[str, asyncio.Task[NDArray[np.float32]]] = OrderedDict()

    @property
    def name(self) -> str:
        return self._embedder.name

    @property
    def dimensions(self) -> int:
        return self._embedder.dimensions

    @property
    def fault(self) -> ModelUnavailable | None:
        return self._embedder.fault

    async def embed(self, texts: Sequence[str]) -> "NDArray[np.float32]":
        if len(texts) != 1:
            return await self._embedder.embed(texts)
        task = self._made.get(texts[0])
        if task is None or task.get_loop() is not asyncio.get_running_loop():
            task = self._made[texts[0]] = asyncio.create_task(self._embedder.embed(texts))
            task.add_done_callback(lambda done: self._drop_failed(texts[0], done))
        self._made.move_to_end(texts[0])
        while len(self._made) > KEPT:
            self._made.popitem(last=False)
        # Whoever gives up waiting must not take the vector from the others.
        return await asyncio.shield(task)

    async def close(self) -> None:
        waiting = [task for task in self._made.values() if not task.done()]
        self._made.clear()
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        await self._embedder.close()

    def _drop_failed(self, text: str, done: "asyncio.Task[NDArray[np.float32]]") -> None:
        if (done.cancelled() or done.exception()) and self._made.get(text) is done:
            del self._made[text]
