import json
from contextlib import closing
from pathlib import Path

import pytest

from everkept.core.runtime import run_without_loop
from everkept.core.store import CountLive
from everkept.engines.sqlite import commit
from everkept.engines.sqlite.connection import Connection, connect, create, get_log_path, open_transaction
from everkept.engines.sqlite.queries import count_live
from everkept.engines.sqlite.read_only_library import InlineDatabase
from everkept.engines.sqlite.schema import PROJECT
from everkept.errors import Conflict, ReadOnly, StoreBusy, StoreDamaged
from processes import acting
from records import batch, entity


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A database at rest."""
    path = tmp_path / "project.db"
    create(path, PROJECT)
    return path


@pytest.fixture
def database(path: Path) -> InlineDatabase:
    return InlineDatabase(path, PROJECT, title="The file")


def write(path: Path, name: str) -> None:
    """As a process does that opens the file, writes and ends."""
    with closing(connect(path, PROJECT)) as db, open_transaction(db):
        commit.commit_batch(db, batch(entity(name)))


def entities(db: Connection) -> int:
    return count_live(db, CountLive()).get("entity", 0)


def test_a_file_at_rest_is_read_without_a_trace(path: Path, database: InlineDatabase) -> None:
    before = path.stat()
    assert run_without_loop(database.read(entities)) == 0
    assert [each.name for each in path.parent.iterdir()] == [path.name]
    database.close()
    assert [each.name for each in path.parent.iterdir()] == [path.name]
    after = path.stat()  # when it was read is the system's own affair
    assert (after.st_mtime_ns, after.st_ctime_ns) == (before.st_mtime_ns, before.st_ctime_ns)
    assert (after.st_ino, after.st_size) == (before.st_ino, before.st_size)


def test_what_is_written_between_two_questions_is_seen(path: Path, database: InlineDatabase) -> None:
    assert run_without_loop(database.read(entities)) == 0
    write(path, "one")
    assert run_without_loop(database.read(entities)) == 1
    with closing(connect(path, PROJECT)) as other:
        with open_transaction(other):
            commit.commit_batch(other, batch(entity("two")))
        assert get_log_path(path).exists()
        assert run_without_loop(database.read(entities)) == 2
        with open_transaction(other):
            commit.commit_batch(other, batch(entity("three")))
        assert run_without_loop(database.read(entities)) == 3
    database.close()


def test_a_question_that_somebody_disturbed_is_asked_again(path: Path, database: InlineDatabase) -> None:
    asked: list[int] = []

    def question(db: Connection) -> int:
        if not asked:
            write(path, "meanwhile")
        asked.append(entities(db))
        return asked[-1]

    assert run_without_loop(database.read(question)) == 1
    assert len(asked) == 2


def test_an_error_of_a_question_that_nobody_disturbed_is_raised(path: Path, database: InlineDatabase) -> None:
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    path.write_bytes(content)
    with pytest.raises(StoreDamaged):
        run_without_loop(database.read(entities))


def test_nothing_is_written(path: Path, database: InlineDatabase) -> None:
    with pytest.raises(ReadOnly):
        run_without_loop(database.write(lambda db: commit.commit_batch(db, batch(entity("one")))))
    with pytest.raises(ReadOnly):
        run_without_loop(database.fold(1.0))
    assert run_without_loop(database.read(entities)) == 0


def test_a_file_that_is_missing_is_not_made(database: InlineDatabase, path: Path) -> None:
    path.unlink()
    with pytest.raises(Conflict):
        run_without_loop(database.read(entities))
    assert list(path.parent.iterdir()) == []


def test_a_file_that_somebody_has_locked_as_a_whole_is_not_waited_for(path: Path, database: InlineDatabase) -> None:
    with acting("hook_actors:lock_whole", path) as other:
        assert other.hear() == "locked"
        with pytest.raises(StoreBusy):
            run_without_loop(database.read(entities))


def test_a_writer_is_not_held_up_by_a_question(path: Path, database: InlineDatabase) -> None:
    write(path, "one")
    with closing(connect(path, PROJECT)) as other:
        assert run_without_loop(database.read(entities)) == 1

        def question(db: Connection) -> str:
            before = entities(db)
            with open_transaction(other):
                commit.commit_batch(other, batch(entity("two")))
            return json.dumps([before, entities(db)])

        assert run_without_loop(database.read(question)) == "[1, 1]"
        assert run_without_loop(database.read(entities)) == 2


def test_its_size_counts_the_log(path: Path, database: InlineDatabase) -> None:
    assert database.measure_size() == path.stat().st_size
    with closing(connect(path, PROJECT)) as other:
        with open_transaction(other):
            commit.commit_batch(other, batch(entity("one")))
        assert database.measure_size() == path.stat().st_size + get_log_path(path).stat().st_size
