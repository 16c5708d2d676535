"""The embedding model, and the texts that wait for their vectors."""

import asyncio
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from recollect.app.care.databases import database_names, titles
from recollect.app.care.findings import Finding, Patient
from recollect.core.text import counted
from recollect.engines.sqlite.connections import translated
from recollect.engines.sqlite.copying import META
from recollect.engines.sqlite.examining import in_use
from recollect.engines.sqlite.library import SqliteLibrary
from recollect.engines.sqlite.meaning import vector_counts
from recollect.engines.sqlite.schema import PROJECT
from recollect.errors import ModelUnavailable, RecollectError

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
    if patient.is_on_disk:
        yield from _queue(patient, model, can_embed=fault is None)


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


def _queue(patient: Patient, model: str, *, can_embed: bool) -> Iterator[Finding]:
    from recollect.app.build import EMBEDDED_KINDS

    waiting: dict[str, int] = {}
    others = 0
    names = [name for name in database_names(patient.folder) if not _is_put_away(name)]
    for name in names:
        path = patient.folder / name
        try:
            with translated(path), closing(in_use(path)) as db:
                if int(db.pragma("user_version")) < PROJECT.version:
                    continue  # the next start brings it up to date, and its texts wait then
                waiting[name] = vector_counts(db, model, EMBEDDED_KINDS)[1]
                others += int(
                    db.execute(
                        "SELECT count(*) FROM records WHERE embedded IS NOT NULL "
                        "AND embedded NOT IN ('', ?) AND deleted_at IS NULL",
                        (model,),
                    ).get
                )
        except RecollectError:
            continue  # the check of databases says what is wrong with it
    total = sum(waiting.values())
    if total == 0:
        yield Finding(CHECK, "ok", "No text waits for its vector.")
        return
    most = max(waiting, key=lambda name: waiting[name])
    where = titles(patient.folder).get(most, most)
    what = f"{counted(total, 'text')} {_wait(total)} for a vector, most of them in {where}."
    if others:
        what += f" {counted(others, 'vector')} {_are(others)} of another model."
    mend = (lambda: _drained(patient, model)) if can_embed and total <= FEW else None
    command = "recollect index, or a server that runs for a while"
    yield Finding(CHECK, "advice" if total > SOON else "ok", what, command, mend)


def _wait(count: int) -> str:
    return "waits" if count == 1 else "wait"


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _is_put_away(name: str) -> bool:
    return name == META or Path(name).parts[0] == "archive"


def _drained(patient: Patient, model: str) -> str:
    done = asyncio.run(_drain(patient))
    return f"gave {counted(done, 'text')} a vector of {model}"


async def _drain(patient: Patient) -> int:
    from recollect.app.build import EMBEDDED_KINDS
    from recollect.app.indexing import Indexer
    from recollect.embedders.onnx import OnnxEmbedder

    library = SqliteLibrary(patient.folder)
    indexer = Indexer(OnnxEmbedder(), EMBEDDED_KINDS)
    try:
        active = [project.name for project in await library.projects("active")]
        stores = [await library.user(), await library.history()]
        stores += [(await library.open(name))[1] for name in active]
        return sum([await indexer.drain(store, lambda _done, _total: None) for store in stores])
    finally:
        await indexer.close()
        await library.close()
