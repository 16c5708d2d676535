"""Tables of a library, version by version, created under a lock that all programs share.

Paths and the keys of notes may be longer than an index entry, so their digests are the keys. `store` comes first in
every key of the records, because all stores share the tables.
"""

import re
from hashlib import sha256
from typing import Any

import psycopg

from everkept.engines.postgres.connection import Connection
from everkept.errors import InvalidInput, Refused, StoreDamaged, StoreTooNew, Unavailable
from everkept.values import Value

MIN_SERVER_VERSION = 14
MIN_VECTOR_VERSION = (0, 8)  # the first version that continues a scan if a filter left too few results
MAX_NAME_BYTES = 63  # PostgreSQL truncates longer names
VERSION_KEY = "schema"
META_TABLE = "CREATE TABLE IF NOT EXISTS meta (key text PRIMARY KEY, value text NOT NULL)"
_VERSION_FORM = re.compile(r"\d{1,9}", re.ASCII)

_NO_RIGHT_CODE = "42501"
_UNAVAILABLE_CODES = ("0A000", "3F000", _NO_RIGHT_CODE, "58P01")  # not installed, or not allowed for this user

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

_NO_VECTOR_QUERY = "SELECT WHERE NOT EXISTS (SELECT FROM pg_available_extensions WHERE name = 'vector')"

# Schemas that have the tables of a library.
_OTHER_SCHEMAS_QUERY = """
    SELECT nspname FROM pg_namespace n
    WHERE EXISTS (SELECT FROM pg_class WHERE relnamespace = n.oid AND relname = 'meta')
      AND EXISTS (SELECT FROM pg_class WHERE relnamespace = n.oid AND relname = 'stores')
    ORDER BY nspname LIMIT 10
"""


class Layout(Value):
    """Statements that build each version of the tables from the previous one."""

    steps: tuple[tuple[str, ...], ...] = ()
    founds: bool = True  # False: a schema without tables is a mistake and stays unchanged

    @property
    def version(self) -> int:
        return len(self.steps)


EMPTY_LAYOUT = Layout()


class PreparedSchema(Value):
    """Schema whose tables are up to date, as a connection found it."""

    search_path: str
    is_pooled: bool  # behind a pooler, a setting of one session may reach another


class _ServerFacts(Value):
    server: int
    encoding: str
    process: int
    vector_schema: str | None
    vector_version: str | None
    has_schema: bool
    has_meta: bool


def quote_name(name: str) -> str:
    """Return the schema's name quoted for SQL. Raise InvalidInput if the name is not allowed."""
    is_possible = name and name.isprintable() and len(name.encode()) <= MAX_NAME_BYTES
    if not is_possible or name.lower().startswith("pg_") or name == "information_schema":
        raise InvalidInput(
            f"{name!r} cannot be the name of a PostgreSQL schema.",
            hint=f"Use at most {MAX_NAME_BYTES} letters, digits, - and _, and do not begin with pg_.",
        )
    return '"' + name.replace('"', '""') + '"'


def compute_lock_number(schema: str) -> int:
    """Return the number of the lock that writers share and that a migration holds exclusively."""
    return int.from_bytes(sha256(f"everkept {schema}".encode()).digest()[:8], signed=True)


def prepare(connection: Connection, schema: str, layout: Layout, place: str) -> PreparedSchema:
    """Create missing tables and migrate older ones, one version after the other.

    Raise StoreTooNew if the tables are newer than this program.
    """
    found = _read_server_facts(connection, schema)
    _check_server(found, place)
    if not found.has_meta and not layout.founds:
        if connection.execute(_NO_VECTOR_QUERY).rowcount:
            raise _build_no_vector_error(place, found.server)
        raise _build_missing_error(connection, schema, place)
    if found.vector_schema is None:
        _add_extension(connection, place, found.server)
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
            f"The tables in PostgreSQL at {place} were written by a newer version (schema {version}; this version "
            f"supports {layout.version}). Nothing was stored.",
            hint="Update Everkept on this machine, then restart your assistants.",
            version=version,
        )


