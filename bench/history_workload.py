"""Conversations of any number, written as Claude Code keeps them, and vectors for them."""

import json
import random
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from everkept.core.ports import Embedder, RecordStore, RecordVector
from everkept.families.history.model import CODE, TURN
from memory_workload import MemoryWorkload, Question

TURNS = 40  # of one conversation
PROJECTS = 50
CODE_EVERY = 5  # turns
TRUE_VECTORS = 2_000  # texts at most that have the vector of their own
SCATTER = 0.88  # length of what is added to a true vector: the cosine to it is 0.75
AT_ONCE = 2_000  # vectors
_CODE = """\
```python
def {name}(order, limit={number}):
    total = check_{name}(order)
    if total > limit:
        raise ValueError("{name} is over the limit")
    return Basket(total).{other}()
```"""


class Conversations:
    """`size` turns, each made from its number alone."""

    def __init__(self, size: int) -> None:
        self._workload = MemoryWorkload(size)
        self.size = size

    def write(self, folder: Path) -> int:
        """A folder as `CLAUDE_CONFIG_DIR` names it; says how many bytes are in it."""
        written = 0
        for number in range(0, self.size, TURNS):
            project = f"-home-dev-project-{number // TURNS % PROJECTS}"
            path = folder / "projects" / project / f"{_id(number, 'session')}.jsonl"
            path.parent.mkdir(parents=True, exist_ok=True)
            turns = range(number, min(number + TURNS, self.size))
            lines = [json.dumps(self._record(number, turn)) for turn in turns]
            path.write_text("\n".join(lines) + "\n", "utf-8")
            written += path.stat().st_size
        return written

    def questions(self) -> Iterator[Question]:
        while True:
            yield self._workload.question()

    def _record(self, first: int, number: int) -> dict[str, Any]:
        memory = self._workload.memory(number)
        is_user = number % 2 == 0
        text = memory.content
        if number % CODE_EVERY == 3:
            text += "\n\n" + _code(number)
        content = text if is_user else [{"type": "text", "text": text}]
        at = datetime.now(UTC) - timedelta(seconds=memory.age)
        return {
            "type": "user" if is_user else "assistant",
            "uuid": _id(number, "turn"),
            "parentUuid": None,
            "sessionId": _id(first, "session"),
            "timestamp": at.isoformat().replace("+00:00", "Z"),
            "cwd": f"/home/dev/project-{first // TURNS % PROJECTS}",
            "gitBranch": "main",
            "isSidechain": False,
            "message": {
                "role": "user" if is_user else "assistant",
                "content": content,
                **({} if is_user else {"id": f"msg_{number}", "model": "model-x"}),
            },
        }


async def give_vectors(store: RecordStore, embedder: Embedder) -> int:
    """Some texts get their own vector, the others one nearby: a million embeddings take hours."""
    chance = np.random.default_rng(0)
    centres: NDArray[np.float32] | None = None
    given = 0
    while records := await store.find_unembedded(embedder.name, (TURN, CODE), AT_ONCE):
        if centres is None:
            centres = await embedder.embed([record.text for record in records[:TRUE_VECTORS]])
            vectors = centres[: len(records)]
        else:
            near = centres[chance.integers(0, len(centres), len(records))]
            noise = chance.standard_normal(near.shape, np.float32)
            noise *= SCATTER / np.linalg.norm(noise, axis=1, keepdims=True)
            vectors = near + noise
            vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        items = [RecordVector(r.id, r.version, v) for r, v in zip(records, vectors, strict=True)]
        given += await store.put_vectors(embedder.name, items)
    return given


def _code(number: int) -> str:
    chance = random.Random(number)
    names = [f"{chance.choice('abcdefgh')}{chance.randrange(10_000)}_total" for _ in range(2)]
    return _CODE.format(name=names[0], other=names[1], number=chance.randrange(1_000))


def _id(number: int, kind: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{kind} {number}"))
