"""The tables of a library, version by version, made under a lock that all programs share.

Paths and the keys of notes may be longer than an index takes: their digests are the keys. `store`
is first in every key of the records, which all stores share.
"""

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


CATALOG_STATEMENTS: tuple[str, ...] = (
    """
    CREATE TABLE stores (
        number integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        -- None once its project is deleted, as long as there are rows of it.
        name text COLLATE "C" UNIQUE,
        title text NOT NULL DEFAULT '',
        is_closed boolean NOT NULL DEFAULT false,
        seq bigint NOT NULL DEFAULT 0,
        moves bigint NOT NULL DEFAULT 0,
        ages bigint NOT NULL DEFAULT 0
    )
    """,
    # From the beginning, so that no project can have taken their names.
    "INSERT INTO stores(name, title) VALUES ('user', 'user'), ('history', 'history')",
    """
    CREATE TABLE projects (
        id text COLLATE "C" PRIMARY KEY,
        -- Deferrable, for projects may trade their names in one statement.
        name text COLLATE "C" NOT NULL CONSTRAINT projects_name UNIQUE DEFERRABLE,
        description text NOT NULL,
        status text NOT NULL,
        created_at bigint NOT NULL,
        updated_at bigint NOT NULL,
        off_since bigint,
        store integer NOT NULL UNIQUE REFERENCES stores ON DELETE CASCADE
    )
    """,
    """
    CREATE TABLE workspaces (
        key text COLLATE "C" PRIMARY KEY,
        path text COLLATE "C" NOT NULL,
        project text COLLATE "C" NOT NULL REFERENCES projects ON DELETE CASCADE
    )
    """,
    "CREATE INDEX workspaces_project ON workspaces(project)",
    # Outlasts its project. An end that is NULL has not come yet.
    """
    CREATE TABLE switching (
        project text COLLATE "C" PRIMARY KEY,
        since bigint[] NOT NULL,
        until bigint[] NOT NULL,
        folders text[] NOT NULL,
        deleted_at bigint
    )
    """,
    """
    CREATE TABLE notes (
        digest text COLLATE "C" PRIMARY KEY,
        key text COLLATE "C" NOT NULL,
        value text NOT NULL
    )
    """,
    'CREATE INDEX notes_key ON notes(("left"(key, 200)))',
    """
    CREATE TABLE tokens (
        id text COLLATE "C" PRIMARY KEY,
        label text NOT NULL,
        secret_hash text COLLATE "C" NOT NULL UNIQUE,
        created_at bigint NOT NULL
    )
    """,
    """
    CREATE TABLE searches (
        seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        at bigint NOT NULL,
        tool text NOT NULL,
        query text NOT NULL,
        results bigint NOT NULL,
        milliseconds double precision NOT NULL,
        session text,
        filters text NOT NULL
    )
    """,
    """
    CREATE TABLE usage (
        digest text COLLATE "C" PRIMARY KEY,
        tool text NOT NULL,
        calls bigint NOT NULL,
        errors bigint NOT NULL,
        total_ms double precision NOT NULL,
        longest_ms double precision NOT NULL,
        last_at bigint NOT NULL
    )
    """,
)


# In the order of their making; each has `store`, and loses a store's rows together with it.
TABLES = ("records", "links", "changes", "edits", "accesses")

# How the names begin of the indexes over the vectors of one store; its number is behind that.
VECTOR_INDEXES = "vectors_near_"

PREFIX = 200  # characters of a long value that an index has: PostgreSQL limits its entries

_OF_STORE = "store integer NOT NULL REFERENCES stores(number) ON DELETE CASCADE"

# Texts compare by their bytes, whatever the locale of the database: the order is the same on every
# server, and no index breaks when a system changes its collation.
_TEXT = 'text COLLATE "C"'

# `stands_for` is what only one live record may have (its kind, name_key, variant and parent), and
# `says` likewise of links, as hashes: names may be long. Both are empty where nothing is to be
# unique, as in what is deleted. Whoever has written all of a batch asks whether they hold, so that
# things can trade names in it. `embedded` names the model of a record's vector. What is deleted has
# no `words`.
_RECORDS = f"""
CREATE TABLE records (
    {_OF_STORE},
    id {_TEXT} NOT NULL,
    age bigint NOT NULL,
    kind {_TEXT} NOT NULL,
    type {_TEXT},
    name {_TEXT},
    name_key {_TEXT},
    variant {_TEXT} NOT NULL,
    text {_TEXT} NOT NULL,
    parent {_TEXT},
    scope {_TEXT} NOT NULL,
    session {_TEXT},
    position bigint,
    author {_TEXT},
    importance double precision,
    occurred_at bigint,
    tags text[] COLLATE "C" NOT NULL,
    facets {_TEXT},
    pinned boolean NOT NULL,
    automatic boolean NOT NULL,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    deleted_at bigint,
    version bigint NOT NULL,
    stands_for uuid,
    embedded {_TEXT},
    words tsvector,
    PRIMARY KEY (store, id),
    CONSTRAINT records_stand_for UNIQUE (store, stands_for) DEFERRABLE INITIALLY DEFERRED)
"""
_LINKS = f"""
CREATE TABLE links (
    {_OF_STORE},
    id {_TEXT} NOT NULL,
    age bigint NOT NULL,
    source {_TEXT} NOT NULL,
    verb {_TEXT} NOT NULL,
    target {_TEXT} NOT NULL,
    facets {_TEXT},
    created_at bigint NOT NULL,
    deleted_at bigint,
    says uuid,
    PRIMARY KEY (store, id),
    CONSTRAINT links_say UNIQUE (store, says) DEFERRABLE INITIALLY DEFERRED)
"""
_CHANGES = f"""
CREATE TABLE changes (
    {_OF_STORE},
    seq bigint NOT NULL,
    at bigint NOT NULL,
    tool {_TEXT} NOT NULL,
    client {_TEXT} NOT NULL,
    undoes bigint,
    key {_TEXT},
    PRIMARY KEY (store, seq))
"""
# `before` holds only the old values of what an edit altered.
_EDITS = f"""
CREATE TABLE edits (
    {_OF_STORE},
    seq bigint NOT NULL,
    position integer NOT NULL,
    operation {_TEXT} NOT NULL,
    subject {_TEXT} NOT NULL,
    item {_TEXT},
    before {_TEXT},
    PRIMARY KEY (store, seq, position))
"""
_ACCESSES = f"""
CREATE TABLE accesses (
    {_OF_STORE},
    record {_TEXT} NOT NULL,
    count bigint NOT NULL,
    last_at bigint NOT NULL,
    PRIMARY KEY (store, record))
"""

