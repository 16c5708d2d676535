"""Command that starts Everkept: its construction and recognition."""

import re
import shlex
import shutil
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, cast

from everkept.clients.config_files import read_text_list, write_text_list

PROGRAM_NAME = "everkept"
LAUNCHER_NAME = "run"  # of a checkout
SERVE_VERB = "serve"
HOOK_VERB = "hook"
REMOTE_BRIDGE = "mcp-remote"  # program that reaches an address for clients that only start programs

# Without these flags, Python runs code from the working folder, and from folders that PYTHON variables name. `-I` would
# also hide packages that `pip install --user` installed.
ISOLATED_MODULE = ("-E", "-P", "-m", PROGRAM_NAME)

_ISOLATION_FLAGS = frozenset({"-E", "-I", "-P", "-s"})
_SEPARATOR = re.compile(r"[/\\]")
_PROGRAM_SUFFIXES = (".exe", ".cmd")
_BATCH_SUFFIXES = (".cmd", ".bat")
_ADDRESS_KEYS = ("url", "serverUrl", "httpUrl")  # of different clients
_CACHE_TAG = "CACHEDIR.TAG"
_RUNNERS = (("cmd", "/c"), ("uvx",), ("uv", "run"), ("pipx", "run"))


def build_own_command(launcher: str | None, python: str) -> tuple[str, ...]:
    """Return how to start this program from any folder, also from one that a stranger filled.

    `python` is the interpreter of this process. The script that pip installs is not used, because it is not isolated.
    """
    return (launcher,) if launcher else (python, *ISOLATED_MODULE)


def is_in_cache(prefix: Path) -> bool:
    """Return whether the environment is in a cache, as those of `uvx` and `pipx run` are.

    Such a folder can be deleted at any time. Each one has the tag of caches; an environment has it too.
    """
    return any((folder / _CACHE_TAG).is_file() for folder in prefix.parents)


def make_startable(program: Sequence[str], platform: str) -> tuple[str, ...]:
    """Return the command for a client, which uses no shell. Windows needs one to run batch files."""
    if platform == "win32" and program[0].lower().endswith(_BATCH_SUFFIXES):
        return ("cmd", "/c", *program)
    return tuple(program)


def format_shell_line(words: Sequence[str], platform: str) -> str:
    """Return the line for a shell, which on Windows is that of Git."""
    if platform == "win32":
        words = [word.replace("\\", "/") for word in words]
    return shlex.join(words)


def find_arguments(words: Sequence[str], verb: str, launchers: Collection[str] = ()) -> tuple[str, ...] | None:
    """Return the arguments after the verb, or None if the words do not start this program for it.

    `launchers` are known to be ours, even if their checkout has moved.
    """
    words = _strip_runner(words)
    length = _count_program_words(words, launchers)
    if not length or words[length : length + 1] != (verb,):
        return None
    return words[length + 1 :]


def is_ours(words: Sequence[str], verb: str, launchers: Collection[str] = ()) -> bool:
    return find_arguments(words, verb, launchers) is not None


def is_program(word: str, launchers: Collection[str] = ()) -> bool:
    """Return whether the name or launcher is ours: a known one, or that of a checkout.

    Many projects have a script with the name `run`.
    """
    if _get_stem(word) == PROGRAM_NAME or _use_slashes(word) in map(_use_slashes, launchers):
        return True
    try:
        path = Path(word)
        source = path.parent / "src" / PROGRAM_NAME / "__main__.py"
        return _get_stem(word) == LAUNCHER_NAME and path.is_absolute() and source.is_file()
    except (OSError, ValueError):
        return False


def get_command_words(entry: Any) -> tuple[str, ...]:
    """Return the command of an entry with its arguments, empty if it has no command."""
    if not isinstance(entry, dict):
        return ()
    fields = cast(dict[str, Any], entry)
    command, behind = fields.get("command"), fields.get("args")
    first: list[Any] = [command] if isinstance(command, str) else _as_words(command)
    return tuple(str(word) for word in (*first, *_as_words(behind))) if first else ()


