"""Bearer tokens and grants as notes in the library, and what an account may do by them.

The secret of a token is shown once and kept as a hash.
"""

import hashlib
import json
import secrets
from collections.abc import Iterable, Mapping
from typing import Any, Literal, cast

from everkept.core.ports import Library, Rights, Token
from everkept.core.projects import MAX_PROJECT_NAME_CHARACTERS, Project
from everkept.core.sessions import NOTE_PREFIX, USER_NOTE_PREFIX, Account, get_acting_account, parse_account_id
from everkept.core.times import Clock
from everkept.errors import InvalidInput, NotFound
from everkept.values import Value

TokenKind = Literal["owner", "account", "peer"]

# How the secret of each kind begins. Those of accounts once began as the owner's do.
SECRET_PREFIXES: Mapping[TokenKind, str] = {"owner": "evk_", "account": "evku_", "peer": "evkp_"}
MAX_LABEL_CHARACTERS = 100
# How the keys of notes begin that say whose a token is, each with the hash of its secret behind.
TOKEN_NOTES = NOTE_PREFIX + "token."


def hash_secret(secret: str) -> str:
    """A token as the library keeps it. Secrets are long and random: a plain hash will do."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()


def get_token_kind(secret: str) -> TokenKind:
    """Whose the token is by its form alone; the owner's, where that says nothing."""
    for kind, prefix in SECRET_PREFIXES.items():
        if secret.startswith(prefix):
            return kind
    return "owner"


def parse_note(note: str | None) -> Mapping[str, Any] | None:
    """None for what is no note of ours."""
    try:
        value = json.loads(note) if note else None
    except ValueError:
        return None
    return cast(Mapping[str, Any], value) if isinstance(value, dict) else None


def build_token(label: str, clock: Clock, kind: TokenKind = "owner") -> tuple[Token, str, str]:
    """A new token, its secret, and the hash of that; nothing is kept of it yet."""
    if len(label) > MAX_LABEL_CHARACTERS or not label.isprintable():
        raise InvalidInput(
            f"A label has {MAX_LABEL_CHARACTERS} printable characters at most.",
            argument="label",
            value=label[:MAX_LABEL_CHARACTERS],
        )
    secret = SECRET_PREFIXES[kind] + secrets.token_urlsafe(32)
    return Token(secrets.token_hex(4), label, clock()), secret, hash_secret(secret)


async def create_token(library: Library, label: str, clock: Clock) -> tuple[Token, str]:
    """A new token of the owner's and its secret, which cannot be had again."""
    token, secret, secret_hash = build_token(label, clock)
    await library.add_token(token, secret_hash)
    return token, secret


async def revoke_token(library: Library, token_id: str) -> None:
    """Takes effect at the next request, in running servers too.

    One that was cut short is finished.
    """
    was_there = await library.remove_token(token_id)
    notes = await library.list_notes(TOKEN_NOTES)
    keys = [key for key, note in notes.items() if (parse_note(note) or {}).get("token") == token_id]
    if not was_there and not keys:
        raise NotFound("token", token_id, hint="`everkept token list` shows the ids.")
    # Not before the token itself: an old one without its note would be the owner's.
    for key in keys:
        await library.set_note(key, None)


AccessLevel = Literal["own", "read", "write"]

# A name of an account holds no "/", so no key of one is the beginning of another's.
GRANT_NOTES = NOTE_PREFIX + "grant."
_MAX_MICROSECONDS = 2**53  # beyond it no moment is one of ours
_ENDED_ACCESS = "none"  # the access of a grant that has ended: its name stays that of its project


class Grant(Value):
    """That an account may see a project, and the name that it knows it by."""

    user: str
    project_id: str
    access: AccessLevel
    name: str
    at: int

    @property
    def can_write(self) -> bool:
        return self.access != "read"


def parse_grants(notes: Mapping[str, str]) -> list[Grant]:
    """The oldest first; what cannot be read grants nothing."""
    found = (_parse_grant(key, value) for key, value in notes.items())
    return sorted((g for g in found if g is not None), key=lambda g: (g.at, g.project_id))


