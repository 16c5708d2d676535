"""What went wrong in hooks: lines in a file, since whoever called them is told nothing."""

import sys
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from everkept.core import disk
from everkept.errors import EverkeptError

FILE = "faults.log"  # inside the folder of the hooks
MOST_BYTES = 200_000  # the older half goes then
MOST_CHARACTERS = 400  # of one reason
MOST_LOOKED_AT = 4_000  # characters that secrets are looked for in


class Fault(NamedTuple):
    at: str  # ISO 8601, in UTC
    event: str
    reason: str


def record(
    folder: Path | None, event: str, cause: BaseException | str, *, echo: bool = False
) -> None:
    """Adds a line to the log in the hooks' folder; `echo` says it on standard error too.

    Where the data folder is unknown, missing or cannot be written, there is no log, and nobody
    fails.
    """
    # Imported here: nearly no hook has a fault.
    from everkept.core.times import iso, now

    fault = Fault(iso(now()), _word(event), _reason(cause))
    if echo:
        with suppress(OSError, ValueError):
            print(f"everkept hook {fault.event}: {fault.reason}", file=sys.stderr, flush=True)  # noqa: T201
    with suppress(OSError):
        if folder is not None and folder.parent.is_dir():
            _shorten(folder / FILE)
            disk.append(folder / FILE, f"{fault.at} {fault.event} {fault.reason}\n")


def recent(folder: Path, limit: int = 20) -> list[Fault]:
    """The newest first; none where there is no log, or it cannot be read."""
    try:
        lines = (folder / FILE).read_text("utf-8", "replace").splitlines()
    except OSError:
        return []
    parts = [line.split(" ", 2) for line in lines]
    return [Fault(*part) for part in reversed(parts) if len(part) == len(Fault._fields)][:limit]


def _shorten(path: Path) -> None:
    try:
        if path.stat().st_size < MOST_BYTES:
            return
    except FileNotFoundError:
        return
    _, _, newer = path.read_bytes()[-MOST_BYTES // 2 :].partition(b"\n")
    disk.replace(path, newer, is_synced=False)


def _reason(cause: BaseException | str) -> str:
    """What is known to hold nothing of what was said: an unexpected error may quote a prompt."""
    from everkept.core.secrets import masked
    from everkept.core.text import clipped

    if isinstance(cause, str):
        told = cause
    elif isinstance(cause, EverkeptError):
        told = f"{cause.code}: {cause}"
    elif isinstance(cause, OSError):
        told = f"{type(cause).__name__}: {cause.strerror} ({cause.filename})"
    else:
        told = f"{type(cause).__name__} in {_place(cause)}"
    return clipped(masked(told[:MOST_LOOKED_AT])[0], MOST_CHARACTERS)


def _place(cause: BaseException) -> str:
    trace = cause.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return "an unknown place"
    return f"{Path(trace.tb_frame.f_code.co_filename).name}, line {trace.tb_lineno}"


def _word(event: str) -> str:
    return event if event.isascii() and event.isalnum() and len(event) < 40 else "?"
