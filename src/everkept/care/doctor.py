"""Doctor: checks of everything that can be wrong, with fixes."""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from everkept.accounts.access_log import LOG_FOLDER
from everkept.app.build import build_embedder, build_indexer
from everkept.app.engines import build_empty_library, make_library
from everkept.care.backup_schedule import BACKUPS_CHECK, check_schedule
from everkept.care.check_context import (
    FIX_COMMAND,
    CheckContext,
    DoctorCheck,
    DoctorFinding,
    FixResult,
    apply_fixes,
    run_checks,
)
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
from everkept.core.care_results import PendingEmbeddings
from everkept.core.folder_project import CHOICE_PREFIX, FolderChoice, parse_choices, release_key
from everkept.core.peers import Peer, PeerFault
from everkept.core.ports import Embedder, Library, RecordStore
from everkept.core.text import format_count
from everkept.errors import EverkeptError, ModelReplaced, ModelUnavailable
from everkept.jobs.claims import MODEL_NOTE, ModelHistory, parse_models, read_models
from everkept.jobs.maintenance import EMBEDDED_KINDS
from everkept.peers.peer_file import PeerList
from everkept.settings import NO_MODEL, SHIPPED_MODEL
from everkept.values import Value, replace

if TYPE_CHECKING:
    from everkept.engines.sqlite.care import SqliteCare
    from everkept.peers.client import ReachedPeer

ACCESS_LOG_CHECK = "access log"


def check_access_log(context: CheckContext) -> Iterator[DoctorFinding]:
    """Check the access log, if a server has written one."""
    folder = context.folder / LOG_FOLDER
    if sizes := [path.stat().st_size for path in folder.rglob("*.jsonl")]:
        what = f"{format_count(len(sizes), 'file')} ({format_count(sum(sizes), 'byte')}) in {folder}."
        yield DoctorFinding(ACCESS_LOG_CHECK, "ok", what)


PEERS_CHECK = "peers"
PEERS_COMMAND = "everkept peer check"


def check_peers(context: CheckContext) -> Iterator[DoctorFinding]:
    """Check the known peers. An unreachable one is not a fault of this installation."""
    listed = PeerList(context.folder).read_peers()
    for sentence in listed.warnings:
        yield DoctorFinding(PEERS_CHECK, "advice", sentence)
    for met in asyncio.run(_contact_peers(listed.peers)) if listed.peers else ():
        if isinstance(met, PeerFault):
            yield DoctorFinding(PEERS_CHECK, "advice", f"{met.peer}: {met.reason}", PEERS_COMMAND)
        else:
            yield DoctorFinding(PEERS_CHECK, "ok", f"{met.peer} is reachable and knows this server.")


async def _contact_peers(peers: Sequence[Peer]) -> "list[ReachedPeer | PeerFault]":
    from everkept.peers.client import greet_peer

    return list(await asyncio.gather(*map(greet_peer, peers)))


VECTORS_CHECK = "search by meaning"
MAX_UNREPORTED_TEXTS = 200  # a running server embeds them within a minute
MAX_FIXABLE_TEXTS = 5_000  # embedded in about a minute; more need a person who watches


def check_vectors(context: CheckContext) -> Iterator[DoctorFinding]:
    settings = context.settings
    embedder = build_embedder(settings)
    if embedder is None:
        yield DoctorFinding(
            VECTORS_CHECK, "ok", "Search by meaning is turned off (embedding_model). Only words are searched."
        )
        return
    fault = asyncio.run(_find_model_fault(embedder))
    if fault is not None:
        command = "install Everkept again" if settings.embedding_model == SHIPPED_MODEL else fault.hint
        yield DoctorFinding(VECTORS_CHECK, "problem", fault.message, command)
    else:
        where = "" if settings.embedding_model == SHIPPED_MODEL else f" in {settings.embedding_model}"
        what = f"The model {embedder.name}{where} works. Embeddings have {embedder.dimensions} numbers."
        yield DoctorFinding(VECTORS_CHECK, "ok", what)
    try:
        queue = _read_queue(context, embedder.name)
    except EverkeptError:  # the checks of databases report it
        return
    yield from _check_queue(context, queue, embedder.name, can_embed=fault is None)


async def _find_model_fault(embedder: Embedder) -> ModelUnavailable | None:
    """Loads it: files of the right size can be damaged still."""
    try:
        await embedder.embed(["a text to begin with"])
    except ModelUnavailable as fault:
        return fault
    finally:
        await embedder.close()
    return None


class _Queue(Value):
    """Pending texts, and the model of the data folder."""

    stored: int
    waiting: list[PendingEmbeddings]
    models: ModelHistory


def _read_queue(context: CheckContext, model: str) -> _Queue:
    """Read files without changing them, or ask the database. A look creates nothing."""
    care = context.care
    if care is not None:
        waiting = care.count_pending_embeddings(model, EMBEDDED_KINDS)
        return _Queue(sum(each.stored for each in waiting), waiting, parse_models(care.read_note(MODEL_NOTE)))
    if context.settings.deployment_mode == "embedded-memory" or build_empty_library(context.settings):
        return _Queue(0, [], ModelHistory())
    return asyncio.run(_ask_queue(context, model))


async def _ask_queue(context: CheckContext, model: str) -> _Queue:
    library = make_library(context.settings, context.clock, standing_by=False, founds=False)
    try:
        found: list[PendingEmbeddings] = []
        for title, store in await _open_stores(library):
            stored, texts = await store.count_vectors(model, EMBEDDED_KINDS)
            found.append(PendingEmbeddings(title, texts, 0, stored))
        return _Queue(sum(each.stored for each in found), found, await read_models(library))
    finally:
        await library.close()


