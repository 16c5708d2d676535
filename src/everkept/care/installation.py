"""Checks of the data folder, the programs around it and the gateway's file."""

import os
import shutil
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from everkept import __version__
from everkept.care.findings import DOCTOR_FIX, Finding, Patient, care_of
from everkept.clients.config_files import Places
from everkept.clients.entries import Surveyed, surveyed
from everkept.clients.programs import known_launchers
from everkept.core.care import FREE_SPACE, Severity, Unfinished
from everkept.core.text import counted
from everkept.errors import InvalidInput
from everkept.settings import (
    GATEWAY,
    chosen_toolsets,
    client_environment,
    load,
    title_of,
    warnings_of,
)

if TYPE_CHECKING:
    from everkept.app.gateway_file import Loaded

PLACE = "data folder"
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
        yield Finding(PLACE, "ok", f"What is remembered is kept {kept}, and in no file here.")
        return
    if not folder.exists():
        what = f"{folder} is not there yet: it is made when something is stored."
        yield Finding(PLACE, "ok", what)
        return
    if not folder.is_dir():
        what = f"{folder} is no folder."
        yield Finding(PLACE, "problem", what, "choose another one with --data-dir")
        return
    problems = [*_unusable(folder), *_readable_by_others(folder), *_badly_placed(folder)]
    if restoring := care.unfinished():
        problems.append(_cut_short(restoring))
    problems += [*care.check_leftovers(PLACE), *_room(folder)]
    yield from problems or [Finding(PLACE, "ok", f"{folder} can be written, and only by you.")]


def _unusable(folder: Path) -> Iterator[Finding]:
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        what = f"{folder} cannot be written: memories can be read at best."
        yield Finding(PLACE, "problem", what, f"change its permissions: chmod u+rwx {folder}")
    if hasattr(os, "geteuid") and folder.stat().st_uid != os.geteuid():
        what = f"{folder} belongs to another user (number {folder.stat().st_uid})."
        yield Finding(PLACE, "advice", what, "run Everkept as that user, or change the owner")


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
        yield Finding(PLACE, "problem", what, DOCTOR_FIX, close)
    else:
        what = f"Others may see which files there are: {shown}{more}."
        yield Finding(PLACE, "advice", what, DOCTOR_FIX, close)


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
            yield Finding(PLACE, "advice", what, f"{move}; `everkept backup` can write there")
            return
    kind = _network_kind(folder.resolve())
    if kind:
        what = f"{folder} is on a network ({kind}), where locks cannot be relied upon."
        yield Finding(PLACE, "advice", what, move)


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
    return Finding(PLACE, "problem", what, restoring.command)


def _room(folder: Path) -> Iterator[Finding]:
    free = shutil.disk_usage(folder).free
    if free < LITTLE_FREE:
        severity = "problem" if free < LEAST_FREE else "advice"
        what = f"Only {free / 1_000_000:,.0f} MB are free on the disk of {folder}."
        yield Finding(PLACE, severity, what, FREE_SPACE)


VERSIONS, SETTINGS, CLIENTS, FOLDERS = "versions", "settings", "clients", "data folders"
OLDEST_PYTHON = (3, 11)


def check_versions(patient: Patient) -> Iterator[Finding]:
    python = ".".join(map(str, sys.version_info[:3]))
    wrong = [*_unfit_packages(), *_sqlite()]
    if sys.version_info[:2] < OLDEST_PYTHON:
        what = f"Python {python} is too old: Everkept needs 3.11."
        wrong.append(Finding(VERSIONS, "problem", what, "install a newer Python"))
    if wrong:
        yield from wrong
    else:
        what = f"Everkept {__version__}, Python {python}, SQLite {_sqlite_version()}."
        yield Finding(VERSIONS, "ok", what)


def _sqlite_version() -> str:
    import apsw

    return apsw.sqlite_lib_version()


def _sqlite() -> Iterator[Finding]:
    import apsw

    if "ENABLE_FTS5" not in apsw.compile_options:
        what = f"SQLite {_sqlite_version()} has no FTS5, which the word index needs."
        yield Finding(VERSIONS, "problem", what, "pip install --force-reinstall apsw")


