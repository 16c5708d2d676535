"""The tables of the journal, as numbered migrations."""

from everkept.engines.sqlite.schema import Schema

# `reason` is NULL while an entry waits. `numbers` has what the commit of an entry is called in the
# log of the local copy, until that log is the database's own, and in the log of the database, once
# it was made there. `tally` spares counting.
_JOURNAL_1 = """
CREATE TABLE meta(key TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE entries(
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    act TEXT NOT NULL,
    local_seq INTEGER,
    undoes INTEGER,
    reason TEXT,
    aside_at INTEGER);
CREATE INDEX entries_waiting ON entries(seq) WHERE reason IS NULL;
CREATE INDEX entries_aside ON entries(seq) WHERE reason IS NOT NULL;
CREATE INDEX entries_undoing ON entries(undoes) WHERE undoes IS NOT NULL;

CREATE TABLE tally(waiting INTEGER NOT NULL, aside INTEGER NOT NULL, bytes INTEGER NOT NULL);
INSERT INTO tally VALUES (0, 0, 0);
CREATE TRIGGER entries_more AFTER INSERT ON entries BEGIN
    UPDATE tally SET waiting = waiting + (new.reason IS NULL),
        aside = aside + (new.reason IS NOT NULL), bytes = bytes + length(new.act);
END;
CREATE TRIGGER entries_less AFTER DELETE ON entries BEGIN
    UPDATE tally SET waiting = waiting - (old.reason IS NULL),
        aside = aside - (old.reason IS NOT NULL), bytes = bytes - length(old.act);
END;
CREATE TRIGGER entries_moved AFTER UPDATE OF reason ON entries BEGIN
    UPDATE tally SET
        waiting = waiting + (new.reason IS NULL) - (old.reason IS NULL),
        aside = aside + (new.reason IS NOT NULL) - (old.reason IS NOT NULL);
END;

CREATE TABLE numbers(
    entry INTEGER PRIMARY KEY,
    store TEXT NOT NULL,
    local_seq INTEGER,
    seq INTEGER);
CREATE INDEX numbers_local ON numbers(store, local_seq) WHERE local_seq IS NOT NULL;

CREATE TABLE mappings(
    topic TEXT NOT NULL,
    key TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY(topic, key)) WITHOUT ROWID;
"""

# Who wrote it: the name of an account; NULL: the owner.
_JOURNAL_2 = "ALTER TABLE entries ADD COLUMN account TEXT;"

# What accounts wrote is counted apart from what the owner did, and what is set aside apart from
# what waits: none of them takes up the room of another.
_JOURNAL_3 = """
DROP TRIGGER entries_more;
DROP TRIGGER entries_less;
DROP TRIGGER entries_moved;
DROP TABLE tally;
CREATE TABLE tally(
    of_accounts INTEGER NOT NULL,
    aside INTEGER NOT NULL,
    entries INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    PRIMARY KEY(of_accounts, aside)) WITHOUT ROWID;
INSERT INTO tally VALUES (0, 0, 0, 0), (0, 1, 0, 0), (1, 0, 0, 0), (1, 1, 0, 0);
UPDATE tally SET (entries, bytes) = (
    SELECT count(*), coalesce(sum(length(act)), 0) FROM entries
    WHERE (account IS NOT NULL) = of_accounts AND (reason IS NOT NULL) = tally.aside);
CREATE TRIGGER entries_more AFTER INSERT ON entries BEGIN
    UPDATE tally SET entries = entries + 1, bytes = bytes + length(new.act)
    WHERE of_accounts = (new.account IS NOT NULL) AND aside = (new.reason IS NOT NULL);
END;
CREATE TRIGGER entries_less AFTER DELETE ON entries BEGIN
    UPDATE tally SET entries = entries - 1, bytes = bytes - length(old.act)
    WHERE of_accounts = (old.account IS NOT NULL) AND aside = (old.reason IS NOT NULL);
END;
CREATE TRIGGER entries_moved AFTER UPDATE OF reason ON entries BEGIN
    UPDATE tally SET entries = entries - 1, bytes = bytes - length(old.act)
    WHERE of_accounts = (old.account IS NOT NULL) AND aside = (old.reason IS NOT NULL);
    UPDATE tally SET entries = entries + 1, bytes = bytes + length(new.act)
    WHERE of_accounts = (new.account IS NOT NULL) AND aside = (new.reason IS NOT NULL);
END;
"""

# The id of the account, as the server knew it that took the write: a name may become another's.
_JOURNAL_4 = "ALTER TABLE entries ADD COLUMN account_id TEXT NOT NULL DEFAULT '';"

JOURNAL = Schema(
    "journal",
    0x45564B4A,  # "EVKJ"
    (_JOURNAL_1, _JOURNAL_2, _JOURNAL_3, _JOURNAL_4),
    "It was not touched. Look whether another program has written it, and move it away.",
)
