"""Bearer tokens and grants as notes in the library, and what an account may do by them.

The secret of a token is shown once and kept as a hash.
"""

import hashlib
import json
import secrets
from collections.abc import Iterable, Mapping
from typing import Any, Literal, cast

from everkept.core.ports import Library, Rights, Token
from everkept.core.projects import PROJECT_NAME_LIMIT, Project
from everkept.core.sessions import NOTES, USERS, Account, account_id, acting
from everkept.core.times import Clock
from everkept.errors import InvalidInput, NotFound
from everkept.values import Value

Kind = Literal["owner", "account", "peer"]

# How the secret of each kind begins. Those of accounts once began as the owner's do.
PREFIXES: Mapping[Kind, str] = {"owner": "evk_", "account": "evku_", "peer": "evkp_"}
LABEL_LIMIT = 100  # characters
# How the keys of notes begin that say whose a token is, each with the hash of its secret behind.
WHOSE = NOTES + "token."


def hashed(secret: str) -> str:
    """A token as the library keeps it. Secrets are long and random: a plain hash will do."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()


def kind_of(secret: str) -> Kind:
    """Whose the token is by its form alone; the owner's, where that says nothing."""
    for kind, prefix in PREFIXES.items():
        if secret.startswith(prefix):
            return kind
    return "owner"


def fields_of(note: str | None) -> Mapping[str, Any] | None:
    """None for what is no note of ours."""
    try:
        value = json.loads(note) if note else None
    except ValueError:
        return None
    return cast(Mapping[str, Any], value) if isinstance(value, dict) else None


def made_token(label: str, clock: Clock, kind: Kind = "owner") -> tuple[Token, str, str]:
    """A new token, its secret, and the hash of that; nothing is kept of it yet."""
    if len(label) > LABEL_LIMIT or not label.isprintable():
        raise InvalidInput(
            f"A label has {LABEL_LIMIT} printable characters at most.",
            argument="label",
            value=label[:LABEL_LIMIT],
        )
    secret = PREFIXES[kind] + secrets.token_urlsafe(32)
    return Token(secrets.token_hex(4), label, clock()), secret, hashed(secret)


async def create_token(library: Library, label: str, clock: Clock) -> tuple[Token, str]:
    """A new token of the owner's and its secret, which cannot be had again."""
    token, secret, secret_hash = made_token(label, clock)
    await library.add_token(token, secret_hash)
    return token, secret


async def revoke_token(library: Library, token_id: str) -> None:
    """Takes effect at the next request, in running servers too.

    One that was cut short is finished.
    """
    was_there = await library.remove_token(token_id)
    notes = await library.notes(WHOSE)
    keys = [key for key, note in notes.items() if (fields_of(note) or {}).get("token") == token_id]
    if not was_there and not keys:
        raise NotFound("token", token_id, hint="`everkept token list` shows the ids.")
    # Not before the token itself: an old one without its note would be the owner's.
    for key in keys:
        await library.set_note(key, None)


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
