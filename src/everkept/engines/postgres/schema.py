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

MIN_SERVER_VERSION = 14
MIN_VECTOR_VERSION = (0, 8)  # the first that goes on looking where a filter left too little
MAX_NAME_BYTES = 63  # PostgreSQL cuts off what is beyond
VERSION_KEY = "schema"

_UNAVAILABLE_CODES = ("0A000", "3F000", "42501", "58P01")  # or not for this user

_SERVER_QUERY = """
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
_OTHER_SCHEMAS_QUERY = """
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


EMPTY_LAYOUT = Layout()


class PreparedSchema(Value):
    """What a connection finds, once the tables are as they should be."""

    search_path: str
    is_pooled: bool  # somebody stands between: what is set for a session may reach another


class _ServerFacts(Value):
    server: int
    encoding: str
    process: int
    vector_schema: str | None
    vector_version: str | None
    has_schema: bool
    has_meta: bool


def quote_name(name: str) -> str:
    """A schema, as statements write it. Raises InvalidInput for what cannot be one of ours."""
    is_possible = name and name.isprintable() and len(name.encode()) <= MAX_NAME_BYTES
    if not is_possible or name.lower().startswith("pg_") or name == "information_schema":
        raise InvalidInput(
            f"{name!r} cannot be the name of a schema of PostgreSQL.",
            hint=(f"Use letters, digits, - and _, at most {MAX_NAME_BYTES}, and not pg_ before them."),
        )
    return '"' + name.replace('"', '""') + '"'


def compute_lock_number(schema: str) -> int:
    """Of the lock that whoever writes shares, and whoever changes the tables has alone."""
    return int.from_bytes(sha256(f"everkept {schema}".encode()).digest()[:8], signed=True)


def prepare(connection: Connection, schema: str, layout: Layout, place: str) -> PreparedSchema:
    """Makes what is missing, and brings older tables up to date, one version after the other.

    Raises StoreTooNew where they are newer than this program.
    """
    found = _read_server_facts(connection, schema)
    _check_server(found, place)
    if not found.has_meta and not layout.founds:
        raise _build_missing_error(connection, schema, place)
    if found.vector_schema is None:
        _add_extension(connection, place)
        found = _read_server_facts(connection, schema)
    _check_vector(found, place)
    if not found.has_meta:
        _create_schema(connection, schema)
    while (version := _read_version(connection, schema, place)) < layout.version:
        _apply_step(connection, schema, layout, version, place, found)
    check_version(version, layout, place)
    return PreparedSchema(_format_search_path(schema, found), found.process != connection.info.backend_pid)


def check_version(version: int, layout: Layout, place: str) -> None:
    if version > layout.version:
        raise StoreTooNew(
            f"The tables in PostgreSQL at {place} have version {version}; this program knows "
            f"{layout.version}. Nothing of this call was stored.",
            hint="A newer Everkept has brought them up to date: install that here too.",
            version=version,
        )


def build_version_query(schema: str) -> str:
    return f"SELECT value FROM {quote_name(schema)}.meta WHERE key = '{VERSION_KEY}'"


def build_path_version_query(schema: str) -> str:
    """The version, and whether names without a schema mean this one."""
    literal = "'" + schema.replace("'", "''") + "'"
    return f"SELECT value, current_schema() = {literal} FROM {quote_name(schema)}.meta WHERE key = '{VERSION_KEY}'"


def _read_server_facts(connection: Connection, schema: str) -> _ServerFacts:
    row = connection.execute(_SERVER_QUERY, {"schema": schema}, prepare=False).fetchone()
    assert row is not None
    return _ServerFacts(*row)


def _build_missing_error(connection: Connection, schema: str, place: str) -> InvalidInput:
    rows = connection.execute(_OTHER_SCHEMAS_QUERY.encode(), prepare=False).fetchall()
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


