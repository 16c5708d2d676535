"""Tokens and grants, stored as notes of the library. A token's secret is shown once and stored as a hash."""

import hashlib
import json
import secrets
from collections.abc import Iterable, Iterator, Mapping
from itertools import count
from typing import Any, Literal, cast

from everkept.core.ports import Library, Rights, Token
from everkept.core.projects import MAX_PROJECT_NAME_CHARACTERS, Project, is_trash_name
from everkept.core.sessions import (
    ENDED_ACCESS,
    GRANT_NOTE_PREFIX,
    NOTE_PREFIX,
    USER_NOTE_PREFIX,
    Account,
    get_acting_account,
    parse_account_id,
)
from everkept.core.text import parse_json_object
from everkept.core.times import Clock
from everkept.errors import InvalidInput, NotFound
from everkept.values import Value

TokenKind = Literal["owner", "account", "peer"]

# Account tokens from early versions begin with the owner's prefix.
SECRET_PREFIXES: Mapping[TokenKind, str] = {"owner": "evk_", "account": "evku_", "peer": "evkp_"}
MAX_LABEL_CHARACTERS = 100
# Key prefix of the notes that name a token's account. The hash of the secret follows.
TOKEN_NOTES = NOTE_PREFIX + "token."
# Key prefix of the notes that name the account of a person at an OpenID provider. A hash of both follows.
SUBJECT_NOTES = NOTE_PREFIX + "subject."


def hash_secret(secret: str) -> str:
    """Return the stored form of a secret. Secrets are long and random, so a plain hash is enough."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()


def get_token_kind(secret: str) -> TokenKind:
    """Return the kind of a token by its prefix, "owner" for an unknown prefix."""
    for kind, prefix in SECRET_PREFIXES.items():
        if secret.startswith(prefix):
            return kind
    return "owner"


def build_token(label: str, clock: Clock, kind: TokenKind = "owner") -> tuple[Token, str, str]:
    """Return a new token, its secret and the hash of the secret. Nothing is stored."""
    if len(label) > MAX_LABEL_CHARACTERS or not label.isprintable():
        raise InvalidInput(
            f"`label` must have at most {MAX_LABEL_CHARACTERS} characters, all printable.",
            argument="label",
            value=label[:MAX_LABEL_CHARACTERS],
        )
    secret = SECRET_PREFIXES[kind] + secrets.token_urlsafe(32)
    return Token(secrets.token_hex(4), label, clock()), secret, hash_secret(secret)


async def create_token(library: Library, label: str, clock: Clock) -> tuple[Token, str]:
    """Create a token of the owner. Return it with its secret, which is not stored."""
    token, secret, secret_hash = build_token(label, clock)
    await library.add_token(token, secret_hash)
    return token, secret


async def revoke_token(library: Library, token_id: str) -> None:
    """Revoke a token from the next request on, also in running servers. Finish an interrupted revocation."""
    was_there = await library.remove_token(token_id)
    notes = await library.list_notes(TOKEN_NOTES)
    keys = [key for key, note in notes.items() if (parse_json_object(note) or {}).get("token") == token_id]
    if not was_there and not keys:
        raise NotFound("token", token_id, hint="List token ids with `everkept token list`.")
    # After the token itself: an old account token without its note would count as the owner's.
    for key in keys:
        await library.set_note(key, None)


AccessLevel = Literal["own", "read", "write"]

_MAX_MICROSECONDS = 2**53  # larger values are not valid times


class Grant(Value):
    """An account's access to a project, and the name that the account sees."""

    user: str
    project_id: str
    access: AccessLevel
    name: str
    at: int

    @property
    def can_write(self) -> bool:
        return self.access != "read"


def parse_grants(notes: Mapping[str, str]) -> list[Grant]:
    """Return the grants, oldest first. Unreadable notes grant nothing."""
    found = (_parse_grant(key, value) for key, value in notes.items())
    return sorted((g for g in found if g is not None), key=lambda g: (g.at, g.project_id))


