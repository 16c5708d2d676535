"""An event of a hook, read from its JSON, and the answer as Claude Code reads it."""

import json
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, cast

from everkept.errors import InvalidInput
from everkept.values import Value, field

if TYPE_CHECKING:
    from pathlib import Path

    from everkept.core.ports import ReadOnlyLibrary
    from everkept.hooks.workspace import SessionLedger
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


class HookAnswer(Value):
    """What the assistant is given as context; it may be empty."""

    context: str = ""


class HookContext(Value):
    """What a handler works with.

    `run` ends a coroutine over `room`. `room` is None where nothing is stored yet. `ledger` knows
    what this session was given before.
    """

    settings: "Settings"
    room: "ReadOnlyLibrary | None"
    ledger: "SessionLedger"
    now: int  # microseconds since 1970
    run: Callable[[Coroutine[Any, Any, Any]], Any]


Handler = Callable[[HookEvent, HookContext], HookAnswer | None]


def build_event(name: str, facts: Mapping[str, Any]) -> HookEvent:
    """Return the event of this name."""
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
    """Return what a hook was told. Raises InvalidInput."""
    try:
        # Half a character, which JSON can name and no text can hold, becomes a question mark.
        facts = json.loads(told, object_pairs_hook=_clean_pairs)
    except (ValueError, RecursionError) as error:
        # What was said stays out of the message: it may be a prompt.
        raise InvalidInput(f"The hook's input is no JSON ({type(error).__name__}).") from None
    if not isinstance(facts, dict):
        raise InvalidInput(f"The hook's input is a {type(facts).__name__}, not an object.")
    return cast(dict[str, Any], facts)


def _clean_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return {_clean_value(key): _clean_value(value) for key, value in pairs}


def _clean_value(value: Any) -> Any:
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, list):
        return [_clean_value(each) for each in cast(list[Any], value)]
    return value


def get_event_name(given: str, facts: Mapping[str, Any]) -> str:
    """Return the event that the command line names, otherwise the one that the facts name."""
    return given or _get_text(facts, "hook_event_name")


def get_prompt(facts: Mapping[str, Any]) -> str:
    return _get_text(facts, "prompt") or _get_text(facts, "user_prompt")


def _get_text(facts: Mapping[str, Any], key: str) -> str:
    value = facts.get(key)
    return value if isinstance(value, str) else ""


def _get_path(facts: Mapping[str, Any], key: str) -> "Path | None":
    from pathlib import Path  # costs a prompt that asks for nothing more than all else it loads

    value = _get_text(facts, key)
    return Path(value) if value and "\0" not in value else None


# Longer ones are put into a file by the client, with a preview of it in their place.
MAX_CONTEXT_CHARACTERS = 8_000


def format_answer(event: str, answer: HookAnswer | None) -> bytes:
    """What is printed; nothing where there is nothing to say. Raises InvalidInput."""
    context = "" if answer is None else answer.context
    if not context:
        return b""
    if len(context) > MAX_CONTEXT_CHARACTERS:  # cut off it would have lost the end of its fence
        raise InvalidInput(f"The context has {len(context)} characters, and may have {MAX_CONTEXT_CHARACTERS}.")
    told = {"hookSpecificOutput": {"hookEventName": event, "additionalContext": context}}
    return (json.dumps(told, ensure_ascii=False) + "\n").encode("utf-8", "replace")
