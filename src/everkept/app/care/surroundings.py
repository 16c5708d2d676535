"""What is around the data: versions, settings, the clients, and data in other folders."""

import sys
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from everkept import __version__
from everkept.app.care.engine import care_of
from everkept.app.care.findings import Finding, Patient
from everkept.clients.launchers import known_launchers
from everkept.clients.places import Places
from everkept.clients.survey import Surveyed, surveyed
from everkept.settings import client_environment, load, warnings_of

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
