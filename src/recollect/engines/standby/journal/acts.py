"""What can be done while the database is away, and waits in the journal until it is back."""

from dataclasses import dataclass

from recollect.core.ports import Token
from recollect.core.projects import Project
from recollect.core.records import Batch

USER = "user"
HISTORY = "history"
_OF_PROJECT = "project:"


@dataclass(frozen=True, slots=True)
class Commit:
    """A batch for one store: USER, HISTORY, or what `store_of` gives."""

    store: str
    batch: Batch


@dataclass(frozen=True, slots=True)
class CreateProject:
    project: Project


@dataclass(frozen=True, slots=True)
class ArchiveProject:
    project_id: str
    name: str


@dataclass(frozen=True, slots=True)
class RestoreProject:
    project_id: str
    name: str


@dataclass(frozen=True, slots=True)
class SwitchProject:
    project_id: str
    name: str
    off: bool
    at: int


@dataclass(frozen=True, slots=True)
class AssignWorkspace:
    path: str
    project_id: str


@dataclass(frozen=True, slots=True)
class SetNote:
    key: str
    value: str | None


@dataclass(frozen=True, slots=True)
class AddToken:
    token: Token
    secret_hash: str


@dataclass(frozen=True, slots=True)
class RemoveToken:
    id: str


Act = (
    Commit
    | CreateProject
    | ArchiveProject
    | RestoreProject
    | SwitchProject
    | AssignWorkspace
    | SetNote
    | AddToken
    | RemoveToken
)


def store_of(project_id: str) -> str:
    """How a Commit names the store of a project."""
    return _OF_PROJECT + project_id


def project_of(store: str) -> str | None:
    """The id of the project whose store it is; None of one that belongs to no project."""
    return store.removeprefix(_OF_PROJECT) if store.startswith(_OF_PROJECT) else None
