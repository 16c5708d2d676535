import shutil
from pathlib import Path
from types import SimpleNamespace

import apsw
import pytest

from everkept.core.records import RecordFilter
from everkept.engines.sqlite import connection
from everkept.engines.sqlite.connection import (
    OUTSIDE_FAILURES,
    connect,
    create,
    fold,
    open_transaction,
    read_in_snapshot,
    translate_errors,
)
from everkept.engines.sqlite.library import SqliteLibrary
from everkept.engines.sqlite.schema import LIBRARY, PROJECT
from everkept.errors import Conflict, EverkeptError, StorageFull, StoreBusy, StoreDamaged, Unavailable
from processes import acting, said_by
from records import batch, entity

# Only a mistake of ours can cause these: they are to surface as bugs.
OUR_OWN_BUGS = {
    apsw.AbortError,
    apsw.BindingsError,
    apsw.ConnectionClosedError,
    apsw.ConnectionNotClosedError,
    apsw.ConstraintError,  # a Conflict, where a commit expects it
    apsw.CursorClosedError,
    apsw.EmptyError,
    apsw.ExecTraceAbort,
    apsw.ExecutionCompleteError,
    apsw.ExtensionLoadingError,
    apsw.ForkingViolationError,
    apsw.IncompleteExecutionError,
    apsw.InternalError,
    apsw.InvalidContextError,
    apsw.MismatchError,
    apsw.MisuseError,
    apsw.NoFTS5Error,
    apsw.NotFoundError,
    apsw.RangeError,
    apsw.SQLError,
    apsw.ThreadingViolationError,
    apsw.VFSFileClosedError,
    apsw.VFSNotImplementedError,
}


def test_every_exception_of_apsw_is_translated_or_known_to_be_a_bug() -> None:
    every = {
        found
        for found in vars(apsw).values()
        if isinstance(found, type) and issubclass(found, apsw.Error) and found is not apsw.Error
    }
    assert every == set(OUTSIDE_FAILURES) | OUR_OWN_BUGS
    assert not set(OUTSIDE_FAILURES) & OUR_OWN_BUGS


@pytest.mark.parametrize("failure", OUTSIDE_FAILURES, ids=lambda found: found.__name__)
def test_a_failure_of_the_outside_becomes_an_error_that_names_the_file(failure: type[apsw.Error]) -> None:
    with pytest.raises(EverkeptError) as caught, translate_errors(Path("/data/project.db")):
        raise failure("from SQLite")
    assert type(caught.value) is OUTSIDE_FAILURES[failure]
    assert caught.value.facts["path"] == "/data/project.db"
    assert isinstance(caught.value.__cause__, failure)


def test_a_bug_is_not_translated() -> None:
    with pytest.raises(apsw.SQLError), translate_errors(Path("project.db")):
        raise apsw.SQLError("no such table")


async def test_a_write_beside_a_lock_that_is_never_released_is_told_and_leaves_nothing(
    library: SqliteLibrary, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await library.close()
    monkeypatch.setattr(connection, "BUSY_SECONDS", 0.05)
    with acting("hold_write_lock", path) as other:
        assert other.hear() == "holding"
        _, store = await library.open("project")
        with pytest.raises(StoreBusy) as caught:
            await store.commit(batch(entity("too late")))
        assert "seconds" not in str(caught.value)
        assert [record.id for record in await store.scan(RecordFilter())] == ["kept"]
        assert other.ask() == "released"
        await store.commit(batch(entity("in time")))
        assert [record.id for record in await store.scan(RecordFilter())] == ["kept", "in time"]


async def test_a_write_waits_for_a_lock_that_is_released(library: SqliteLibrary, path: Path) -> None:
    with acting("hold_write_lock", path) as other:
        assert other.hear() == "holding"
        _, store = await library.open("project")
        other.tell()
        await store.commit(batch(entity("patient")))
    assert [record.id for record in await store.scan(RecordFilter())] == ["kept", "patient"]


def test_a_missing_file_is_a_conflict_and_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(Conflict):
        connect(tmp_path / "gone.db", PROJECT)
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_never_made_twice(tmp_path: Path) -> None:
    path = tmp_path / "project.db"
    create(path, PROJECT)
    with pytest.raises(FileExistsError):
        create(path, PROJECT)


def test_a_database_of_another_kind_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "project.db"
    create(path, PROJECT)
    with pytest.raises(StoreDamaged):
        connect(path, LIBRARY)


def test_a_transaction_that_fails_is_rolled_back(tmp_path: Path) -> None:
    path = tmp_path / "project.db"
    create(path, PROJECT)
    db = connect(path, PROJECT)

    def fail() -> None:
        with open_transaction(db):
            db.execute("UPDATE meta SET value = 7")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert db.execute("SELECT value FROM meta WHERE key = 'generation'").get == 1
    assert not db.in_transaction
    db.close()


def test_a_failure_that_has_ended_the_snapshot_is_not_hidden(tmp_path: Path) -> None:
    """As SQLite does by itself when the disk cannot be read."""
    path = tmp_path / "project.db"
    create(path, PROJECT)
    db = connect(path, PROJECT)

    def question(db: object) -> None:
        db.execute("ROLLBACK")  # type: ignore[attr-defined]
        raise apsw.IOError("disk I/O error")

    with pytest.raises(apsw.IOError):
        read_in_snapshot(db, question)
    db.close()


def test_the_log_is_folded_in_only_when_no_reader_needs_it(tmp_path: Path) -> None:
    path = tmp_path / "project.db"
    create(path, PROJECT)
    log = path.with_name(path.name + "-wal")
    db = connect(path, PROJECT)
    with acting("hold_snapshot", path) as reader:
        assert reader.hear() == "holding"
        db.execute("UPDATE meta SET value = 7")
        assert not fold(path, PROJECT, 0.0)
        assert log.stat().st_size
        assert reader.ask() == "released"
    assert fold(path, PROJECT, 5.0)
    assert log.stat().st_size == 0
    db.close()


def test_refusing_a_database_leaves_its_log_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "project.db"
    create(path, PROJECT)
    with acting("leave_log", path, "PRAGMA user_version=99") as other:
        other.process.wait()
    before = said_by("digests", tmp_path)
    assert len(before) == 2
    with pytest.raises(EverkeptError) as caught:
        connect(path, PROJECT)
    assert caught.value.code == "store_too_new"
    assert said_by("digests", tmp_path) == before


@pytest.mark.parametrize("name", ["a b", "50% #1?", "größe", "it's"])
def test_a_database_in_a_folder_of_any_name_can_be_read(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    create(folder / "project.db", PROJECT)
    db = connect(folder / "project.db", PROJECT, read_only=True)
    assert db.execute("SELECT value FROM meta WHERE key = 'generation'").get == 1
    db.close()


@pytest.mark.parametrize("failure", [apsw.IOError, apsw.CantOpenError])
def test_a_failure_on_a_full_disk_is_told_as_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: type[apsw.Error]
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=8_192))
    with pytest.raises(StorageFull, match="no disk space"), translate_errors(tmp_path / "project.db"):
        raise failure("disk I/O error")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=10**9))
    with pytest.raises(Unavailable, match="disk I/O error"), translate_errors(tmp_path / "project.db"):
        raise failure("disk I/O error")
