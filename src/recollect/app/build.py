"""The composition root: settings become the parts of an application."""

import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from recollect.app.accesses import BatchedAccesses
from recollect.app.accounts.grants import accesses
from recollect.app.accounts.guarding import GuardedLibrary
from recollect.app.accounts.owners import OwnersFinder, OwnersSections
from recollect.app.engines import make_library, standby_of
from recollect.app.indexing import Indexer
from recollect.app.keeping import Keeper, Shelf
from recollect.app.leases import Lease
from recollect.app.memory_resources import MemoryResources
from recollect.app.numbered import NumberedHere, nothing_numbered_here
from recollect.app.past import Past
from recollect.app.peering.asking import OwnersPeers
from recollect.app.projects import DEFAULT_PROJECT, ProjectRule
from recollect.app.resources import AllResources, GraphResources, Render, Resources, Watcher
from recollect.app.search_log import BatchedSearches
from recollect.app.timeline import Timeline
from recollect.app.workspaces import key_of_workspace
from recollect.core.peers import Peers
from recollect.core.ports import Embedder, Library, RecordStore
from recollect.core.searching import Finder
from recollect.core.times import Clock, LocalZone
from recollect.families.bank.model import SECTION
from recollect.families.graph.toolset import Accesses, GraphTools, ProjectTools
from recollect.families.graph.views import graph_page
from recollect.families.history.model import CODE, TURN, HistoryOptions
from recollect.families.memories.model import MEMORY, Options
from recollect.families.memories.toolset import MemoryTools
from recollect.settings import (
    AUTO,
    GATEWAY,
    Settings,
    chosen_toolsets,
    client_environment,
    environment_names,
    remote_bank,
)
from recollect.tools.tool import Tool
from recollect.tools.toolset import Toolset, combined, filtered
from recollect.values import Value

if TYPE_CHECKING:  # the bank's parts are loaded where it is offered
    from recollect.app.bank_care import BankCare
    from recollect.core.files import FileStores
    from recollect.core.transcripts import Transcripts
    from recollect.families.bank.toolset import BankFamily

EMBEDDED_KINDS = (MEMORY, SECTION, TURN, CODE)


class Parts(Value):
    library: Library
    guarded: Library  # the same, as whoever is acting may see it
    choice: ProjectRule
    tools: Toolset
    offered: Toolset
    shared: Toolset  # those that reach nothing which is the owner's alone
    for_accounts: Toolset
    for_peers: Toolset
    timeline: Timeline
    resources: AllResources
    watcher: Watcher
    keeper: Keeper
    shelf: Shelf
    memories: MemoryTools
    searches: BatchedSearches
    past: Past
    bank: "BankParts | None"


class BankParts(Value):
    """What there is of the memory bank where it is offered."""

    family: "BankFamily"
    files: "FileStores"
    care: "BankCare"

    async def close(self) -> None:
        await self.care.close()
        await self.files.close()


def build(
    settings: Settings, library: Library | None, embedder: Embedder | None, clock: Clock
) -> Parts:
    """Touches no file: the library opens its databases at the first call."""
    library = library or make_library(settings, clock, on_return=lambda: indexer.wake_all())
    guarded = GuardedLibrary(library, clock)
    choice = _graph_rule(settings, guarded)
    lease = Lease(library, "vectors", clock)
    indexer = Indexer(embedder or _embedder(settings), EMBEDDED_KINDS, lease)
    keeper = Keeper(library, indexer, BatchedAccesses(clock), clock)
    rule = _memory_rule(settings, guarded, keeper)
    options = _options(settings, clock)
    bank = _bank(settings, guarded, keeper, clock) if "bank" in _families(settings) else None
    sections = OwnersSections(bank.family.sections) if bank else None
    memories = MemoryTools(rule, guarded, indexer, keeper.accesses, clock, options, sections)
    searches = BatchedSearches(library)
    history = _history_options(settings, rule)
    past = Past(library, _transcripts, indexer, clock, history)
    families = {
        "memories": memories.tools,
        "graph": lambda: _graph_tools(settings, guarded, choice, clock, partial(accesses, library)),
        "history": lambda: _history_tools(
            guarded,
            indexer,
            searches,
            clock,
            history,
            _finders(guarded, rule, memories, bank),
            OwnersPeers(settings.data_dir),
        ),
        "bank": lambda: _bank_tools(settings, bank),
    }
    made = {name: families[name]() for name in _families(settings)}
    tools = combined(*made.values())
    shared = combined(*(each for name, each in made.items() if name != "bank"))
    documents: dict[str, Resources] = {
        "memories": MemoryResources(memories, rule, guarded, options, searches),
        "graph": GraphResources(guarded, choice, _graph_document(settings)),
    }
    if bank is not None:
        documents["bank"] = _bank_documents(bank, clock)
    resources = AllResources(
        [documents[n] for n in _families(settings) if n in documents],
        owners=[documents["bank"]] if bank else [],
    )
    return Parts(
        library=library,
        guarded=guarded,
        choice=choice,
        tools=tools,
        offered=_readers(tools) if settings.read_only else tools,
        shared=shared,
        for_accounts=_readers(shared) if settings.read_only else shared,
        for_peers=_readers(shared),
        timeline=Timeline(guarded, clock, _numbered_here(settings)),
        resources=resources,
        watcher=Watcher(resources, library),
        keeper=keeper,
        shelf=Shelf(guarded, rule, keeper, bank.family.sections.take_in if bank else None),
        memories=memories,
        searches=searches,
        past=past,
        bank=bank,
    )


