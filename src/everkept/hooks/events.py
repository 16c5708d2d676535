"""A hook's JSON as an event: what is missing or of another type counts as not said."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from everkept.errors import InvalidInput
from everkept.hooks.model import HookEvent

if TYPE_CHECKING:
    from pathlib import Path


def event_from(name: str, facts: Mapping[str, Any]) -> HookEvent:
    """Return the event of this name."""
    tool_input = facts.get("tool_input")
    response = facts.get("tool_response", facts.get("tool_result"))
    return HookEvent(
        name=name,
        session=_text(facts, "session_id"),
        folder=_path(facts, "cwd"),
        transcript=_path(facts, "transcript_path"),
        source=_text(facts, "source"),
        prompt=prompt_of(facts),
        tool=_text(facts, "tool_name"),
        tool_input=cast(dict[str, Any], tool_input) if isinstance(tool_input, dict) else {},
        tool_response=response,
        error=_text(facts, "error"),
        is_interrupt=facts.get("is_interrupt") is True,
        reason=_text(facts, "reason"),
    )


def facts_from(told: bytes) -> Mapping[str, Any]:
    """Return what a hook was told. Raises InvalidInput."""
    try:
        # Half a character, which JSON can name and no text can hold, becomes a question mark.
        facts = json.loads(told, object_pairs_hook=_whole)
    except (ValueError, RecursionError) as error:
        # What was said stays out of the message: it may be a prompt.
        raise InvalidInput(f"The hook's input is no JSON ({type(error).__name__}).") from None
    if not isinstance(facts, dict):
        raise InvalidInput(f"The hook's input is a {type(facts).__name__}, not an object.")
    return cast(dict[str, Any], facts)


def _whole(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return {_storable(key): _storable(value) for key, value in pairs}


def _storable(value: Any) -> Any:
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, list):
        return [_storable(each) for each in cast(list[Any], value)]
    return value


def name_of(given: str, facts: Mapping[str, Any]) -> str:
    """Return the event that the command line names, otherwise the one that the facts name."""
    return given or _text(facts, "hook_event_name")


def prompt_of(facts: Mapping[str, Any]) -> str:
    return _text(facts, "prompt") or _text(facts, "user_prompt")


def _text(facts: Mapping[str, Any], key: str) -> str:
    value = facts.get(key)
    return value if isinstance(value, str) else ""


def _path(facts: Mapping[str, Any], key: str) -> "Path | None":
    from pathlib import Path  # costs a prompt that asks for nothing more than all else it loads

    value = _text(facts, key)
    return Path(value) if value and "\0" not in value else None
