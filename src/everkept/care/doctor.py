"""The doctor: a look at everything that can be wrong, with a fix for what can be fixed."""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from everkept.accounts.access_log import FOLDER
from everkept.care.database_server import CHECK as DATABASE
from everkept.care.database_server import check_database
from everkept.care.findings import Check, Finding, Mended, Patient, examined, mended
from everkept.care.installation import (
    CLIENTS,
    FOLDERS,
    OF_GATEWAY,
    PLACE,
    SETTINGS,
    VERSIONS,
    check_clients,
    check_folders,
    check_gateway,
    check_place,
    check_settings,
    check_versions,
)
from everkept.core.peers import Peer, PeerFault
from everkept.core.ports import RecordStore
from everkept.core.text import counted
from everkept.errors import EverkeptError, ModelUnavailable
from everkept.peers.peer_file import Roster
from everkept.values import Value, replace

if TYPE_CHECKING:
    from everkept.engines.sqlite.care import SqliteCare
    from everkept.peers.client import Met

ACCESS_LOG = "access log"


def check_access_log(patient: Patient) -> Iterator[Finding]:
    """Nothing where no server has written one."""
    folder = patient.folder / FOLDER
    if sizes := [path.stat().st_size for path in folder.glob("*.jsonl")]:
        what = f"{counted(len(sizes), 'file')} with {sum(sizes):,} bytes in {folder}."
        yield Finding(ACCESS_LOG, "ok", what)


PEERS = "peers"
COMMAND = "everkept peer check"


def check_peers(patient: Patient) -> Iterator[Finding]:
    """Nothing where none are known. One that is away is no fault of this installation."""
    listed = Roster(patient.folder).listed()
    for sentence in listed.warnings:
        yield Finding(PEERS, "advice", sentence)
    for met in asyncio.run(_asked(listed.peers)) if listed.peers else ():
        if isinstance(met, PeerFault):
            yield Finding(PEERS, "advice", f"{met.peer}: {met.reason}", COMMAND)
        else:
            yield Finding(PEERS, "ok", f"{met.peer} is there and knows us.")


async def _asked(peers: Sequence[Peer]) -> "list[Met | PeerFault]":
    from everkept.peers.client import greeted

    return list(await asyncio.gather(*map(greeted, peers)))


VECTORS = "search by meaning"
SOON = 200  # texts that a running server embeds within a minute
FEW = 5_000  # texts that are embedded in a minute or so; more are for who watches them


def check_meaning(patient: Patient) -> Iterator[Finding]:
    model = patient.settings.embedding_model
    if model == "none":
        yield Finding(VECTORS, "ok", "It is switched off (embedding_model): words are searched.")
        return
    fault = _fault()
    if fault is not None:
        yield Finding(VECTORS, "problem", fault.message, "install Everkept again")
    else:
        yield Finding(VECTORS, "ok", f"The model {model} is there, and works.")
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
    from everkept.jobs.maintenance import EMBEDDED_KINDS

    waiting = care.waiting(model, EMBEDDED_KINDS)
    total = sum(each.texts for each in waiting)
    others = sum(each.others for each in waiting)
    if total == 0:
        yield Finding(VECTORS, "ok", "No text waits for its vector.")
        return
    where = max(waiting, key=lambda each: each.texts).title
    what = f"{counted(total, 'text')} {_wait(total)} for a vector, most of them in {where}."
    if others:
        what += f" {counted(others, 'vector')} {_are(others)} of another model."
    mend = (lambda: _drained(care, model)) if can_embed and total <= FEW else None
    command = "everkept index, or a server that runs for a while"
    yield Finding(VECTORS, "advice" if total > SOON else "ok", what, command, mend)


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
    from everkept.embedders.onnx import OnnxEmbedder
    from everkept.jobs.maintenance import EMBEDDED_KINDS, Indexer

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


DATABASES, PROJECTS = "databases", "projects"


def check_databases(patient: Patient) -> Iterable[Finding]:
    care = patient.care
    return care.check_databases(DATABASES, full=patient.full) if care else ()


def check_projects(patient: Patient) -> Iterable[Finding]:
    care = patient.care
    return care.check_projects(PROJECTS, patient.clock) if care else ()


CHECKS: tuple[tuple[str, Check], ...] = (
    (VERSIONS, check_versions),
    (SETTINGS, check_settings),
    (PLACE, check_place),
    (DATABASES, check_databases),
    (PROJECTS, check_projects),
    (DATABASE, check_database),
    (VECTORS, check_meaning),
    (OF_GATEWAY, check_gateway),
    (ACCESS_LOG, check_access_log),
    (PEERS, check_peers),
    (CLIENTS, check_clients),
    (FOLDERS, check_folders),
)
OF_DATABASES = (DATABASES, PROJECTS, VECTORS)


class Diagnosis(Value):
    """What is found, after what was mended."""

    findings: list[Finding]
    mended: list[Mended]

    @property
    def is_well(self) -> bool:
        return not any(finding.severity == "problem" for finding in self.findings)


def diagnose(
    patient: Patient, more: Iterable[tuple[str, Check]] = (), *, fix: bool = False
) -> Diagnosis:
    """`more` are checks of what this layer does not know. Nothing is written without `fix`."""
    checks = (*CHECKS, *more)
    findings = _found(patient, checks)
    done = mended(findings) if fix else []
    return Diagnosis(_found(patient, checks) if done else findings, done)


def _found(patient: Patient, checks: Iterable[tuple[str, Check]]) -> list[Finding]:
    """While a restore is not at its end, nothing but that puts the databases right."""
    findings = examined(patient, checks)
    restoring = patient.care.unfinished() if patient.care else None
    if restoring is None:
        return findings
    return [
        replace(finding, mend=None, command=restoring.command)
        if finding.check in OF_DATABASES and (finding.mend or finding.severity != "ok")
        else finding
        for finding in findings
    ]
