"""The data folder itself: whether it can be used, who may read it, where it lies, what is left."""

import os
import shutil
import stat
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from everkept.app.care.findings import DOCTOR_FIX, Finding, Patient
from everkept.core.care import FREE_SPACE, Unfinished
from everkept.core.text import counted
from everkept.settings import title_of

CHECK = "data folder"
LEAST_FREE = 100_000_000  # bytes below which the next import may fail
LITTLE_FREE = 1_000_000_000
OTHERS = 0o077  # what group and others may do
WRITTEN_BY_OTHERS = 0o022

# Parts of paths by which programs that synchronise folders are known.
_SYNCHRONISED = {
    "Dropbox": "Dropbox",
    "OneDrive": "OneDrive",
    "Mobile Documents": "iCloud Drive",
    "CloudStorage": "a cloud drive",
    "Google Drive": "Google Drive",
    "GoogleDrive": "Google Drive",
    "Nextcloud": "Nextcloud",
    "ownCloud": "ownCloud",
    "pCloudDrive": "pCloud",
    "iCloudDrive": "iCloud Drive",
}
_NETWORK = ("nfs", "cifs", "smb", "sshfs", "afs", "9p", "davfs", "webdav", "afpfs")
_MOUNTS = Path("/proc/mounts")
_DRIVE_REMOTE = 4  # as Windows has it


def check_place(patient: Patient) -> Iterator[Finding]:
    folder = patient.folder
    care = patient.care
    if care is None:
        engine = patient.settings.engine
        kept = "in memory" if engine == "sqlite" else f"by {title_of(engine)}"
        yield Finding(CHECK, "ok", f"What is remembered is kept {kept}, and in no file here.")
        return
    if not folder.exists():
        what = f"{folder} is not there yet: it is made when something is stored."
        yield Finding(CHECK, "ok", what)
        return
    if not folder.is_dir():
        what = f"{folder} is no folder."
        yield Finding(CHECK, "problem", what, "choose another one with --data-dir")
        return
    problems = [*_unusable(folder), *_readable_by_others(folder), *_badly_placed(folder)]
    if restoring := care.unfinished():
        problems.append(_cut_short(restoring))
    problems += [*care.check_leftovers(CHECK), *_room(folder)]
    yield from problems or [Finding(CHECK, "ok", f"{folder} can be written, and only by you.")]


def _unusable(folder: Path) -> Iterator[Finding]:
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        what = f"{folder} cannot be written: memories can be read at best."
        yield Finding(CHECK, "problem", what, f"change its permissions: chmod u+rwx {folder}")
    if hasattr(os, "geteuid") and folder.stat().st_uid != os.geteuid():
        what = f"{folder} belongs to another user (number {folder.stat().st_uid})."
        yield Finding(CHECK, "advice", what, "run Everkept as that user, or change the owner")


def _readable_by_others(folder: Path) -> Iterator[Finding]:
    if os.name == "nt":  # there a folder of the user's has an access list of its own
        return
    open_to_others = [path for path in _everything(folder) if _mode(path) & OTHERS]
    if not open_to_others:
        return

    def close() -> str:
        for path in open_to_others:
            path.chmod(_mode(path) & ~OTHERS)
        return f"took the rights of others from {counted(len(open_to_others), 'file')}"

    shown = ", ".join(str(path.relative_to(folder.parent)) for path in open_to_others[:3])
    more = ", …" if len(open_to_others) > 3 else ""
    if any(not path.is_dir() or _mode(path) & WRITTEN_BY_OTHERS for path in open_to_others):
        what = f"Others may read or change what is stored: {shown}{more}."
        yield Finding(CHECK, "problem", what, DOCTOR_FIX, close)
    else:
        what = f"Others may see which files there are: {shown}{more}."
        yield Finding(CHECK, "advice", what, DOCTOR_FIX, close)


def _everything(folder: Path) -> list[Path]:
    return [folder, *(path for path in folder.rglob("*") if not path.is_symlink())]


def _mode(path: Path) -> int:
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except FileNotFoundError:  # a log that was just folded in
        return 0


def _badly_placed(folder: Path) -> Iterator[Finding]:
    move = "move it to a disk of this machine, and name it with data_dir or --data-dir"
    parts = folder.resolve().parts
    for part in parts:
        program = next((p for key, p in _SYNCHRONISED.items() if part.startswith(key)), None)
        if program:
            what = (
                f"{folder} is synchronised by {program}, which copies databases in the middle of "
                "a write: they can be damaged."
            )
            yield Finding(CHECK, "advice", what, f"{move}; `everkept backup` can write there")
            return
    kind = _network_kind(folder.resolve())
    if kind:
        what = f"{folder} is on a network ({kind}), where locks cannot be relied upon."
        yield Finding(CHECK, "advice", what, move)


def _network_kind(folder: Path) -> str | None:
    if sys.platform == "win32":
        import ctypes

        drive = f"{folder.drive}\\"
        is_remote = folder.drive.startswith("\\\\") or (
            ctypes.windll.kernel32.GetDriveTypeW(drive) == _DRIVE_REMOTE
        )
        return "another machine's drive" if is_remote else None
    if not _MOUNTS.exists():
        return None
    kind = mount_kind(folder, _MOUNTS.read_text("utf-8", "replace").splitlines())
    return kind if kind and any(name in kind for name in _NETWORK) else None


def mount_kind(folder: Path, mounts: Sequence[str]) -> str | None:
    """The kind of file system that a folder is on, by the lines of `/proc/mounts`."""
    best, kind = -1, None
    for line in mounts:
        fields = line.split()
        if len(fields) > 2:
            point = Path(fields[1].encode().decode("unicode_escape"))
            if folder.is_relative_to(point) and len(point.parts) > best:
                best, kind = len(point.parts), fields[2]
    return kind


def _cut_short(restoring: Unfinished) -> Finding:
    before = f" What was there before is in {restoring.safety}." if restoring.safety else ""
    what = (
        "A restore was cut short, unless it is under way: some databases are old, some new."
        f"{before}"
    )
    return Finding(CHECK, "problem", what, restoring.command)


def _room(folder: Path) -> Iterator[Finding]:
    free = shutil.disk_usage(folder).free
    if free < LITTLE_FREE:
        severity = "problem" if free < LEAST_FREE else "advice"
        what = f"Only {free / 1_000_000:,.0f} MB are free on the disk of {folder}."
        yield Finding(CHECK, severity, what, FREE_SPACE)