def _as_words(value: Any) -> list[Any]:
    return cast(list[Any], value) if isinstance(value, list) else []


def get_server_address(entry: Any) -> str | None:
    """Return the address in an entry, also as the argument of a bridge. Return None if it starts a server."""
    words = get_command_words(entry)
    if REMOTE_BRIDGE in words:
        return next(iter(words[words.index(REMOTE_BRIDGE) + 1 :]), None)
    fields = cast(dict[str, Any], entry) if isinstance(entry, dict) and not words else {}
    return next((fields[key] for key in _ADDRESS_KEYS if isinstance(fields.get(key), str)), None)


def split_line(line: str, launchers: Collection[str] = ()) -> tuple[str, ...]:
    """Split a shell line into words. Return nothing unless it is one plain command.

    The backslashes of Windows are kept.
    """
    try:
        words = _split_words(line, posix=True)
        if "\\" in line and not is_ours(words, HOOK_VERB, launchers):
            return tuple(word.strip("\"'") for word in _split_words(line, posix=False))
    except ValueError:  # a quote that is not closed
        return ()
    return words


def find_option(words: Sequence[str], name: str) -> str | None:
    """Return the value of an option, which follows it or an equals sign."""
    for position, word in enumerate(words):
        if word == name and position + 1 < len(words):
            return words[position + 1]
        if word.startswith(f"{name}="):
            return word.removeprefix(f"{name}=")
    return None


def get_program(words: Sequence[str]) -> str:
    """Return the program that must exist for these words to work."""
    is_wrapped = len(words) > 2 and [word.lower() for word in words[:2]] == ["cmd", "/c"]
    return words[2] if is_wrapped else words[0]


def is_available(program: str) -> bool:
    """Return whether it can be started: a file, or a name on the search path."""
    try:
        return Path(program).is_file() if _SEPARATOR.search(program) else bool(shutil.which(program))
    except (OSError, ValueError):
        return False


def _strip_runner(words: Sequence[str]) -> tuple[str, ...]:
    """Remove a program before it that only starts it."""
    lower = tuple(word.lower() for word in words[:2])
    length = next((len(each) for each in _RUNNERS if lower[: len(each)] == each), 0)
    return tuple(words[length:])


def _count_program_words(words: Sequence[str], launchers: Collection[str]) -> int:
    if words and is_program(words[0], launchers):
        return 1
    module = next((at for at, word in enumerate(words[1:], 1) if word not in _ISOLATION_FLAGS), 0)
    return module + 2 if tuple(words[module : module + 2]) == ("-m", PROGRAM_NAME) else 0


def _split_words(line: str, *, posix: bool) -> tuple[str, ...]:
    words = shlex.split(line, posix=posix)
    # This makes the signs of a shell separate words: between commands, or before a file.
    lexer = shlex.shlex(line, posix=posix, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    return tuple(words) if list(lexer) == words and "\n" not in line else ()


def _use_slashes(word: str) -> str:
    return word.replace("\\", "/")


def _get_stem(word: str) -> str:
    name = _SEPARATOR.split(word)[-1].lower()
    return next((name.removesuffix(end) for end in _PROGRAM_SUFFIXES if name.endswith(end)), name)


LAUNCHERS_FILE = "setup-launchers.json"  # in the data folder


def read_launchers(data_dir: Path) -> frozenset[str]:
    """Return none if the list cannot be read. Unknown commands are then left unchanged."""
    return frozenset(read_text_list(data_dir / LAUNCHERS_FILE))


def remember_launcher(data_dir: Path, launcher: str) -> None:
    known = read_launchers(data_dir)
    if launcher not in known:
        write_text_list(data_dir / LAUNCHERS_FILE, {*known, launcher})
