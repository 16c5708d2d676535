"""The words of a command that starts Recollect: making them, and knowing them again."""

import re
import shlex
import shutil
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

NAME = "recollect"
LAUNCHER = "run"  # of a checkout
SERVE = "serve"
HOOK = "hook"

_SEPARATOR = re.compile(r"[/\\]")
_ENDINGS = (".exe", ".cmd", ".bat", ".sh", ".py")
_OF_WINDOWS = (".cmd", ".bat")


def own_program(launcher: str | None, started_as: str, python: str) -> tuple[str, ...]:
    """How to start this program from any folder.

    `started_as` is the first word of this process, `python` its interpreter.
    """
    if launcher:
        return (launcher,)
    found = shutil.which(started_as) if _stem(started_as) == NAME else None
    return (str(Path(found).absolute()),) if found else (python, "-m", NAME)


def startable(program: Sequence[str], platform: str) -> tuple[str, ...]:
    """As a client starts it, which uses no shell: Windows runs batch files by one alone."""
    if platform == "win32" and program[0].lower().endswith(_OF_WINDOWS):
        return ("cmd", "/c", *program)
    return tuple(program)


def shell_line(words: Sequence[str], platform: str) -> str:
    """For a shell, which on Windows is the one that comes with Git."""
    if platform == "win32":
        words = [word.replace("\\", "/") for word in words]
    return shlex.join(words)


def is_ours(words: Sequence[str], verb: str) -> bool:
    """Whether these words start this program, by whatever means, to do that."""
    return any(after == verb and _is_program(word) for word, after in pairwise(words))


def words_of(entry: Any) -> tuple[str, ...]:
    """The command of an entry and its arguments; nothing where it has no command."""
    if not isinstance(entry, dict):
        return ()
    fields = cast(dict[str, Any], entry)
    command, arguments = fields.get("command"), fields.get("args")
    if not isinstance(command, str):
        return ()
    if not isinstance(arguments, list):
        return (command,)
    return (command, *(str(word) for word in cast(list[Any], arguments)))


def words_of_line(line: str) -> tuple[str, ...]:
    """The words of a shell's line; with the backslashes of Windows, where they are meant."""
    try:
        words = tuple(shlex.split(line))
        if "\\" in line and not is_ours(words, HOOK):
            plain = shlex.split(line, posix=False)
            return tuple(word.strip("\"'") for word in plain)
    except ValueError:  # a quote that is not closed
        return ()
    return words


def option(words: Sequence[str], name: str) -> str | None:
    """The value of an option, which may follow it or stand behind a sign of equality."""
    for position, word in enumerate(words):
        if word == name and position + 1 < len(words):
            return words[position + 1]
        if word.startswith(f"{name}="):
            return word.removeprefix(f"{name}=")
    return None


def started(words: Sequence[str]) -> str:
    """The program that must be there for these words to work."""
    is_wrapped = len(words) > 2 and [word.lower() for word in words[:2]] == ["cmd", "/c"]
    return words[2] if is_wrapped else words[0]


def is_there(program: str) -> bool:
    """Whether it can be started: a file, or a name that the search path knows."""
    try:
        return (
            Path(program).is_file() if _SEPARATOR.search(program) else bool(shutil.which(program))
        )
    except (OSError, ValueError):
        return False


def _is_program(word: str) -> bool:
    # `npm run serve` starts something else: the launcher of a checkout is named with its folder.
    return _stem(word) == NAME or (_stem(word) == LAUNCHER and bool(_SEPARATOR.search(word)))


def _stem(word: str) -> str:
    name = _SEPARATOR.split(word)[-1].lower()
    return next((name.removesuffix(end) for end in _ENDINGS if name.endswith(end)), name)