def _check_server(found: _ServerFacts, place: str) -> None:
    if found.server < MIN_SERVER_VERSION:
        raise Unavailable(
            f"PostgreSQL at {place} has version {found.server}.", hint=f"Everkept needs {MIN_SERVER_VERSION} or newer."
        )
    if found.encoding != "UTF8":
        raise Refused(
            f"The database at {place} keeps texts as {found.encoding}, which cannot hold all of them.",
            hint="Make another one: CREATE DATABASE ... ENCODING 'UTF8' TEMPLATE template0.",
        )


def _check_vector(found: _ServerFacts, place: str) -> None:
    parts = (found.vector_version or "0").split(".")[:2]
    if tuple(int(part) for part in parts if part.isdigit()) < MIN_VECTOR_VERSION:
        raise Unavailable(
            f"The extension vector in the database at {place} has version {found.vector_version}.",
            hint="Everkept needs 0.8 or newer: install that on the server, and run ALTER "
            "EXTENSION vector UPDATE as a superuser.",
        )


def _add_extension(connection: Connection, place: str) -> None:
    """For all schemas of the database, whoever of them is first."""
    try:
        with connection.transaction():
            _lock(connection, compute_lock_number(""))
            connection.execute("CREATE EXTENSION IF NOT EXISTS vector SCHEMA public")
    except psycopg.Error as error:
        if error.sqlstate not in _UNAVAILABLE_CODES:
            raise
        raise Unavailable(
            f"The database at {place} has not the extension vector, and this user cannot add it.",
            hint="Install pgvector 0.8 or newer on the server, and run CREATE EXTENSION vector in "
            "the database as a superuser.",
        ) from None


def _create_schema(connection: Connection, schema: str) -> None:
    name = quote_name(schema)
    with connection.transaction():
        _lock(connection, compute_lock_number(schema))
        # Even where it is there already, making it needs a right that a user may not have.
        if not _read_server_facts(connection, schema).has_schema:
            _execute(connection, f"CREATE SCHEMA {name}")
        _execute(
            connection,
            f"CREATE TABLE IF NOT EXISTS {name}.meta (key text PRIMARY KEY, value text NOT NULL); "
            f"INSERT INTO {name}.meta VALUES ('{VERSION_KEY}', '0') ON CONFLICT DO NOTHING",
        )


def _apply_step(
    connection: Connection, schema: str, layout: Layout, version: int, place: str, found: _ServerFacts
) -> None:
    with connection.transaction():
        _lock(connection, compute_lock_number(schema))
        if _read_version(connection, schema, place) != version:
            return  # another program was faster
        _execute(connection, f"SET LOCAL search_path = {_format_search_path(schema, found)}")
        for statement in layout.steps[version]:
            _execute(connection, statement)
        _execute(
            connection, f"UPDATE {quote_name(schema)}.meta SET value = '{version + 1}' WHERE key = '{VERSION_KEY}'"
        )


def _lock(connection: Connection, number: int) -> None:
    _execute(connection, f"SET LOCAL statement_timeout = 0; SELECT pg_advisory_xact_lock({number})")


def _read_version(connection: Connection, schema: str, place: str) -> int:
    row = _execute(connection, build_version_query(schema)).fetchone()
    if row is None or not row[0].isdigit():
        raise StoreDamaged(
            f'The schema "{schema}" of PostgreSQL at {place} does not say which version its tables have.',
            hint="Restore a backup, or choose another namespace.",
        )
    return int(row[0])


def _format_search_path(schema: str, found: _ServerFacts) -> str:
    assert found.vector_schema is not None
    return ", ".join((quote_name(schema), '"' + found.vector_schema.replace('"', '""') + '"'))


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
VECTOR_INDEX_PREFIX = "vectors_near_"

INDEX_PREFIX_CHARACTERS = 200  # characters of a long value that an index has: PostgreSQL limits its entries

_STORE_COLUMN = "store integer NOT NULL REFERENCES stores(number) ON DELETE CASCADE"

# Texts compare by their bytes, whatever the locale of the database: the order is the same on every
# server, and no index breaks when a system changes its collation.
_TEXT_TYPE = 'text COLLATE "C"'

