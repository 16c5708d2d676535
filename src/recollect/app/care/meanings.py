"""The embedding model, and the texts that wait for their vectors."""

import asyncio
from collections.abc import Iterator

from recollect.app.care.findings import Finding, Patient
from recollect.core.care import Care
from recollect.core.text import counted
from recollect.errors import ModelUnavailable

CHECK = "search by meaning"
SOON = 200  # texts that a running server embeds within a minute
FEW = 5_000  # texts that are embedded in a minute or so; more are for who watches them


def check_meaning(patient: Patient) -> Iterator[Finding]:
    model = patient.settings.embedding_model
    if model == "none":
        yield Finding(CHECK, "ok", "It is switched off (embedding_model): words are searched.")
        return
    fault = _fault()
    if fault is not None:
        yield Finding(CHECK, "problem", fault.message, "install Recollect again")
    else:
        yield Finding(CHECK, "ok", f"The model {model} is there, and works.")
    if patient.care is not None:
        yield from _queue(patient.care, model, can_embed=fault is None)


def _fault() -> ModelUnavailable | None:
    """Loads it: files of the right size can be damaged still."""
    from recollect.embedders.onnx import OnnxEmbedder

    embedder = OnnxEmbedder()
    if embedder.fault is not None:
        return embedder.fault
    try:
        asyncio.run(embedder.embed(["a text to begin with"]))
    except ModelUnavailable as fault:
        return fault
    return None


def _queue(care: Care, model: str, *, can_embed: bool) -> Iterator[Finding]:
    from recollect.app.build import EMBEDDED_KINDS

    waiting = care.waiting(model, EMBEDDED_KINDS)
    total = sum(each.texts for each in waiting)
    others = sum(each.others for each in waiting)
    if total == 0:
        yield Finding(CHECK, "ok", "No text waits for its vector.")
        return
    where = max(waiting, key=lambda each: each.texts).title
    what = f"{counted(total, 'text')} {_wait(total)} for a vector, most of them in {where}."
    if others:
        what += f" {counted(others, 'vector')} {_are(others)} of another model."
    mend = (lambda: _drained(care, model)) if can_embed and total <= FEW else None
    command = "recollect index, or a server that runs for a while"
    yield Finding(CHECK, "advice" if total > SOON else "ok", what, command, mend)


def _wait(count: int) -> str:
    return "waits" if count == 1 else "wait"


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _drained(care: Care, model: str) -> str:
    done = asyncio.run(_drain(care))
    return f"gave {counted(done, 'text')} a vector of {model}"


async def _drain(care: Care) -> int:
    from recollect.app.build import EMBEDDED_KINDS
    from recollect.app.indexing import Indexer
    from recollect.embedders.onnx import OnnxEmbedder

    library = care.library()
    indexer = Indexer(OnnxEmbedder(), EMBEDDED_KINDS)
    try:
        active = [project.name for project in await library.projects("active")]
        stores = [await library.user(), await library.history()]
        stores += [(await library.open(name))[1] for name in active]
        return sum([await indexer.drain(store, lambda _done, _total: None) for store in stores])
    finally:
        await indexer.close()
        await library.close()
