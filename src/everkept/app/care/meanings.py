"""The embedding model, and the texts that wait for their vectors."""

import asyncio
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from everkept.app.care.findings import Finding, Patient
from everkept.core.ports import RecordStore
from everkept.core.text import counted
from everkept.errors import EverkeptError, ModelUnavailable

if TYPE_CHECKING:  # only SQLite has files to care for
    from everkept.engines.sqlite.care.care import SqliteCare

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
        yield Finding(CHECK, "problem", fault.message, "install Everkept again")
    else:
        yield Finding(CHECK, "ok", f"The model {model} is there, and works.")
    if patient.care is not None:
        yield from _queue(patient.care, model, can_embed=fault is None)


def _fault() -> ModelUnavailable | None:
    """Loads it: files of the right size can be damaged still."""
    from everkept.embedders.onnx import OnnxEmbedder

    embedder = OnnxEmbedder()
    if embedder.fault is not None:
        return embedder.fault
    try:
        asyncio.run(embedder.embed(["a text to begin with"]))
    except ModelUnavailable as fault:
        return fault
    return None


def _queue(care: "SqliteCare", model: str, *, can_embed: bool) -> Iterator[Finding]:
    from everkept.app.embedded_kinds import EMBEDDED_KINDS

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
    command = "everkept index, or a server that runs for a while"
    yield Finding(CHECK, "advice" if total > SOON else "ok", what, command, mend)


def _wait(count: int) -> str:
    return "waits" if count == 1 else "wait"


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _drained(care: "SqliteCare", model: str) -> str:
    done, failed = asyncio.run(_drain(care))
    did = f"gave {counted(done, 'text')} a vector of {model}"
    return f"{did}; left out: {' '.join(failed)}" if failed else did


async def _drain(care: "SqliteCare") -> tuple[int, list[str]]:
    """How many texts got theirs, and what kept other databases from it."""
    from everkept.app.embedded_kinds import EMBEDDED_KINDS
    from everkept.app.indexing import Indexer
    from everkept.embedders.onnx import OnnxEmbedder

    library = care.library()
    indexer = Indexer(OnnxEmbedder(), EMBEDDED_KINDS)
    done, failed = 0, list[str]()

    async def of_project(name: str) -> RecordStore:
        return (await library.open(name))[1]

    try:
        active = [project.name for project in await library.projects("active")]
        projects = [partial(of_project, name) for name in active]
        for store in (library.user, library.history, *projects):
            try:
                done += await indexer.drain(await store(), lambda _done, _total: None)
            except EverkeptError as error:
                failed.append(error.message)
        return done, failed
    finally:
        await indexer.close()
        await library.close()
