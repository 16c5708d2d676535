"""Tables as numbered migrations. A released migration never changes."""

from everkept.values import Value


class Schema(Value):
    """One kind of database file. `version` is the number of its migrations."""

    name: str
    application_id: int
    migrations: tuple[str, ...]
    when_damaged: str  # hint for a damaged file
    temporary: str = ""  # created on each connection, invisible to other programs

    @property
    def has_triggers(self) -> bool:
        return any("CREATE TRIGGER" in migration for migration in self.migrations)

    @property
    def version(self) -> int:
        return len(self.migrations)


# `meta` also has the name, description and creation time of the project, from which `_meta.db` can be rebuilt. `words`
# is contentless: each commit fills it with text prepared in Python, so that any SQLite can read and write the other
# tables without a custom tokenizer. Times are microseconds. The views show a project as documented, with ISO times.
_PROJECT_1 = """
CREATE TABLE meta(key TEXT PRIMARY KEY, value) WITHOUT ROWID;
INSERT INTO meta VALUES ('generation', 1);

CREATE TABLE records(
    key INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    kind TEXT NOT NULL,
    type TEXT,
    name TEXT,
    name_key TEXT,
    variant TEXT NOT NULL DEFAULT '',
    parent INTEGER REFERENCES records(key),
    text TEXT NOT NULL DEFAULT '',
    facets TEXT,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    deleted_at INTEGER,
    version INTEGER NOT NULL DEFAULT 1);
CREATE UNIQUE INDEX records_name ON records(kind, name_key, variant, coalesce(parent, 0))
    WHERE deleted_at IS NULL AND name_key IS NOT NULL;
-- Over all rows, not the live ones alone: the views below could not use it otherwise.
CREATE INDEX records_parent ON records(parent, kind) WHERE parent IS NOT NULL;

CREATE TABLE links(
    key INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    source INTEGER NOT NULL REFERENCES records(key),
    verb TEXT NOT NULL,
    target INTEGER NOT NULL REFERENCES records(key),
    facets TEXT,
    created_at INTEGER NOT NULL,
    deleted_at INTEGER);
CREATE UNIQUE INDEX links_out ON links(source, verb, target) WHERE deleted_at IS NULL;
CREATE INDEX links_in ON links(target, verb) WHERE deleted_at IS NULL;

CREATE TABLE changes(
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    at INTEGER NOT NULL,
    tool TEXT NOT NULL,
    client TEXT NOT NULL DEFAULT '',
    undoes INTEGER);
-- `before` holds only the old values of what an edit altered; a full log doubles the file.
CREATE TABLE edits(
    change INTEGER NOT NULL REFERENCES changes(seq),
    position INTEGER NOT NULL,
    operation TEXT NOT NULL,
    subject TEXT NOT NULL,
    item INTEGER NOT NULL,
    before TEXT,
    PRIMARY KEY(change, position)) WITHOUT ROWID;
CREATE INDEX edits_item ON edits(item, subject);

CREATE VIRTUAL TABLE words USING fts5(name, text, context, content='', contentless_delete=1,
    tokenize="porter unicode61 remove_diacritics 2 categories 'L* N* Co Mn Mc'");

CREATE VIEW entities AS SELECT id, name, type AS entity_type,
    strftime('%Y-%m-%dT%H:%M:%fZ', created_at / 1e6, 'unixepoch') AS created_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', updated_at / 1e6, 'unixepoch') AS updated_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', deleted_at / 1e6, 'unixepoch') AS deleted_at
    FROM records WHERE kind = 'entity';
CREATE VIEW observations AS SELECT o.id, e.id AS entity_id, o.text AS content,
    strftime('%Y-%m-%dT%H:%M:%fZ', o.created_at / 1e6, 'unixepoch') AS created_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', o.deleted_at / 1e6, 'unixepoch') AS deleted_at
    FROM records e JOIN records o ON o.parent = e.key
    WHERE e.kind = 'entity' AND o.kind = 'observation';
CREATE VIEW relations AS SELECT l.id, s.id AS from_entity, t.id AS to_entity,
    l.verb AS relation_type,
    strftime('%Y-%m-%dT%H:%M:%fZ', l.created_at / 1e6, 'unixepoch') AS created_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', l.deleted_at / 1e6, 'unixepoch') AS deleted_at
    FROM links l JOIN records s ON s.key = l.source JOIN records t ON t.key = l.target
    WHERE s.kind = 'entity' AND t.kind = 'entity';
"""

