"""The gateway's file on disk, and tools in it whose names are taken."""

import stat
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from everkept.errors import InvalidInput
from everkept.families.gateway.file_reader import read
from everkept.families.gateway.model import GatewayConfig, Problem

LARGEST = 16 * 1024 * 1024  # bytes


class State(NamedTuple):
    """Equal as long as the file was not written."""

    written_at: int
    changed_at: int  # also where somebody has set the time of writing back
    size: int
    file: int


class Loaded(NamedTuple):
    config: GatewayConfig
    warnings: list[Problem]


def state(path: Path) -> State | None:
    """None where there is no such file."""
    try:
        found = path.stat()
    except (OSError, ValueError):
        return None
    return State(found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino)


def load(path: Path) -> Loaded:
    """InvalidInput with the file, the line and every problem where it cannot be used."""
    found = read(_text(path), path.parent)
    if found.config is None:
        raise _unusable(path, found.problems)
    return Loaded(found.config, found.warnings)


def clashing(path: Path, problem: Problem) -> InvalidInput:
    """The error for what only shows beside other tools."""
    return _unusable(path, [problem])


def _unusable(path: Path, problems: list[Problem]) -> InvalidInput:
    first, more = problems[0], len(problems) - 1
    rest = f" And {more} more: `everkept gateway check` shows them." if more else ""
    return InvalidInput(
        f"{path}, {first}{rest}",
        file=str(path),
        line=first.line,
        problems=[
            {"line": problem.line, "message": problem.message, "fix": problem.fix}
            for problem in problems
        ],
    )


def _text(path: Path) -> str:
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            raise InvalidInput(f"{path} is no regular file.", file=str(path))
        if found.st_size > LARGEST:
            raise InvalidInput(f"{path} has more than {LARGEST:,} bytes.", file=str(path))
        return path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise InvalidInput(
            f"There is no gateway file {path}.",
            hint="`everkept gateway init` writes a first one.",
            file=str(path),
        ) from None
    except UnicodeDecodeError as error:
        raise InvalidInput(
            f"{path} is not UTF-8: byte {error.start:,} cannot be read.", file=str(path)
        ) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InvalidInput(f"{path} cannot be read: {reason}.", file=str(path)) from None


def refuse_clashes(path: Path, config: GatewayConfig, taken: Collection[str]) -> None:
    """Raises InvalidInput for the first of them."""
    for tool in config.tools:
        if tool.name in taken:
            message = f'Everkept itself has a tool "{tool.name}".'
            fix = "Give this one another name, or serve it with `--toolsets gateway` alone."
            raise clashing(path, Problem(tool.line, message, fix))
