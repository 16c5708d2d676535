"""Results of backup, restore and doctor, for an engine that keeps files."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from everkept.core.projects import Status
from everkept.errors import Conflict, Unavailable
from everkept.values import Value

Progress = Callable[[int, int], None]
Severity = Literal["ok", "advice", "problem"]

FIX_COMMAND = "everkept doctor --fix"
FREE_SPACE_ADVICE = "free some disk space"


class DoctorFinding(Value):
    """Fact, hint or problem that the doctor found.

    `mend` fixes it and returns what it did; `command` is what a person can run.
    """

    check: str
    severity: Severity
    what: str
    command: str | None = None
    mend: Callable[[], str] | None = None


class OwningProject(NamedTuple):
    """Project that a database belongs to."""

    name: str
    status: Status


class DatabaseFacts(Value):
    """Description of a database and its content."""

    schema_version: int
    newest_change: int
    rows: Mapping[str, int]


class RestoredProject(NamedTuple):
    """Project restored next to the others, under a free name."""

    name: str
    is_off: bool


class PendingEmbeddings(NamedTuple):
    """Counts of a database's texts: without an embedding, with one of another model, and with a current one."""

    title: str
    texts: int
    others: int
    stored: int


class OmittedAccess(NamedTuple):
    """Tokens, accounts and grants of a backup that a restore does not restore."""

    tokens: int = 0
    accounts: int = 0
    grants: int = 0


class RestorePreview(NamedTuple):
    """Plan of a restore: the projects that are off afterwards, and whether later decisions could not be read."""

    off: Sequence[str]
    decisions_lost: bool
    omitted: OmittedAccess


class UnfinishedRestore(Value):
    """Restore that is running or was interrupted: some databases are old, some new."""

    folder: Path
    backup: str
    safety: str | None

    @property
    def command(self) -> str:
        """Return the command that finishes it."""
        return f"everkept restore {_quote_path(self.backup)} --replace --data-dir {_quote_path(str(self.folder))}"

    def build_error(self) -> Unavailable:
        return Unavailable(
            f"{self.folder} is being restored from {self.backup}, or the restore was interrupted.",
            hint=f"Try again soon. If the restore was interrupted, finish it: {self.command}",
            path=str(self.folder),
        )


class UnfinishedOperation(Conflict):
    """Something is being created or moved. Finish it, and try again."""


def _quote_path(path: str) -> str:
    return f'"{path}"' if " " in path else path
