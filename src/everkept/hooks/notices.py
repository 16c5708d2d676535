"""Notices of what an assistant does: which are worth a memory, their texts, their tags."""

from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Literal

from everkept.core.records import Record
from everkept.values import Value

NOTICED_BY = "hook:PostToolUse"  # the tool that such memories name as their source

# Tags: a command that failed, one that worked, one that works again, a file.
FAILED = "failed"
WORKED = "worked"
FIXED = "fixed"
EDITED = "edited"


def is_automatic(record: Record) -> bool:
    return bool(record.facets.get("automatic"))


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


LONGEST_NAME = 500  # characters of a path

_LOCKS = frozenset(
    {
        "cargo.lock",
        "composer.lock",
        "flake.lock",
        "gemfile.lock",
        "go.sum",
        "npm-shrinkwrap.json",
        "package-lock.json",
        "pnpm-lock.yaml",
        "poetry.lock",
        "uv.lock",
        "yarn.lock",
    }
)
# Folders of what programs write.
_OUTPUT = frozenset(
    {
        "__pycache__",
        "bower_components",
        "build",
        "coverage",
        "dist",
        "generated",
        "htmlcov",
        "node_modules",
        "out",
        "scratchpad",
        "site-packages",
        "target",
        "temp",
        "tmp",
        "venv",
    }
)
_HIDDEN_BUT_WRITTEN = frozenset(
    {".github", ".gitlab", ".circleci", ".claude", ".vscode", ".cursor"}
)
_ENDINGS = (
    "~",
    ".bak",
    ".g.dart",
    ".lock",
    ".log",
    ".map",
    ".min.css",
    ".min.js",
    ".orig",
    ".out",
    ".pb.go",
    ".pyc",
    ".snap",
    ".swp",
    ".tmp",
    "_pb2.py",
    "_pb2_grpc.py",
)


def is_worth_a_memory(file: PurePosixPath) -> bool:
    """Not lock files, nor what is built, generated, temporary or hidden; the path is relative."""
    *folders, name = (part.lower() for part in file.parts)
    return not (
        len(str(file)) > LONGEST_NAME
        or not str(file).isprintable()
        or name in _LOCKS
        or name.endswith(_ENDINGS)
        or ".generated." in name
        or any(folder in _OUTPUT or _is_hidden(folder) for folder in folders)
    )


def _is_hidden(folder: str) -> bool:
    return folder.startswith(".") and folder not in _HIDDEN_BUT_WRITTEN