def _numbered_here(settings: Settings) -> NumberedHere:
    standby = standby_of(settings)
    return nothing_numbered_here if standby is None else standby.numbered_here


def _embedder(settings: Settings) -> Embedder | None:
    if settings.embedding_model == "none":
        return None
    from recollect.embedders.cached import CachedEmbedder
    from recollect.embedders.onnx import OnnxEmbedder

    return CachedEmbedder(OnnxEmbedder())


def _options(settings: Settings, clock: Clock) -> Options:
    return Options(
        mask_secrets=settings.mask_secrets,
        max_per_session=settings.max_memories_per_session,
        time_limit=settings.recall_time_limit,
        # Over HTTP there are many clients, each with a session of its own.
        session_id=settings.session_id if settings.transport == "stdio" else None,
        started_at=clock(),
        zone=LocalZone(),
    )


def _bank(settings: Settings, library: Library, keeper: Keeper, clock: Clock) -> BankParts:
    from recollect.app.bank_care import BankCare
    from recollect.app.bank_projects import BankProjects
    from recollect.families.bank.care.care_tools import Surroundings
    from recollect.families.bank.model import BankOptions
    from recollect.families.bank.toolset import BankFamily
    from recollect.filestores.finding import Files
    from recollect.filestores.ssh_place import SshOptions

    remote = remote_bank(settings)
    folder = settings.path  # over HTTP only where it is given
    named = None if settings.project in (None, AUTO) else settings.project
    options = BankOptions(
        place=remote or (None if folder is None else str(_home_of_bank(folder, settings.folder))),
        folder=settings.folder,
        username=settings.username,
        mode=settings.mode,
        mask_secrets=settings.mask_secrets,
        read_only=settings.read_only,
        free_paths=settings.transport != "http",
    )
    files = Files(SshOptions(key=settings.ssh_key, known_hosts=settings.known_hosts))
    projects = BankProjects(
        library,
        configured=named,
        place=remote or (None if folder is None else _home_of_bank(folder, settings.folder)),
        on_open=keeper.meet,
    )
    start = os.fspath(settings.path or Path())
    around = Surroundings(start, environment_names(), _current_folder())
    family = BankFamily(files, library, projects, keeper.indexer, clock, options, around)
    return BankParts(family, files, BankCare(family.banks, projects, family.mirror))


def _home_of_bank(folder: Path, name: str) -> Path:
    """Inside a repository with a bank at its root, that one, unless the folder has its own."""
    from recollect.app.workspaces import checkout_of

    root = checkout_of(folder)
    if root is not None and not (folder / name).is_dir() and (root / name).is_dir():
        return root
    return folder.absolute()


def _current_folder() -> str | None:
    """None where it was removed under the program."""
    try:
        return str(Path.cwd())
    except OSError:
        return None


def _working_folder(settings: Settings) -> Path | None:
    """A client of HTTP works in a folder of its own, so ours is none of its, unless it is named."""
    return settings.path if settings.transport == "stdio" or settings.project == AUTO else None