def _unfit_packages() -> Iterator[Finding]:
    try:
        required = metadata.requires("everkept") or []
    except metadata.PackageNotFoundError:
        return  # the program is run from its source
    for name, limits in _needed(required):
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            what = f"The package {name} is missing."
            yield Finding(VERSIONS, "problem", what, "install Everkept again")
            continue
        if not fits(version, limits):
            what = f"The package {name} is {version}, and Everkept needs {limits}."
            yield Finding(VERSIONS, "problem", what, "install Everkept again")


def _needed(required: Iterable[str]) -> Iterator[tuple[str, SpecifierSet]]:
    """Yield the packages that this installation needs, without those of extras."""
    for each in map(Requirement, required):
        if each.marker is None or each.marker.evaluate({"extra": ""}):
            yield each.name, each.specifier


def fits(version: str, limits: SpecifierSet) -> bool:
    """Return whether a version is within limits; a candidate counts as its release."""
    return Version(version).base_version in limits


def check_settings(patient: Patient) -> Iterator[Finding]:
    if patient.fault is not None:
        hint = patient.fault.hint or "everkept config"
        yield Finding(SETTINGS, "problem", patient.fault.message, hint)
    elif patient.settings.config is not None:
        yield Finding(SETTINGS, "ok", f"They are read from {patient.settings.config}.")
    else:
        yield Finding(SETTINGS, "ok", "There is no config file; none is needed.")
    for sentence in warnings_of(patient.settings):
        yield Finding(SETTINGS, "advice", sentence)


def check_clients(patient: Patient) -> Iterator[Finding]:
    found = _survey(patient)
    told = [each for each in found if each.is_set_up]
    wrong = [finding for each in found for finding in _of_client(patient, each)]
    for each in told:
        if not any(each.title in finding.what for finding in wrong):
            scope = "" if each.scope == "user" else f" ({each.scope})"
            yield Finding(CLIENTS, "ok", f"{each.title}{scope}: {each.kind} set up.")
    if not told:
        here = ", ".join(sorted({each.title for each in found if each.is_installed}))
        what = "No client starts Everkept yet." + (f" Installed: {here}." if here else "")
        yield Finding(CLIENTS, "advice", what, "everkept setup CLIENT")
    yield from wrong


def _of_client(patient: Patient, each: Surveyed) -> Iterator[Finding]:
    command = f"everkept setup {each.client}"
    if each.problem:
        yield Finding(CLIENTS, "advice", f"{each.title}: {each.problem}", f"mend {each.file}")
        return
    if not each.is_set_up:
        return
    if not each.program_is_there:
        what = f"{each.title} starts {each.program}, which is not there ({each.file})."
        yield Finding(CLIENTS, "problem", what, command)
    if each.missing_events:
        events = ", ".join(each.missing_events)
        what = f"{each.title} has no hook for {events} ({each.file})."
        yield Finding(CLIENTS, "advice", what, command)
    if each.data_dir is not None and not _is_same(each.data_dir, patient.folder):
        what = (
            f"{each.title} keeps its memories in {each.data_dir}; this command looks at "
            f"{patient.folder}."
        )
        yield Finding(CLIENTS, "advice", what, f"everkept doctor --data-dir {each.data_dir}")


def check_folders(patient: Patient) -> Iterator[Finding]:
    """Data that another way of starting would use."""
    if not patient.is_on_disk:
        return
    others = load({"config": "none"}, {})
    usual = others.data_dir
    if not _is_same(str(usual), patient.folder) and care_of(others).is_there():
        what = f"There is data in {usual} too, the folder of who names none."
        command = f"name one folder everywhere: data_dir in the config file (now {patient.folder})"
        yield Finding(FOLDERS, "advice", what, command)


def _is_same(named: str, folder: Path) -> bool:
    return Path(named).expanduser().absolute().resolve() == folder.resolve()


def _survey(patient: Patient) -> list[Surveyed]:
    project = (patient.settings.path or Path.cwd()).absolute()
    launchers = known_launchers(patient.folder) | {patient.settings.launcher or ""}
    places = Places(client_environment(), Path.home(), sys.platform, project, launchers - {""})
    return surveyed(places)


