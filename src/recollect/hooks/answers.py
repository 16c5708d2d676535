"""An answer in the form that Claude Code reads."""

import json
from typing import Any

from recollect.errors import InvalidInput
from recollect.hooks.model import Answer

# Longer ones are put into a file by the client, with a preview of it in their place.
MOST_CONTEXT = 8_000  # characters
MOST_NOTICE = 1_000


def written(event: str, answer: Answer | None) -> bytes:
    """What is printed; nothing where there is nothing to say. Raises InvalidInput."""
    if answer is None:
        return b""
    _check("context", answer.context, MOST_CONTEXT)
    _check("notice", answer.notice, MOST_NOTICE)
    told: dict[str, Any] = {}
    if answer.notice:
        told["systemMessage"] = answer.notice
    if answer.context:
        told["hookSpecificOutput"] = {"hookEventName": event, "additionalContext": answer.context}
    if not told:
        return b""
    return (json.dumps(told, ensure_ascii=False) + "\n").encode("utf-8", "replace")


def _check(kind: str, text: str, most: int) -> None:
    # Cut off it would have lost the end of its fence.
    if len(text) > most:
        raise InvalidInput(f"The {kind} has {len(text)} characters, and may have {most}.")
