"""Events of hooks, read from JSON, and answers in the forms that assistants read."""

import json
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Literal, cast

from everkept.errors import InvalidInput
from everkept.values import Value, field

if TYPE_CHECKING:
    from pathlib import Path

    from everkept.core.ports import ReadOnlyLibrary
    from everkept.hooks.workspace import SessionLedger
    from everkept.settings import Settings


class HookEvent(Value):
    """One event of an assistant. Fields that the event does not have are empty."""

    name: str
    session: str = ""
    folder: "Path | None" = None  # folder in which the assistant works
    transcript: "Path | None" = None
    source: str = ""  # SessionStart: startup, resume, clear, compact, fork
    prompt: str = ""  # UserPromptSubmit
    tool: str = ""  # PostToolUse, PostToolUseFailure
    tool_input: Mapping[str, Any] = field(default_factory=dict[str, Any])
    tool_response: Any = None
    error: str = ""  # PostToolUseFailure
    is_interrupt: bool = False
    reason: str = ""  # SessionEnd


class HookAnswer(Value):
    """Context to give to the assistant, and a notice to show to the user. Each may be empty."""

    context: str = ""
    notice: str = ""


class HookContext(Value):
    """Resources of a handler."""

    settings: "Settings"
    room: "ReadOnlyLibrary | None"  # None if nothing is stored yet
    ledger: "SessionLedger"  # of what this session was given before
    now: int  # microseconds since 1970
    run: Callable[[Coroutine[Any, Any, Any]], Any]  # for coroutines over `room`


Handler = Callable[[HookEvent, HookContext], HookAnswer | None]


def build_event(name: str, facts: Mapping[str, Any]) -> HookEvent:
    tool_input = facts.get("tool_input")
    response = facts.get("tool_response", facts.get("tool_result"))
    return HookEvent(
        name=name,
        session=_get_text(facts, "session_id"),
        folder=_get_path(facts, "cwd"),
        transcript=_get_path(facts, "transcript_path"),
        source=_get_text(facts, "source"),
        prompt=get_prompt(facts),
        tool=_get_text(facts, "tool_name"),
        tool_input=cast(dict[str, Any], tool_input) if isinstance(tool_input, dict) else {},
        tool_response=response,
        error=_get_text(facts, "error"),
        is_interrupt=facts.get("is_interrupt") is True,
        reason=_get_text(facts, "reason"),
    )


def parse_input(told: bytes) -> Mapping[str, Any]:
    """Parse the JSON of a hook. Raise InvalidInput if it is not a JSON object."""
    try:
        # JSON can contain an unpaired surrogate, which is invalid Unicode. It becomes a question mark.
        facts = json.loads(told, object_pairs_hook=lambda pairs: {_clean_value(k): _clean_value(v) for k, v in pairs})
    except (ValueError, RecursionError) as error:
        # The message does not quote the input, which may be a prompt.
        raise InvalidInput(f"The hook's input must be JSON ({type(error).__name__}).") from None
    if not isinstance(facts, dict):
        raise InvalidInput(f"The hook's input is a {type(facts).__name__}; it must be an object.")
    return cast(dict[str, Any], facts)


def _clean_value(value: Any) -> Any:
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, list):
        return [_clean_value(each) for each in cast(list[Any], value)]
    return value


def get_event_name(given: str, facts: Mapping[str, Any]) -> str:
    """Return the event from the command line, otherwise the one from the input."""
    return given or _get_text(facts, "hook_event_name")


def get_prompt(facts: Mapping[str, Any]) -> str:
    return _get_text(facts, "prompt") or _get_text(facts, "user_prompt")


def _get_text(facts: Mapping[str, Any], key: str) -> str:
    value = facts.get(key)
    return value if isinstance(value, str) else ""


def _get_path(facts: Mapping[str, Any], key: str) -> "Path | None":
    from pathlib import Path  # loading it takes longer than everything else for a prompt that asks for nothing

    value = _get_text(facts, key)
    return Path(value) if value and "\0" not in value else None


# Fields that Claude Code does not have. Cursor and VS Code also run its hooks.
_FOREIGN_FIELDS = frozenset({"conversation_id", "hookEventName", "sessionId"})


def is_foreign(facts: Mapping[str, Any]) -> bool:
    """Return whether another assistant than Claude Code runs the hook."""
    return not _FOREIGN_FIELDS.isdisjoint(facts)


# The client writes longer contexts to a file and shows only a preview.
MAX_CONTEXT_CHARACTERS = 8_000

AnswerForm = Literal["nested", "plain", "both"]
NESTED: Literal["nested"] = "nested"  # Claude Code and most others. Codex refuses any other field.
PLAIN: Literal["plain"] = "plain"  # Cursor
BOTH: Literal["both"] = "both"  # Copilot CLI reads one form, VS Code the other


def format_answer(event: str, answer: HookAnswer | None, *, form: AnswerForm = NESTED) -> bytes:
    """Return the bytes to print, empty for an empty answer. Raise InvalidInput if the context is too long."""
    context, notice = ("", "") if answer is None else (answer.context, answer.notice)
    if len(context) > MAX_CONTEXT_CHARACTERS:  # a cut would remove the end of its fence
        raise InvalidInput(f"The context must be at most {MAX_CONTEXT_CHARACTERS:,} characters, not {len(context):,}.")
    told: dict[str, Any] = {"user_message" if form == PLAIN else "systemMessage": notice} if notice else {}
    if context and form == PLAIN:
        told["additional_context"] = context
    elif context:
        told |= {"additionalContext": context} if form == BOTH else {}
        told["hookSpecificOutput"] = {"hookEventName": event, "additionalContext": context}
    return b"" if not told else (json.dumps(told, ensure_ascii=False) + "\n").encode("utf-8", "replace")