OF_GATEWAY = "gateway"
GATEWAY_CHECK = "everkept gateway check"
READ_BY_OTHERS = 0o044
WRITTEN_BY_EVERYBODY = 0o002


def check_gateway(patient: Patient) -> Iterator[Finding]:
    """No server is started."""
    path = patient.settings.gateway_config
    if path is None:
        return
    from everkept.app.gateway_file import load, state

    loaded = None
    try:
        loaded = load(path)
        _refuse_names_of_ours(patient, path, loaded)
    except InvalidInput as error:
        yield Finding(OF_GATEWAY, "problem", error.message, error.hint or GATEWAY_CHECK)
    else:
        yield _told(patient, path, loaded)
    # On Windows a file of the user's has an access list of its own.
    if os.name != "nt" and state(path) is not None:
        yield from _changed_by_others(path)
        yield from _read_by_others(path, loaded)


def _refuse_names_of_ours(patient: Patient, path: Path, loaded: "Loaded") -> None:
    from everkept.app.gateway_file import names_beside, refuse_clashes

    refuse_clashes(path, loaded.config, names_beside(patient.settings))


def _told(patient: Patient, path: Path, loaded: "Loaded") -> Finding:
    config = loaded.config
    what = f"{path}: {counted(len(config.upstreams), 'server')}, "
    what += f"{counted(len(config.tools), 'tool')} of its own."
    if GATEWAY not in chosen_toolsets(patient.settings):
        return Finding(
            OF_GATEWAY,
            "advice",
            f"{what} They are not offered: the setting `toolsets` does not name `{GATEWAY}`.",
            f"add {GATEWAY} to toolsets (now {patient.settings.toolsets})",
        )
    if loaded.warnings:
        more = len(loaded.warnings) - 1
        rest = f" And {more} more." if more else ""
        return Finding(OF_GATEWAY, "advice", f"{path}, {loaded.warnings[0]}{rest}", GATEWAY_CHECK)
    return Finding(OF_GATEWAY, "ok", what)


def _changed_by_others(path: Path) -> Iterator[Finding]:
    """Whoever changes the file chooses which programs are started in the user's name."""
    owner = path.stat().st_uid
    if owner not in (os.geteuid(), 0):
        what = f"{path} belongs to another user (number {owner}), who can change what it starts."
        yield Finding(OF_GATEWAY, "problem", what, f"change its owner: chown {os.geteuid()} {path}")
    if _file_mode(path) & WRITTEN_BY_OTHERS:
        what = f"Others may change {path}, which says what programs are started in your name."
        mend = _taking(path, WRITTEN_BY_OTHERS)
        yield Finding(OF_GATEWAY, _severity(path), what, DOCTOR_FIX, mend)
    folder = path.resolve().parent
    if _file_mode(folder) & WRITTEN_BY_OTHERS and not _file_mode(folder) & stat.S_ISVTX:
        what = f"Others may put another file in the place of {path}."
        yield Finding(OF_GATEWAY, _severity(folder), what, f"chmod go-w {folder}")


def _read_by_others(path: Path, loaded: "Loaded | None") -> Iterator[Finding]:
    """Of a file that cannot be used nobody knows what is a secret in it."""
    if loaded is None or not _file_mode(path) & READ_BY_OTHERS:
        return
    from everkept.app.gateway_file import plain_secrets

    found = [
        f"{name} of {upstream.name}"
        for upstream in loaded.config.upstreams.values()
        for name in plain_secrets(upstream.reach)
    ]
    if found:
        what = f"Others may read {path}, and it holds what looks like a secret: {', '.join(found)}."
        yield Finding(OF_GATEWAY, "problem", what, DOCTOR_FIX, _taking(path, OTHERS))


def _severity(path: Path) -> Severity:
    """On many systems everybody is alone in a group of the same name."""
    return "problem" if _file_mode(path) & WRITTEN_BY_EVERYBODY else "advice"


def _taking(path: Path, rights: int) -> Callable[[], str]:
    def mend() -> str:
        path.chmod(_file_mode(path) & ~rights)
        return f"took the rights of others from {path}"

    return mend


def _file_mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)
