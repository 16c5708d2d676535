"""What a hook is told, and what it answers."""

from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any

from everkept.values import Value, field

if TYPE_CHECKING:  # a hook loads only what it uses
    from pathlib import Path

    from everkept.core.ports import ReadingRoom
    from everkept.hooks.files.ledger import Ledger
    from everkept.settings import Settings


class HookEvent(Value):
    """One event of an assistant; what an event does not have is empty."""

    name: str
    session: str = ""
    folder: "Path | None" = None  # where the assistant works
    transcript: "Path | None" = None
    source: str = ""  # SessionStart: startup, resume, clear, compact, fork
    prompt: str = ""  # UserPromptSubmit
    tool: str = ""  # PostToolUse, PostToolUseFailure
    tool_input: Mapping[str, Any] = field(default_factory=dict[str, Any])
    tool_response: Any = None
    error: str = ""  # PostToolUseFailure
    is_interrupt: bool = False
    reason: str = ""  # SessionEnd


class Answer(Value):
    """What the assistant is given as context; it may be empty."""

    context: str = ""


class Around(Value):
    """What a handler works with.

    `run` ends a coroutine over `room`. `room` is None where nothing is stored yet. `ledger` knows
    what this session was given before.
    """

    settings: "Settings"
    room: "ReadingRoom | None"
    ledger: "Ledger"
    now: int  # microseconds since 1970
    run: Callable[[Coroutine[Any, Any, Any]], Any]


Handler = Callable[[HookEvent, Around], Answer | None]
