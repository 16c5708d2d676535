"""An answer in the form that Claude Code reads."""

import json

from everkept.errors import InvalidInput
from everkept.hooks.model import Answer

# Longer ones are put into a file by the client, with a preview of it in their place.
MOST_CONTEXT = 8_000  # characters


def written(event: str, answer: Answer | None) -> bytes:
    """What is printed; nothing where there is nothing to say. Raises InvalidInput."""
    context = "" if answer is None else answer.context
    if not context:
        return b""
    if len(context) > MOST_CONTEXT:  # cut off it would have lost the end of its fence
        raise InvalidInput(
            f"The context has {len(context)} characters, and may have {MOST_CONTEXT}."
        )
    told = {"hookSpecificOutput": {"hookEventName": event, "additionalContext": context}}
    return (json.dumps(told, ensure_ascii=False) + "\n").encode("utf-8", "replace")
