"""Notes about grants in the library, and what an account may write by them."""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Literal, cast

from everkept.accounts.bearer_tokens import fields_of
from everkept.core.accounts import NOTES, USERS, Account, account_id, acting
from everkept.core.ports import Library, Rights
from everkept.core.projects import PROJECT_NAME_LIMIT, Project
from everkept.values import Value

Access = Literal["own", "read", "write"]

# A name of an account holds no "/", so no key of one is the beginning of another's.
GRANT = NOTES + "grant."
_LATEST = 2**53  # microseconds: beyond it no moment is one of ours
_ENDED = "none"  # the access of a grant that has ended: its name stays that of its project


class Grant(Value):
    """That an account may see a project, and the name that it knows it by."""

    user: str
    project_id: str
    access: Access
    name: str
    at: int

    @property
    def writes(self) -> bool:
        return self.access != "read"


def grants_in(notes: Mapping[str, str]) -> list[Grant]:
    """The oldest first; what cannot be read grants nothing."""
    found = (_grant(key, value) for key, value in notes.items())
    return sorted((g for g in found if g is not None), key=lambda g: (g.at, g.project_id))


async def accesses(library: Library) -> dict[str, Access]:
    """What the acting account may do with each of its projects, by their ids; the owner has none,
    who may do everything."""
    account = acting()
    if account is None:
        return {}
    grants = grants_in(await library.notes(grants_key(account.name)))
    return {grant.project_id: grant.access for grant in grants}


def grants_key(user: str) -> str:
    """What the keys of all its grants begin with."""
    return f"{GRANT}{user}/"


def grant_key(user: str, project_id: str) -> str:
    return grants_key(user) + project_id


def grant_text(grant: Grant) -> str:
    return json.dumps({"access": grant.access, "name": grant.name, "at": grant.at})


def ended_text(grant: Grant) -> str:
    """What stays of a grant: whoever still has its name in mind must not reach another project."""
    return json.dumps({"access": _ENDED, "name": grant.name, "at": grant.at})


def ended_as(notes: Mapping[str, str], name: str) -> list[str]:
    """The keys of grants that had this name and have ended."""
    return [key for key, value in notes.items() if _ended_name(value) == name]


def settled_name(wished: str, project_id: str, notes: Mapping[str, str]) -> str:
    """The name that an account knows a project by from now on, by the notes of its grants.

    It had none, or has it again; no other project has it or had it.
    """
    named = {key.rpartition("/")[2]: str(fields.get("name")) for key, fields in _read(notes)}
    if project_id in named:
        return named[project_id]
    return _free(wished, dict.fromkeys(named.values()))


def number_in(fields: Mapping[str, Any], name: str) -> int:
    """A moment, or 0 for what is none."""
    value = fields.get(name)
    return value if isinstance(value, int) and 0 <= value < _LATEST else 0


def shown_names(
    grants: Iterable[Grant], projects: Iterable[Project]
) -> dict[str, tuple[Grant, Project]]:
    """Projects by the names that an account knows them by.

    Two have the same only where they were granted at the same moment: the later gets a number.
    """
    by_id = {project.id: project for project in projects}
    shown: dict[str, tuple[Grant, Project]] = {}
    for grant in grants:
        if (project := by_id.get(grant.project_id)) is not None:
            shown[_free(grant.name, shown)] = grant, project
    return shown


def _free(wished: str, taken: Mapping[str, object]) -> str:
    name, number = wished, 1
    while name in taken:
        number += 1
        suffix = f" ({number})"
        name = wished[: PROJECT_NAME_LIMIT - len(suffix)] + suffix
    return name


def _read(notes: Mapping[str, str]) -> list[tuple[str, Mapping[str, Any]]]:
    return [(key, fields) for key, value in notes.items() if (fields := fields_of(value))]


def _ended_name(value: str) -> str | None:
    fields = fields_of(value) or {}
    return str(fields.get("name")) if fields.get("access") == _ENDED else None


def _grant(key: str, value: str) -> Grant | None:
    user, _, project_id = key.removeprefix(GRANT).partition("/")
    fields = fields_of(value)
    if fields is None or fields.get("access") not in ("own", "read", "write"):
        return None
    access = cast(Access, fields["access"])
    return Grant(user, project_id, access, str(fields.get("name")), number_in(fields, "at"))


async def rights_of(library: Library, user: str) -> Rights | None:
    """None where there is no such account, it is being removed, or it never writes."""
    note = await library.note(USERS + user)
    known = account_id(note)
    if known is None or (fields_of(note) or {}).get("peer"):
        return None
    grants = grants_in(await library.notes(grants_key(user)))
    return Rights(
        Account(user, id=known),
        writes=frozenset(grant.project_id for grant in grants if grant.writes),
        owns=frozenset(grant.project_id for grant in grants if grant.access == "own"),
    )