async def read_access_levels(library: Library) -> dict[str, AccessLevel]:
    """What the acting account may do with each of its projects, by their ids; the owner has none,
    who may do everything."""
    account = get_acting_account()
    if account is None:
        return {}
    grants = parse_grants(await library.list_notes(build_grants_prefix(account.name)))
    return {grant.project_id: grant.access for grant in grants}


def build_grants_prefix(user: str) -> str:
    """What the keys of all its grants begin with."""
    return f"{GRANT_NOTES}{user}/"


def build_grant_key(user: str, project_id: str) -> str:
    return build_grants_prefix(user) + project_id


def encode_grant(grant: Grant) -> str:
    return json.dumps({"access": grant.access, "name": grant.name, "at": grant.at})


def encode_ended_grant(grant: Grant) -> str:
    """What stays of a grant: whoever still has its name in mind must not reach another project."""
    return json.dumps({"access": _ENDED_ACCESS, "name": grant.name, "at": grant.at})


def list_ended_keys(notes: Mapping[str, str], name: str) -> list[str]:
    """The keys of grants that had this name and have ended."""
    return [key for key, value in notes.items() if _find_ended_name(value) == name]


def choose_shown_name(wished: str, project_id: str, notes: Mapping[str, str]) -> str:
    """The name that an account knows a project by from now on, by the notes of its grants.

    It had none, or has it again; no other project has it or had it.
    """
    named = {key.rpartition("/")[2]: str(fields.get("name")) for key, fields in _parse_notes(notes)}
    if project_id in named:
        return named[project_id]
    return _find_free_name(wished, dict.fromkeys(named.values()))


def get_moment(fields: Mapping[str, Any], name: str) -> int:
    """A moment, or 0 for what is none."""
    value = fields.get(name)
    return value if isinstance(value, int) and 0 <= value < _MAX_MICROSECONDS else 0


def map_shown_names(grants: Iterable[Grant], projects: Iterable[Project]) -> dict[str, tuple[Grant, Project]]:
    """Projects by the names that an account knows them by.

    Two have the same only where they were granted at the same moment: the later gets a number.
    """
    by_id = {project.id: project for project in projects}
    shown: dict[str, tuple[Grant, Project]] = {}
    for grant in grants:
        if (project := by_id.get(grant.project_id)) is not None:
            shown[_find_free_name(grant.name, shown)] = grant, project
    return shown


def _find_free_name(wished: str, taken: Mapping[str, object]) -> str:
    name, number = wished, 1
    while name in taken:
        number += 1
        suffix = f" ({number})"
        name = wished[: MAX_PROJECT_NAME_CHARACTERS - len(suffix)] + suffix
    return name


def _parse_notes(notes: Mapping[str, str]) -> list[tuple[str, Mapping[str, Any]]]:
    return [(key, fields) for key, value in notes.items() if (fields := parse_note(value))]


def _find_ended_name(value: str) -> str | None:
    fields = parse_note(value) or {}
    return str(fields.get("name")) if fields.get("access") == _ENDED_ACCESS else None


def _parse_grant(key: str, value: str) -> Grant | None:
    user, _, project_id = key.removeprefix(GRANT_NOTES).partition("/")
    fields = parse_note(value)
    if fields is None or fields.get("access") not in ("own", "read", "write"):
        return None
    access = cast(AccessLevel, fields["access"])
    return Grant(user, project_id, access, str(fields.get("name")), get_moment(fields, "at"))


async def read_rights(library: Library, user: str) -> Rights | None:
    """None where there is no such account, it is being removed, or it never writes."""
    note = await library.get_note(USER_NOTE_PREFIX + user)
    known = parse_account_id(note)
    if known is None or (parse_note(note) or {}).get("peer"):
        return None
    grants = parse_grants(await library.list_notes(build_grants_prefix(user)))
    return Rights(
        Account(user, id=known),
        writes=frozenset(grant.project_id for grant in grants if grant.can_write),
        owns=frozenset(grant.project_id for grant in grants if grant.access == "own"),
    )
