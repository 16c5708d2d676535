"""The five ways of working: what each is for, and which tools it offers.

Beyond the tools that are always there, to look around and to choose another bank or mode:

- architect: decisions, the whole graph with its upkeep, context, files, thinking, backups
- ask: looking into the graph, and a note of what is missing; no file is written
- code: progress, files, context, what is seen of things in the graph, backups
- debug: notes, what is seen of things in the graph, progress, decisions, thinking, backups
- test: progress, files, context, looking into the graph
"""

from collections.abc import Callable, Iterable, Mapping

from everkept.families.bank.model import DEFAULT_MODE, MODES, BankOptions, Mode
from everkept.tools.tool import Tool

Offered = Callable[[], Iterable[Tool]]

_LOOKING = (
    "initialize_memory_bank",
    "set_memory_bank_path",
    "get_memory_bank_status",
    "read_memory_bank_file",
    "list_memory_bank_files",
    "search_memory_bank",
    "get_context_bundle",
    "get_context_digest",
    "get_targeted_context",
    "batch_read_files",
    "get_instructions",
    "debug_mcp_config",
)
_CHOOSING = (
    "switch_mode",
    "get_current_mode",
    "process_umb_command",
    "complete_umb",
    "list_stores",
    "select_store",
    "register_store",
    "unregister_store",
)
_FILES = ("write_memory_bank_file", "batch_write_files")
_PROGRESS = ("track_progress", "add_progress_entry")
_CONTEXT = ("update_active_context", "update_tasks", "add_session_note")
_DECISIONS = ("log_decision",)
_GRAPH_READS = ("graph_search", "graph_open_nodes")
_OBSERVING = "graph_add_observation"
_GRAPH = (
    *_GRAPH_READS,
    "graph_upsert_entity",
    _OBSERVING,
    "graph_link_entities",
    "graph_unlink_entities",
    "graph_delete_entity",
    "graph_delete_observation",
    "graph_rebuild",
    "graph_compact",
    "graph_maintain",
    "graph_add_doc_pointer",
)
_CARE = ("create_backup", "list_backups", "restore_backup", "migrate_file_naming")
_THINKING = ("sequential_thinking", "finalize_thinking_session")

ALWAYS = frozenset((*_LOOKING, *_CHOOSING))

# What a mode has beyond the tools that are always there, the most typical first.
MODE_TOOLS: Mapping[Mode, tuple[str, ...]] = {
    "architect": (*_DECISIONS, *_GRAPH, *_CONTEXT, *_FILES, *_THINKING, *_CARE),
    "ask": (*_GRAPH_READS, "add_session_note"),
    "code": (*_PROGRESS, *_FILES, *_CONTEXT, *_GRAPH_READS, _OBSERVING, *_CARE),
    "debug": (
        "add_session_note",
        *_GRAPH_READS,
        _OBSERVING,
        "update_active_context",
        "update_tasks",
        *_PROGRESS,
        *_DECISIONS,
        *_THINKING,
        *_CARE,
    ),
    "test": (*_PROGRESS, *_FILES, *_CONTEXT, *_GRAPH_READS),
}
TOOLS = ALWAYS.union(*MODE_TOOLS.values())


def tools_of(mode: Mode) -> frozenset[str]:
    """The names of the bank's tools that are offered in a mode."""
    return ALWAYS | frozenset(MODE_TOOLS[mode])


def mode_of(chosen: str | None, options: BankOptions) -> Mode:
    """What the session chose, then what the start of the program says."""
    return chosen if chosen in MODES else options.mode or DEFAULT_MODE