# `stands_for` is what only one live record may have (its kind, name_key, variant and parent), and
# `says` likewise of links, as hashes: names may be long. Both are empty where nothing is to be
# unique, as in what is deleted. Whoever has written all of a batch asks whether they hold, so that
# things can trade names in it. `embedded` names the model of a record's vector. What is deleted has
# no `words`.
_RECORDS_TABLE = f"""
CREATE TABLE records (
    {_STORE_COLUMN},
    id {_TEXT_TYPE} NOT NULL,
    age bigint NOT NULL,
    kind {_TEXT_TYPE} NOT NULL,
    type {_TEXT_TYPE},
    name {_TEXT_TYPE},
    name_key {_TEXT_TYPE},
    variant {_TEXT_TYPE} NOT NULL,
    text {_TEXT_TYPE} NOT NULL,
    parent {_TEXT_TYPE},
    scope {_TEXT_TYPE} NOT NULL,
    session {_TEXT_TYPE},
    position bigint,
    author {_TEXT_TYPE},
    importance double precision,
    occurred_at bigint,
    tags text[] COLLATE "C" NOT NULL,
    facets {_TEXT_TYPE},
    pinned boolean NOT NULL,
    automatic boolean NOT NULL,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    deleted_at bigint,
    version bigint NOT NULL,
    stands_for uuid,
    embedded {_TEXT_TYPE},
    words tsvector,
    PRIMARY KEY (store, id),
    CONSTRAINT records_stand_for UNIQUE (store, stands_for) DEFERRABLE INITIALLY DEFERRED)
"""
_LINKS_TABLE = f"""
CREATE TABLE links (
    {_STORE_COLUMN},
    id {_TEXT_TYPE} NOT NULL,
    age bigint NOT NULL,
    source {_TEXT_TYPE} NOT NULL,
    verb {_TEXT_TYPE} NOT NULL,
    target {_TEXT_TYPE} NOT NULL,
    facets {_TEXT_TYPE},
    created_at bigint NOT NULL,
    deleted_at bigint,
    says uuid,
    PRIMARY KEY (store, id),
    CONSTRAINT links_say UNIQUE (store, says) DEFERRABLE INITIALLY DEFERRED)
"""
_CHANGES_TABLE = f"""
CREATE TABLE changes (
    {_STORE_COLUMN},
    seq bigint NOT NULL,
    at bigint NOT NULL,
    tool {_TEXT_TYPE} NOT NULL,
    client {_TEXT_TYPE} NOT NULL,
    undoes bigint,
    key {_TEXT_TYPE},
    PRIMARY KEY (store, seq))
"""
# `before` holds only the old values of what an edit altered.
_EDITS_TABLE = f"""
CREATE TABLE edits (
    {_STORE_COLUMN},
    seq bigint NOT NULL,
    position integer NOT NULL,
    operation {_TEXT_TYPE} NOT NULL,
    subject {_TEXT_TYPE} NOT NULL,
    item {_TEXT_TYPE},
    before {_TEXT_TYPE},
    PRIMARY KEY (store, seq, position))
"""
_ACCESSES_TABLE = f"""
CREATE TABLE accesses (
    {_STORE_COLUMN},
    record {_TEXT_TYPE} NOT NULL,
    count bigint NOT NULL,
    last_at bigint NOT NULL,
    PRIMARY KEY (store, record))
"""

