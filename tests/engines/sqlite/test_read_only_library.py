import asyncio
import shutil
from pathlib import Path
from typing import Any

import apsw
import pytest

from everkept.core.ports import ReadOnlyLibrary
from everkept.core.records import RecordFilter, Weights
from everkept.core.runtime import run_without_loop
from everkept.engines.sqlite.library import SqliteLibrary
from everkept.engines.sqlite.read_only_library import SqliteReadOnlyLibrary, open_read_only_library
from everkept.engines.sqlite.store import MAX_FTS5_ROWS
from everkept.errors import Conflict, EverkeptError, NotFound, ProjectArchived, ReadOnly, StoreDamaged, StoreTooNew
from everkept.language.words import AnyOf, WordPhrase
from processes import said_by
from records import batch, entity, memory

PROJECT_NAME = "project"


@pytest.fixture
def closed(tmp_path: Path) -> Path:
    """The folder of a library with one project, which nobody has open."""

    async def made() -> None:
        library = SqliteLibrary(tmp_path / "closed")
        await library.create(PROJECT_NAME, "")
        _, store = await library.open(PROJECT_NAME)
        await store.commit(batch(entity("kept", text="a text to keep")))
        await library.close()

    asyncio.run(made())
    return tmp_path / "closed"


@pytest.fixture
def room(closed: Path) -> SqliteReadOnlyLibrary:
    return SqliteReadOnlyLibrary(closed)


def files(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def test_where_nothing_was_stored_there_is_no_room(tmp_path: Path) -> None:
    assert open_read_only_library(tmp_path / "data") is None
    (tmp_path / "data").mkdir()
    assert open_read_only_library(tmp_path / "data") is None
    assert files(tmp_path) == ["data"]


def test_it_answers_without_an_event_loop_and_makes_nothing(room: ReadOnlyLibrary, closed: Path) -> None:
    before = files(closed)
    project, store = run_without_loop(room.open(PROJECT_NAME))
    assert project == run_without_loop(room.get_project(PROJECT_NAME))
    assert [record.id for record in run_without_loop(store.scan(RecordFilter()))] == ["kept"]
    assert run_without_loop(room.find_workspace_project("/nowhere")) is None
    assert run_without_loop(room.open_user_store()) is None
    assert run_without_loop(room.open_history_store()) is None
    run_without_loop(room.close())
    assert files(closed) == before


async def test_what_belongs_to_no_project_is_there_once_it_was_made(library: SqliteLibrary, folder: Path) -> None:
    user, history = await library.open_user_store(), await library.open_history_store()
    await user.commit(batch(memory("about the user")))
    await history.commit(batch(memory("about the past")))
    room = SqliteReadOnlyLibrary(folder)
    for store, text in (
        (await room.open_user_store(), "about the user"),
        (await room.open_history_store(), "about the past"),
    ):
        assert store is not None
        assert [record.text for record in await store.scan(RecordFilter())] == [text]
    await room.close()


def test_after_its_end_the_next_question_opens_it_again(room: ReadOnlyLibrary) -> None:
    _, store = run_without_loop(room.open(PROJECT_NAME))
    run_without_loop(room.close())
    assert run_without_loop(store.count_records(RecordFilter())) == 1
    assert run_without_loop(room.open(PROJECT_NAME))[1] is store
    run_without_loop(room.close())


@pytest.mark.parametrize("name", ["nowhere", "", "a\0b", "\ud800"])
def test_an_unknown_project_is_not_found(room: ReadOnlyLibrary, name: str) -> None:
    with pytest.raises(NotFound):
        run_without_loop(room.get_project(name))


async def test_an_archived_project_is_refused(library: SqliteLibrary, folder: Path) -> None:
    await library.archive(PROJECT_NAME)
    await library.close()
    room = SqliteReadOnlyLibrary(folder)
    assert (await room.get_project(PROJECT_NAME)).status == "archived"
    with pytest.raises(ProjectArchived):
        await room.open(PROJECT_NAME)


def pragma(path: Path, name: str, value: int) -> None:
    connection = apsw.Connection(str(path))
    connection.pragma(name, value)
    connection.close()


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda path: pragma(path, "user_version", 99), StoreTooNew),
        (lambda path: pragma(path, "user_version", 1), ReadOnly),
        (lambda path: pragma(path, "application_id", 7), StoreDamaged),
        (lambda path: path.write_bytes(b"no database " * 1_000), StoreDamaged),
        (lambda path: path.write_bytes(b""), StoreDamaged),
        (lambda path: path.unlink(), Conflict),
    ],
    ids=["newer", "older", "other", "rubbish", "empty", "missing"],
)
@pytest.mark.parametrize("which", ["_meta.db", "projects/*.db"])
def test_a_file_that_is_not_as_it_should_be_is_told_and_left_alone(
    room: ReadOnlyLibrary, closed: Path, which: str, change: Any, error: type[EverkeptError]
) -> None:
    [path] = closed.glob(which)
    change(path)
    before = {each: (closed / each).read_bytes() for each in files(closed) if (closed / each).is_file()}
    with pytest.raises(error):
        run_without_loop(run_without_loop(room.open(PROJECT_NAME))[1].count_live())
    run_without_loop(room.close())
    assert {each: (closed / each).read_bytes() for each in before} == before
    assert set(files(closed)) == {*before, "archive", "projects"}


def test_a_log_that_a_crash_has_left_is_read_too(closed: Path, tmp_path: Path) -> None:
    crashed = tmp_path / "crashed"
    shutil.copytree(closed, crashed)
    said_by("hook_actors:write_and_crash", crashed, PROJECT_NAME, "written last")
    assert list(crashed.glob("projects/*-wal"))
    room = SqliteReadOnlyLibrary(crashed)
    _, store = run_without_loop(room.open(PROJECT_NAME))
    assert {record.id for record in run_without_loop(store.scan(RecordFilter()))} == {"kept", "written last"}
    run_without_loop(room.close())


def test_many_records_are_searched_by_words_without_numpy(closed: Path) -> None:
    said = said_by("hook_actors:search_many", closed, PROJECT_NAME, MAX_FTS5_ROWS + 1)
    assert said["found"] == ["m 17"]
    assert said["frequency"] == pytest.approx(1 / (MAX_FTS5_ROWS + 2))
    assert said["loaded"] == []


async def test_it_gives_what_the_library_gives(library: SqliteLibrary, folder: Path) -> None:
    _, store = await library.open(PROJECT_NAME)
    await store.commit(batch(*(memory(f"the {word} of words", tags=("a",)) for word in ["one", "two", "three"])))
    await store.commit(batch(entity("Ada", text="words of one")))
    room = SqliteReadOnlyLibrary(folder)
    project, inline = await room.open(PROJECT_NAME)
    assert project == await library.get_project(PROJECT_NAME)
    words, weights = AnyOf((WordPhrase(("words",)), WordPhrase(("one",)))), Weights()
    for question in (
        lambda s: s.scan(RecordFilter(), order="newest", limit=2),
        lambda s: s.match(words, RecordFilter(), weights, 10),
        lambda s: s.match_text("wo", RecordFilter(tags=("a",)), 10),
        lambda s: s.measure_words(["one", "words", "none"]),
        lambda s: s.tally(["memory", "entity"]),
        lambda s: s.read_changes(),
        lambda s: s.get_stamp(),
        lambda s: s.get_accesses(["kept"]),
        lambda s: s.find_faults(),
    ):
        assert await question(inline) == await question(store)
    await room.close()
