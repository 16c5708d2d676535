"""How errors of the bank's tools begin, as the clients of the public server know them."""

from collections.abc import Mapping
from typing import Any

from everkept.core.sessions import Call
from everkept.errors import BankNotFound, EverkeptError, InvalidInput
from everkept.tools.tool import Result, Tool
from everkept.values import replace

# What was attempted, before the reason why it failed.
ATTEMPTED = {
    "create_backup": "Error creating backup",
    "restore_backup": "Error restoring backup",
    "graph_upsert_entity": "Failed to upsert entity",
    "graph_delete_entity": "Failed to delete entity",
    "graph_delete_observation": "Failed to delete observation",
    "graph_rebuild": "Failed to rebuild snapshot",
    "graph_compact": "Compaction failed",
}
# Where a bank that is missing is one that was not initialised.
_UNSET = "Use set_memory_bank_path or initialize_memory_bank first."
NOT_INITIALISED = dict.fromkeys(
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
    _UNSET,
) | {"graph_upsert_entity": "Use initialize_memory_bank first."}


def phrased(tool: Tool) -> Tool:
    """The tool with its errors in the words of the contract; what it does stays the same."""
    attempted, way_out = ATTEMPTED.get(tool.name), NOT_INITIALISED.get(tool.name)
    if attempted is None and way_out is None:
        return tool

    async def run(call: Call, arguments: Mapping[str, Any]) -> Result:
        try:
            return await tool.run(call, arguments)
        except BankNotFound as error:
            if way_out is not None:
                error.message = "Memory Bank not initialized."
                error.hint = f"{way_out} {error.place}"
            raise
        except InvalidInput:  # the argument is what is wrong, not the attempt
            raise
        except EverkeptError as error:
            if attempted is not None and not error.message.startswith(attempted):
                error.message = f"{attempted}: {error.message}"
            raise

    return replace(tool, run=run)