_INDEXES = (
    "CREATE INDEX records_age ON records (store, age)",
    "CREATE INDEX records_kind ON records (store, kind, age) WHERE deleted_at IS NULL",
    f"CREATE INDEX records_scope ON records (store, kind, left(scope, {PREFIX}), age) "
    "WHERE deleted_at IS NULL",
    "CREATE INDEX records_deleted ON records (store, kind, age) WHERE deleted_at IS NOT NULL",
    f"CREATE INDEX records_name ON records (store, kind, left(name_key, {PREFIX})) "
    "WHERE name_key IS NOT NULL",
    "CREATE INDEX records_parent ON records (store, parent, age) WHERE parent IS NOT NULL",
    f"CREATE INDEX records_place ON records (store, left(session, {PREFIX}), position) "
    "WHERE session IS NOT NULL",
    f"CREATE INDEX records_author ON records (store, left(author, {PREFIX})) "
    "WHERE author IS NOT NULL AND deleted_at IS NULL",
    "CREATE INDEX records_at ON records (store, kind, coalesce(occurred_at, created_at)) "
    "WHERE deleted_at IS NULL",
    "CREATE INDEX records_pinned ON records (store, kind, age) WHERE pinned AND deleted_at IS NULL",
    "CREATE INDEX records_tags ON records USING gin (tags) WHERE deleted_at IS NULL",
    "CREATE INDEX links_out ON links (store, source)",
    "CREATE INDEX links_in ON links (store, target)",
    "CREATE INDEX links_age ON links (store, age)",
    f"CREATE INDEX changes_key ON changes (store, left(key, {PREFIX})) WHERE key IS NOT NULL",
    "CREATE INDEX edits_item ON edits (store, item)",
    "CREATE INDEX accesses_count ON accesses (store, count DESC, last_at DESC)",
)

RECORD_STATEMENTS: tuple[str, ...] = (_RECORDS, _LINKS, _CHANGES, _EDITS, _ACCESSES, *_INDEXES)


# One index for all stores: each record has a lexeme that names its store. What is new stands in
# the index itself, and not in a list that every question would have to read.
_WORDS = "CREATE INDEX records_words ON records USING gin (words) WITH (fastupdate = off)"

# What stands in names alone, and the store: of so many records that fit that not all are ranked,
# those are found by it whose name fits. Questions have to say NAMED for it to be used.
NAMED = "(r.name IS NOT NULL AND ts_filter(r.words, '{a,d}') @@ %s::tsquery)"
_NAMED = (
    "CREATE INDEX records_named ON records USING gin (ts_filter(words, '{a,d}')) "
    "WITH (fastupdate = off) WHERE name IS NOT NULL"
)

# Whose vector is of which model; those without one wait for it, the newest first. Questions have
# to say the same for this index to be used.
EMBEDDABLE = "(r.deleted_at IS NULL AND (r.text <> '' OR r.embedded IS NOT NULL))"
_EMBEDDED = (
    "CREATE INDEX records_embedded ON records (store, kind, embedded, age) "
    f"WHERE {EMBEDDABLE.replace('r.', '')}"
)

# Halves: no cosine changes by more than 0.001, and twice as many fit into memory. A column without
# a length takes the vectors of any model; `dims` says which can be compared. They stand in the rows
# themselves if they fit: who compares many would have to fetch each.
_VECTORS = """
CREATE TABLE vectors (
    store integer NOT NULL REFERENCES stores(number) ON DELETE CASCADE,
    model text COLLATE "C" NOT NULL,
    dims integer NOT NULL,
    record text COLLATE "C" NOT NULL,
    v halfvec NOT NULL,
    PRIMARY KEY (store, model, record))
    WITH (toast_tuple_target = 8160)
"""
_OF_RECORD = "CREATE INDEX vectors_record ON vectors (store, record)"

SEARCH_STATEMENTS: tuple[str, ...] = (_WORDS, _NAMED, _EMBEDDED, _VECTORS, _OF_RECORD)


# A version that was given out stays as it is: what changes is a step behind it.
LAYOUT = Layout(steps=((*CATALOG_STATEMENTS, *RECORD_STATEMENTS, *SEARCH_STATEMENTS),))
VERSION = LAYOUT.version