def _bank_documents(bank: BankParts, clock: Clock) -> Resources:
    from recollect.app.bank_resources import BankResources

    return BankResources(bank.family.banks, clock)


def _graph_document(settings: Settings) -> Render:
    if settings.dialect == "server-memory":
        from recollect.families.graph.server_memory import whole_graph

        return whole_graph
    return lambda store: graph_page(store, limit=None, cursor=None)


def _graph_rule(settings: Settings, library: Library) -> ProjectRule:
    if settings.project == AUTO:
        return ProjectRule(library, workspace=settings.path)
    if settings.dialect == "server-memory":
        return ProjectRule(library, configured=settings.project or DEFAULT_PROJECT)
    return ProjectRule(library, configured=settings.project)


def _memory_rule(settings: Settings, library: GuardedLibrary, keeper: Keeper) -> ProjectRule:
    """Memories always have a project; where none is configured, it is the working folder's."""

    def meet(store: RecordStore) -> None:
        keeper.meet(store, library.home())

    if settings.project not in (None, AUTO):
        return ProjectRule(library, configured=settings.project, on_open=meet)
    # Like the home folder, no folder at all is no workspace.
    folder = _working_folder(settings) or Path.home()
    return ProjectRule(library, workspace=folder, on_open=meet)


def _graph_tools(
    settings: Settings, library: Library, choice: ProjectRule, clock: Clock, allowed: Accesses
) -> list[Tool]:
    mask = settings.mask_secrets
    if settings.dialect == "server-memory":
        from recollect.families.graph.server_memory import ServerMemoryTools

        return ServerMemoryTools(choice, clock, mask=mask).tools()
    projects = ProjectTools(library, choice, allowed)
    graph = GraphTools(choice, clock, mask=mask)
    return [*projects.tools(), *graph.tools()]


def _history_options(settings: Settings, rule: ProjectRule) -> HistoryOptions:
    return HistoryOptions(
        mask_secrets=settings.mask_secrets,
        excluded=tuple(
            part.strip() for part in settings.history_exclude.split(",") if part.strip()
        ),
        time_limit=settings.recall_time_limit,
        session_id=settings.session_id if settings.transport == "stdio" else None,
        zone=LocalZone(),
        workspace=key_of_workspace,
        switched_off=rule.switched_off,
    )


def _history_tools(
    library: Library,
    indexer: Indexer,
    searches: BatchedSearches,
    clock: Clock,
    options: HistoryOptions,
    finders: Sequence[Finder],
    peers: Peers,
) -> list[Tool]:
    from recollect.families.history.toolset import HistoryTools
    from recollect.families.history.unified.unified import UnifiedSearch

    unified = UnifiedSearch(library, finders, indexer, clock, options)
    return HistoryTools(library, indexer, searches, clock, options, unified, peers).tools()


def _finders(
    library: Library, rule: ProjectRule, memories: MemoryTools, bank: BankParts | None
) -> list[Finder]:
    """What a search over everything asks beside past conversations."""
    from recollect.app.finders import BankFinder, GraphFinder, MemoryFinder

    finders: list[Finder] = [MemoryFinder(memories, rule, library), GraphFinder(rule)]
    if bank is not None:
        family = bank.family
        of_bank = BankFinder(family.sections, family.banks, family.records)
        finders.append(OwnersFinder(of_bank))
    return finders


def _transcripts(known: Sequence[str]) -> "Transcripts":
    from recollect.transcripts.finding import MachineTranscripts
    from recollect.transcripts.places import client_folders

    folders = client_folders(client_environment(), Path.home(), sys.platform)
    return MachineTranscripts(folders, known)


def _bank_tools(settings: Settings, bank: BankParts | None) -> list[Tool]:
    if bank is None:
        return []
    from recollect.families.bank.toolset import Surface

    surface = Surface(extras=settings.bank_extras, of_mode=settings.mode_tools)
    return bank.family.tools(surface)


def _families(settings: Settings) -> tuple[str, ...]:
    """Those of our own."""
    if settings.dialect == "server-memory":
        return ("graph",)
    return tuple(name for name in chosen_toolsets(settings) if name != GATEWAY)


def _readers(tools: Toolset) -> Toolset:
    # switch_project writes nothing but what the session remembers.
    return filtered(tools, lambda item: item.only_reads)
