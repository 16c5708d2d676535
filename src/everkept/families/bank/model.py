"""Vocabulary of the memory bank: its core files, options, modes and error messages.

Besides the tools that are always offered, each mode has:

- architect: decisions, the whole graph and its maintenance, context, files, thinking, backups
- ask: search, the digest, reading the graph, and session notes; no other file is written
- code: progress, files, context, reading the graph and adding observations, backups
- debug: notes, reading the graph and adding observations, progress, decisions, thinking, backups
- test: progress, files, context, reading the graph

Errors begin with the words that clients of the public server expect.
"""

from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from everkept.core.text import clip_text, compute_digest
from everkept.errors import BankNotFound, EverkeptError, InvalidInput, escape_name
from everkept.tools.schema import Field
from everkept.values import Value, replace

if TYPE_CHECKING:
    from everkept.core.sessions import ToolCall
    from everkept.tools.tool import Tool, ToolResult

Mode = Literal["architect", "ask", "code", "debug", "test"]
MODES: tuple[Mode, ...] = get_args(Mode)
DEFAULT_MODE: Mode = "code"

PRODUCT = "product-context.md"
ACTIVE = "active-context.md"
PROGRESS = "progress.md"
DECISIONS = "decision-log.md"
PATTERNS = "system-patterns.md"
CORE_FILES = (PRODUCT, ACTIVE, PROGRESS, DECISIONS, PATTERNS)

# Names of the core files in older banks.
LEGACY_NAMES = {
    PRODUCT: "productContext.md",
    ACTIVE: "activeContext.md",
    DECISIONS: "decisionLog.md",
    PATTERNS: "systemPatterns.md",
}

# The current name of each older name.
CURRENT_NAMES = {old: today for today, old in LEGACY_NAMES.items()}

VERSIONS_FOLDER = "bank-versions"  # in the data folder; has a folder for each bank that this user has used

SECTION_KIND = "section"  # record kind of an indexed section of a file
INDEXED_FILE_KIND = "bank file"  # record kind that tracks what is indexed of a file
MERGE_GRAPH_FILE = "merge graph file"  # tool name of imported file changes in the change log
INDEX_BANK = "index bank"  # tool name of index updates in the change log

StoreId = Annotated[str, Field("Registered bank id; default: the active bank", name="storeId", listed=False)]


def name_versions_folder(address: str) -> str:
    """Return the name of a bank's folder inside the folder of versions."""
    return compute_digest(address)[:16]


class BankOptions(Value):
    place: str | None  # address of the initial folder, if any
    folder: str = "memory-bank"
    username: str | None = None
    read_author: Callable[[], str | None] | None = None  # name to use without a `username`
    mode: Mode | None = None
    mask_secrets: bool = True
    read_only: bool = False
    free_paths: bool = True  # False: only the initial bank and registered stores


ToolLister = Callable[[], Iterable["Tool"]]

