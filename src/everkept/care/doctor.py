"""The doctor: a look at everything that can be wrong, with a fix for what can be fixed."""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from everkept.accounts.access_log import LOG_FOLDER
from everkept.care.check_context import CheckContext, DoctorCheck, DoctorFinding, FixResult, apply_fixes, run_checks
from everkept.care.database_server import DATABASE_CHECK as DATABASE
from everkept.care.database_server import check_database
from everkept.care.installation_checks import (
    CLIENTS_CHECK,
    DATA_FOLDER_CHECK,
    FOLDERS_CHECK,
    GATEWAY_FILE_CHECK,
    SETTINGS_CHECK,
    VERSIONS_CHECK,
    check_clients,
    check_data_folder,
    check_folders,
    check_gateway,
    check_settings,
    check_versions,
)
from everkept.core.peers import Peer, PeerFault
from everkept.core.ports import RecordStore
from everkept.core.text import format_count
from everkept.errors import EverkeptError, ModelUnavailable
from everkept.peers.peer_file import PeerList
from everkept.values import Value, replace

if TYPE_CHECKING:
    from everkept.engines.sqlite.care import SqliteCare
    from everkept.peers.client import ReachedPeer

ACCESS_LOG_CHECK = "access log"


def check_access_log(context: CheckContext) -> Iterator[DoctorFinding]:
    """Nothing where no server has written one."""
    folder = context.folder / LOG_FOLDER
    if sizes := [path.stat().st_size for path in folder.rglob("*.jsonl")]:
        what = f"{format_count(len(sizes), 'file')} with {sum(sizes):,} bytes in {folder}."
        yield DoctorFinding(ACCESS_LOG_CHECK, "ok", what)


PEERS_CHECK = "peers"
PEERS_COMMAND = "everkept peer check"


def check_peers(context: CheckContext) -> Iterator[DoctorFinding]:
    """Nothing where none are known. One that is away is no fault of this installation."""
    listed = PeerList(context.folder).read_peers()
    for sentence in listed.warnings:
        yield DoctorFinding(PEERS_CHECK, "advice", sentence)
    for met in asyncio.run(_contact_peers(listed.peers)) if listed.peers else ():
        if isinstance(met, PeerFault):
            yield DoctorFinding(PEERS_CHECK, "advice", f"{met.peer}: {met.reason}", PEERS_COMMAND)
        else:
            yield DoctorFinding(PEERS_CHECK, "ok", f"{met.peer} is there and knows us.")


async def _contact_peers(peers: Sequence[Peer]) -> "list[ReachedPeer | PeerFault]":
    from everkept.peers.client import greet_peer

    return list(await asyncio.gather(*map(greet_peer, peers)))


VECTORS_CHECK = "search by meaning"
MAX_UNREPORTED_TEXTS = 200  # texts that a running server embeds within a minute
MAX_FIXABLE_TEXTS = 5_000  # texts that are embedded in a minute or so; more are for who watches them


def check_vectors(context: CheckContext) -> Iterator[DoctorFinding]:
    model = context.settings.embedding_model
    if model == "none":
        yield DoctorFinding(VECTORS_CHECK, "ok", "It is switched off (embedding_model): words are searched.")
        return
    fault = _find_model_fault()
    if fault is not None:
        yield DoctorFinding(VECTORS_CHECK, "problem", fault.message, "install Everkept again")
    else:
        yield DoctorFinding(VECTORS_CHECK, "ok", f"The model {model} is there, and works.")
    if context.care is not None:
        yield from _check_queue(context.care, model, can_embed=fault is None)


def _find_model_fault() -> ModelUnavailable | None:
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


def _check_queue(care: "SqliteCare", model: str, *, can_embed: bool) -> Iterator[DoctorFinding]:
    from everkept.jobs.maintenance import EMBEDDED_KINDS

    waiting = care.count_pending_embeddings(model, EMBEDDED_KINDS)
    total = sum(each.texts for each in waiting)
    others = sum(each.others for each in waiting)
    if total == 0:
        yield DoctorFinding(VECTORS_CHECK, "ok", "No text waits for its vector.")
        return
    where = max(waiting, key=lambda each: each.texts).title
    what = f"{format_count(total, 'text')} {_format_wait(total)} for a vector, most of them in {where}."
    if others:
        what += f" {format_count(others, 'vector')} {_format_verb(others)} of another model."
    mend = (lambda: _embed_pending(care, model)) if can_embed and total <= MAX_FIXABLE_TEXTS else None
    command = "everkept index, or a server that runs for a while"
    yield DoctorFinding(VECTORS_CHECK, "advice" if total > MAX_UNREPORTED_TEXTS else "ok", what, command, mend)


