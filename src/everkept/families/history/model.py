"""What is kept of past conversations: which records, under which ids."""

from collections.abc import Awaitable, Callable
from datetime import UTC, tzinfo
from typing import TYPE_CHECKING

from everkept.values import Value

if TYPE_CHECKING:
    from everkept.core.sessions import ToolCall

# Kinds. A conversation is the parent of its turns, and a turn that of its code. `scope` is the
# folder that was worked in, `session` the conversation's id in the program it comes from.
CONVERSATION = "conversation"
TURN = "turn"
CODE = "code"
SYMBOL = "symbol"  # a function, class or module that code speaks of
TRANSCRIPT = "transcript"  # how far a transcript was read

# Types of turns. The type of code is its language, that of a symbol what it is.
SAID = "said"
DECISION = "decision"
SUMMARY = "summary"

# Verbs of the links from code to symbols. The facet `by` of a call lists who calls, where the
# code says so.
DEFINES = "defines"
CALLS = "calls"
IMPORTS = "imports"
EXTENDS = "extends"

# Tools, as the change log calls them.
IMPORT_TOOL = "import_history"
FORGET_TOOL = "forget_history"


async def _find_no_project(_call: "ToolCall") -> str | None:
    return None


class HistoryOptions(Value):
    """What the program decides for all calls."""

    mask_secrets: bool = True
    excluded: tuple[str, ...] = ()  # folders, and patterns of them, that settings leave out
    time_limit: float | None = 2.0  # seconds for a search
    session_id: str | None = None  # of the one client of a process
    zone: tzinfo = UTC  # in which "today" is meant
    # The folder that a project knows this one by; None where nobody can tell.
    workspace: Callable[[str], str | None] = lambda folder: None
    # The name of the call's own project where that is off: nothing that it asks is kept then.
    switched_off: "Callable[[ToolCall], Awaitable[str | None]]" = _find_no_project


def build_conversation_id(source: str, session: str) -> str:
    return _build_id("conv", source, session)


def build_turn_id(source: str, key: str) -> str:
    return _build_id("turn", source, key)


def build_code_id(turn: str, number: int) -> str:
    return _build_id("code", turn, str(number))


def build_symbol_id(project: str, name: str) -> str:
    return _build_id("sym", project, name)


def build_transcript_id(source: str, name: str) -> str:
    return _build_id("file", source, name)


def _build_id(kind: str, *parts: str) -> str:
    """The same for the same thing, so that no import makes it twice."""
    from hashlib import sha256  # an import names things; a hook that reads them does not

    digest = sha256("\0".join(parts).encode("utf-8", "surrogatepass"))
    return f"{kind}_{digest.hexdigest()[:24]}"
