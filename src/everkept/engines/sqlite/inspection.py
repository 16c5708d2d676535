"""Inspection of a database without changes: its kind, its content, and its faults."""

from collections.abc import Generator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import cast

import apsw

from everkept.core.care import Facts
from everkept.engines.sqlite.connection import BusyHandler, check_version, translated
from everkept.engines.sqlite.schema import LIBRARY, PROJECT, Schema
from everkept.engines.sqlite.sql import Connection
from everkept.errors import StoreDamaged

_ORDINARY = (
    "SELECT name FROM sqlite_schema WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%' "
    "AND name NOT LIKE 'sqlite#_%' ESCAPE '#' AND name NOT LIKE 'words#_%' ESCAPE '#' ORDER BY name"
)


def schema_of(name: str) -> Schema:
    """The kind of database that has this name in a data folder."""
    return LIBRARY if Path(name).name == "_meta.db" else PROJECT


def at_rest(path: Path) -> Connection:
    """Opens a file that nobody else uses; nothing is made beside it."""
    uri = f"{path.resolve().as_uri()}?immutable=1"
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    return cast(Connection, apsw.Connection(uri, flags=flags))


def in_use(path: Path) -> Connection:
    """Opens a file that others may use, as it is: it is neither made nor brought up to date.

    Closing it leaves the files in the folder as they were found.
    """
    log = path.with_name(path.name + "-wal")
    has_log = log.exists() and log.stat().st_size > 0
    connection = cast(Connection, apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE))
    if has_log:
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    connection.set_busy_handler(BusyHandler())
    try:
        connection.pragma("user_version")
    except (apsw.CantOpenError, apsw.ReadOnlyError):
        connection.close()
        # A write-ahead log cannot be shared from a folder nobody may write to.
        if log.exists():
            raise
        return at_rest(path)
    except BaseException:
        connection.close()
        raise
    return connection


def check_kind(db: Connection, path: Path, schema: Schema, title: str) -> None:
    """Raises StoreDamaged for what is no database of ours, and StoreTooNew."""
    if db.pragma("application_id") != schema.application_id:
        raise StoreDamaged(
            f"{title} is not a {schema.name} database of Everkept.",
            hint=schema.when_damaged,
            path=str(path),
        )
    check_version(db, path, schema, title)


def facts_of(db: Connection) -> Facts:
    tables = [name for (name,) in db.execute(_ORDINARY)]
    rows = {name: int(db.execute(f'SELECT count(*) FROM "{name}"').get) for name in tables}
    newest = db.execute("SELECT coalesce(max(seq), 0) FROM changes").get if "changes" in rows else 0
    return Facts(int(db.pragma("user_version")), int(newest), rows)


def sound_facts(copy: Path, title: str) -> Facts:
    """What a copy holds. Raises StoreDamaged where a check of all of it finds something."""
    schema = schema_of(title)
    with translated(copy, schema, title=title), closing(at_rest(copy)) as db:
        check_kind(db, copy, schema, title)
        found = page_faults(db) if schema is LIBRARY else faults(db)
        if found:
            raise StoreDamaged(f"{title} is damaged ({found[0]}).", hint=schema.when_damaged)
        return facts_of(db)


def faults(db: Connection, *, full: bool = True) -> list[str]:
    """What is wrong with a project's database; without `full`, indexes are not compared."""
    found = page_faults(db, full=full)
    unindexed, stale = index_faults(db)
    if unindexed:
        found.append(f"{unindexed} records are not in the word index")
    if stale:
        found.append(f"{stale} entries of the word index have no record")
    return found


def page_faults(db: Connection, *, full: bool = True) -> list[str]:
    # The check itself does not notice that another connection has merged the word index since this
    # one last read it, and would call it damaged; a query does notice. A library has no such index.
    with suppress(apsw.SQLError, apsw.CorruptError):
        db.execute("SELECT 1 FROM words WHERE words MATCH 'x' LIMIT 1").fetchall()
    pragma = "integrity_check" if full else "quick_check"
    found = [str(row[0]) for row in db.execute(f"PRAGMA {pragma}") if row[0] != "ok"]
    return found + [
        f"dangling reference in {row[0]}" for row in db.execute("PRAGMA foreign_key_check")
    ]


def index_faults(db: Connection) -> tuple[int, int]:
    """How many live records the word index lacks, and how many of its entries have no record."""
    unindexed = db.execute(
        "SELECT count(*) FROM records r LEFT JOIN words_docsize d ON d.id = r.key "
        "WHERE r.deleted_at IS NULL AND d.id IS NULL"
    ).get
    stale = db.execute(
        "SELECT count(*) FROM words_docsize d LEFT JOIN records r ON r.key = d.id "
        "WHERE r.key IS NULL OR r.deleted_at IS NOT NULL"
    ).get
    return int(unindexed), int(stale)


@contextmanager
def looked_at(
    path: Path, schema: Schema = PROJECT, *, title: str | None = None
) -> Generator[Connection, None, None]:
    """Raises StoreDamaged for what is no database of ours, and StoreTooNew."""
    named = title or path.name
    try:
        with translated(path, schema, title=title), closing(in_use(path)) as db:
            check_kind(db, path, schema, named)
            yield db
    except apsw.SQLError as error:  # such as a table that is not there
        raise StoreDamaged(
            f"{named} lacks what a {schema.name} database has ({error}).",
            hint=schema.when_damaged,
            path=str(path),
        ) from error
