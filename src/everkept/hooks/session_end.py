"""PreCompact and SessionEnd: what was said is taken in, later and by another process."""

import stat
import sys
from pathlib import Path

from everkept.hooks import files
from everkept.hooks.events import Answer, Around, HookEvent
from everkept.hooks.worker_queue import MOST_WAITING, Job, Jobs, wake
from everkept.hooks.workspace import hooks_folder
from everkept.settings import Settings, client_environment
from everkept.transcripts.source_programs import client_folders, source_at

SESSION_END = "SessionEnd"
# What another hook may have set otherwise, and whoever works the job off has to respect.
WISHES = ("project", "mask_secrets", "history_exclude", "consolidation_on_shutdown")


def leaving(event: HookEvent, around: Around) -> Answer | None:
    """Says nothing: an assistant that ends waits for nobody."""
    settings = around.settings
    if settings.read_only:
        return None
    transcript = _absolute(event.transcript)
    source = None if transcript is None else _source_of(transcript, event, settings)
    is_end = event.name == SESSION_END and bool(event.session)
    if source is None and not is_end:
        return None
    folder = _absolute(event.folder)
    job = Job(
        event=event.name,
        session=event.session,
        at=around.now,
        transcript=None if source is None else str(transcript),
        source=source,
        folder=None if folder is None else str(folder),
        wishes={name: getattr(settings, name) for name in WISHES},
    )
    dropped = Jobs(hooks_folder(settings)).add(job)
    if dropped:
        said = f"{dropped} of the oldest jobs are dropped: more than {MOST_WAITING} wait"
        files.record(hooks_folder(settings), event.name, said)
    wake(settings)
    return None


def _absolute(path: Path | None) -> Path | None:
    """The worker has another working folder."""
    try:
        return None if path is None else path.expanduser().absolute()
    except (OSError, RuntimeError):  # nobody knows that home folder, or ours is gone
        return path


def _source_of(transcript: Path, event: HookEvent, settings: Settings) -> str | None:
    """The program whose transcript it is; None where there is nothing to take in."""
    source = source_at(transcript, client_folders(client_environment(), Path.home(), sys.platform))
    kind = _kind_of(transcript)
    if source is not None and kind == "file":
        return source
    # A session in which nothing was said has no transcript, and ends like any other.
    if source is None or kind != "nothing" or event.name != SESSION_END:
        reason = f"{kind} is there" if source else "no assistant keeps its transcripts there"
        said = f"{transcript} is not taken in: {reason}"
        files.record(hooks_folder(settings), event.name, said)
    return None


def _kind_of(path: Path) -> str:
    try:
        return "file" if stat.S_ISREG(path.stat().st_mode) else "no file"
    except OSError:
        return "nothing"