# `reindexed` lists records that a change indexed again without editing them. `embedded` is the model of a record's
# vector, '' if the vector is pending, NULL without a text. `vectors.seq` grows with each vector that is added or
# removed, and `meta` has the last number, so that a reader can follow all of them. A removed vector leaves a row
# without a model, whatever happens to its record.
_PROJECT_2 = """
ALTER TABLE records ADD COLUMN scope TEXT NOT NULL DEFAULT '';
ALTER TABLE records ADD COLUMN session TEXT;
ALTER TABLE records ADD COLUMN position INTEGER;
ALTER TABLE records ADD COLUMN author TEXT;
ALTER TABLE records ADD COLUMN importance REAL;
ALTER TABLE records ADD COLUMN occurred_at INTEGER;
ALTER TABLE records ADD COLUMN tags TEXT;
ALTER TABLE records ADD COLUMN embedded TEXT;
UPDATE records SET embedded = '' WHERE text <> '';
ALTER TABLE changes ADD COLUMN reindexed TEXT;

-- In the order of their keys, which is the order of arrival. All that a statement names must be in
-- an index for it to be enough: therefore `deleted_at`.
CREATE INDEX records_kind ON records(kind, deleted_at) WHERE deleted_at IS NULL;
CREATE INDEX records_scope ON records(kind, scope, deleted_at) WHERE deleted_at IS NULL;
-- The two that a tally reads.
CREATE INDEX records_live ON records(kind, scope, type, deleted_at) WHERE deleted_at IS NULL;
CREATE INDEX records_deleted ON records(kind, scope, type, deleted_at)
    WHERE deleted_at IS NOT NULL;
CREATE INDEX records_session ON records(session, position)
    WHERE session IS NOT NULL AND deleted_at IS NULL;
CREATE INDEX records_author ON records(author, deleted_at)
    WHERE author IS NOT NULL AND deleted_at IS NULL;
CREATE INDEX records_pinned ON records(kind, deleted_at)
    WHERE json_extract(facets, '$.pinned') = 1 AND deleted_at IS NULL;
CREATE INDEX records_embedded ON records(kind, embedded, deleted_at)
    WHERE embedded IS NOT NULL AND deleted_at IS NULL;

CREATE TABLE tags(
    tag TEXT NOT NULL,
    record INTEGER NOT NULL REFERENCES records(key),
    PRIMARY KEY(tag, record)) WITHOUT ROWID;
CREATE INDEX tags_record ON tags(record);

CREATE TABLE vectors(
    record INTEGER PRIMARY KEY,
    model TEXT,
    seq INTEGER NOT NULL UNIQUE,
    vector BLOB);
INSERT INTO meta VALUES ('vectors', 0);

CREATE TABLE accesses(
    record INTEGER PRIMARY KEY REFERENCES records(key),
    count INTEGER NOT NULL,
    last_at INTEGER NOT NULL);

-- How many rows each index gives, as it is in a large project: without these SQLite would take
-- a kind for a rarer thing than a list of names. It counts nothing by itself.
ANALYZE accesses;
DELETE FROM sqlite_stat1;
INSERT INTO sqlite_stat1(tbl, idx, stat) VALUES
    ('records', 'sqlite_autoindex_records_1', '100000 1'),
    ('records', 'records_name', '50000 5000 1 1 1'),
    ('records', 'records_parent', '50000 10 10'),
    ('records', 'records_kind', '100000 5000 5000'),
    ('records', 'records_pinned', '100 20 20'),
    ('records', 'records_scope', '100000 5000 2500 2500'),
    ('records', 'records_live', '100000 5000 2500 1000 1000'),
    ('records', 'records_deleted', '10000 500 250 100 1'),
    ('records', 'records_session', '50000 10 1'),
    ('records', 'records_author', '50000 5000 5000'),
    ('records', 'records_embedded', '100000 5000 2500 2500'),
    ('links', 'sqlite_autoindex_links_1', '100000 1'),
    ('links', 'links_out', '100000 5 2 1'),
    ('links', 'links_in', '100000 5 2'),
    ('tags', 'sqlite_autoindex_tags_1', '300000 1000 1'),
    ('tags', 'tags_record', '300000 3');
ANALYZE sqlite_schema;
"""

