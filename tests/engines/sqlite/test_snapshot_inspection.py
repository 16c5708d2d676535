from contextlib import closing
from pathlib import Path

import pytest

from data_folders import filled, statement
from everkept.engines.sqlite.schema import LIBRARY, PROJECT
from everkept.engines.sqlite.snapshot import (
    check_kind,
    count_index_faults,
    find_faults,
    find_page_faults,
    get_schema,
    open_at_rest,
    open_in_use,
    read_facts,
)
from everkept.errors import StoreDamaged, StoreTooNew
from processes import Actor, said_by


@pytest.fixture
def data(tmp_path: Path) -> Path:
    filled(tmp_path / "data", "shop")
    return tmp_path / "data"


def test_the_rows_of_each_table_are_counted_and_the_newest_change_is_told(data: Path) -> None:
    with closing(open_in_use(data / "user.db")) as db:
        facts = read_facts(db)
    assert facts.schema_version == PROJECT.version
    assert facts.newest_change == 1
    assert facts.rows["records"] == 4
    assert facts.rows["links"] == 1
    assert facts.rows["tags"] == 2
    assert "words_data" not in facts.rows


def test_a_look_leaves_the_files_as_they_were(data: Path) -> None:
    path = data / "user.db"
    before = said_by("digests", data)
    with closing(open_in_use(path)) as db:
        assert find_faults(db) == []
    with closing(open_at_rest(path)) as db:
        assert find_page_faults(db) == []
    assert said_by("digests", data) == before


def test_a_log_that_somebody_left_is_read_and_left_there(data: Path) -> None:
    Actor("leave_log", data / "user.db", "DELETE FROM accesses").finish()
    log = data / "user.db-wal"
    assert log.stat().st_size > 0
    with closing(open_in_use(data / "user.db")) as db:
        assert read_facts(db).rows["accesses"] == 0
    assert log.stat().st_size > 0


def test_a_file_of_another_kind_or_of_a_newer_version_is_refused(data: Path) -> None:
    assert get_schema("_meta.db") is LIBRARY
    assert get_schema("projects/x.db") is PROJECT
    with closing(open_in_use(data / "user.db")) as db:
        with pytest.raises(StoreDamaged):
            check_kind(db, data / "user.db", LIBRARY, "user.db")
        db.execute("PRAGMA user_version=99")
        with pytest.raises(StoreTooNew):
            check_kind(db, data / "user.db", PROJECT, "user.db")


def test_a_word_index_that_is_out_of_step_is_counted(data: Path) -> None:
    statement(data / "user.db", "DELETE FROM words WHERE rowid = 1")
    statement(data / "user.db", "INSERT INTO words(rowid, text) VALUES (99, 'nobody')")
    with closing(open_in_use(data / "user.db")) as db:
        assert count_index_faults(db) == (1, 1)
        assert find_faults(db) == ["the word index lacks 1 record", "the word index has 1 entry without a record"]
