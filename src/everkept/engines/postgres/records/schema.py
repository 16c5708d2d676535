"""The tables of the records, which all stores share: `store` is first in every key."""

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

STATEMENTS: tuple[str, ...] = (_RECORDS, _LINKS, _CHANGES, _EDITS, _ACCESSES, *_INDEXES)
