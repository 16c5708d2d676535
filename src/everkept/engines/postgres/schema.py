"""The tables of a library, version by version, and the database that has them.

Paths and the keys of notes may be longer than an index takes: their digests are the keys. `store`
is first in every key of the records, which all stores share.
"""

from pathlib import Path

from everkept.engines.postgres.addresses import Credentials
from everkept.engines.postgres.database import CONNECT_LIMIT, TIME_LIMIT, Database
from everkept.engines.postgres.migration import Layout
from everkept.values import replace

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


def database(
    url: str,
    schema: str,
    *,
    credentials: Credentials | None = None,
    ca: Path | None = None,
    time_limit: float = TIME_LIMIT,
    connect_limit: float = CONNECT_LIMIT,
    founds: bool = True,
) -> Database:
    """One whose tables are made, or brought up to date, before the first call is answered.

    One that `founds` nothing refuses a schema in which there are none.
    """
    return Database(
        url,
        schema,
        layout=replace(LAYOUT, founds=founds),
        credentials=credentials,
        ca=ca,
        time_limit=time_limit,
        connect_limit=connect_limit,
    )
