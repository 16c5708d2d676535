"""The one embedding model of a data folder, for processes that are set to different models.

Only vectors of one model can be compared, and a record has one vector. So two processes with different models would
compute everything again and again. This rule prevents it: a model that is new to the data folder takes over, and all
texts are embedded again. A model that was replaced does not return by itself: its processes search by words and say so.
`everkept index` makes it current again.
"""

import json
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from everkept.core.ports import Embedder, Library
from everkept.errors import EverkeptError, ModelReplaced, ModelUnavailable
from everkept.values import Value

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MODEL_NOTE = "embedding.model"
FIRST_MODEL = "all-MiniLM-L6-v2"  # of data folders without a note
MAX_REPLACED = 20
CHECK_SECONDS = 1.0  # how old the knowledge may be with which a query is embedded


class ModelHistory(Value):
    """The model of a data folder, and those that it had before."""

    current: str | None = None
    replaced: tuple[str, ...] = ()

    def has_replaced(self, model: str) -> bool:
        return self.current not in (None, model) and model in self.replaced

    def follow(self, model: str) -> "ModelHistory":
        """Return the history after a change of the model."""
        before = [*self.replaced, self.current or FIRST_MODEL]
        return ModelHistory(model, tuple(name for name in dict.fromkeys(before) if name != model)[-MAX_REPLACED:])


async def read_models(library: Library) -> ModelHistory:
    return parse_models(await library.get_note(MODEL_NOTE))


def parse_models(note: str | None) -> ModelHistory:
    """Parse the note. One that cannot be understood counts as missing."""
    try:
        noted: Any = json.loads(note or "null")
    except ValueError:
        noted = None
    if not isinstance(noted, dict):
        return ModelHistory()
    facts = cast(dict[str, Any], noted)
    replaced = cast(list[object], facts.get("replaced") or ())
    return ModelHistory(str(facts.get("model")), tuple(str(name) for name in replaced))


class ModelClaim:
    """Claim of this process that its model is that of the data folder."""

    def __init__(self, library: Library, model: str) -> None:
        self._library = library
        self._model = model
        self._known = ModelHistory()
        self._read_at: float | None = None

    @property
    def fault(self) -> ModelReplaced | None:
        """Return the error if the model was known to be replaced when it was last checked."""
        known = self._known
        return ModelReplaced(self._model, str(known.current)) if known.has_replaced(self._model) else None

    async def check(self, max_age: float = 0.0) -> None:
        """Raise ModelReplaced if another model is that of the data folder."""
        if self._read_at is None or time.monotonic() - self._read_at > max_age:
            with suppress(EverkeptError):  # an unreachable database stops whatever needs the model
                self._known = await read_models(self._library)
                self._read_at = time.monotonic()
        if (fault := self.fault) is not None:
            raise fault

    async def take(self, *, returns: bool = False) -> None:
        """Note that the model is in use. A replaced one raises ModelReplaced unless it `returns`."""
        if self._known.current == self._model and not returns:
            return
        self._known = known = await read_models(self._library)
        self._read_at = time.monotonic()
        if not returns and (fault := self.fault) is not None:
            raise fault
        if known.current != self._model:
            self._known = after = known.follow(self._model)
            noted = {"model": after.current, "replaced": after.replaced}
            await self._library.set_note(MODEL_NOTE, json.dumps(noted, ensure_ascii=False))


class ClaimedEmbedder:
    """Embedder that computes nothing while another model is that of the data folder."""

    def __init__(self, embedder: Embedder, library: Library) -> None:
        self._embedder = embedder
        self._library = library
        self._made: ModelClaim | None = None

    @property
    def claim(self) -> ModelClaim:
        if self._made is None:
            self._made = ModelClaim(self._library, self.name)
        return self._made

    @property
    def name(self) -> str:
        return self._embedder.name

    @property
    def dimensions(self) -> int:
        return self._embedder.dimensions

    @property
    def fault(self) -> ModelUnavailable | None:
        return self._embedder.fault or self.claim.fault

    async def embed(self, texts: Sequence[str]) -> "NDArray[np.float32]":
        await self.claim.check(CHECK_SECONDS if len(texts) == 1 else 0.0)
        return await self._embedder.embed(texts)

    async def reclaim(self) -> None:
        """Make a replaced model that of the data folder again. Raise ModelUnavailable if it does not work."""
        try:
            await self.claim.check()
        except ModelReplaced:
            await self._embedder.embed([""])
            await self.claim.take(returns=True)

    async def close(self) -> None:
        await self._embedder.close()
