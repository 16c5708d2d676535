"""Findings of a look at an installation, and what can be done about them."""

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
    """Raises Refused where the engine keeps no files."""
    if settings.deployment_mode == "embedded-memory":
        raise Refused(
            "Everything is kept in memory here: there is no file to copy or to bring back.",
            hint="The setting deployment_mode says so.",
        )
    if settings.engine == "postgres":
        raise Refused(
            "Everything is kept in PostgreSQL here: its own programs copy it and bring it back.",
            hint=f"`{build_dump_command(settings)}` writes all of it into a file that `pg_restore` "
            "takes, while servers go on writing.",
        )
    if settings.engine != "sqlite":
        raise Refused(
            f"Everything is kept in {settings.engine} here: it has copies of its own.",
            hint="`everkept export` writes all of it into a file that `everkept import` takes.",
        )
    from everkept.engines.sqlite.care import SqliteCare

    return SqliteCare(settings.data_dir)


def build_dump_command(settings: Settings) -> str:
    """What copies a schema of PostgreSQL: one moment of it, with all stores."""
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
    """What is looked at. `fault` says why the settings that were given could not be used."""

    settings: Settings
    clock: Clock
    full: bool = False
    fault: EverkeptError | None = None

    @property
    def folder(self) -> Path:
        return self.settings.data_dir

    @property
    def is_on_disk(self) -> bool:
        """In files of ours; another engine looks after its own."""
        settings = self.settings
        return settings.engine == "sqlite" and settings.deployment_mode != "embedded-memory"

    @property
    def care(self) -> "SqliteCare | None":
        """None where there are no files of ours."""
        return get_sqlite_care(self.settings) if self.is_on_disk else None


DoctorCheck = Callable[[CheckContext], Iterable[DoctorFinding]]


class FixResult(Value):
    """What was done about a finding; not `is_done` where that failed, and `did` says why."""

    check: str
    what: str
    did: str
    is_done: bool


def run_checks(context: CheckContext, checks: Iterable[tuple[str, DoctorCheck]]) -> list[DoctorFinding]:
    """All findings. A check that fails is one itself: the others go on."""
    found: list[DoctorFinding] = []
    for name, check in checks:
        try:
            found += check(context)
        except StorageFull as error:
            full = DoctorFinding(name, "problem", error.message, FREE_SPACE_ADVICE)
            if (full.severity, full.command) not in {(f.severity, f.command) for f in found}:
                found.append(full)  # once: it is the same with whatever is looked at
        except EverkeptError as error:
            found.append(DoctorFinding(name, "problem", error.message, error.hint))
        except Exception as error:  # noqa: BLE001 - a broken installation is what this is for
            reason = f"{type(error).__name__}: {error}"
            found.append(DoctorFinding(name, "problem", f"This could not be looked at ({reason})."))
    return found


def apply_fixes(findings: Iterable[DoctorFinding]) -> list[FixResult]:
    """Mends what can be mended, one after the other; one that fails keeps no other from it."""
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
