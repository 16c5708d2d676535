"""Tables as they change over time, made under a lock that all programs share."""

from hashlib import sha256
from typing import Any

import psycopg

from everkept.engines.postgres.connection import Connection
from everkept.errors import InvalidInput, Refused, StoreDamaged, StoreTooNew, Unavailable
from everkept.values import Value

OLDEST_SERVER = 14
OLDEST_VECTOR = (0, 8)  # the first that goes on looking where a filter left too little
LONGEST_NAME = 63  # bytes; PostgreSQL cuts off what is beyond
VERSION_KEY = "schema"

_NOT_AVAILABLE = ("0A000", "3F000", "42501", "58P01")  # or not for this user

_LOOK = """
    SELECT current_setting('server_version_num')::integer / 10000,
           current_setting('server_encoding'),
           pg_backend_pid(),
           (SELECT nspname FROM pg_extension, pg_namespace n
            WHERE extname = 'vector' AND n.oid = extnamespace),
           (SELECT extversion FROM pg_extension WHERE extname = 'vector'),
           EXISTS (SELECT FROM pg_namespace WHERE nspname = %(schema)s),
           EXISTS (SELECT FROM pg_class c, pg_namespace n
                   WHERE relname = 'meta' AND n.oid = relnamespace AND nspname = %(schema)s)
"""

# Those that can be one of ours, by the tables that each of them has.
_OTHERS = """
    SELECT nspname FROM pg_namespace n
    WHERE EXISTS (SELECT FROM pg_class WHERE relnamespace = n.oid AND relname = 'meta')
      AND EXISTS (SELECT FROM pg_class WHERE relnamespace = n.oid AND relname = 'stores')
    ORDER BY nspname LIMIT 10
"""


class Layout(Value):
    """The statements that make each version of the tables out of the one before."""

    steps: tuple[tuple[str, ...], ...] = ()
    founds: bool = True  # False: a schema without them is somebody's mistake, and stays as it is

    @property
    def version(self) -> int:
        return len(self.steps)


EMPTY = Layout()


class Surroundings(Value):
    """What a connection finds, once the tables are as they should be."""

    search_path: str
    is_pooled: bool  # somebody stands between: what is set for a session may reach another


class _Found(Value):
    server: int
    encoding: str
    process: int
    vector_schema: str | None
    vector_version: str | None
    has_schema: bool
    has_meta: bool


def quoted(name: str) -> str:
    """A schema, as statements write it. Raises InvalidInput for what cannot be one of ours."""
    is_possible = name and name.isprintable() and len(name.encode()) <= LONGEST_NAME
    if not is_possible or name.lower().startswith("pg_") or name == "information_schema":
        raise InvalidInput(
            f"{name!r} cannot be the name of a schema of PostgreSQL.",
            hint=f"Use letters, digits, - and _, at most {LONGEST_NAME}, and not pg_ before them.",
        )
    return '"' + name.replace('"', '""') + '"'


def lock_number(schema: str) -> int:
    """Of the lock that whoever writes shares, and whoever changes the tables has alone."""
    return int.from_bytes(sha256(f"everkept {schema}".encode()).digest()[:8], signed=True)


def prepare(connection: Connection, schema: str, layout: Layout, place: str) -> Surroundings:
    """Makes what is missing, and brings older tables up to date, one version after the other.

    Raises StoreTooNew where they are newer than this program.
    """
    found = _look(connection, schema)
    _check_server(found, place)
    if not found.has_meta and not layout.founds:
        raise _no_tables(connection, schema, place)
    if found.vector_schema is None:
        _extend(connection, place)
        found = _look(connection, schema)
    _check_vector(found, place)
    if not found.has_meta:
        _found_schema(connection, schema)
    while (version := _version(connection, schema, place)) < layout.version:
        _step(connection, schema, layout, version, place, found)
    check_version(version, layout, place)
    return Surroundings(_path(schema, found), found.process != connection.info.backend_pid)


def check_version(version: int, layout: Layout, place: str) -> None:
    if version > layout.version:
        raise StoreTooNew(
            f"The tables in PostgreSQL at {place} have version {version}; this program knows "
            f"{layout.version}. Nothing of this call was stored.",
            hint="A newer Everkept has brought them up to date: install that here too.",
            version=version,
        )


def version_query(schema: str) -> str:
    return f"SELECT value FROM {quoted(schema)}.meta WHERE key = '{VERSION_KEY}'"


def placed_version_query(schema: str) -> str:
    """The version, and whether names without a schema mean this one."""
    literal = "'" + schema.replace("'", "''") + "'"
    return (
        f"SELECT value, current_schema() = {literal} FROM {quoted(schema)}.meta "
        f"WHERE key = '{VERSION_KEY}'"
    )