def build_path_version_query(schema: str) -> str:
    """Return the query for the version and for whether names without a schema refer to this schema."""
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
        f'PostgreSQL at {place} has no schema "{schema}" with memories.',
        hint=f"Set `namespace` to one of the existing schemas: {others}."
        if others
        else "To create it, run `everkept serve` or store a first memory.",
        argument="namespace",
        value=schema,
        others=[name for (name,) in rows],
    )


def _check_server(found: _ServerFacts, place: str) -> None:
    if found.server < MIN_SERVER_VERSION:
        raise Unavailable(
            f"PostgreSQL at {place} has version {found.server}, which is too old.",
            hint=f"Update the server to {MIN_SERVER_VERSION} or newer.",
        )
    if found.encoding != "UTF8":
        raise Refused(
            f"The database at {place} has the encoding {found.encoding}, which cannot store every text.",
            hint="Create another one with CREATE DATABASE ... ENCODING 'UTF8' TEMPLATE template0.",
        )


def _check_vector(found: _ServerFacts, place: str) -> None:
    parts = (found.vector_version or "0").split(".")[:2]
    if tuple(int(part) for part in parts if part.isdigit()) < MIN_VECTOR_VERSION:
        raise Unavailable(
            f"The pgvector extension in the database at {place} has version {found.vector_version}, which is too old.",
            hint="Install pgvector 0.8 or newer on the server, and run ALTER EXTENSION vector UPDATE as a superuser.",
        )


def _add_extension(connection: Connection, place: str, server: int) -> None:
    """Create the extension, which all schemas of the database share."""
    try:
        with connection.transaction():
            _lock(connection, compute_lock_number(""))
            connection.execute("CREATE EXTENSION IF NOT EXISTS vector SCHEMA public")
    except psycopg.Error as error:
        if error.sqlstate not in _UNAVAILABLE_CODES:
            raise
        if error.sqlstate == _NO_RIGHT_CODE:
            raise Unavailable(
                f"The database at {place} does not have the pgvector extension, and this user cannot create it.",
                hint="Run CREATE EXTENSION vector in this database as a superuser.",
            ) from None
        raise _build_no_vector_error(place, server) from None


def _build_no_vector_error(place: str, server: int) -> Unavailable:
    return Unavailable(
        f"The PostgreSQL server at {place} does not have pgvector, which stores embeddings.",
        hint=f"Install its package on the server: postgresql-{server}-pgvector on Debian and Ubuntu, "
        f"pgvector_{server} on Fedora and Red Hat, or pgvector with Homebrew.",
    )


def _create_schema(connection: Connection, schema: str) -> None:
    name = quote_name(schema)
    with connection.transaction():
        _lock(connection, compute_lock_number(schema))
        # CREATE SCHEMA IF NOT EXISTS would need a right that the user may not have, even if the schema exists.
        if not _read_server_facts(connection, schema).has_schema:
            _execute(connection, f"CREATE SCHEMA {name}")
        _execute(
            connection,
            f"{META_TABLE.replace('meta', f'{name}.meta', 1)}; "
            f"INSERT INTO {name}.meta VALUES ('{VERSION_KEY}', '0') ON CONFLICT DO NOTHING",
        )


def _apply_step(
    connection: Connection, schema: str, layout: Layout, version: int, place: str, found: _ServerFacts
) -> None:
    with connection.transaction():
        _lock(connection, compute_lock_number(schema))
        if _read_version(connection, schema, place) != version:
            return  # another process migrated first
        _execute(connection, f"SET LOCAL search_path = {_format_search_path(schema, found)}")
        for statement in layout.steps[version]:
            _execute(connection, statement)
        _execute(
            connection, f"UPDATE {quote_name(schema)}.meta SET value = '{version + 1}' WHERE key = '{VERSION_KEY}'"
        )


def _lock(connection: Connection, number: int) -> None:
    _execute(connection, f"SET LOCAL statement_timeout = 0; SELECT pg_advisory_xact_lock({number})")


def _read_version(connection: Connection, schema: str, place: str) -> int:
    version = find_version(connection, schema)
    if version is None:
        raise build_version_error(schema, place)
    return version


