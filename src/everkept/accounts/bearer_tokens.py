"""Bearer tokens for HTTP: made once, shown once, kept as a hash."""

import hashlib
import json
import secrets
from collections.abc import Mapping
from typing import Any, Literal, cast

from everkept.core.accounts import NOTES
from everkept.core.ports import Library, Token
from everkept.core.times import Clock
from everkept.errors import InvalidInput, NotFound

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
