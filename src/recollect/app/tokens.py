"""Bearer tokens for HTTP: made once, shown once, kept as a hash."""

import hashlib
import secrets

from recollect.core.ports import Library, Token
from recollect.core.times import Clock
from recollect.errors import InvalidInput, NotFound

PREFIX = "rcl_"
LABEL_LIMIT = 100  # characters


def hashed(secret: str) -> str:
    """A token as the library keeps it. Secrets are long and random: a plain hash will do."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()


async def create_token(library: Library, label: str, clock: Clock) -> tuple[Token, str]:
    """A new token and its secret, which cannot be had again."""
    if len(label) > LABEL_LIMIT or not label.isprintable():
        raise InvalidInput(
            f"A label has {LABEL_LIMIT} printable characters at most.",
            argument="label",
            value=label[:LABEL_LIMIT],
        )
    secret = PREFIX + secrets.token_urlsafe(32)
    token = Token(secrets.token_hex(4), label, clock())
    await library.add_token(token, hashed(secret))
    return token, secret


async def revoke_token(library: Library, token_id: str) -> None:
    """Takes effect at the next request, in running servers too."""
    if not await library.remove_token(token_id):
        raise NotFound("token", token_id, hint="`recollect token list` shows the ids.")