def _look(connection: Connection, schema: str) -> _Found:
    row = connection.execute(_LOOK, {"schema": schema}, prepare=False).fetchone()
    assert row is not None
    return _Found(*row)


def _no_tables(connection: Connection, schema: str, place: str) -> InvalidInput:
    rows = connection.execute(_OTHERS.encode(), prepare=False).fetchall()
    others = ", ".join(f'"{name}"' for (name,) in rows)
    return InvalidInput(
        f'There is no schema "{schema}" with memories in PostgreSQL at {place}.',
        hint=f"There are: {others}. The setting namespace names the one to use."
        if others
        else "`everkept serve`, or the first command that stores something, makes it.",
        argument="namespace",
        value=schema,
        others=[name for (name,) in rows],
    )


def _check_server(found: _Found, place: str) -> None:
    if found.server < OLDEST_SERVER:
        raise Unavailable(
            f"PostgreSQL at {place} has version {found.server}.",
            hint=f"Everkept needs {OLDEST_SERVER} or newer.",
        )
    if found.encoding != "UTF8":
        raise Refused(
            f"The database at {place} keeps texts as {found.encoding}, which cannot hold all of "
            "them.",
            hint="Make another one: CREATE DATABASE ... ENCODING 'UTF8' TEMPLATE template0.",
        )


def _check_vector(found: _Found, place: str) -> None:
    parts = (found.vector_version or "0").split(".")[:2]
    if tuple(int(part) for part in parts if part.isdigit()) < OLDEST_VECTOR:
        raise Unavailable(
            f"The extension vector in the database at {place} has version {found.vector_version}.",
            hint="Everkept needs 0.8 or newer: install that on the server, and run ALTER "
            "EXTENSION vector UPDATE as a superuser.",
        )


def _extend(connection: Connection, place: str) -> None:
    """For all schemas of the database, whoever of them is first."""
    try:
        with connection.transaction():
            _lock(connection, lock_number(""))
            connection.execute("CREATE EXTENSION IF NOT EXISTS vector SCHEMA public")
    except psycopg.Error as error:
        if error.sqlstate not in _NOT_AVAILABLE:
            raise
        raise Unavailable(
            f"The database at {place} has not the extension vector, and this user cannot add it.",
            hint="Install pgvector 0.8 or newer on the server, and run CREATE EXTENSION vector in "
            "the database as a superuser.",
        ) from None


def _found_schema(connection: Connection, schema: str) -> None:
    name = quoted(schema)
    with connection.transaction():
        _lock(connection, lock_number(schema))
        # Even where it is there already, making it needs a right that a user may not have.
        if not _look(connection, schema).has_schema:
            _execute(connection, f"CREATE SCHEMA {name}")
        _execute(
            connection,
            f"CREATE TABLE IF NOT EXISTS {name}.meta (key text PRIMARY KEY, value text NOT NULL); "
            f"INSERT INTO {name}.meta VALUES ('{VERSION_KEY}', '0') ON CONFLICT DO NOTHING",
        )


def _step(
    connection: Connection,
    schema: str,
    layout: Layout,
    version: int,
    place: str,
    found: _Found,
) -> None:
    with connection.transaction():
        _lock(connection, lock_number(schema))
        if _version(connection, schema, place) != version:
            return  # another program was faster
        _execute(connection, f"SET LOCAL search_path = {_path(schema, found)}")
        for statement in layout.steps[version]:
            _execute(connection, statement)
        _execute(
            connection,
            f"UPDATE {quoted(schema)}.meta SET value = '{version + 1}' WHERE key = '{VERSION_KEY}'",
        )


def _lock(connection: Connection, number: int) -> None:
    _execute(connection, f"SET LOCAL statement_timeout = 0; SELECT pg_advisory_xact_lock({number})")


def _version(connection: Connection, schema: str, place: str) -> int:
    row = _execute(connection, version_query(schema)).fetchone()
    if row is None or not row[0].isdigit():
        raise StoreDamaged(
            f'The schema "{schema}" of PostgreSQL at {place} does not say which version its tables '
            "have.",
            hint="Restore a backup, or choose another namespace.",
        )
    return int(row[0])


def _path(schema: str, found: _Found) -> str:
    assert found.vector_schema is not None
    return ", ".join((quoted(schema), '"' + found.vector_schema.replace('"', '""') + '"'))


def _execute(connection: Connection, text: str) -> "psycopg.Cursor[tuple[Any, ...]]":
    """A text of ours, in which nothing stands that a user said."""
    return connection.execute(text.encode(), prepare=False)
