"""Records of past conversations: their kinds, types, links and ids."""

from collections.abc import Awaitable, Callable
from datetime import UTC, tzinfo
from typing import TYPE_CHECKING

from everkept.values import Value

if TYPE_CHECKING:
    from everkept.core.sessions import ToolCall

# Kinds. A conversation is the parent of its turns, and a turn is the parent of its code. `scope` is the folder of the
# work, `session` the conversation's id in its program.
CONVERSATION = "conversation"
TURN = "turn"
CODE = "code"
SYMBOL = "symbol"  # a function, class or module that code mentions
TRANSCRIPT = "transcript"  # the checkpoint of a transcript

# Types of turns. The type of code is its language, the type of a symbol its kind.
SAID = "said"
DECISION = "decision"
SUMMARY = "summary"

# Verbs of the links from code to symbols. The facet `by` of a call lists the callers, if the code shows them.
DEFINES = "defines"
CALLS = "calls"
IMPORTS = "imports"
EXTENDS = "extends"

# Tool names in the change log.
IMPORT_TOOL = "import_history"
FORGET_TOOL = "forget_history"


async def _find_no_project(_call: "ToolCall") -> str | None:
    return None


class HistoryOptions(Value):
    mask_secrets: bool = True
    excluded: tuple[str, ...] = ()  # excluded folders and patterns from the settings
    time_limit: float | None = 2.0  # seconds per search
    session_id: str | None = None  # of the only client of this process
    zone: tzinfo = UTC  # for words such as "today"
    # Maps a folder to the folder of its project, or to None if it is unknown.
    workspace: Callable[[str], str | None] = lambda folder: None
    # Returns the name of the call's project if it is off. Then no search is recorded.
    switched_off: "Callable[[ToolCall], Awaitable[str | None]]" = _find_no_project


def build_conversation_id(source: str, session: str) -> str:
    return _build_id("conv", source, session)


def build_turn_id(source: str, key: str) -> str:
    return _build_id("turn", source, key)


CODE_PREFIX = "code_"  # of the ids of code
ID_HEADS = {CONVERSATION: "conv_", TURN: "turn_", CODE: CODE_PREFIX}


def build_code_id(turn: str, number: int) -> str:
    return _build_id(CODE_PREFIX.removesuffix("_"), turn, str(number))


def build_block_id(turn: str, number: int) -> str:
    """Return the id of a fenced block. Blocks have even numbers and edits odd ones, so ids stay when a turn grows."""
    return build_code_id(turn, 2 * number)


def build_edit_id(turn: str, number: int) -> str:
    return build_code_id(turn, 2 * number + 1)


def build_symbol_id(project: str, name: str) -> str:
    return _build_id("sym", project, name)


def build_transcript_id(source: str, name: str) -> str:
    return _build_id("file", source, name)


def _build_id(kind: str, *parts: str) -> str:
    """Return an id derived from the parts, so that repeated imports store a thing once."""
    from hashlib import sha256  # only imports need it, so hooks do not load it

    digest = sha256("\0".join(parts).encode("utf-8", "surrogatepass"))
    return f"{kind}_{digest.hexdigest()[:24]}"
