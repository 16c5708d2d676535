"""Build the parts of an application from its settings, each one when it is first needed."""

import sys
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from everkept.accounts.account_library import GuardedLibrary
from everkept.accounts.project_rule import DEFAULT_PROJECT, ProjectRule
from everkept.accounts.quotas import StorageQuotas
from everkept.app.engines import find_standby, make_library
from everkept.core.ports import Embedder, Library, RecordStore
from everkept.core.times import Clock, LocalZone
from everkept.settings import (
    AUTO,
    DIALECT_TOOLSETS,
    GATEWAY,
    NO_MODEL,
    SHIPPED_MODEL,
    Settings,
    choose_toolsets,
    read_client_environment,
)
from everkept.tools.tool import LateToolset, Tool, Toolset

if TYPE_CHECKING:
    from everkept.accounts.project_changes import ProjectChanges
    from everkept.app.bank import BankParts
    from everkept.app.candidates import CandidateFinder
    from everkept.app.change_log import ChangeLog
    from everkept.app.engines import ReadPendingChanges
    from everkept.app.history import ImportedHistory
    from everkept.app.resources import AllResources, Render, Resources, ResourceWatcher
    from everkept.core.answers import Finder
    from everkept.core.transcripts import Transcripts
    from everkept.families.documents.documents import Documents
    from everkept.families.history.model import HistoryOptions
    from everkept.families.memories.model import MemoryOptions
    from everkept.families.memories.toolset import MemoryTools
    from everkept.jobs.maintenance import Indexer, Maintenance
    from everkept.jobs.memory_access import MemoryAccess
    from everkept.jobs.usage_log import BatchedSearches

# The tools of each family by name, so that a call loads only its own family.
_TOOLS = {
    "memories": (
        "forget_memory",
        "get_memory_context",
        "get_memory_status",
        "promote_memory",
        "recall_memories",
        "reflect_and_consolidate",
        "search_knowledge_graph",
        "store_memory",
        "tag_memory",
        "update_memory",
    ),
    "graph": (
        "add_observations",
        "archive_project",
        "create_entities",
        "create_project",
        "create_relations",
        "delete_entities",
        "delete_observations",
        "delete_project",
        "delete_relations",
        "get_current_project",
        "list_projects",
        "open_nodes",
        "read_graph",
        "restore_project",
        "search_nodes",
        "switch_project",
    ),
    "history": (
        "find_past_conversations",
        "find_similar_problems",
        "read_conversation",
        "recall_previous_discussions",
        "retrieve_memory_chunk",
        "search_code_history",
        "search_memory",
        "unified_memory_search",
    ),
    "bank": (
        "add_progress_entry",
        "add_session_note",
        "batch_read_files",
        "batch_write_files",
        "complete_umb",
        "create_backup",
        "debug_mcp_config",
        "finalize_thinking_session",
        "get_context_bundle",
        "get_context_digest",
        "get_current_mode",
        "get_instructions",
        "get_memory_bank_status",
        "get_targeted_context",
        "graph_add_doc_pointer",
        "graph_add_observation",
        "graph_compact",
        "graph_delete_entity",
        "graph_delete_observation",
        "graph_link_entities",
        "graph_maintain",
        "graph_open_nodes",
        "graph_rebuild",
        "graph_search",
        "graph_unlink_entities",
        "graph_upsert_entity",
        "initialize_memory_bank",
        "list_backups",
        "list_memory_bank_files",
        "list_stores",
        "log_decision",
        "migrate_file_naming",
        "process_umb_command",
        "read_memory_bank_file",
        "register_store",
        "restore_backup",
        "search_memory_bank",
        "select_store",
        "sequential_thinking",
        "set_memory_bank_path",
        "switch_mode",
        "track_progress",
        "unregister_store",
        "update_active_context",
        "update_tasks",
        "write_memory_bank_file",
    ),
}

TOOL_FAMILIES = {name: family for family, names in _TOOLS.items() for name in names}


def build_parts(settings: Settings, library: Library | None, embedder: Embedder | None, clock: Clock) -> "AppParts":
    """Build the parts without touching a file: the library opens its databases at the first call."""
    return AppParts(settings, library, embedder, clock)


