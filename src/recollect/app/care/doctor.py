"""`recollect doctor`: a look at everything that can be wrong, and mending what can be mended."""

from collections.abc import Iterable
from dataclasses import dataclass

from recollect.app.care.catalogue import CHECK as PROJECTS
from recollect.app.care.catalogue import check_catalogue
from recollect.app.care.databases import CHECK as DATABASES
from recollect.app.care.databases import check_databases
from recollect.app.care.findings import Check, Finding, Mended, Patient, examined, mended
from recollect.app.care.meanings import CHECK as MEANING
from recollect.app.care.meanings import check_meaning
from recollect.app.care.place import CHECK as PLACE
from recollect.app.care.place import check_place
from recollect.app.care.surroundings import (
    CLIENTS,
    FOLDERS,
    SETTINGS,
    VERSIONS,
    check_clients,
    check_folders,
    check_settings,
    check_versions,
)

CHECKS: tuple[tuple[str, Check], ...] = (
    (VERSIONS, check_versions),
    (SETTINGS, check_settings),
    (PLACE, check_place),
    (DATABASES, check_databases),
    (PROJECTS, check_catalogue),
    (MEANING, check_meaning),
    (CLIENTS, check_clients),
    (FOLDERS, check_folders),
)


@dataclass(frozen=True, slots=True)
class Diagnosis:
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
    findings = examined(patient, checks)
    done = mended(findings) if fix else []
    return Diagnosis(examined(patient, checks) if done else findings, done)