# An index finds records by time. `code` has the signs of a vector, from which a large vector index is built: reading
# them takes a tenth of the time of the vectors. Merging the word index in larger steps saves a long import a fifth of
# its time.
_PROJECT_3 = """
CREATE INDEX records_at ON records(kind, coalesce(occurred_at, created_at), deleted_at)
    WHERE deleted_at IS NULL;
ALTER TABLE vectors ADD COLUMN code BLOB;
CREATE INDEX vectors_code ON vectors(model, record, code) WHERE model IS NOT NULL;
INSERT INTO sqlite_stat1(tbl, idx, stat) VALUES
    ('records', 'records_at', '100000 5000 2 2'),
    ('vectors', 'vectors_code', '100000 50000 1 1');
ANALYZE sqlite_schema;
INSERT INTO words(words, rank) VALUES ('automerge', 8);
"""

# A change with a `key` is committed once, however often it is requested. `restocked` changes whenever a replication
# writes data that the log does not name.
_PROJECT_4 = """
ALTER TABLE changes ADD COLUMN key TEXT;
CREATE UNIQUE INDEX changes_key ON changes(key) WHERE key IS NOT NULL;
INSERT INTO meta VALUES ('restocked', 0);
"""

# A damaged row differs from its checksum. SQLite itself checks only pages and indexes. A migration that adds a column
# to the checksums computes them again.
_PROJECT_5 = """
ALTER TABLE records ADD COLUMN checksum INTEGER;
ALTER TABLE links ADD COLUMN checksum INTEGER;
UPDATE records SET checksum = row_checksum(parent, deleted_at, version, id, kind, created_at, updated_at, text, name,
    type, name_key, variant, scope, session, position, author, importance, occurred_at, tags, facets);
UPDATE links SET checksum = row_checksum(id, source, verb, target, facets, created_at, deleted_at);
"""

# `generation` grows each time a project's file is archived or restored. `transition` names a move that has begun, so
# that the next start can finish it.
_LIBRARY_1 = """
CREATE TABLE projects(
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    description TEXT DEFAULT '',
    db_path TEXT NOT NULL,
    status TEXT NOT NULL DEFAULT 'active' CHECK(status IN ('active', 'archived')),
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL,
    generation INTEGER NOT NULL DEFAULT 1,
    transition TEXT CHECK(transition IN ('creating', 'archiving', 'restoring', 'deleting')));
CREATE INDEX idx_projects_status ON projects(status);
CREATE TABLE workspaces(
    path TEXT PRIMARY KEY,
    project TEXT NOT NULL REFERENCES projects(id) ON DELETE CASCADE) WITHOUT ROWID;
CREATE TABLE notes(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE tokens(
    id TEXT PRIMARY KEY,
    label TEXT NOT NULL,
    secret_hash TEXT NOT NULL UNIQUE,
    created_at INTEGER NOT NULL) WITHOUT ROWID;
"""

# Searches in past conversations, recorded only on this machine.
_LIBRARY_2 = """
CREATE TABLE searches(
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    at INTEGER NOT NULL,
    tool TEXT NOT NULL,
    query TEXT NOT NULL,
    results INTEGER NOT NULL,
    milliseconds REAL NOT NULL,
    session TEXT,
    filters TEXT NOT NULL);
"""

# Number of calls of gateway tools, recorded only on this machine and without any content.
_LIBRARY_3 = """
CREATE TABLE usage(
    tool TEXT PRIMARY KEY,
    calls INTEGER NOT NULL,
    errors INTEGER NOT NULL,
    total_ms REAL NOT NULL,
    longest_ms REAL NOT NULL,
    last_at INTEGER NOT NULL) WITHOUT ROWID;
"""

PROJECT = Schema(
    "project",
    0x45564B50,  # "EVKP"
    (_PROJECT_1, _PROJECT_2, _PROJECT_3, _PROJECT_4, _PROJECT_5),
    "Restore it from a backup, or move it to another folder. It was not changed.",
    "CREATE VIRTUAL TABLE temp.word_counts USING fts5vocab(main, words, row);"
    "CREATE VIRTUAL TABLE temp.word_places USING fts5vocab(main, words, instance);",
)
LIBRARY = Schema(
    "library",
    0x45564B4D,  # "EVKM"
    (_LIBRARY_1, _LIBRARY_2, _LIBRARY_3),
    "Restore it from a backup, or move it to another folder. It was not changed. If you move it, the next start lists "
    "the projects from their files, without tokens, folder links and turned-off states.",
)
