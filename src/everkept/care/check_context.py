"""Context and findings of the doctor, and their fixes."""

from collections.abc import Callable, Iterable
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from everkept.core.care_results import FIX_COMMAND as FIX_COMMAND
from everkept.core.care_results import FREE_SPACE_ADVICE, DoctorFinding
from everkept.core.times import Clock
from everkept.errors import EverkeptError, Refused, StorageFull
from everkept.settings import Settings
from everkept.values import Value

if TYPE_CHECKING:
    from everkept.engines.sqlite.care import SqliteCare


def get_sqlite_care(settings: Settings) -> "SqliteCare":
    """Return the care for SQLite files. Raise Refused for an engine without files."""
    if settings.deployment_mode == "embedded-memory":
        raise Refused(
            "All data is in memory, so there are no files to copy or restore.",
            hint="Change the setting deployment_mode.",
        )
    if settings.engine == "postgres":
        raise Refused(
            "All data is in PostgreSQL. Use its own programs for backup and restore.",
            hint=f"`{build_dump_command(settings)}` writes it to a file for `pg_restore` "
            "while servers continue to write.",
        )
    if settings.engine != "sqlite":
        raise Refused(
            f"All data is in {settings.engine}, which has its own backups.",
            hint="To write it to files for `everkept import`, run `everkept export`.",
        )
    from everkept.engines.sqlite.care import SqliteCare

    return SqliteCare(settings.data_dir)


def build_dump_command(settings: Settings) -> str:
    """Return the command that copies a schema of PostgreSQL: one moment of it, with all stores."""
    schema = settings.namespace
    is_plain = schema.islower() and schema.isidentifier()
    chosen = [
        f"--schema={schema}" if is_plain else f'--schema="{schema}"',
        "--format=custom",
        f"--file={schema}.dump",
        f"--username={settings.database_user}",
        settings.database_url or "",
    ]
    return " ".join(["pg_dump", *map(quote, chosen)])


class CheckContext(Value):
    """Installation to check. `fault` is why its settings could not be used."""

    settings: Settings
    clock: Clock
    full: bool = False
    fault: EverkeptError | None = None

    @property
    def folder(self) -> Path:
        return self.settings.data_dir

    @property
    def is_on_disk(self) -> bool:
        """Return whether the data is in our files. Other engines check their own."""
        settings = self.settings
        return settings.engine == "sqlite" and settings.deployment_mode != "embedded-memory"

    @property
    def care(self) -> "SqliteCare | None":
        """Return None without files of ours."""
        return get_sqlite_care(self.settings) if self.is_on_disk else None


DoctorCheck = Callable[[CheckContext], Iterable[DoctorFinding]]


class FixResult(Value):
    """Result of a fix. If it failed, `is_done` is False and `did` is the reason."""

    check: str
    what: str
    did: str
    is_done: bool


def run_checks(context: CheckContext, checks: Iterable[tuple[str, DoctorCheck]]) -> list[DoctorFinding]:
    """Run all checks. A check that fails is a finding too, and the others continue."""
    found: list[DoctorFinding] = []
    for name, check in checks:
        try:
            found += check(context)
        except StorageFull as error:
            full = DoctorFinding(name, "problem", error.message, FREE_SPACE_ADVICE)
            if (full.severity, full.command) not in {(f.severity, f.command) for f in found}:
                found.append(full)  # only once, because every check finds it
        except EverkeptError as error:
            found.append(DoctorFinding(name, "problem", error.message, error.hint))
        except Exception as error:  # noqa: BLE001 - a broken installation is what this is for
            reason = f"{type(error).__name__}: {error}"
            found.append(DoctorFinding(name, "problem", f"This check failed ({reason})."))
    return found


def apply_fixes(findings: Iterable[DoctorFinding]) -> list[FixResult]:
    """Apply all fixes one after another. A failed one does not stop the others."""
    done: list[FixResult] = []
    for finding in findings:
        if finding.mend is None:
            continue
        try:
            done.append(FixResult(finding.check, finding.what, finding.mend(), is_done=True))
        except Exception as error:  # noqa: BLE001 - the others are to be mended still
            did = str(error) if isinstance(error, EverkeptError) else f"it failed ({error!r})"
            done.append(FixResult(finding.check, finding.what, did, is_done=False))
    return done
