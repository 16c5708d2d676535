"""Acts as JSON text, and back exactly.

What is written here is read by other versions of the program: a field more in one of these things
is a new version of the journal's schema.
"""

import json
from collections.abc import Mapping
from typing import Any, cast

from everkept.core.ports import Token
from everkept.core.projects import Project
from everkept.core.records import (
    Batch,
    Delete,
    Insert,
    Link,
    Record,
    Ref,
    Restore,
    Step,
    Update,
)
from everkept.engines.standby.journal.acts import (
    Act,
    AddToken,
    ArchiveProject,
    AssignWorkspace,
    Commit,
    CreateProject,
    RemoveToken,
    RestoreProject,
    SetNote,
    SwitchProject,
)
from everkept.values import MISSING, Field, fields

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