class AppParts:
    """The parts of an application. Each is loaded and built when it is first needed."""

    def __init__(self, settings: Settings, library: Library | None, embedder: Embedder | None, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._embedder = embedder
        self._started_at = clock()
        self._families = _list_families(settings)
        self._made: dict[str, list[Tool]] = {}
        self.library = library or make_library(settings, clock, on_return=lambda: self.indexer.wake_all())
        # The same library, limited to what the acting account may see.
        self.guarded = GuardedLibrary(_pin_library(settings, self.library), clock, _build_quotas(settings))
        self.choice = _build_graph_rule(settings, self.guarded)

    @cached_property
    def tools(self) -> Toolset:
        return self._build_toolset(self._families)

    @cached_property
    def offered_tools(self) -> Toolset:
        return self._build_toolset(self._families, only_reads=self._settings.read_only)

    @cached_property
    def shared_tools(self) -> Toolset:
        """Tools that reach nothing that belongs only to the owner."""
        return self._build_toolset(self._shared_families)

    @cached_property
    def account_tools(self) -> Toolset:
        return self._build_toolset(self._shared_families, only_reads=self._settings.read_only)

    @cached_property
    def peer_tools(self) -> Toolset:
        return self._build_toolset(self._shared_families, only_reads=True)

    @cached_property
    def change_log(self) -> "ChangeLog":
        from everkept.app.change_log import ChangeLog

        banks = None
        if self.bank is not None:
            from everkept.app.bank_changes import BankChanges

            banks = BankChanges(self.bank.family, self.guarded)
        waiting = _get_pending_reader(self._settings)
        return ChangeLog(self.guarded, self._clock, waiting, self.project_changes, banks)

    @cached_property
    def resources(self) -> "AllResources":
        from everkept.app.resources import AllResources, ViewResources
        from everkept.views.pages import CHAT_VIEWS

        makers = {"memories": self._build_memory_resources, "graph": self._build_graph_resources}
        owners: list[Resources] = []
        if self.bank is not None:
            owners = [self._build_bank_resources(self.bank)]
            makers["bank"] = lambda: owners[0]
        families = [makers[name]() for name in self._families if name in makers]
        return AllResources([*families, ViewResources(CHAT_VIEWS[self._settings.views])], owners=owners)

    @cached_property
    def watcher(self) -> "ResourceWatcher":
        from everkept.app.resources import ResourceWatcher

        return ResourceWatcher(self.resources, self.library)

    @cached_property
    def indexer(self) -> "Indexer":
        return build_indexer(self._settings, self.library, self._clock, self._embedder)

    @cached_property
    def maintenance(self) -> "Maintenance":
        from everkept.jobs.maintenance import Maintenance
        from everkept.jobs.usage_log import BatchedAccesses

        accesses, days = BatchedAccesses(self._clock), self._settings.trash_days
        return Maintenance(self.library, self.indexer, accesses, self._clock, days)

    @cached_property
    def memory_access(self) -> "MemoryAccess":
        from everkept.jobs.memory_access import MemoryAccess

        take_in = self.bank.family.sections.index_all if self.bank else None
        return MemoryAccess(self.guarded, self._memory_rule, self.maintenance, take_in)

    @cached_property
    def memories(self) -> "MemoryTools":
        from everkept.accounts.account_library import OwnerSectionSearch
        from everkept.families.memories.toolset import MemoryTools

        return MemoryTools(
            self._memory_rule,
            self.guarded,
            self.indexer,
            self.maintenance.accesses,
            self._clock,
            self._memory_options,
            OwnerSectionSearch(self.bank.family.sections) if self.bank else None,
        )

    @cached_property
    def searches(self) -> "BatchedSearches":
        from everkept.jobs.usage_log import BatchedSearches

        return BatchedSearches(self.library)

    @cached_property
    def candidates(self) -> "CandidateFinder":
        from everkept.app.candidates import CandidateFinder

        return CandidateFinder(self.library, self._history_options, self._clock)

    @cached_property
    def documents(self) -> "Documents":
        from everkept.families.documents.documents import Documents

        settings = self._settings
        return Documents(
            self._memory_rule,
            self.indexer,
            self._clock,
            mask_secrets=settings.mask_secrets,
            time_limit=settings.recall_time_limit,
        )

    @cached_property
    def history(self) -> "ImportedHistory":
        from everkept.app.history import ImportedHistory

        options = self._history_options
        return ImportedHistory(self.library, build_transcripts, self.indexer, self._clock, options)

    @cached_property
    def bank(self) -> "BankParts | None":
        if "bank" not in self._families:
            return None
        from everkept.app.bank import build_bank

        return build_bank(self._settings, self.guarded, self.maintenance, self._clock)

    @property
    def _shared_families(self) -> tuple[str, ...]:
        return tuple(name for name in self._families if name != "bank")

    @cached_property
    def _memory_rule(self) -> ProjectRule:
        return _build_memory_rule(self._settings, self.guarded, lambda: self.maintenance)

    @cached_property
    def _memory_options(self) -> "MemoryOptions":
        return _build_memory_options(self._settings, self._started_at)

    @cached_property
    def _history_options(self) -> "HistoryOptions":
        return _build_history_options(self._settings, self._memory_rule)

    def _build_toolset(self, families: Sequence[str], *, only_reads: bool = False) -> Toolset:
        makers = {name: partial(self._list_tools, name, only_reads) for name in families}
        return LateToolset(makers, TOOL_FAMILIES)

    def _list_tools(self, family: str, only_reads: bool) -> list[Tool]:
        if family not in self._made:
            makers = {
                "memories": lambda: self.memories.list_tools(),
                "graph": self._list_graph_tools,
                "history": self._list_history_tools,
                "bank": self._list_bank_tools,
            }
            self._made[family] = makers[family]()
        # switch_project changes only the session.
        return [item for item in self._made[family] if item.is_read_only or not only_reads]

    @cached_property
    def project_changes(self) -> "ProjectChanges":
        from everkept.accounts.project_changes import ProjectChanges

        library, settings = _pin_library(self._settings, self.library), self._settings
        return ProjectChanges(library, self.guarded, self._clock, settings.trash_days, settings.only_project)

    def _list_graph_tools(self) -> list[Tool]:
        mask = self._settings.mask_secrets
        if self._settings.dialect == "server-memory":
            from everkept.families.graph.server_memory import ServerMemoryTools

            return ServerMemoryTools(self.choice, self._clock, mask=mask).list_tools()
        from everkept.accounts.grants import read_access_levels
        from everkept.families.graph.toolset import GraphTools, ProjectTools

        accesses = partial(read_access_levels, self.library)
        projects = ProjectTools(self.guarded, self.choice, accesses, lambda: self.project_changes, mask=mask)
        limit = self._settings.recall_time_limit
        graph = GraphTools(self.guarded, self.choice, self._clock, mask=mask, time_limit=limit)
        return [*projects.list_tools(), *graph.list_tools()]

    def _list_history_tools(self) -> list[Tool]:
        from everkept.accounts.account_library import OwnerPeers
        from everkept.families.history.toolset import HistoryTools
        from everkept.families.history.unified_search import UnifiedSearch

        library, indexer, clock = self.guarded, self.indexer, self._clock
        options = self._history_options
        limit = self._settings.recall_time_limit
        finders = _build_finders(library, self._memory_rule, self.memories, self.bank, limit)
        unified = UnifiedSearch(library, finders, indexer, clock, options)
        peers = OwnerPeers(self._settings.data_dir)
        family = HistoryTools(library, indexer, self.searches, clock, options, unified, peers)
        return family.list_tools()

    def _list_bank_tools(self) -> list[Tool]:
        from everkept.app.bank import list_bank_tools

        return [] if self.bank is None else list_bank_tools(self._settings, self.bank)

    def _build_memory_resources(self) -> "Resources":
        from everkept.app.resources import MemoryResources

        return MemoryResources(self.memories, self._memory_rule, self.guarded, self._memory_options, self.searches)

    def _build_graph_resources(self) -> "Resources":
        from everkept.app.resources import GraphResources

        return GraphResources(self.guarded, self.choice, _get_graph_renderer(self._settings))

    def _build_bank_resources(self, bank: "BankParts") -> "Resources":
        from everkept.app.bank import BankResources

        return BankResources(bank.family.banks, self._clock)


def _get_pending_reader(settings: Settings) -> "ReadPendingChanges":
    from everkept.app.engines import read_no_changes

    standby = find_standby(settings)
    return read_no_changes if standby is None else standby.read_pending_changes


def build_embedder(settings: Settings) -> Embedder | None:
    """Build the embedder that the settings name, without loading its model. None if search by meaning is off."""
    if settings.embedding_model == NO_MODEL:
        return None
    from everkept.embedders.onnx import CachedEmbedder

    if settings.embedding_model == SHIPPED_MODEL:
        from everkept.embedders.onnx import OnnxEmbedder

        return CachedEmbedder(OnnxEmbedder())
    from everkept.embedders.model_folder import FolderEmbedder

    return CachedEmbedder(FolderEmbedder(Path(settings.embedding_model)))


def build_indexer(settings: Settings, library: Library, clock: Clock, embedder: Embedder | None = None) -> "Indexer":
    """Build what computes embeddings with the model of the settings, or with another embedder."""
    from everkept.jobs.claims import ClaimedEmbedder, TurnLease
    from everkept.jobs.maintenance import EMBEDDED_KINDS, Indexer

    embedder = embedder or build_embedder(settings)
    claimed = None if embedder is None else ClaimedEmbedder(embedder, library)
    return Indexer(claimed, EMBEDDED_KINDS, TurnLease(library, "vectors", clock))


def _build_memory_options(settings: Settings, started_at: int) -> "MemoryOptions":
    from everkept.families.memories.model import MemoryOptions

    return MemoryOptions(
        mask_secrets=settings.mask_secrets,
        max_per_session=settings.max_memories_per_session,
        time_limit=settings.recall_time_limit,
        # Over HTTP there are many clients, each with its own session.
        session_id=settings.session_id if settings.transport == "stdio" else None,
        started_at=started_at,
        zone=LocalZone(),
    )


def _find_working_folder(settings: Settings) -> Path | None:
    """Return the working folder. HTTP clients work in other folders, so only a named one counts there."""
    return settings.path if settings.transport == "stdio" or settings.project == AUTO else None


def _get_graph_renderer(settings: Settings) -> "Render":
    if settings.dialect == "server-memory":
        from everkept.families.graph.server_memory import read_whole_graph

        return read_whole_graph
    from everkept.families.graph.graph import read_graph_page

    return lambda store: read_graph_page(store, limit=None, cursor=None)


def _pin_library(settings: Settings, library: Library) -> Library:
    """Return what tools may see of the library: all, or one project if the server is pinned to it."""
    if settings.only_project is None:
        return library
    from everkept.app.pinned_library import PinnedLibrary

    return PinnedLibrary(library, settings.only_project)


def _build_quotas(settings: Settings) -> StorageQuotas:
    return StorageQuotas(
        project_records=settings.quota_project_records,
        project_bytes=settings.quota_project_bytes,
        account_records=settings.quota_account_records,
        account_bytes=settings.quota_account_bytes,
        projects=settings.quota_projects,
    )


def _build_graph_rule(settings: Settings, library: Library) -> ProjectRule:
    if settings.project == AUTO:
        return ProjectRule(library, workspace=settings.path, mask=settings.mask_secrets)
    if settings.dialect == "server-memory":
        return ProjectRule(library, configured=settings.project or DEFAULT_PROJECT, mask=settings.mask_secrets)
    return ProjectRule(library, configured=settings.project, mask=settings.mask_secrets)


def _build_memory_rule(
    settings: Settings, library: GuardedLibrary, maintenance: "Callable[[], Maintenance]"
) -> ProjectRule:
    """Build the rule for the project of memories. Without a configured project, it is that of the working folder."""

    def meet(store: RecordStore) -> None:
        maintenance().register_store(store, library.find_private_store())

    if settings.project not in (None, AUTO):
        return ProjectRule(library, configured=settings.project, on_open=meet, mask=settings.mask_secrets)
    # Without a folder there is no workspace, like in the home folder.
    folder = _find_working_folder(settings) or Path.home()
    return ProjectRule(library, workspace=folder, on_open=meet, mask=settings.mask_secrets)


def _build_history_options(settings: Settings, rule: ProjectRule) -> "HistoryOptions":
    from everkept.core.projects import find_workspace_key
    from everkept.families.history.model import HistoryOptions

    return HistoryOptions(
        mask_secrets=settings.mask_secrets,
        excluded=tuple(part.strip() for part in settings.history_exclude.split(",") if part.strip()),
        time_limit=settings.recall_time_limit,
        session_id=settings.session_id if settings.transport == "stdio" else None,
        zone=LocalZone(),
        workspace=find_workspace_key,
        switched_off=rule.find_off_name,
    )


def _build_finders(
    library: Library, rule: ProjectRule, memories: "MemoryTools", bank: "BankParts | None", time_limit: float | None
) -> "list[Finder]":
    """Build the sources that a search over everything asks besides conversations."""
    from everkept.accounts.account_library import OwnerFinder
    from everkept.app.search_sources import BankFinder, GraphFinder, MemoryFinder

    finders: list[Finder] = [MemoryFinder(memories, rule, library), GraphFinder(rule, library, time_limit)]
    if bank is not None:
        family = bank.family
        of_bank = BankFinder(family.sections, family.banks, family.records)
        finders.append(OwnerFinder(of_bank))
    return finders


def build_transcripts(known: Sequence[str]) -> "Transcripts":
    from everkept.transcripts.discovery import MachineTranscripts
    from everkept.transcripts.source_programs import get_client_folders

    folders = get_client_folders(read_client_environment(), Path.home(), sys.platform)
    return MachineTranscripts(folders, known)


def _list_families(settings: Settings) -> tuple[str, ...]:
    """Return the families that Everkept itself serves."""
    if settings.dialect != "everkept":
        return DIALECT_TOOLSETS[settings.dialect]
    return tuple(name for name in choose_toolsets(settings) if name != GATEWAY)