def find_version(connection: Connection, schema: str) -> int | None:
    """Return the version of the tables, or None if it is not a version."""
    text = f"SELECT value FROM {quote_name(schema)}.meta WHERE key = '{VERSION_KEY}'"
    row = _execute(connection, text).fetchone()
    return None if row is None else parse_version(row[0])


def parse_version(value: object) -> int | None:
    """Return the version, or None for anything that Everkept does not write."""
    return int(value) if isinstance(value, str) and _VERSION_FORM.fullmatch(value) else None


def build_version_error(schema: str, place: str) -> StoreDamaged:
    return StoreDamaged(
        f'The schema "{schema}" in PostgreSQL at {place} has no valid schema version.',
        hint="Restore a backup, or choose another namespace.",
    )


def _format_search_path(schema: str, found: _ServerFacts) -> str:
    assert found.vector_schema is not None
    return ", ".join((quote_name(schema), '"' + found.vector_schema.replace('"', '""') + '"'))


def _execute(connection: Connection, text: str) -> "psycopg.Cursor[tuple[Any, ...]]":
    """Run a statement of ours that contains no user input."""
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
    # Created first, so that no project can take their names.
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
    # Survives its project. An end that is NULL is still open.
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


# In the order of creation. Each has a `store` column, and its rows are deleted together with their store.
TABLES = ("records", "links", "changes", "edits", "accesses")

# Name prefix of the vector indexes; the number of the store follows.
VECTOR_INDEX_PREFIX = "vectors_near_"
TRIGRAM_INDEX = "records_trigrams"

INDEX_PREFIX_CHARACTERS = 200  # characters of a long value in an index: PostgreSQL limits its entries

_STORE_COLUMN = "store integer NOT NULL REFERENCES stores(number) ON DELETE CASCADE"

# Texts compare by bytes, whatever the locale of the database. So the order is the same on every server, and no index
# breaks when a system changes its collation.
_TEXT_TYPE = 'text COLLATE "C"'

# `stands_for` must be unique among live records. It is a hash of kind, name_key, variant and parent, because names may
# be long. `says` is the same for links. Both are NULL if nothing must be unique, for example in deleted rows. The
# constraints are deferred until the whole batch is written, so that records can swap names in it. `embedded` names the
# model of a record's vector. Deleted records have no `words`.
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
# `before` holds only the old values of changed fields.
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


# One index for all stores: each record has a lexeme that names its store. New entries go directly into the index, and
# not into a pending list that every query would have to read.
_WORDS_INDEX = "CREATE INDEX records_words ON records USING gin (words) WITH (fastupdate = off)"

# Lexemes from names only, and the store. If too many records match to rank them all, this index finds those whose name
# matches. A query must use NAME_MATCH_CONDITION for the index to apply.
NAME_MATCH_CONDITION = "(r.name IS NOT NULL AND ts_filter(r.words, '{a,d}') @@ %s::tsquery)"
_NAME_INDEX = (
    "CREATE INDEX records_named ON records USING gin (ts_filter(words, '{a,d}')) "
    "WITH (fastupdate = off) WHERE name IS NOT NULL"
)

# Model of each record's vector. Records without a vector are pending, newest first. A query must use
# EMBEDDABLE_CONDITION for the index to apply.
EMBEDDABLE_CONDITION = "(r.deleted_at IS NULL AND (r.text <> '' OR r.embedded IS NOT NULL))"
_EMBEDDED_INDEX = (
    "CREATE INDEX records_embedded ON records (store, kind, embedded, age) "
    f"WHERE {EMBEDDABLE_CONDITION.replace('r.', '')}"
)

# Half precision: no cosine changes by more than 0.001, and twice as many vectors fit into memory. A column without a
# length accepts the vectors of any model, and `dims` shows which are comparable. Vectors are stored in the rows
# themselves if they fit, because fetching each one from TOAST would slow down a comparison of many.
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


# A released version never changes: add a step after it.
LAYOUT = Layout(steps=((*CATALOG_STATEMENTS, *RECORD_STATEMENTS, *SEARCH_STATEMENTS),))
VERSION = LAYOUT.version