async def read_access_levels(library: Library) -> dict[str, AccessLevel]:
    """Map project ids to the acting account's access. The map is empty for the owner, who may do everything."""
    account = get_acting_account()
    if account is None:
        return {}
    grants = parse_grants(await library.list_notes(build_grants_prefix(account.name)))
    return {grant.project_id: grant.access for grant in grants}


def build_grants_prefix(user: str) -> str:
    """Return the key prefix of all grants of a user."""
    return f"{GRANT_NOTE_PREFIX}{user}/"


def build_grant_key(user: str, project_id: str) -> str:
    return build_grants_prefix(user) + project_id


def encode_grant(grant: Grant) -> str:
    return json.dumps({"access": grant.access, "name": grant.name, "at": grant.at})


def encode_ended_grant(grant: Grant) -> str:
    """Encode a revoked grant. Its name stays reserved, so that an old name never reaches another project."""
    return json.dumps({"access": ENDED_ACCESS, "name": grant.name, "at": grant.at})


def iterate_stored_names(name: str, user: str) -> Iterator[str]:
    """Yield stored names of an account's project. They include the account, so other projects' names do not matter."""
    for number in count(1):
        suffix = f" ({user})" if number == 1 else f" ({user} {number})"
        yield name[: MAX_PROJECT_NAME_CHARACTERS - len(suffix)] + suffix


def list_ended_keys(notes: Mapping[str, str], name: str) -> list[str]:
    parsed = {key: parse_json_object(value) or {} for key, value in notes.items()}
    return [key for key, of in parsed.items() if (of.get("access"), of.get("name")) == (ENDED_ACCESS, name)]


def choose_shown_name(wished: str, project_id: str, notes: Mapping[str, str]) -> str:
    """Return the name that an account sees for a project: its earlier name, otherwise one that no other project had."""
    parsed = {key: parse_json_object(value) for key, value in notes.items()}
    named = {key.rpartition("/")[2]: str(fields.get("name")) for key, fields in parsed.items() if fields}
    if project_id in named:
        return named[project_id]
    return _find_free_name(wished, dict.fromkeys(named.values()))


def get_moment(fields: Mapping[str, Any], name: str) -> int:
    """Return a time in microseconds, or 0 if the field is not a valid time."""
    value = fields.get(name)
    return value if isinstance(value, int) and 0 <= value < _MAX_MICROSECONDS else 0


def map_shown_names(grants: Iterable[Grant], projects: Iterable[Project]) -> dict[str, tuple[Grant, Project]]:
    """Map shown names to projects. Equal names, which only grants of the same moment have, get a number."""
    by_id = {project.id: project for project in projects}
    shown: dict[str, tuple[Grant, Project]] = {}
    for grant in grants:
        if (project := by_id.get(grant.project_id)) is not None and not is_trash_name(project.name):
            shown[_find_free_name(grant.name, shown)] = grant, project
    return shown


def _find_free_name(wished: str, taken: Mapping[str, object]) -> str:
    name, number = wished, 1
    while name in taken:
        number += 1
        suffix = f" ({number})"
        name = wished[: MAX_PROJECT_NAME_CHARACTERS - len(suffix)] + suffix
    return name


def _parse_grant(key: str, value: str) -> Grant | None:
    user, _, project_id = key.removeprefix(GRANT_NOTE_PREFIX).partition("/")
    fields = parse_json_object(value)
    if fields is None or fields.get("access") not in ("own", "read", "write"):
        return None
    access = cast(AccessLevel, fields["access"])
    return Grant(user, project_id, access, str(fields.get("name")), get_moment(fields, "at"))


async def read_rights(library: Library, user: str) -> Rights | None:
    """Return the rights of an account, or None if it does not exist, is being removed, or is a peer."""
    note = await library.get_note(USER_NOTE_PREFIX + user)
    known = parse_account_id(note)
    if known is None or (parse_json_object(note) or {}).get("peer"):
        return None
    grants = parse_grants(await library.list_notes(build_grants_prefix(user)))
    return Rights(
        Account(user, id=known),
        writes=frozenset(grant.project_id for grant in grants if grant.can_write),
        owns=frozenset(grant.project_id for grant in grants if grant.access == "own"),
    )
