"""What can be done while the database is away, and waits in the journal until it is back."""

from everkept.core.ports import Token
from everkept.core.projects import Project
from everkept.core.records import Batch
from everkept.values import Value

USER = "user"
HISTORY = "history"
_OF_PROJECT = "project:"


class Commit(Value):
    """A batch for one store: USER, HISTORY, or what `store_of` gives."""

    store: str
    batch: Batch


class CreateProject(Value):
    project: Project


class ArchiveProject(Value):
    project_id: str
    name: str


class RestoreProject(Value):
    project_id: str
    name: str


class SwitchProject(Value):
    project_id: str
    name: str
    off: bool
    at: int


class AssignWorkspace(Value):
    path: str
    project_id: str


class SetNote(Value):
    key: str
    value: str | None


class AddToken(Value):
    token: Token
    secret_hash: str


class RemoveToken(Value):
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
