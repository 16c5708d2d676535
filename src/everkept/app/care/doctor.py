"""`everkept doctor`: a look at everything that can be wrong, and mending what can be mended."""

from collections.abc import Iterable

from everkept.app.care.accesses import CHECK as ACCESS
from everkept.app.care.accesses import check_access_log
from everkept.app.care.findings import Check, Finding, Mended, Patient, examined, mended
from everkept.app.care.gateway import CHECK as GATEWAY
from everkept.app.care.gateway import check_gateway
from everkept.app.care.meanings import CHECK as MEANING
from everkept.app.care.meanings import check_meaning
from everkept.app.care.peers import CHECK as PEERS
from everkept.app.care.peers import check_peers
from everkept.app.care.place import CHECK as PLACE
from everkept.app.care.place import check_place
from everkept.app.care.server import CHECK as DATABASE
from everkept.app.care.server import check_database
from everkept.app.care.surroundings import (
    CLIENTS,
    FOLDERS,
    SETTINGS,
    VERSIONS,
    check_clients,
    check_folders,
    check_settings,
    check_versions,
)
from everkept.values import Value, replace

DATABASES, PROJECTS = "databases", "projects"


def check_databases(patient: Patient) -> Iterable[Finding]:
    care = patient.care
    return care.check_databases(DATABASES, full=patient.full) if care else ()


def check_projects(patient: Patient) -> Iterable[Finding]:
    care = patient.care
    return care.check_projects(PROJECTS, patient.clock) if care else ()


CHECKS: tuple[tuple[str, Check], ...] = (
    (VERSIONS, check_versions),
    (SETTINGS, check_settings),
    (PLACE, check_place),
    (DATABASES, check_databases),
    (PROJECTS, check_projects),
    (DATABASE, check_database),
    (MEANING, check_meaning),
    (GATEWAY, check_gateway),
    (ACCESS, check_access_log),
    (PEERS, check_peers),
    (CLIENTS, check_clients),
    (FOLDERS, check_folders),
)
OF_DATABASES = (DATABASES, PROJECTS, MEANING)


class Diagnosis(Value):
    """What is found, after what was mended."""

    findings: list[Finding]
    mended: list[Mended]

    @property
    def is_well(self) -> bool:
        return not any(finding.severity == "problem" for finding in self.findings)


def diagnose(
    patient: Patient, more: Iterable[tuple[str, Check]] = (), *, fix: bool = False
) -> Diagnosis:
    """`more` are checks of what this layer does not know. Nothing is written without `fix`."""
    checks = (*CHECKS, *more)
    findings = _found(patient, checks)
    done = mended(findings) if fix else []
    return Diagnosis(_found(patient, checks) if done else findings, done)


def _found(patient: Patient, checks: Iterable[tuple[str, Check]]) -> list[Finding]:
    """While a restore is not at its end, nothing but that puts the databases right."""
    findings = examined(patient, checks)
    restoring = patient.care.unfinished() if patient.care else None
    if restoring is None:
        return findings
    return [
        replace(finding, mend=None, command=restoring.command)
        if finding.check in OF_DATABASES and (finding.mend or finding.severity != "ok")
        else finding
        for finding in findings
    ]