_STATUS_TOOLS = (
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
_SESSION_TOOLS = (
    "switch_mode",
    "get_current_mode",
    "process_umb_command",
    "complete_umb",
    "list_stores",
    "select_store",
    "register_store",
    "unregister_store",
)
_FILE_TOOLS = ("write_memory_bank_file", "batch_write_files")
_PROGRESS_TOOLS = ("track_progress", "add_progress_entry")
_CONTEXT_TOOLS = ("update_active_context", "update_tasks", "add_session_note")
_DECISION_TOOLS = ("log_decision",)
_GRAPH_READ_TOOLS = ("graph_search", "graph_open_nodes")
_OBSERVATION_TOOL = "graph_add_observation"
_GRAPH_TOOLS = (
    *_GRAPH_READ_TOOLS,
    "graph_upsert_entity",
    _OBSERVATION_TOOL,
    "graph_link_entities",
    "graph_unlink_entities",
    "graph_delete_entity",
    "graph_delete_observation",
    "graph_rebuild",
    "graph_compact",
    "graph_maintain",
    "graph_add_doc_pointer",
)
_CARE_TOOLS = ("create_backup", "list_backups", "restore_backup", "migrate_file_naming")
_THINKING_TOOLS = ("sequential_thinking", "finalize_thinking_session")

ALWAYS_OFFERED = frozenset((*_STATUS_TOOLS, *_SESSION_TOOLS))

# Tools of each mode besides ALWAYS_OFFERED, the most typical first.
MODE_TOOLS: Mapping[Mode, tuple[str, ...]] = {
    "architect": (*_DECISION_TOOLS, *_GRAPH_TOOLS, *_CONTEXT_TOOLS, *_FILE_TOOLS, *_THINKING_TOOLS, *_CARE_TOOLS),
    "ask": ("search_memory_bank", "get_context_digest", *_GRAPH_READ_TOOLS, "add_session_note"),
    "code": (*_PROGRESS_TOOLS, *_FILE_TOOLS, *_CONTEXT_TOOLS, *_GRAPH_READ_TOOLS, _OBSERVATION_TOOL, *_CARE_TOOLS),
    "debug": (
        "add_session_note",
        *_GRAPH_READ_TOOLS,
        _OBSERVATION_TOOL,
        "update_active_context",
        "update_tasks",
        *_PROGRESS_TOOLS,
        *_DECISION_TOOLS,
        *_THINKING_TOOLS,
        *_CARE_TOOLS,
    ),
    "test": (*_PROGRESS_TOOLS, *_FILE_TOOLS, *_CONTEXT_TOOLS, *_GRAPH_READ_TOOLS),
}
TOOL_NAMES = ALWAYS_OFFERED.union(*MODE_TOOLS.values())


def get_tool_names(mode: Mode) -> frozenset[str]:
    return ALWAYS_OFFERED | frozenset(MODE_TOOLS[mode])


def get_mode(chosen: str | None, options: BankOptions) -> Mode:
    """Return the session's mode, otherwise the configured or default mode."""
    return chosen if chosen in MODES else options.mode or DEFAULT_MODE


# The attempted action that precedes the reason of a failure.
ATTEMPT_PHRASES = {
    "create_backup": "Error creating backup",
    "restore_backup": "Error restoring backup",
    "graph_upsert_entity": "Failed to upsert entity",
    "graph_delete_entity": "Failed to delete entity",
    "graph_delete_observation": "Failed to delete observation",
    "graph_rebuild": "Failed to rebuild snapshot",
    "graph_compact": "Compaction failed",
}
# Tools for which a missing bank means that it was not initialized.
_UNSET_HINT = "Use set_memory_bank_path or initialize_memory_bank first."
NOT_INITIALISED_MESSAGES = dict.fromkeys(
    (
        "get_context_bundle",
        "get_context_digest",
        "batch_read_files",
        "batch_write_files",
        "add_progress_entry",
        "add_session_note",
        "update_tasks",
        "create_backup",
        "list_backups",
        "restore_backup",
        "search_memory_bank",
        "get_targeted_context",
        "finalize_thinking_session",
    ),
    _UNSET_HINT,
) | {"graph_upsert_entity": "Use initialize_memory_bank first."}


def rephrase_errors(tool: "Tool") -> "Tool":
    """Return the tool with its errors worded as the contract requires."""
    attempted, way_out = ATTEMPT_PHRASES.get(tool.name), NOT_INITIALISED_MESSAGES.get(tool.name)
    if attempted is None and way_out is None:
        return tool

    async def run(call: "ToolCall", arguments: Mapping[str, Any]) -> "ToolResult":
        try:
            return await tool.run(call, arguments)
        except BankNotFound as error:
            if way_out is not None:
                error.message = "Memory Bank not initialized."
                error.hint = f"{way_out} {error.place}"
            raise
        except InvalidInput:  # the argument is wrong, so the action was not attempted
            raise
        except EverkeptError as error:
            if attempted is not None and not error.message.startswith(attempted):
                error.message = f"{attempted}: {error.message}"
            raise

    return replace(tool, run=run)


_MAX_NAME_CHARACTERS = 120  # of a file name in an error message


@contextmanager
def prefix_errors(
    what: str, filename: str | None = None, *, unless: tuple[type[EverkeptError], ...] = ()
) -> Generator[None, None, None]:
    """Prefix errors with the attempted action, and name the file only there."""
    beginning = what if filename is None else f"{what} {_format_filename(filename)}"
    try:
        yield
    except EverkeptError as error:
        if not isinstance(error, unless):
            error.message = f"{beginning}: {_strip_filename(error, filename)}"
        raise


def _strip_filename(error: EverkeptError, filename: str | None) -> str:
    if filename is None:
        return error.message
    said = error.message.removesuffix(f": {escape_name(filename)}.")
    if said != error.message:
        return f"{said}."
    shown = error.facts.get("name", escape_name(filename))
    quoted = f'"{shown}" '
    return f"it {said.removeprefix(quoted)}" if said.startswith(quoted) else said


def _format_filename(filename: str) -> str:
    return escape_name(
        clip_text(filename, _MAX_NAME_CHARACTERS) if filename.isprintable() else filename[:_MAX_NAME_CHARACTERS]
    )