_INDEXES = (
    "CREATE INDEX records_age ON records (store, age)",
    "CREATE INDEX records_kind ON records (store, kind, age) WHERE deleted_at IS NULL",
    f"CREATE INDEX records_scope ON records (store, kind, left(scope, "
    f"{INDEX_PREFIX_CHARACTERS}), age) "
    "WHERE deleted_at IS NULL",
    "CREATE INDEX records_deleted ON records (store, kind, age) WHERE deleted_at IS NOT NULL",
    f"CREATE INDEX records_name ON records (store, kind, left(name_key, "
    f"{INDEX_PREFIX_CHARACTERS})) "
    "WHERE name_key IS NOT NULL",
    "CREATE INDEX records_parent ON records (store, parent, age) WHERE parent IS NOT NULL",
    f"CREATE INDEX records_place ON records (store, left(session, {INDEX_PREFIX_CHARACTERS}), "
    f"position) "
    "WHERE session IS NOT NULL",
    f"CREATE INDEX records_author ON records (store, left(author, {INDEX_PREFIX_CHARACTERS})) "
    "WHERE author IS NOT NULL AND deleted_at IS NULL",
    "CREATE INDEX records_at ON records (store, kind, coalesce(occurred_at, created_at)) WHERE deleted_at IS NULL",
    "CREATE INDEX records_pinned ON records (store, kind, age) WHERE pinned AND deleted_at IS NULL",
    "CREATE INDEX records_tags ON records USING gin (tags) WHERE deleted_at IS NULL",
    "CREATE INDEX links_out ON links (store, source)",
    "CREATE INDEX links_in ON links (store, target)",
    "CREATE INDEX links_age ON links (store, age)",
    f"CREATE INDEX changes_key ON changes (store, left(key, {INDEX_PREFIX_CHARACTERS})) WHERE key IS NOT NULL",
    "CREATE INDEX edits_item ON edits (store, item)",
    "CREATE INDEX accesses_count ON accesses (store, count DESC, last_at DESC)",
)

RECORD_STATEMENTS: tuple[str, ...] = (
    _RECORDS_TABLE,
    _LINKS_TABLE,
    _CHANGES_TABLE,
    _EDITS_TABLE,
    _ACCESSES_TABLE,
    *_INDEXES,
)


# One index for all stores: each record has a lexeme that names its store. What is new stands in
# the index itself, and not in a list that every question would have to read.
_WORDS_INDEX = "CREATE INDEX records_words ON records USING gin (words) WITH (fastupdate = off)"

# What stands in names alone, and the store: of so many records that fit that not all are ranked,
# those are found by it whose name fits. Questions have to say NAMED for it to be used.
NAME_MATCH_CONDITION = "(r.name IS NOT NULL AND ts_filter(r.words, '{a,d}') @@ %s::tsquery)"
_NAME_INDEX = (
    "CREATE INDEX records_named ON records USING gin (ts_filter(words, '{a,d}')) "
    "WITH (fastupdate = off) WHERE name IS NOT NULL"
)

# Whose vector is of which model; those without one wait for it, the newest first. Questions have
# to say the same for this index to be used.
EMBEDDABLE_CONDITION = "(r.deleted_at IS NULL AND (r.text <> '' OR r.embedded IS NOT NULL))"
_EMBEDDED_INDEX = (
    "CREATE INDEX records_embedded ON records (store, kind, embedded, age) "
    f"WHERE {EMBEDDABLE_CONDITION.replace('r.', '')}"
)

# Halves: no cosine changes by more than 0.001, and twice as many fit into memory. A column without
# a length takes the vectors of any model; `dims` says which can be compared. They stand in the rows
# themselves if they fit: who compares many would have to fetch each.
_VECTORS_TABLE = """
CREATE TABLE vectors (
    store integer NOT NULL REFERENCES stores(number) ON DELETE CASCADE,
    model text COLLATE "C" NOT NULL,
    dims integer NOT NULL,
    record text COLLATE "C" NOT NULL,
    v halfvec NOT NULL,
    PRIMARY KEY (store, model, record))
    WITH (toast_tuple_target = 8160)
"""
_VECTORS_INDEX = "CREATE INDEX vectors_record ON vectors (store, record)"

SEARCH_STATEMENTS: tuple[str, ...] = (_WORDS_INDEX, _NAME_INDEX, _EMBEDDED_INDEX, _VECTORS_TABLE, _VECTORS_INDEX)


# A version that was given out stays as it is: what changes is a step behind it.
LAYOUT = Layout(steps=((*CATALOG_STATEMENTS, *RECORD_STATEMENTS, *SEARCH_STATEMENTS),))
VERSION = LAYOUT.version
