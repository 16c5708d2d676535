"""What is worth remembering of what an assistant does: the texts, and how much each matters.

All of it stays below the importance from which a memory is told at the start of a session.
"""

from collections.abc import Sequence
from typing import Literal

from everkept.hooks.noticing.tags import EDITED, FAILED, FIXED, WORKED
from everkept.values import Value

LONGEST_COMMAND = 200  # characters
MOST_FILES = 8  # that one memory names


class Notice(Value):
    """A memory that nobody asked for."""

    text: str
    importance: float
    tags: tuple[str, ...]
    scope: Literal["session", "project"] = "session"
    file: str | None = None


def shown(command: str) -> str:
    """A command as memories have it."""
    line = " ".join(command.split())
    return f"`{line if len(line) <= LONGEST_COMMAND else line[: LONGEST_COMMAND - 1] + '…'}`"


def failure(command: str, lines: Sequence[str]) -> Notice:
    return Notice("\n".join((failure_head(command), *lines)), 0.4, (FAILED,))


def failure_head(command: str) -> str:
    """How the text of such a memory begins, whatever the error was."""
    return f"{shown(command)} failed:"


def command_of_failure(text: str) -> str:
    """The command as the memory of a failure shows it, or that of its repair."""
    head = text.partition("\n")[0]
    return head.partition("` failed and works again,")[0].removesuffix("` failed:")


def success(command: str, purpose: str) -> Notice:
    return Notice(f"{shown(command)} worked.", 0.3, tuple(dict.fromkeys((WORKED, purpose))))


def repair(command: str, files: Sequence[str], lines: Sequence[str]) -> Notice:
    """The project's, not the session's: it is what one wants to find again some other day."""
    named = ", ".join(files[:MOST_FILES])
    more = f" and {len(files) - MOST_FILES} more" if len(files) > MOST_FILES else ""
    why = f"after edits of {named}{more}" if files else "without an edit of a file"
    text = f"{shown(command)} failed and works again, {why}."
    told = (f"{text} It had failed with:", *lines) if lines else (text,)
    return Notice("\n".join(told), 0.45, (FIXED,), scope="project")


def edit(file: str) -> Notice:
    return Notice(f"Edited {file}", 0.2, (EDITED,), file=file)
