"""The small things that a library keeps: notes and tokens."""

from collections.abc import Mapping

import psycopg.errors

from everkept.core.copies import PASSING
from everkept.core.ports import Token
from everkept.core.text import digest
from everkept.engines.postgres.catalogue.telling import tell_all
from everkept.engines.postgres.connecting.cursor import Cursor
from everkept.engines.postgres.records.asking import ask, ask_last
from everkept.errors import Conflict


def note(cursor: Cursor, key: str) -> str | None:
    row = ask_last(cursor, "SELECT value FROM notes WHERE digest = %s", digest(key)).fetchone()
    return None if row is None else row[0]


def set_note(cursor: Cursor, key: str, value: str | None) -> None:
    if value is None:
        ask(cursor, "DELETE FROM notes WHERE digest = %s", digest(key))
    else:
        ask(
            cursor,
            "INSERT INTO notes(digest, key, value) VALUES (%s, %s, %s) "
            "ON CONFLICT (digest) DO UPDATE SET value = excluded.value",
            digest(key),
            key,
            value,
        )
    if not key.startswith(PASSING):
        tell_all(cursor)


def notes(cursor: Cursor, prefix: str, *, is_last: bool = False) -> Mapping[str, str]:
    asking = cursor.ask_last if is_last else cursor.ask
    rows = asking(
        'SELECT key, value FROM notes WHERE "left"(key, 200) ^@ "left"(%(prefix)s, 200) '
        "AND key ^@ %(prefix)s",
        {"prefix": prefix},
    )
    return dict(rows.fetchall())


def tokens(cursor: Cursor, *, is_last: bool = False) -> list[tuple[Token, str]]:
    """Each with the hash of its secret."""
    asking = cursor.ask_last if is_last else cursor.ask
    rows = asking("SELECT id, label, created_at, secret_hash FROM tokens ORDER BY created_at, id")
    return [(Token(*row), secret_hash) for *row, secret_hash in rows]


def add_token(cursor: Cursor, token: Token, secret_hash: str) -> None:
    try:
        cursor.execute(
            "INSERT INTO tokens(id, label, secret_hash, created_at) VALUES (%s, %s, %s, %s)",
            (token.id, token.label, secret_hash, token.created_at),
        )
    except psycopg.errors.UniqueViolation as error:
        raise Conflict(f"There is a token {token.id} already.", id=token.id) from error
    tell_all(cursor)


def remove_token(cursor: Cursor, token_id: str) -> bool:
    is_removed = ask(cursor, "DELETE FROM tokens WHERE id = %s", token_id).rowcount > 0
    if is_removed:
        tell_all(cursor)
    return is_removed


def knows_token(cursor: Cursor, secret_hash: str) -> bool:
    found = ask_last(cursor, "SELECT FROM tokens WHERE secret_hash = %s", secret_hash)
    return found.fetchone() is not None