async def _open_stores(library: Library) -> list[tuple[str, RecordStore]]:
    stores = [("user.db", await library.open_user_store()), ("history.db", await library.open_history_store())]
    projects = await library.list_projects("active")
    return [*stores, *[(f'project "{project.name}"', await library.get_store(project)) for project in projects]]


def _check_queue(context: CheckContext, queue: _Queue, model: str, *, can_embed: bool) -> Iterator[DoctorFinding]:
    if queue.models.has_replaced(model):
        fault = ModelReplaced(model, str(queue.models.current))
        yield DoctorFinding(VECTORS_CHECK, "problem", fault.message, fault.hint)
        return
    waiting = queue.waiting
    total = sum(each.texts for each in waiting)
    others = sum(each.others for each in waiting)
    if total == 0:
        yield DoctorFinding(VECTORS_CHECK, "ok", "All texts are embedded.")
        return
    where = max(waiting, key=lambda each: each.texts).title
    most = ", most of them" if sum(each.texts > 0 for each in waiting) > 1 else ""
    what = f"{format_count(total, 'embedding')} pending{most} in {where}."
    what += f" {format_count(queue.stored, 'text')} {_format_verb(queue.stored)} embedded."
    if others:
        what += f" {format_count(others, 'vector')} {_format_verb(others)} of another model."
    care = context.care if can_embed and total <= MAX_FIXABLE_TEXTS else None
    mend = partial(_embed_pending, context, care) if care else None
    command = "everkept index"
    yield DoctorFinding(VECTORS_CHECK, "advice" if total > MAX_UNREPORTED_TEXTS else "ok", what, command, mend)


def _format_verb(count: int) -> str:
    return "is" if count == 1 else "are"


def _embed_pending(context: CheckContext, care: "SqliteCare") -> str:
    model, done, failed = asyncio.run(_drain_queue(context, care))
    did = f"embedded {format_count(done, 'text')} with {model}"
    return f"{did}; skipped: {' '.join(failed)}" if failed else did


async def _drain_queue(context: CheckContext, care: "SqliteCare") -> tuple[str, int, list[str]]:
    """Return the model, how many texts were embedded, and what stopped other databases."""
    library = care.open_library()
    indexer = build_indexer(context.settings, library, context.clock)
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
        return indexer.embedder.name if indexer.embedder else NO_MODEL, done, failed
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


CHOICES_CHECK = "projects of folders"


def check_choices(context: CheckContext) -> Iterator[DoctorFinding]:
    """Find folders for which a project was chosen that no longer exists."""
    if context.settings.deployment_mode == "embedded-memory" or build_empty_library(context.settings):
        return
    care = context.care
    if care is None:
        try:
            choices, names = asyncio.run(_ask_choices(context))
        except EverkeptError:  # the check of the database says why
            return
    else:
        choices, names = parse_choices(care.read_notes(CHOICE_PREFIX)), care.list_project_names()
    for folder, choice in choices.items():
        if choice.project not in names:
            what = f'The project "{choice.project}", chosen for the folder {folder}, no longer exists.'
            clear = partial(_clear_choice, context, folder, choice)
            yield DoctorFinding(CHOICES_CHECK, "problem", what, FIX_COMMAND, clear)


async def _ask_choices(context: CheckContext) -> tuple[dict[str, FolderChoice], set[str]]:
    library = make_library(context.settings, context.clock, standing_by=False, founds=False)
    try:
        choices = parse_choices(await library.list_notes(CHOICE_PREFIX))
        return choices, {project.name for project in await library.list_projects(None)}
    finally:
        await library.close()


def _clear_choice(context: CheckContext, folder: str, choice: FolderChoice) -> str:
    async def clear() -> None:
        library = make_library(context.settings, context.clock, founds=False)
        try:
            await release_key(library, folder, choice)
        finally:
            await library.close()

    asyncio.run(clear())
    return f"the folder {folder} uses its own project again"


CHECKS: tuple[tuple[str, DoctorCheck], ...] = (
    (VERSIONS_CHECK, check_versions),
    (SETTINGS_CHECK, check_settings),
    (DATA_FOLDER_CHECK, check_data_folder),
    (DATABASES_CHECK, check_databases),
    (PROJECTS_CHECK, check_projects),
    (CHOICES_CHECK, check_choices),
    (BACKUPS_CHECK, check_schedule),
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
    """Findings after the fixes."""

    findings: list[DoctorFinding]
    mended: list[FixResult]

    @property
    def is_healthy(self) -> bool:
        return not any(finding.severity == "problem" for finding in self.findings)


def diagnose(context: CheckContext, more: Iterable[tuple[str, DoctorCheck]] = (), *, fix: bool = False) -> DoctorReport:
    """Check the installation. `more` are checks of other layers. Write nothing without `fix`."""
    checks = (*CHECKS, *more)
    findings = _run_applicable_checks(context, checks)
    if fix and context.care and any(finding.mend for finding in findings):
        context.care.upgrade()
    done = apply_fixes(findings) if fix else []
    return DoctorReport(_run_applicable_checks(context, checks) if done else findings, done)


def _run_applicable_checks(context: CheckContext, checks: Iterable[tuple[str, DoctorCheck]]) -> list[DoctorFinding]:
    """Run the checks. While a restore is incomplete, run only the check that completes it."""
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
