"""What can be done while the database is away, and waits in the journal until it is back."""

import json
from collections.abc import Mapping
from typing import Any, cast

from everkept.core.ports import Token
from everkept.core.projects import Project
from everkept.core.records import Batch, Delete, Insert, Link, Record, Ref, Restore, Step, Update
from everkept.engines.sqlite.connection import Connection
from everkept.values import MISSING, Field, Value, fields

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


_Thing = Record | Link | Update | Batch | Project | Token | Act

# Those whose fields are plain values.
_PLAIN: dict[str, type[Any]] = {
    "archive": ArchiveProject,
    "restore": RestoreProject,
    "switch": SwitchProject,
    "workspace": AssignWorkspace,
    "note": SetNote,
    "remove_token": RemoveToken,
}
_NAMES = {kind: name for name, kind in _PLAIN.items()}


def encoded(act: Act) -> str:
    match act:
        case Commit(store, batch):
            steps = [_step(step) for step in batch.steps]
            body = {"store": store, "batch": {**_values(batch), "steps": steps}}
            name = "commit"
        case CreateProject(project):
            name, body = "create", _values(project)
        case AddToken(token, secret_hash):
            name, body = "add_token", {"token": _values(token), "secret_hash": secret_hash}
        case _:
            name, body = _NAMES[type(act)], _values(act)
    return json.dumps([name, body], separators=(",", ":"))


def decoded(text: str) -> Act:
    name, body = cast(tuple[str, dict[str, Any]], json.loads(text))
    match name:
        case "commit":
            batch = cast(dict[str, Any], body["batch"])
            steps = tuple(_step_of(*step) for step in batch["steps"])
            rest = {name: value for name, value in batch.items() if name != "steps"}
            return Commit(body["store"], Batch(steps, **rest))
        case "create":
            return CreateProject(Project(**body))
        case "add_token":
            return AddToken(Token(**body["token"]), body["secret_hash"])
        case _:
            return cast(Act, _PLAIN[name](**body))


def _step(step: Step) -> tuple[str, Any]:
    match step:
        case Insert(Record() as record):
            return "insert", _values(record)
        case Insert(Link() as link):
            return "link", _values(link)
        case Update():
            return "update", _values(step)
        case Delete(ref):
            return "delete", (ref.subject, ref.id)
        case Restore(ref):
            return "restore", (ref.subject, ref.id)
        case _:
            raise TypeError(step)


def _step_of(name: str, body: Any) -> Step:
    match name:
        case "insert":
            return Insert(Record(**_with_tags(body)))
        case "link":
            return Insert(Link(**body))
        case "update":
            values = _with_tags(body["values"])
            return Update(body["id"], values, body["version"], body.get("at"))
        case "delete":
            return Delete(Ref(*body))
        case "restore":
            return Restore(Ref(*body))
        case _:
            raise ValueError(name)


def _with_tags(values: Mapping[str, Any]) -> dict[str, Any]:
    """JSON knows lists alone."""
    tags = {"tags": tuple(values["tags"])} if "tags" in values else {}
    return {**values, **tags}


def _values(thing: _Thing) -> dict[str, Any]:
    """What differs from an empty one of its kind."""
    all_values = ((each, getattr(thing, each.name)) for each in fields(thing))
    return {each.name: value for each, value in all_values if value != _default(each)}


def _default(each: Field) -> Any:
    return each.default if each.default_factory is MISSING else each.default_factory()


_UNREFERRED = "entry NOT IN (SELECT undoes FROM entries WHERE undoes IS NOT NULL)"


def note(db: Connection, store: str, local_seq: int, entry: int) -> None:
    """A log only grows: who has the number or a later one is from before the log was replaced."""
    db.execute(
        "UPDATE numbers SET local_seq = NULL WHERE store = ? AND local_seq >= ?", (store, local_seq)
    )
    db.execute(
        "INSERT INTO numbers(entry, store, local_seq) VALUES (?,?,?)", (entry, store, local_seq)
    )


def undone_entry(db: Connection, act: Act) -> int | None:
    """The entry whose commit the act takes back; None where the database has that one's number."""
    if not isinstance(act, Commit) or act.batch.undoes is None:
        return None
    return db.execute(
        "SELECT entry FROM numbers WHERE store = ? AND local_seq = ?",
        (act.store, act.batch.undoes),
    ).get


def settle(db: Connection, entry: int, committed_as: int | None) -> None:
    db.execute("UPDATE numbers SET seq = ? WHERE entry = ?", (committed_as, entry))


def committed_as(db: Connection, entry: int) -> int | None:
    return db.execute("SELECT seq FROM numbers WHERE entry = ?", (entry,)).get


def renumber(db: Connection, old: int, new: int) -> None:
    db.execute("UPDATE numbers SET entry = ? WHERE entry = ?", (new, old))
    db.execute("UPDATE entries SET undoes = ? WHERE undoes = ?", (new, old))


def forget(db: Connection, store: str) -> None:
    db.execute("UPDATE numbers SET local_seq = NULL WHERE store = ?", (store,))
    db.execute(
        f"DELETE FROM numbers WHERE store = ? AND {_UNREFERRED} "
        "AND entry NOT IN (SELECT seq FROM entries)",
        (store,),
    )
