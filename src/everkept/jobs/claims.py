"""Claims of processes that share a data folder: whose turn it is, and which embedding model counts.

Only vectors of one model can be compared, and a record has one vector. So two processes with different models would
compute everything again and again. This rule prevents it: a model that is new to the data folder takes over, and all
texts are embedded again. A model that was replaced does not return by itself: its processes search by words and say so.
`everkept index` makes it current again.
"""

import json
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, cast
from uuid import uuid4

from everkept.core.answers import LEASE_PREFIX
from everkept.core.ports import FIRST_MODEL, SHIPPED_MODEL, Embedder, ForwardingEmbedder, Library
from everkept.core.text import parse_json_object
from everkept.core.times import Clock
from everkept.errors import EverkeptError, ModelReplaced, ModelUnavailable
from everkept.values import Value, replace

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# time after which another process may take over the work of a dead one
LEASE_MICROSECONDS = 30 * 1_000_000


class TurnLease:
    """Note that names the process whose turn it is, and until when.

    Two processes may both hold it for a moment, so use it only for work that is merely wasted if done twice.
    """

    def __init__(self, library: Library, name: str, clock: Clock) -> None:
        self._library = library
        self._key = LEASE_PREFIX + name
        self._clock = clock
        self._owner = uuid4().hex
        self._until = 0

    async def take(self) -> bool:
        """Return whether this process has the lease, and renew it."""
        at = self._clock()
        if self._until - at > LEASE_MICROSECONDS // 2:
            return True
        owner, until = await self._read_holder()
        if owner not in ("", self._owner) and until > at:
            self._until = 0
            return False
        await self._library.set_note(self._key, f"{self._owner} {at + LEASE_MICROSECONDS}")
        self._until = at + LEASE_MICROSECONDS
        return (await self._read_holder())[0] == self._owner

    async def end(self) -> None:
        """Release the lease, so that another process can start immediately."""
        if self._until:
            self._until = 0
            if (await self._read_holder())[0] == self._owner:
                await self._library.set_note(self._key, None)

    async def _read_holder(self) -> tuple[str, int]:
        owner, _, until = (await self._library.get_note(self._key) or "").partition(" ")
        return owner, int(until) if until.isdecimal() else 0


MODEL_NOTE = "embedding.model"  # without it, a data folder has the first model
MAX_REPLACED = 20
CHECK_SECONDS = 1.0  # how old the knowledge may be with which a query is embedded


class ModelHistory(Value):
    """The model of a data folder, and those that it had before.

    While it `is_unfinished`, projects that are not open may still have embeddings of an earlier model.
    """

    current: str | None = None
    replaced: tuple[str, ...] = ()
    is_unfinished: bool = False

    def has_replaced(self, model: str) -> bool:
        """Return whether another model took the place of this one. A chosen model replaces all shipped ones."""
        if self.current in (None, model):
            return False
        return model in self.replaced or (model == SHIPPED_MODEL and self.current != FIRST_MODEL)

    def follow(self, model: str) -> "ModelHistory":
        """Return the history after a change of the model."""
        before = [*self.replaced, self.current or FIRST_MODEL]
        replaced = tuple(name for name in dict.fromkeys(before) if name != model)[-MAX_REPLACED:]
        return ModelHistory(model, replaced, is_unfinished=bool(replaced))

    def format_note(self) -> str:
        note = {"model": self.current, "replaced": self.replaced, "unfinished": self.is_unfinished}
        return json.dumps(note, ensure_ascii=False)


async def read_models(library: Library) -> ModelHistory:
    return parse_models(await library.get_note(MODEL_NOTE))


def parse_models(note: str | None) -> ModelHistory:
    """Parse the note. One that cannot be understood counts as missing."""
    facts = parse_json_object(note)
    if facts is None:
        return ModelHistory()
    replaced = facts.get("replaced")
    names = tuple(str(name) for name in cast(list[object], replaced if isinstance(replaced, list) else []))
    return ModelHistory(str(facts.get("model")), names, is_unfinished=bool(facts.get("unfinished")))


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
        """Note that the model is in use. Raise ModelReplaced if another one replaced it, unless it `returns`."""
        if self._known.current == self._model and not returns:
            return
        self._known = known = await read_models(self._library)
        self._read_at = time.monotonic()
        if not returns and (fault := self.fault) is not None:
            raise fault
        if known.current != self._model:
            self._known = known.follow(self._model)
            await self._library.set_note(MODEL_NOTE, self._known.format_note())

    async def find_unfinished(self) -> bool:
        """Return whether all projects must be looked at, because the model has changed or will."""
        known = await read_models(self._library)
        if known.current == self._model:
            return known.is_unfinished
        return not known.has_replaced(self._model) and (known.current or FIRST_MODEL) != self._model

    async def finish(self) -> None:
        """Note that all projects have embeddings of the model."""
        known = await read_models(self._library)
        if known.current == self._model and known.is_unfinished:
            await self._library.set_note(MODEL_NOTE, replace(known, is_unfinished=False).format_note())


class ClaimedEmbedder(ForwardingEmbedder):
    """Embedder that computes nothing while another model is that of the data folder."""

    def __init__(self, embedder: Embedder, library: Library) -> None:
        super().__init__(embedder)
        self._library = library
        self._made: ModelClaim | None = None

    @property
    def claim(self) -> ModelClaim:
        if self._made is None:
            self._made = ModelClaim(self._library, self.name)
        return self._made

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
