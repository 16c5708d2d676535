"""The port of care: what backups, restores and the doctor need of an engine that keeps files."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

from everkept.core.ports import Library
from everkept.core.projects import Status
from everkept.core.times import Clock
from everkept.errors import Conflict, Unavailable
from everkept.values import Value

Progress = Callable[[int, int], None]
Severity = Literal["ok", "advice", "problem"]

DOCTOR_FIX = "everkept doctor --fix"
FREE_SPACE = "free some disk space"


class Finding(Value):
    """One thing that is well, could be better, or is wrong.

    `mend` puts it right and says what it did; `command` is what a person can do.
    """

    check: str
    severity: Severity
    what: str
    command: str | None = None
    mend: Callable[[], str] | None = None


class Owner(NamedTuple):
    """The project that a database belongs to."""

    name: str
    status: Status


class Facts(Value):
    """What a database is and holds."""

    schema_version: int
    newest_change: int
    rows: Mapping[str, int]


class Added(NamedTuple):
    """A project that came back beside the others, under a name that was free."""

    name: str
    is_off: bool


class Waiting(NamedTuple):
    """How many texts of a database wait for their vectors, and how many have another model's."""

    title: str
    texts: int
    others: int


class Prepared(NamedTuple):
    """What a restore will bring: the projects that are off then, and whether what was decided
    since the backup could not be read."""

    off: Sequence[str]
    decisions_lost: bool


class Unfinished(Value):
    """A restore that is under way, or was cut short: some databases are old, some new."""

    folder: Path
    backup: str
    safety: str | None

    @property
    def command(self) -> str:
        """What brings it to its end."""
        return (
            f"everkept restore {_quoted(self.backup)} --replace "
            f"--data-dir {_quoted(str(self.folder))}"
        )

    def refusal(self) -> Unavailable:
        return Unavailable(
            f"{self.folder} is being restored from {self.backup}, or that was cut short.",
            hint=f"Try again soon; if nobody restores it any more, finish it: {self.command}",
            path=str(self.folder),
        )


class Unsettled(Conflict):
    """Something is in the middle of being made or moved: settle it, and try again."""


class Moment(Protocol):
    """Every database as it was at one moment, by its name."""

    @property
    def names(self) -> Sequence[str]: ...

    @property
    def damaged(self) -> Sequence[str]:
        """Those that cannot be read."""
        ...

    @property
    def owners(self) -> Mapping[str, Owner]: ...

    def copy(self, name: str, target: Path, report: Progress) -> None: ...


class Locked(Protocol):
    """A data folder in which nobody else writes."""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing that could be lost."""
        ...

    def prepare(
        self, stage: Path, backup: Path, safety: Path | None, kept_notes: Sequence[str], at: int
    ) -> Prepared:
        """Makes the copies in the stage fit to replace what is there, with what was decided since:
        what is off, tokens, and notes whose keys begin so. From here on it is unfinished."""
        ...

    def put(self, stage: Path, report: Progress) -> list[str]:
        """Gives each database its new content; says which files could not be removed yet."""
        ...


class Care(Protocol):
    """What can be done for the files of one data folder."""

    @property
    def folder(self) -> Path: ...

    @property
    def catalogue(self) -> str:
        """The name of the database that lists the projects."""
        ...

    def is_there(self) -> bool:
        """Whether anything was ever stored."""
        ...

    def is_name(self, name: str) -> bool:
        """Whether a data folder can have a database of this name."""
        ...

    def facts(self, copy: Path, name: str) -> Facts:
        """Of a copy, after a check of all of it. Raises StoreDamaged."""
        ...

    def owners(self, catalogue: Path) -> Mapping[str, Owner]:
        """As a copy of the catalogue has them, by the names of their databases."""
        ...

    def moment(
        self, *, lenient: bool = False, is_locked: bool = False
    ) -> AbstractContextManager[Moment]:
        """A database that cannot be read is an error, unless `lenient`. Raises Unsettled."""
        ...

    def settle(self) -> None:
        """Finishes or takes back moves that a crash interrupted."""
        ...

    def last_backup(self) -> tuple[Path, int] | None:
        """Where and when; None where nobody knows."""
        ...

    def note_backup(self, file: Path, at: str) -> None:
        """Where nothing can be noted, the backup is as good."""
        ...

    def scratch(self, place: Path) -> AbstractContextManager[Path]:
        """A folder for copies there, until the block ends; those of dead processes go too."""
        ...

    def stage(self) -> AbstractContextManager[Path]:
        """A folder for copies; it stays only where a restore was cut short."""
        ...

    def found(self, clock: Clock) -> None:
        """Makes the files that every data folder has, where they are missing."""
        ...

    def locked(self) -> AbstractContextManager[Locked]:
        """Raises StoreBusy."""
        ...

    def add_project(self, copy: Path, name: str, catalogue: Path | None, at: int) -> Added:
        """A project of its own beside the others; the catalogue is that of the backup."""
        ...

    def unfinished(self) -> Unfinished | None: ...

    def check_databases(self, name: str, *, full: bool) -> Iterable[Finding]:
        """Findings of a check of that name: each database, and its indexes."""
        ...

    def check_projects(self, name: str, clock: Clock) -> Iterable[Finding]:
        """The list of projects against their files."""
        ...

    def check_leftovers(self, name: str) -> Iterable[Finding]:
        """What dead processes have left."""
        ...

    def waiting(self, model: str, kinds: Sequence[str]) -> list[Waiting]:
        """Those that can be written, and are of this version."""
        ...

    def library(self) -> Library: ...


def refuse_if_unfinished(care: Care) -> None:
    """Raises Unavailable."""
    found = care.unfinished()
    if found is not None:
        raise found.refusal()


def _quoted(path: str) -> str:
    return f'"{path}"' if " " in path else path
