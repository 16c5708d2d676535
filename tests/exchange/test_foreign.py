"""Databases of other programs that were made to harm their reader."""

import os
import sqlite3
from pathlib import Path

import pytest

from everkept.errors import InvalidInput
from everkept.exchange.foreign import open_foreign_database


def _create(path: Path, *statements: str) -> Path:
    database = sqlite3.connect(path)
    for statement in statements:
        database.execute(statement)
    database.commit()
    database.close()
    return path


def test_computed_columns_are_not_computed(tmp_path: Path) -> None:
    """Some bytes of them would fill the memory with each row."""
    columns = ", ".join(f"c{number} AS (zeroblob(15000000))" for number in range(1_000))
    path = _create(
        tmp_path / "a.db", f'CREATE TABLE memories (id, "a""b", {columns})', "INSERT INTO memories VALUES (1, 2)"
    )
    with open_foreign_database(path, "memories", "data", "Pass data.") as database:
        assert list(database.read("memories")) == [{"id": 1, 'a"b': 2}]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes in the file system")
@pytest.mark.parametrize("suffix", ["-journal", "-wal", "-shm"])
def test_a_pipe_beside_a_database_does_not_stop_the_reader(tmp_path: Path, suffix: str) -> None:
    path = _create(tmp_path / "a.db", "CREATE TABLE memories (id)")
    os.mkfifo(f"{path}{suffix}")
    with pytest.raises(InvalidInput, match="not a regular file"), open_foreign_database(path, "memories", "x", "y"):
        pass


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE VIEW memories AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x FROM n) SELECT x AS id FROM n",
        "CREATE VIRTUAL TABLE memories USING fts5(id)",
    ],
)
def test_only_a_table_is_read(tmp_path: Path, statement: str) -> None:
    path = _create(tmp_path / "a.db", statement)
    with pytest.raises(InvalidInput), open_foreign_database(path, "memories", "x", "y"):
        pass


def test_a_text_of_any_bytes_is_refused(tmp_path: Path) -> None:
    path = _create(
        tmp_path / "a.db", "CREATE TABLE memories (id TEXT)", "INSERT INTO memories VALUES (CAST(x'ff41' AS TEXT))"
    )
    with (
        pytest.raises(InvalidInput, match="cannot be read"),
        open_foreign_database(path, "memories", "x", "y") as database,
    ):
        list(database.read("memories"))