def _format_wait(count: int) -> str:
    return "waits" if count == 1 else "wait"


def _format_verb(count: int) -> str:
    return "is" if count == 1 else "are"


def _embed_pending(care: "SqliteCare", model: str) -> str:
    done, failed = asyncio.run(_drain_queue(care))
    did = f"gave {format_count(done, 'text')} a vector of {model}"
    return f"{did}; left out: {' '.join(failed)}" if failed else did


async def _drain_queue(care: "SqliteCare") -> tuple[int, list[str]]:
    """How many texts got theirs, and what kept other databases from it."""
    from everkept.embedders.onnx import OnnxEmbedder
    from everkept.jobs.maintenance import EMBEDDED_KINDS, Indexer

    library = care.open_library()
    indexer = Indexer(OnnxEmbedder(), EMBEDDED_KINDS)
    done, failed = 0, list[str]()

    async def of_project(name: str) -> RecordStore:
        return (await library.open(name))[1]

    try:
        active = [project.name for project in await library.list_projects("active")]
        projects = [partial(of_project, name) for name in active]
        for store in (library.open_user_store, library.open_history_store, *projects):
            try:
                done += await indexer.drain(await store(), lambda _done, _total: None)
            except EverkeptError as error:
                failed.append(error.message)
        return done, failed
    finally:
        await indexer.close()
        await library.close()


DATABASES_CHECK, PROJECTS_CHECK = "databases", "projects"


def check_databases(context: CheckContext) -> Iterable[DoctorFinding]:
    care = context.care
    return care.check_databases(DATABASES_CHECK, full=context.full) if care else ()


def check_projects(context: CheckContext) -> Iterable[DoctorFinding]:
    care = context.care
    return care.check_projects(PROJECTS_CHECK, context.clock) if care else ()


CHECKS: tuple[tuple[str, DoctorCheck], ...] = (
    (VERSIONS_CHECK, check_versions),
    (SETTINGS_CHECK, check_settings),
    (DATA_FOLDER_CHECK, check_data_folder),
    (DATABASES_CHECK, check_databases),
    (PROJECTS_CHECK, check_projects),
    (DATABASE, check_database),
    (VECTORS_CHECK, check_vectors),
    (GATEWAY_FILE_CHECK, check_gateway),
    (ACCESS_LOG_CHECK, check_access_log),
    (PEERS_CHECK, check_peers),
    (CLIENTS_CHECK, check_clients),
    (FOLDERS_CHECK, check_folders),
)
STORE_CHECKS = (DATABASES_CHECK, PROJECTS_CHECK, VECTORS_CHECK)


class DoctorReport(Value):
    """What is found, after what was mended."""

    findings: list[DoctorFinding]
    mended: list[FixResult]

    @property
    def is_healthy(self) -> bool:
        return not any(finding.severity == "problem" for finding in self.findings)


def diagnose(context: CheckContext, more: Iterable[tuple[str, DoctorCheck]] = (), *, fix: bool = False) -> DoctorReport:
    """`more` are checks of what this layer does not know. Nothing is written without `fix`."""
    checks = (*CHECKS, *more)
    findings = _run_applicable_checks(context, checks)
    done = apply_fixes(findings) if fix else []
    return DoctorReport(_run_applicable_checks(context, checks) if done else findings, done)


def _run_applicable_checks(context: CheckContext, checks: Iterable[tuple[str, DoctorCheck]]) -> list[DoctorFinding]:
    """While a restore is not at its end, nothing but that puts the databases right."""
    findings = run_checks(context, checks)
    restoring = context.care.find_unfinished_restore() if context.care else None
    if restoring is None:
        return findings
    return [
        replace(finding, mend=None, command=restoring.command)
        if finding.check in STORE_CHECKS and (finding.mend or finding.severity != "ok")
        else finding
        for finding in findings
    ]
