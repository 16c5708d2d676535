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
from everkept.app.engines import format_command
from everkept.care.check_context import FIX_COMMAND, CheckContext, DoctorFinding, get_sqlite_care
from everkept.clients.config_files import ClientEnvironment
from everkept.clients.own_command import read_launchers
from everkept.clients.survey import ClientInstallation, survey_clients
from everkept.core.care_results import FREE_SPACE_ADVICE, Severity, UnfinishedRestore
from everkept.core.text import format_count
from everkept.errors import InvalidInput
from everkept.settings import (
    GATEWAY,
    PLUGIN_IMPORTED,
    choose_toolsets,
    find_plugin_folder,
    get_title,
    list_plugin_notes,
    list_warnings,
    read_client_environment,
    read_settings,
)

if TYPE_CHECKING:
    from everkept.app.gateway_file import LoadedGateway

DATA_FOLDER_CHECK = "data folder"
MIN_FREE_BYTES = 100_000_000  # below this, the next import may fail
LOW_FREE_BYTES = 1_000_000_000
ALL_OTHERS_MODE = 0o077  # rights of group and others
OTHERS_WRITE_MODE = 0o022

# Parts of paths that programs for synchronization use.
_SYNC_FOLDERS = {
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
_NETWORK_FILE_SYSTEMS = ("nfs", "cifs", "smb", "sshfs", "afs", "9p", "davfs", "webdav", "afpfs")
_MOUNTS_FILE = Path("/proc/mounts")
_DRIVE_REMOTE = 4  # a constant of Windows


def check_data_folder(context: CheckContext) -> Iterator[DoctorFinding]:
    folder = context.folder
    care = context.care
    if care is None:
        engine = context.settings.engine
        kept = "in memory" if engine == "sqlite" else f"in {get_title(engine)}"
        yield DoctorFinding(DATA_FOLDER_CHECK, "ok", f"All data is {kept}, not in files here.")
        return
    if not folder.exists():
        what = f"{folder} does not exist yet. The first write creates it."
        yield DoctorFinding(DATA_FOLDER_CHECK, "ok", what)
        return
    if not folder.is_dir():
        what = f"{folder} is not a folder."
        yield DoctorFinding(DATA_FOLDER_CHECK, "problem", what, "choose another one with --data-dir")
        return
    problems = [*_check_usable(folder), *_check_permissions(folder), *_check_location(folder)]
    if restoring := care.find_unfinished_restore():
        problems.append(_report_unfinished_restore(restoring))
    problems += [*care.check_leftovers(DATA_FOLDER_CHECK), *_check_free_space(folder)]
    yield from problems or [DoctorFinding(DATA_FOLDER_CHECK, "ok", f"{folder} is writable only by you.")]


def _check_usable(folder: Path) -> Iterator[DoctorFinding]:
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        what = f"{folder} is not writable, so memories can only be read."
        yield DoctorFinding(DATA_FOLDER_CHECK, "problem", what, f"change its permissions: chmod u+rwx {folder}")
    if hasattr(os, "geteuid") and folder.stat().st_uid != os.geteuid():
        what = f"{folder} belongs to another user (number {folder.stat().st_uid})."
        yield DoctorFinding(DATA_FOLDER_CHECK, "advice", what, "run Everkept as that user, or change the owner")


def _check_permissions(folder: Path) -> Iterator[DoctorFinding]:
    if os.name == "nt":  # a user's folder has its own access list there
        return
    open_to_others = [path for path in _list_paths(folder) if _get_mode(path) & ALL_OTHERS_MODE]
    if not open_to_others:
        return

    def close() -> str:
        for path in open_to_others:
            path.chmod(_get_mode(path) & ~ALL_OTHERS_MODE)
        return f"made private: {format_count(len(open_to_others), 'file')}"

    shown = ", ".join(str(path.relative_to(folder.parent)) for path in open_to_others[:3])
    more = ", …" if len(open_to_others) > 3 else ""
    if any(not path.is_dir() or _get_mode(path) & OTHERS_WRITE_MODE for path in open_to_others):
        what = f"Other users can read or change stored data: {shown}{more}."
        yield DoctorFinding(DATA_FOLDER_CHECK, "problem", what, FIX_COMMAND, close)
    else:
        what = f"Other users can list the files: {shown}{more}."
        yield DoctorFinding(DATA_FOLDER_CHECK, "advice", what, FIX_COMMAND, close)


def _list_paths(folder: Path) -> list[Path]:
    return [folder, *(path for path in folder.rglob("*") if not path.is_symlink())]


def _get_mode(path: Path) -> int:
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except FileNotFoundError:  # a log that SQLite has just merged
        return 0


def _check_location(folder: Path) -> Iterator[DoctorFinding]:
    move = "move it to a disk of this machine, and set data_dir or pass --data-dir"
    parts = folder.resolve().parts
    for part in parts:
        program = next((p for key, p in _SYNC_FOLDERS.items() if part.startswith(key)), None)
        if program:
            what = f"{program} syncs {folder}. It copies databases during a write and can damage them."
            yield DoctorFinding(DATA_FOLDER_CHECK, "advice", what, f"{move}; only backups may be in the synced folder")
            return
    kind = _find_network_kind(folder.resolve())
    if kind:
        what = f"{folder} is on a network ({kind}), where locks are unreliable."
        yield DoctorFinding(DATA_FOLDER_CHECK, "advice", what, move)


def _find_network_kind(folder: Path) -> str | None:
    if sys.platform == "win32":
        import ctypes

        drive = f"{folder.drive}\\"
        is_remote = folder.drive.startswith("\\\\") or (ctypes.windll.kernel32.GetDriveTypeW(drive) == _DRIVE_REMOTE)
        return "another machine's drive" if is_remote else None
    if not _MOUNTS_FILE.exists():
        return None
    kind = find_mount_kind(folder, _MOUNTS_FILE.read_text("utf-8", "replace").splitlines())
    return kind if kind and any(name in kind for name in _NETWORK_FILE_SYSTEMS) else None


def find_mount_kind(folder: Path, mounts: Sequence[str]) -> str | None:
    """Return the file system of a folder, from the lines of `/proc/mounts`."""
    best, kind = -1, None
    for line in mounts:
        fields = line.split()
        if len(fields) > 2:
            point = Path(fields[1].encode().decode("unicode_escape"))
            if folder.is_relative_to(point) and len(point.parts) > best:
                best, kind = len(point.parts), fields[2]
    return kind


def _report_unfinished_restore(restoring: UnfinishedRestore) -> DoctorFinding:
    before = f" The earlier data is in {restoring.safety}." if restoring.safety else ""
    what = f"A restore is running or was interrupted, so some databases are old and some new.{before}"
    return DoctorFinding(DATA_FOLDER_CHECK, "problem", what, restoring.command)


def _check_free_space(folder: Path) -> Iterator[DoctorFinding]:
    free = shutil.disk_usage(folder).free
    if free < LOW_FREE_BYTES:
        severity = "problem" if free < MIN_FREE_BYTES else "advice"
        what = f"Only {free / 1_000_000:,.0f} MB are free on the disk of {folder}."
        yield DoctorFinding(DATA_FOLDER_CHECK, severity, what, FREE_SPACE_ADVICE)


VERSIONS_CHECK, SETTINGS_CHECK, CLIENTS_CHECK, FOLDERS_CHECK = ("versions", "settings", "clients", "data folders")
MIN_PYTHON = (3, 11)


def check_versions(context: CheckContext) -> Iterator[DoctorFinding]:
    python = ".".join(map(str, sys.version_info[:3]))
    wrong = [*_check_packages(), *_check_sqlite()]
    if sys.version_info[:2] < MIN_PYTHON:
        what = f"Python {python} is too old: Everkept needs 3.11."
        wrong.append(DoctorFinding(VERSIONS_CHECK, "problem", what, "install a newer Python"))
    if wrong:
        yield from wrong
    else:
        what = f"Everkept {__version__}, Python {python}, SQLite {_get_sqlite_version()}."
        yield DoctorFinding(VERSIONS_CHECK, "ok", what)


def _get_sqlite_version() -> str:
    import apsw

    return apsw.sqlite_lib_version()


def _check_sqlite() -> Iterator[DoctorFinding]:
    import apsw

    if "ENABLE_FTS5" not in apsw.compile_options:
        what = f"SQLite {_get_sqlite_version()} has no FTS5, which the word index needs."
        yield DoctorFinding(VERSIONS_CHECK, "problem", what, "pip install --force-reinstall apsw")


def _check_packages() -> Iterator[DoctorFinding]:
    try:
        required = metadata.requires("everkept") or []
    except metadata.PackageNotFoundError:
        return  # the program runs from its source
    for name, limits in _list_requirements(required):
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            what = f"The package {name} is missing."
            yield DoctorFinding(VERSIONS_CHECK, "problem", what, "install Everkept again")
            continue
        if not is_within(version, limits):
            what = f"The package {name} is {version}, and Everkept needs {limits}."
            yield DoctorFinding(VERSIONS_CHECK, "problem", what, "install Everkept again")


def _list_requirements(required: Iterable[str]) -> Iterator[tuple[str, SpecifierSet]]:
    """Yield the packages that this installation needs, without those of extras."""
    for each in map(Requirement, required):
        if each.marker is None or each.marker.evaluate({"extra": ""}):
            yield each.name, each.specifier


def is_within(version: str, limits: SpecifierSet) -> bool:
    """Return whether a version is within limits. A candidate counts as its release."""
    return Version(version).base_version in limits


def check_settings(context: CheckContext) -> Iterator[DoctorFinding]:
    if context.fault is not None:
        hint = context.fault.hint or "everkept config"
        yield DoctorFinding(SETTINGS_CHECK, "problem", context.fault.message, hint)
    elif context.settings.config is not None:
        yield DoctorFinding(SETTINGS_CHECK, "ok", f"They are read from {context.settings.config}.")
    else:
        yield DoctorFinding(SETTINGS_CHECK, "ok", "There is no config file. Defaults apply.")
    for sentence in list_warnings(context.settings):
        yield DoctorFinding(SETTINGS_CHECK, "advice", sentence)
    plugin = find_plugin_folder(context.settings)
    if plugin is not None and f"{PLUGIN_IMPORTED}{plugin}" not in list_plugin_notes(context.settings):
        what = f"Memories of the surrealdb-memory plugin in {plugin} are not imported yet."
        command = format_command(["everkept", "import", "surrealdb-memory", str(plugin)], sys.platform)
        yield DoctorFinding(SETTINGS_CHECK, "advice", what, command)


def check_clients(context: CheckContext) -> Iterator[DoctorFinding]:
    found = find_clients(context)
    told = [each for each in found if each.is_set_up]
    wrong = [finding for each in found for finding in _check_client(context, each)]
    for each in told:
        if not any(each.title in finding.what for finding in wrong):
            scope = "" if each.scope == "user" else f" ({each.scope})"
            yield DoctorFinding(CLIENTS_CHECK, "ok", f"{each.title}{scope}: {each.kind} set up.")
    if not told:
        here = ", ".join(sorted({each.title for each in found if each.is_installed}))
        what = "No client is connected to Everkept yet." + (f" Installed: {here}." if here else "")
        yield DoctorFinding(CLIENTS_CHECK, "advice", what, "everkept setup CLIENT")
    yield from wrong


def _check_client(context: CheckContext, each: ClientInstallation) -> Iterator[DoctorFinding]:
    command = f"everkept setup {each.client}"
    if each.problem:
        yield DoctorFinding(CLIENTS_CHECK, "advice", f"{each.title}: {each.problem}", f"fix {each.file}")
        return
    if not each.is_set_up:
        return
    if not each.is_program_available:
        what = f"{each.title} starts {each.program}, which does not exist ({each.file})."
        yield DoctorFinding(CLIENTS_CHECK, "problem", what, command)
    if each.missing_events:
        events = ", ".join(each.missing_events)
        what = f"{each.title} has no hook for {events} ({each.file})."
        yield DoctorFinding(CLIENTS_CHECK, "advice", what, command)
    if each.data_dir is not None and not _is_same_folder(each.data_dir, context.folder):
        what = f"{each.title} keeps its memories in {each.data_dir}; this command looks at {context.folder}."
        yield DoctorFinding(CLIENTS_CHECK, "advice", what, f"everkept doctor --data-dir {each.data_dir}")


def check_folders(context: CheckContext) -> Iterator[DoctorFinding]:
    """Check for data that another way of starting would use."""
    if not context.is_on_disk:
        return
    others = read_settings({"config": "none"}, {})
    usual = others.data_dir
    if not _is_same_folder(str(usual), context.folder) and get_sqlite_care(others).has_data():
        what = f"Data also exists in {usual} too, the default folder."
        command = f"use one folder everywhere: set data_dir in the config file (now {context.folder})"
        yield DoctorFinding(FOLDERS_CHECK, "advice", what, command)


def _is_same_folder(named: str, folder: Path) -> bool:
    return Path(named).expanduser().absolute().resolve() == folder.resolve()


def find_clients(context: CheckContext) -> list[ClientInstallation]:
    """Return at least one installation for each client that Everkept knows, sorted by name."""
    project = (context.settings.path or Path.cwd()).absolute()
    launchers = read_launchers(context.folder) | {context.settings.launcher or ""}
    places = ClientEnvironment(read_client_environment(), Path.home(), sys.platform, project, launchers - {""})
    return survey_clients(places)


GATEWAY_FILE_CHECK = "gateway"
GATEWAY_COMMAND = "everkept gateway check"
OTHERS_READ_MODE = 0o044
EVERYONE_WRITE_MODE = 0o002


def check_gateway(context: CheckContext) -> Iterator[DoctorFinding]:
    """Check the gateway's file. No server is started."""
    path = context.settings.gateway_config
    if path is None:
        return
    from everkept.app.gateway_file import load, read_state

    loaded = None
    try:
        loaded = load(path)
        _refuse_own_names(context, path, loaded)
    except InvalidInput as error:
        yield DoctorFinding(GATEWAY_FILE_CHECK, "problem", error.message, error.hint or GATEWAY_COMMAND)
    else:
        yield _describe_gateway(context, path, loaded)
    # On Windows, a user's file has its own access list.
    if os.name != "nt" and read_state(path) is not None:
        yield from _check_writable_by_others(path)
        yield from _check_readable_by_others(path, loaded)


def _refuse_own_names(context: CheckContext, path: Path, loaded: "LoadedGateway") -> None:
    from everkept.app.gateway_file import list_own_names, refuse_clashes

    refuse_clashes(path, loaded.config, list_own_names(context.settings))


def _describe_gateway(context: CheckContext, path: Path, loaded: "LoadedGateway") -> DoctorFinding:
    config = loaded.config
    what = f"{path}: {format_count(len(config.upstreams), 'server')}, "
    what += f"{format_count(len(config.tools), 'tool')}."
    if GATEWAY not in choose_toolsets(context.settings):
        return DoctorFinding(
            GATEWAY_FILE_CHECK,
            "advice",
            f"{what} They are not offered, because the setting `toolsets` does not include `{GATEWAY}`.",
            f"add {GATEWAY} to toolsets (now {context.settings.toolsets})",
        )
    if loaded.warnings:
        more = len(loaded.warnings) - 1
        rest = f" And {more} more." if more else ""
        return DoctorFinding(GATEWAY_FILE_CHECK, "advice", f"{path}, {loaded.warnings[0]}{rest}", GATEWAY_COMMAND)
    return DoctorFinding(GATEWAY_FILE_CHECK, "ok", what)


def _check_writable_by_others(path: Path) -> Iterator[DoctorFinding]:
    """Find other users who could change the file, and so start programs in the user's name."""
    owner = path.stat().st_uid
    if owner not in (os.geteuid(), 0):
        what = f"{path} belongs to another user (number {owner}), who can change which programs it starts."
        yield DoctorFinding(GATEWAY_FILE_CHECK, "problem", what, f"change its owner: chown {os.geteuid()} {path}")
    if _get_file_mode(path) & OTHERS_WRITE_MODE:
        what = f"Others may change {path}, which decides the programs that start in your name."
        mend = _build_chmod_fix(path, OTHERS_WRITE_MODE)
        yield DoctorFinding(GATEWAY_FILE_CHECK, _get_severity(path), what, FIX_COMMAND, mend)
    folder = path.resolve().parent
    if _get_file_mode(folder) & OTHERS_WRITE_MODE and not _get_file_mode(folder) & stat.S_ISVTX:
        what = f"Other users can replace the file {path}."
        yield DoctorFinding(GATEWAY_FILE_CHECK, _get_severity(folder), what, f"chmod go-w {folder}")


def _check_readable_by_others(path: Path, loaded: "LoadedGateway | None") -> Iterator[DoctorFinding]:
    """Find other users who can read the file. In an unreadable file, any text may be a secret."""
    if loaded is None or not _get_file_mode(path) & OTHERS_READ_MODE:
        return
    from everkept.app.gateway_file import find_plain_secrets

    found = [
        f"{name} of {upstream.name}"
        for upstream in loaded.config.upstreams.values()
        for name in find_plain_secrets(upstream.reach)
    ]
    if found:
        what = f"Others may read {path}, and it contains a possible secret: {', '.join(found)}."
        yield DoctorFinding(GATEWAY_FILE_CHECK, "problem", what, FIX_COMMAND, _build_chmod_fix(path, ALL_OTHERS_MODE))


def _get_severity(path: Path) -> Severity:
    """Return the severity. On many systems, each user is the only member of a group with the same name."""
    return "problem" if _get_file_mode(path) & EVERYONE_WRITE_MODE else "advice"


def _build_chmod_fix(path: Path, rights: int) -> Callable[[], str]:
    def mend() -> str:
        path.chmod(_get_file_mode(path) & ~rights)
        return f"made private: {path}"

    return mend


def _get_file_mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)
