"""The beginnings of the bank's error messages, as clients of the public server know them."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

from everkept.core.sessions import Call
from everkept.core.text import clipped
from everkept.errors import BankNotFound, EverkeptError, InvalidInput, visible
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


_LONGEST = 120  # characters of a name; nobody needs a thousand of one that is wrong


@contextmanager
def attempting(
    what: str, filename: str | None = None, *, unless: tuple[type[EverkeptError], ...] = ()
) -> Generator[None, None, None]:
    """Errors begin with what was attempted, and name the file only there."""
    beginning = what if filename is None else f"{what} {_shown(filename)}"
    try:
        yield
    except EverkeptError as error:
        if not isinstance(error, unless):
            error.message = f"{beginning}: {_unnamed(error, filename)}"
        raise


def _unnamed(error: EverkeptError, filename: str | None) -> str:
    if filename is None:
        return error.message
    said = error.message.removesuffix(f": {visible(filename)}.")
    if said != error.message:
        return f"{said}."
    shown = error.facts.get("name", visible(filename))
    quoted = f'"{shown}" '
    return f"it {said.removeprefix(quoted)}" if said.startswith(quoted) else said


def _shown(filename: str) -> str:
    return visible(clipped(filename, _LONGEST) if filename.isprintable() else filename[:_LONGEST])
