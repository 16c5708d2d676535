"""The tables, as numbered migrations. A migration that has been released never changes."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Schema:
    """One kind of database file. `version` is the number of its migrations."""

    name: str
    application_id: int
    migrations: tuple[str, ...]
    when_damaged: str  # what a person can do then

    @property
    def version(self) -> int:
        return len(self.migrations)


# `meta` has the name, description and creation time of the project too, as `_meta.db` does: from
# them it can be made anew.
# `words` is contentless: the commit fills it with text prepared in Python, so that any SQLite
# can read and write the other tables without a tokenizer of ours. Times are microseconds; the
# views show a project as its documents describe it, with ISO times.
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

# `generation` grows each time a project's file is put away or brought back, and `transition`
# names a move that has begun, so that the next start can finish it.
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

PROJECT = Schema(
    "project",
    0x52434C50,  # "RCLP"
    (_PROJECT_1,),
    "It was not touched. Restore it from a backup, or move it away.",
)
LIBRARY = Schema(
    "library",
    0x52434C4D,  # "RCLM"
    (_LIBRARY_1,),
    "It was not touched. Restore it from a backup, or move it away: the next start lists the "
    "projects anew from their files. Tokens and the projects of working folders are lost then.",
)
