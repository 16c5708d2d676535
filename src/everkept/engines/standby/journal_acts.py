"""Acts that are possible while the database is unreachable, and stay in the journal until it is back."""

import json
from collections.abc import Mapping
from typing import Any, cast

from everkept.core.ports import Token
from everkept.core.projects import Project
from everkept.core.records import Batch, Delete, Insert, Record, RecordLink, Ref, Restore, Step, Update
from everkept.engines.sqlite.connection import Connection
from everkept.values import MISSING, Value, ValueField, list_fields

USER_STORE = "user"
HISTORY_STORE = "history"
_PROJECT_PREFIX = "project:"


class Commit(Value):
    """A batch for one store: USER_STORE, HISTORY_STORE, or a name from `format_store_name`."""

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


class MoveWorkspace(Value):
    path: str
    project_id: str | None  # None removes the link


class SetNote(Value):
    key: str
    value: str | None


class AddToken(Value):
    token: Token
    secret_hash: str


class RemoveToken(Value):
    id: str


class DamagedAct(Value):
    """An act that can no longer be read. It is rejected, so that later acts do not wait for it."""

    reason: str


Act = (
    Commit
    | CreateProject
    | ArchiveProject
    | RestoreProject
    | SwitchProject
    | AssignWorkspace
    | MoveWorkspace
    | SetNote
    | AddToken
    | RemoveToken
    | DamagedAct
)


def format_store_name(project_id: str) -> str:
    """Return the name of a project's store in a Commit."""
    return _PROJECT_PREFIX + project_id


def parse_project_id(store: str) -> str | None:
    """Return the id of the project that owns the store, or None if it belongs to no project."""
    return store.removeprefix(_PROJECT_PREFIX) if store.startswith(_PROJECT_PREFIX) else None


_Thing = Record | RecordLink | Update | Batch | Project | Token | Act

# Acts whose fields are all plain values.
_PLAIN_ACTS: dict[str, type[Any]] = {
    "archive": ArchiveProject,
    "restore": RestoreProject,
    "switch": SwitchProject,
    "workspace": AssignWorkspace,
    "move_workspace": MoveWorkspace,
    "note": SetNote,
    "remove_token": RemoveToken,
}
_ACT_NAMES = {kind: name for name, kind in _PLAIN_ACTS.items()}


def encode_act(act: Act) -> str:
    match act:
        case Commit(store, batch):
            steps = [_encode_step(step) for step in batch.steps]
            body = {"store": store, "batch": {**_collect_values(batch), "steps": steps}}
            name = "commit"
        case CreateProject(project):
            name, body = "create", _collect_values(project)
        case AddToken(token, secret_hash):
            name, body = "add_token", {"token": _collect_values(token), "secret_hash": secret_hash}
        case _:
            name, body = _ACT_NAMES[type(act)], _collect_values(act)
    return json.dumps([name, body], separators=(",", ":"))


def decode_act(text: str) -> Act:
    """Return the act, or a DamagedAct if the text was changed outside of Everkept."""
    try:
        return _decode_act(text)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        return DamagedAct(f"{type(error).__name__}: {error}")


def _decode_act(text: str) -> Act:
    name, body = cast(tuple[str, dict[str, Any]], json.loads(text))
    match name:
        case "commit":
            batch = cast(dict[str, Any], body["batch"])
            steps = tuple(_decode_step(*step) for step in batch["steps"])
            rest = {name: value for name, value in batch.items() if name != "steps"}
            return Commit(body["store"], Batch(steps, **rest))
        case "create":
            return CreateProject(Project(**body))
        case "add_token":
            return AddToken(Token(**body["token"]), body["secret_hash"])
        case _:
            return cast(Act, _PLAIN_ACTS[name](**body))


def _encode_step(step: Step) -> tuple[str, Any]:
    match step:
        case Insert(Record() as record):
            return "insert", _collect_values(record)
        case Insert(RecordLink() as link):
            return "link", _collect_values(link)
        case Update():
            return "update", _collect_values(step)
        case Delete(ref):
            return "delete", (ref.subject, ref.id)
        case Restore(ref):
            return "restore", (ref.subject, ref.id)
        case _:
            raise TypeError(step)


def _decode_step(name: str, body: Any) -> Step:
    match name:
        case "insert":
            return Insert(Record(**_restore_tags(body)))
        case "link":
            return Insert(RecordLink(**body))
        case "update":
            return Update(body["id"], _restore_tags(body["values"]), body["version"], body.get("at"))
        case "delete":
            return Delete(Ref(*body))
        case "restore":
            return Restore(Ref(*body))
        case _:
            raise ValueError(name)


def _restore_tags(values: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the tags to a tuple, because JSON has only lists."""
    return {**values, "tags": tuple(values["tags"])} if "tags" in values else dict(values)


def _collect_values(thing: _Thing) -> dict[str, Any]:
    """Return the values that differ from the defaults."""
    all_values = ((each, getattr(thing, each.name)) for each in list_fields(thing))
    return {each.name: value for each, value in all_values if value != _get_default(each)}


def _get_default(each: ValueField) -> Any:
    return each.default if each.default_factory is MISSING else each.default_factory()


_UNREFERRED = "entry NOT IN (SELECT undoes FROM entries WHERE undoes IS NOT NULL)"


def note_number(db: Connection, store: str, local_seq: int, entry: int) -> None:
    """Note a local number. A log only grows, so equal or later numbers are from before it was replaced."""
    db.execute("UPDATE numbers SET local_seq = NULL WHERE store = ? AND local_seq >= ?", (store, local_seq))
    db.execute("INSERT INTO numbers(entry, store, local_seq) VALUES (?,?,?)", (entry, store, local_seq))


def find_undone_entry(db: Connection, act: Act) -> int | None:
    """Return the entry whose commit the act undoes, or None if the database has the number of that commit."""
    if not isinstance(act, Commit) or act.batch.undoes is None:
        return None
    return db.execute("SELECT entry FROM numbers WHERE store = ? AND local_seq = ?", (act.store, act.batch.undoes)).get


def set_committed_seq(db: Connection, entry: int, committed_as: int | None) -> None:
    db.execute("UPDATE numbers SET seq = ? WHERE entry = ?", (committed_as, entry))


def find_committed_seq(db: Connection, entry: int) -> int | None:
    return db.execute("SELECT seq FROM numbers WHERE entry = ?", (entry,)).get


def renumber(db: Connection, old: int, new: int) -> None:
    db.execute("UPDATE numbers SET entry = ? WHERE entry = ?", (new, old))
    db.execute("UPDATE entries SET undoes = ? WHERE undoes = ?", (new, old))


def forget_numbers(db: Connection, store: str) -> None:
    db.execute("UPDATE numbers SET local_seq = NULL WHERE store = ?", (store,))
    db.execute(
        f"DELETE FROM numbers WHERE store = ? AND {_UNREFERRED} AND entry NOT IN (SELECT seq FROM entries)", (store,)
    )
