"""Values of backups, restores and the doctor, for an engine that keeps files."""

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
    """One thing that is well, could be better, or is wrong.

    `mend` puts it right and says what it did; `command` is what a person can do.
    """

    check: str
    severity: Severity
    what: str
    command: str | None = None
    mend: Callable[[], str] | None = None


class OwningProject(NamedTuple):
    """The project that a database belongs to."""

    name: str
    status: Status


class DatabaseFacts(Value):
    """What a database is and holds."""

    schema_version: int
    newest_change: int
    rows: Mapping[str, int]


class RestoredProject(NamedTuple):
    """A project that came back beside the others, under a name that was free."""

    name: str
    is_off: bool


class PendingEmbeddings(NamedTuple):
    """How many texts of a database wait for their vectors, how many have another model's, and how many have theirs."""

    title: str
    texts: int
    others: int
    stored: int


class OmittedAccess(NamedTuple):
    """Tokens and accounts of a backup that a restore does not restore. Grants belong to accounts."""

    tokens: int = 0
    accounts: int = 0


class RestorePreview(NamedTuple):
    """What a restore will bring: the projects that are off then, and whether what was decided
    since the backup could not be read."""

    off: Sequence[str]
    decisions_lost: bool
    omitted: OmittedAccess


class UnfinishedRestore(Value):
    """A restore that is under way, or was cut short: some databases are old, some new."""

    folder: Path
    backup: str
    safety: str | None

    @property
    def command(self) -> str:
        """What brings it to its end."""
        return f"everkept restore {_quote_path(self.backup)} --replace --data-dir {_quote_path(str(self.folder))}"

    def build_error(self) -> Unavailable:
        return Unavailable(
            f"{self.folder} is being restored from {self.backup}, or that was cut short.",
            hint=f"Try again soon; if nobody restores it any more, finish it: {self.command}",
            path=str(self.folder),
        )


class UnfinishedOperation(Conflict):
    """Something is in the middle of being made or moved: settle it, and try again."""


def _quote_path(path: str) -> str:
    return f'"{path}"' if " " in path else path
